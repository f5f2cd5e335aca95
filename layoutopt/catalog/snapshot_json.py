"""A snapshot as JSON and back. What is read is validated: a changed, cut or foreign file never becomes a Snapshot."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from layoutopt.catalog.fields import read_field
from layoutopt.catalog.keys import is_wide_decimal
from layoutopt.catalog.paths import plan_path
from layoutopt.catalog.snapshot import Bounds, PartitionEntry, Snapshot
from layoutopt.catalog.versions import FORMAT, FORMAT_VERSION, OLDEST_SUPPORTED, SEVERAL_ENTRIES, check_version
from layoutopt.errors import CatalogError
from layoutopt.model.records import short
from layoutopt.model.schema import Schema
from layoutopt.model.values import Key, key_kind


def dumps(snapshot: Snapshot) -> bytes:
    """The snapshot's file content; its ``checksum`` field is the SHA-256 of all the others in canonical JSON."""
    content = replace(snapshot, format_version=_needed_version(snapshot)).to_json()
    return _canonical({**content, "checksum": _checksum(content)})


def loads(data: bytes, where: str) -> Snapshot:
    """The snapshot of a file's content; ``where`` names the file in messages.

    Raises:
        CatalogError: the content is damaged, inconsistent, or of a version that can't be read.
    """
    content = parse_json(data, where)
    if content.get("format") != FORMAT:
        raise CatalogError(f"{where} has the format {short(content.get('format'))}, not {FORMAT!r}; restore the file")
    # The version comes first: a newer format may well reckon its checksum in another way.
    check_version(content.get("version"), where)
    checksum = content.pop("checksum", None)
    if not checksum or checksum != _checksum(content):
        raise CatalogError(f"{where} is damaged: its checksum does not fit its content; restore the file from a copy")
    snapshot: Snapshot = read_field(Snapshot, content, f"{where}, snapshot")
    try:
        return _checked(snapshot)
    except ValueError as error:
        raise CatalogError(f"{where} is damaged: {error}; restore the file from a copy") from error


def _needed_version(snapshot: Snapshot) -> int:
    """The oldest version of the format that can say what a snapshot holds."""
    if any(entry.deletes is not None for entry in snapshot.partitions):
        return FORMAT_VERSION
    several = snapshot.batches or len(snapshot.by_key) < len(snapshot.partitions)
    return SEVERAL_ENTRIES if several else OLDEST_SUPPORTED


def parse_json(data: bytes, where: str) -> dict[str, Any]:
    """Any JSON object.

    Raises:
        CatalogError: the bytes are no JSON object in UTF-8.
    """
    try:
        value = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise CatalogError(
            f"{where} is damaged: {short(str(error))}; restore the file from a copy or load again"
        ) from error
    if not isinstance(value, dict):
        raise CatalogError(f"{where} should be an object, not {short(value)}; restore the file from a copy")
    return value


def _canonical(content: Mapping[str, Any]) -> bytes:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")


def _checksum(content: Mapping[str, Any]) -> str:
    try:
        return hashlib.sha256(_canonical(content)).hexdigest()
    except (ValueError, RecursionError):  # a lone surrogate, a NaN, lists in lists: dumps() writes none of them
        return ""


def _checked(snapshot: Snapshot) -> Snapshot:
    """The snapshot, with bounds of their columns' types, if its parts agree; else raises ValueError."""
    names = [entry.name for entry in snapshot.partitions]
    if len(set(names)) < len(names) or snapshot.format_version < min(SEVERAL_ENTRIES, _needed_version(snapshot)):
        raise ValueError("it has a partition twice")
    if snapshot.format_version < _needed_version(snapshot):
        raise ValueError(f"it has deleted rows, which its version {snapshot.format_version} does not know")
    if snapshot.parent is not None and snapshot.parent >= snapshot.number:
        raise ValueError(f"it names the parent {snapshot.parent}, which is not before it")
    if snapshot.partition_by is not None and snapshot.partition_by not in snapshot.schema.names:
        raise ValueError(f"it is partitioned by {short(snapshot.partition_by)}, no column of it")
    for entry in snapshot.partitions:
        for path in (*entry.catalog_files, plan_path(entry.plan)):
            if path not in snapshot.files:
                raise ValueError(f"it has no digest of {short(path)}, which it names")
        if entry.live_rows < 0:
            raise ValueError(f"partition {short(entry.key)} has fewer rows than are deleted")
    return replace(snapshot, partitions=tuple(_typed(entry, snapshot.schema) for entry in snapshot.partitions))


def _typed(entry: PartitionEntry, schema: Schema) -> PartitionEntry:
    gone = () if entry.deletes is None else entry.deletes.checksums
    for name in (*entry.bounds, *entry.checksums, *gone):
        if name not in schema.names:
            raise ValueError(f"partition {short(entry.key)} names {short(name)}, which is no column of the schema")
    bounds = {}
    for name, found in entry.bounds.items():
        type = schema.find(name).type
        low, high = _key(found.low, type), _key(found.high, type)
        if (low is None) != (high is None) or (low is not None and high is not None and low > high):  # type: ignore[operator]
            raise ValueError(
                f"partition {short(entry.key)} has the bounds {short(low)} .. {short(high)} of {short(name)}"
            )
        bounds[name] = Bounds(low, high, found.nulls)
    return replace(entry, bounds=bounds)


def _key(value: Key | None, type: str) -> Key | None:
    """A key of a type as JSON has it: bytes as base64, integers within 64 bits or those of decimals."""
    kind, end = key_kind(type), 10**38 if is_wide_decimal(type) else 2**63
    if value is None or (kind == "str" and isinstance(value, str)):
        return value
    if kind == "int" and isinstance(value, int) and -end <= value < end:
        return value
    if kind == "bytes" and isinstance(value, str):
        return base64.b64decode(value, validate=True)
    raise ValueError(f"{short(value)} is no key of a {type}")
