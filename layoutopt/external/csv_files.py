"""Read CSV files with a header as Parquet, so that queries can join them."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

from layoutopt.catalog.storage.filesystem import absolute, protocol_of
from layoutopt.errors import SourceError
from layoutopt.external.listing import local_path

# The separator of fields, by the ending of a file's name before that of its compression.
_SEPARATORS: Final = {".csv": ",", ".tsv": "\t"}
_COMPRESSED: Final = frozenset({".gz", ".bz2", ".zst", ".lz4"})
_WHOLE: Final = "0|-?[1-9][0-9]*"
_DATE: Final = "(?:[1-9][0-9]{3}|0[0-9]{2}[1-9]|0[0-9][1-9]0|0[1-9]00)-[0-9]{2}-[0-9]{2}"  # of the years 1 to 9999
_TIME: Final = "[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.][0-9]{1,6})?)?"
# The fields that fit a type, the narrowest type first.
_TYPES: Final[tuple[tuple[str, pa.DataType], ...]] = (
    ("(?i)true|false", pa.bool_()),
    (_WHOLE, pa.int64()),
    (_WHOLE, pa.decimal128(38, 0)),
    ("-?(?:0|[1-9][0-9]{0,14})(?:[.][0-9]*)?(?:[eE][+-]?[0-9]+)?|-?[.][0-9]+|(?i)nan|-?inf", pa.float64()),
    (_DATE, pa.date32()),
    (f"{_DATE}(?:[ T]{_TIME})?", pa.timestamp("us")),
    (f"{_DATE}[ T]{_TIME}(?:Z|[+-][0-9]{{2}}:?[0-9]{{2}})", pa.timestamp("us", "UTC")),
)


def is_csv(path: str) -> bool:
    """Return whether a path ends as the names of CSV files do.

    >>> is_csv("users.csv"), is_csv("users.tsv.gz"), is_csv("users.csv/")
    (True, True, False)
    """
    return not path.endswith("/") and _ending(path) in _SEPARATORS


def _ending(path: str) -> str:
    endings = [ending.lower() for ending in Path(path).suffixes[-2:]]
    return next((ending for ending in reversed(endings) if ending not in _COMPRESSED), "")


def to_parquet(path: str) -> str:
    """Write a CSV file as Parquet in a temporary folder, which is removed when Python exits, and return its path.

    The first line names the columns. Fields are read as texts. A column gets the first of these types that fits all of
    its fields, otherwise it has texts:

    - booleans (``true``, ``False``)
    - whole numbers without zeros or a plus in front: bigint, or decimal(38, 0) beyond it
    - floats, with at most 15 digits before the point, as more would be rounded
    - dates (``2026-01-31``), times of up to microseconds without a time zone, then those with one

    Empty fields are NULL, quoted ones empty texts.

    Raises:
        SourceError: the file is missing, elsewhere, no CSV, not UTF-8, or has two columns of a name.
    """
    if protocol_of(path) != "file":
        raise SourceError(f"{path!r} is a URL, but CSV files are read from a local disk; copy the file to one")
    rows = _read_texts(path)
    typed = [_to_best_type(column) for column in rows.columns]
    folder = tempfile.mkdtemp(prefix="layoutopt-csv-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    written = f"{folder}/rows.parquet"
    pq.write_table(pa.table(typed, names=rows.column_names), written)
    return written


def _read_texts(path: str) -> pa.Table:
    """Read all columns as texts."""
    place = absolute(local_path(path))
    parsing = csv.ParseOptions(delimiter=_SEPARATORS[_ending(path)])
    options = {"strings_can_be_null": True, "quoted_strings_can_be_null": False, "null_values": [""]}
    try:
        with csv.open_csv(place, parse_options=parsing) as file:
            names = file.schema.names
        _check_names(path, names)
        texts = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), **options)
        return csv.read_csv(place, parse_options=parsing, convert_options=texts)
    except FileNotFoundError as error:
        raise SourceError(f"there is no file {path!r}; correct the path") from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())[:200]
        if isinstance(error, UnicodeDecodeError) or "invalid UTF8" in reason:
            raise SourceError(f"{path!r} has bytes that are no UTF-8 ({reason}); save it as UTF-8") from error
        raise SourceError(f"{path!r} can't be read as CSV with a header ({reason}); correct the file") from error


def _check_names(path: str, names: Sequence[str]) -> None:
    """Raise SourceError for two names that are equal to SQL, which ignores case."""
    known: set[str] = set()
    for name in names:
        if name.lower() in known:
            raise SourceError(f"{path!r} has two columns {name!r}; rename one in its first line")
        known.add(name.lower())


def _to_best_type(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    for pattern, type in _TYPES:
        if pc.all(pc.match_substring_regex(texts, f"^(?:{pattern})$"), min_count=1).as_py():
            with suppress(pa.ArrowInvalid):  # out of the type's range
                return texts.cast(type)
    return texts
