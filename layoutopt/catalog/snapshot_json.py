"""A snapshot as JSON and back. What is read is validated: a changed, cut or foreign file never becomes a Snapshot."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from layoutopt.catalog.fields import Fields, is_safe_path, short
from layoutopt.catalog.keys import is_wide_decimal
from layoutopt.catalog.paths import plan_path
from layoutopt.catalog.snapshot import Bounds, FileDigest, PartitionEntry, Snapshot
from layoutopt.catalog.versions import FORMAT, check_version
from layoutopt.errors import CatalogError, SchemaError
from layoutopt.model.schema import Schema
from layoutopt.model.values import Key, key_kind


def dumps(snapshot: Snapshot) -> bytes:
    """The snapshot's file content; its ``checksum`` field is the SHA-256 of all the others in canonical JSON."""
    content = {
        "format": FORMAT,
        "version": snapshot.format_version,
        "number": snapshot.number,
        "parent": snapshot.parent,
        "created_at": snapshot.created_at,
        "operation": snapshot.operation,
        "load_id": snapshot.load_id,
        "schema": snapshot.schema.to_json(),
        "partition_by": snapshot.partition_by,
        "partitions": [_partition_json(entry) for entry in snapshot.partitions],
        "files": {path: {"size": d.size, "sha256": d.sha256} for path, d in snapshot.files.items()},
        **({"given_up": list(snapshot.given_up)} if snapshot.given_up else {}),
    }
    return _canonical({**content, "checksum": _checksum(content)})


def loads(data: bytes, where: str) -> Snapshot:
    """The snapshot of a file's content; ``where`` names the file in messages.

    Raises:
        CatalogError: the content is damaged, inconsistent, or of a version that can't be read.
    """
    fields = Fields.of(parse_json(data, where), where)
    if fields.text("format") != FORMAT:
        raise CatalogError(f"{where} has the format {short(fields.text('format'))}, not {FORMAT!r}; restore the file")
    # The version comes first: a newer format may well reckon its checksum in another way.
    check_version(fields.count("version"), where)
    content = {name: value for name, value in fields.values.items() if name != "checksum"}
    if fields.digest("checksum") != _checksum(content):
        raise CatalogError(f"{where} is damaged: its checksum does not fit its content; restore the file from a copy")
    return _checked(_snapshot(fields), where)


def parse_json(data: bytes, where: str) -> Any:
    """Any JSON.

    Raises:
        CatalogError: the bytes are no JSON in UTF-8.
    """
    try:
        return json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise CatalogError(
            f"{where} is damaged: {short(str(error))}; restore the file from a copy or load again"
        ) from error


def _canonical(content: Mapping[str, Any]) -> bytes:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")


def _checksum(content: Mapping[str, Any]) -> str:
    try:
        return hashlib.sha256(_canonical(content)).hexdigest()
    except (ValueError, RecursionError):  # a lone surrogate, a NaN, lists in lists: dumps() writes none of them
        return ""


def _partition_json(entry: PartitionEntry) -> dict[str, Any]:
    return {
        "key": entry.key,
        "value": entry.value,
        "plan": entry.plan,
        "load_id": entry.load_id,
        "blocks_file": entry.blocks_file,
        "rows": entry.rows,
        "bytes": entry.bytes,
        "bounds": {name: [_key_json(b.low), _key_json(b.high), b.nulls] for name, b in entry.bounds.items()},
        "checksums": dict(entry.checksums),
        **({} if entry.source is None else {"source": entry.source}),
    }


def _key_json(key: Key | None) -> str | int | None:
    return base64.b64encode(key).decode("ascii") if isinstance(key, bytes) else key


def _snapshot(fields: Fields) -> Snapshot:
    try:
        schema = Schema.from_json(fields.items("schema"))
    except SchemaError as error:
        raise CatalogError(f"{fields.where} is damaged: {error}") from error
    where = fields.where
    return Snapshot(
        number=fields.count("number"),
        parent=fields.optional_count("parent"),
        created_at=_utc_time(fields.text("created_at"), where),
        operation=fields.text("operation"),
        load_id=fields.load_id("load_id"),
        schema=schema,
        partition_by=fields.optional_text("partition_by"),
        partitions=tuple(
            _partition(Fields.of(value, f"{where}, partition {i}"), schema)
            for i, value in enumerate(fields.items("partitions"))
        ),
        files={path: _file_digest(value, path, where) for path, value in fields.mapping("files").items()},
        given_up=_given_up(fields),
        format_version=fields.count("version"),
    )


