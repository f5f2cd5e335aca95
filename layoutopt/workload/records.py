"""The records of an exported query history: CSV, JSON, JSON lines or Parquet, one mapping a record.

Exports of the same system differ in the case of names, and in whether objects lie in each other; so names are told in
lower case, and a field of an object within an object has both names with a dot between.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from layoutopt.errors import LogError

Record = Mapping[str, Any]
"""Values by name in lower case; the message under :data:`DAMAGED` where a line can't be read."""

DAMAGED: Final = "\0damaged"
SUFFIXES: Final = (".csv", ".json", ".jsonl", ".parquet")
_BATCH = 1_000


def records_of(path: Path) -> Iterator[Record]:
    """The records of a file, in order, by its suffix; a file of any other is taken for JSON lines.

    Raises:
        LogError: the file can't be read, or is not what its suffix says.
    """
    readers = {".csv": _csv, ".json": _json, ".parquet": _parquet}
    try:
        yield from readers.get(path.suffix.casefold(), _jsonl)(path)
    except OSError as error:
        raise LogError(f"the log {str(path)!r} can't be read ({error.strerror or error}); check the path") from error
    except csv.Error as error:
        raise LogError(f"the log {str(path)!r} is no CSV file ({error}); export it again") from error


def _csv(path: Path) -> Iterator[Record]:
    # Query texts are long: the default limit of 128 KB a field is for tables.
    csv.field_size_limit(1 << 30)
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        for record in csv.DictReader(stream):
            yield {name.strip().lower(): value for name, value in record.items() if name is not None}


def _jsonl(path: Path) -> Iterator[Record]:
    with path.open(encoding="utf-8-sig", errors="replace") as stream:
        for line in stream:
            if line.strip():
                yield _parsed(line)


def _parsed(line: str) -> Record:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        return {DAMAGED: f"the record is not JSON: {error}"}
    return _flat(value) if isinstance(value, dict) else {DAMAGED: "the record is no JSON object"}


def _json(path: Path) -> Iterator[Record]:
    """An array of objects, an object with one, or lines of objects all the same."""
    try:
        value = json.loads(path.read_text(encoding="utf-8-sig", errors="replace"))
    except (ValueError, RecursionError):
        yield from _jsonl(path)
        return
    lists = [each for each in value.values() if isinstance(each, list)] if isinstance(value, dict) else [value]
    items = lists[0] if lists and isinstance(lists[0], list) else [value]
    for item in items:
        yield _flat(item) if isinstance(item, dict) else {DAMAGED: "the record is no JSON object"}


def _parquet(path: Path) -> Iterator[Record]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_BATCH):
                yield from (_flat(record) for record in batch.to_pylist())
    except pa.ArrowException as error:
        raise LogError(f"the log {str(path)!r} is no Parquet file ({error}); export it again") from error


def _flat(value: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, held in value.items():
        full = f"{before}{name}".lower()
        found[full] = held
        if isinstance(held, Mapping):
            found |= _flat(held, f"{full}.")
    return found