def _given_up(fields: Fields) -> tuple[str, ...]:
    paths = fields.items("given_up") if "given_up" in fields.values else []
    for path in paths:
        if not isinstance(path, str) or not is_safe_path(path):
            raise CatalogError(f"{fields.where} gives up {short(path)}, no path inside the table; restore the file")
    return tuple(paths)


def _utc_time(text: str, where: str) -> str:
    try:
        offset = datetime.fromisoformat(text).utcoffset()
    except ValueError:
        offset = None
    if offset != timedelta(0):
        raise CatalogError(f"{where} has {short(text)} as 'created_at', which is no time in UTC; restore the file")
    return text


def _file_digest(value: object, path: str, where: str) -> FileDigest:
    if not is_safe_path(path):
        raise CatalogError(f"{where} names {short(path)}, no path inside the table; restore the file from a copy")
    fields = Fields.of(value, f"{where}, file {short(path)}")
    return FileDigest(fields.count("size"), fields.digest("sha256"))


def _partition(fields: Fields, schema: Schema) -> PartitionEntry:
    return PartitionEntry(
        key=_partition_key(fields),
        value=fields.scalar("value"),
        plan=fields.digest("plan"),
        load_id=fields.load_id("load_id"),
        blocks_file=fields.path("blocks_file"),
        rows=fields.count("rows"),
        bounds={
            name: _bounds(value, _type(schema, name, fields.where), f"{fields.where}, bounds of {short(name)}")
            for name, value in fields.mapping("bounds").items()
        },
        checksums=_checksums(fields, schema),
        bytes=fields.count("bytes"),
        source=None if fields.values.get("source") is None else fields.digest("source"),
    )


def _partition_key(fields: Fields) -> str:
    key = fields.path("key")
    if "/" in key or "=" in key:
        raise CatalogError(f"{fields.where} has the key {short(key)}, which is no safe name; restore the file")
    return key


def _type(schema: Schema, name: str, where: str) -> str:
    if name not in schema.names:
        raise CatalogError(f"{where} names {short(name)}, which is no column of its schema; restore the file")
    return schema.find(name).type


def _checksums(fields: Fields, schema: Schema) -> dict[str, int]:
    sums = Fields(fields.mapping("checksums"), f"{fields.where}, checksums")
    for name in sums.values:
        _type(schema, name, sums.where)
    return {name: sums.count(name) for name in sums.values}


def _bounds(value: object, type: str, where: str) -> Bounds:
    if not isinstance(value, list) or len(value) != 3:
        raise CatalogError(f"{where} should be [low, high, nulls], not {short(value)}; restore the file from a copy")
    low, high = _key(value[0], type, where), _key(value[1], type, where)
    if (low is None) != (high is None) or (low is not None and high is not None and low > high):  # type: ignore[operator]
        raise CatalogError(f"{where} has the range {short(low)} .. {short(high)}, which is none; restore the file")
    return Bounds(low, high, Fields({"nulls": value[2]}, where).optional_count("nulls"))


def _end(type: str) -> int:
    """What integer keys stay below: that of decimals, or of 64 bits."""
    return 10**38 if is_wide_decimal(type) else 2**63


def _key(value: object, type: str, where: str) -> Key | None:
    kind = key_kind(type)
    if value is None:
        return None
    if kind == "int" and isinstance(value, int) and not isinstance(value, bool) and -_end(type) <= value < _end(type):
        return value
    if kind == "str" and isinstance(value, str):
        return value
    if kind == "bytes" and isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except binascii.Error:
            pass
    raise CatalogError(f"{where} has {short(value)}, no key of a {type}; restore the file from a copy")


def _checked(snapshot: Snapshot, where: str) -> Snapshot:
    """The snapshot, if its parts agree."""
    keys = [entry.key for entry in snapshot.partitions]
    if len(set(keys)) < len(keys):
        raise CatalogError(f"{where} has a partition twice; restore the file from a copy")
    if snapshot.parent is not None and snapshot.parent >= snapshot.number:
        raise CatalogError(f"{where} names the parent {snapshot.parent}, which is not before it; restore the file")
    if snapshot.partition_by is not None and snapshot.partition_by not in snapshot.schema.names:
        raise CatalogError(f"{where} is partitioned by {snapshot.partition_by!r}, no column of it; restore the file")
    for entry in snapshot.partitions:
        for path in (entry.blocks_file, plan_path(entry.plan)):
            if path not in snapshot.files:
                raise CatalogError(f"{where} has no digest of {path!r}, which it names; restore the file from a copy")
    return snapshot
