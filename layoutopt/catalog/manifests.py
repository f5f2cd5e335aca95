"""Manifests: the entries of large snapshots, in files that later snapshots share (SPEC.md, "Manifests").

A commit writes the entries of the partitions that it changes; its snapshot names the manifests of the others, too. So
what a commit writes does not follow the number of partitions. Manifests of few entries are merged as they come, so
that there are few of them. Bounds and checksums are decoded on use: most questions are about few columns.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from layoutopt.catalog.block_index import check_expansion
from layoutopt.catalog.partition_entry import Bounds, Deletes, PartitionEntry, Scalar
from layoutopt.catalog.paths import Count, Digest, FileDigest, LoadId, PartitionKey, SafePath
from layoutopt.catalog.storage.ranges import LastUsed
from layoutopt.evaluation.keys import is_wide_decimal, one_chunk
from layoutopt.model.arrays import Ints
from layoutopt.model.records import Record, read, short
from layoutopt.model.schema import Schema
from layoutopt.model.values import Key, key_kind

# Bytes of decoded manifests that a process caches: three of 10,000 entries and 60 columns.
_MOST_CACHED: Final = 256 << 20
# Bytes of a decoded entry, and of each of its decoded checksums, by tracemalloc.
_ENTRY_BYTES, _SUM_BYTES = 1_300, 60
_REMOVED: Final = b"layoutopt.removed"
_NUMBERS, _KEYS = pa.list_(pa.int64()), pa.list_(pa.binary())
_SCHEMA: Final = pa.schema(
    [
        ("key", pa.string()),
        ("value", pa.string()),  # as JSON
        ("plan", pa.string()),
        ("load_id", pa.string()),
        ("blocks_file", pa.string()),
        ("blocks_size", pa.int64()),
        ("blocks_sha256", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("source", pa.string()),
        ("native", pa.bool_()),
        # An item for each of the snapshot's first columns: keys of 64 bits, other keys, and counts of NULL.
        ("low", _NUMBERS),
        ("high", _NUMBERS),
        ("low_key", _KEYS),
        ("high_key", _KEYS),
        ("nulls", _NUMBERS),
        ("sums", _NUMBERS),
        ("deletes_file", pa.string()),
        ("deletes_size", pa.int64()),
        ("deletes_sha256", pa.string()),
        ("deleted_rows", pa.int64()),
        ("deleted_sums", _NUMBERS),
    ]
)
_OF_DELETES: Final = ("deletes_file", "deletes_size", "deletes_sha256", "deleted_rows", "deleted_sums")
_OPTIONAL: Final = frozenset({"source", *_OF_DELETES})
_OF_BOUNDS: Final = ("low", "high", "low_key", "high_key", "nulls")
_TEXTS: Final[Mapping[str, Any]] = {
    "key": PartitionKey,
    "plan": Digest,
    "load_id": LoadId,
    "blocks_file": SafePath,
    "blocks_sha256": Digest,
    "source": Digest,
    "deletes_file": SafePath,
    "deletes_sha256": Digest,
}


@dataclass(frozen=True)
class ManifestName(Record):
    """A manifest of a snapshot: its file, and the number of its entries and removed partitions."""

    path: SafePath
    entries: Count


class _BoundsOfEntry(Mapping[str, Bounds]):
    """The bounds of an entry by column, each decoded on use."""

    def __init__(self, names: Sequence[str], places: Mapping[str, int], decode: Callable[[int], Bounds]) -> None:
        self._names, self._places, self._decode = names, places, decode

    def __getitem__(self, name: str) -> Bounds:
        place = self._places[name]
        if place >= len(self._names):
            raise KeyError(name)
        return self._decode(place)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


class _SumsOfEntry(Mapping[str, int]):
    """The checksums of an entry by column, decoded on first use."""

    def __init__(self, decode: Callable[[], dict[str, int]]) -> None:
        self._decode = decode

    @cached_property
    def _sums(self) -> dict[str, int]:
        return self._decode()

    def __getitem__(self, name: str) -> int:
        return self._sums[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sums)

    def __len__(self) -> int:
        return len(self._sums)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self._sums,)


@dataclass(frozen=True, eq=False)
class Manifest:
    """The entries of some partitions, all entries of each.

    Attributes:
        table: a row an entry, as ``_SCHEMA``.
        schema: the snapshot's; its columns may have grown since the manifest was written.
        removed: keys of partitions that older manifests have and the table no longer has.
    """

    table: pa.Table
    schema: Schema
    removed: tuple[str, ...] = ()

    @classmethod
    def decode(cls, data: bytes, schema: Schema) -> Manifest:
        """Return the content of a file; raise ValueError or an ArrowException if it is invalid."""
        check_expansion(pq.read_metadata(io.BytesIO(data)), len(data), "a manifest")
        table = pq.read_table(io.BytesIO(data))
        if table.schema.names != _SCHEMA.names or table.schema.types != _SCHEMA.types:
            raise ValueError(f"it has the columns {short(table.schema.names)}")
        removed = json.loads((table.schema.metadata or {}).get(_REMOVED, b"[]"))
        manifest = cls(table.combine_chunks(), schema, read(tuple[PartitionKey, ...], removed, "removed"))
        manifest._validate()
        return manifest

    def _validate(self) -> None:
        """Raise ValueError for values that no writer writes."""
        for name in _SCHEMA.names:
            if name not in _OPTIONAL and self.table[name].null_count:
                raise ValueError(f"it has no {name} of an entry")
        for name, kind in _TEXTS.items():
            for text in pc.unique(self.table[name]).to_pylist():
                if text is not None:
                    read(kind, text, name)
        for text in pc.unique(self.table["value"]).to_pylist():
            read(Scalar, json.loads(text), "value")
        for name in ("rows", "bytes", "blocks_size", "deleted_rows", "deletes_size"):
            if (pc.min(self.table[name]).as_py() or 0) < 0:
                raise ValueError(f"its {name} are negative")
        if len({tuple(self.table[name].is_valid().to_pylist()) for name in _OF_DELETES}) > 1:
            raise ValueError("it has a part of an entry's deletes")
        self._validate_lists()

    def _validate_lists(self) -> None:
        lengths = [pc.list_value_length(self.table[name]) for name in _OF_BOUNDS]
        if any(not length.equals(lengths[0]) for length in lengths):
            raise ValueError("it has a part of an entry's bounds")
        for name in ("nulls", "sums", "deleted_sums"):
            if (pc.max(pc.list_value_length(self.table[name])).as_py() or 0) > len(self.schema.columns):
                raise ValueError(f"it has {name} of columns that the schema lacks")
            if (pc.min(pc.list_flatten(self.table[name])).as_py() or 0) < 0:
                raise ValueError(f"its {name} are negative")
        low, high, low_key, high_key = (pc.list_flatten(self.table[name]) for name in _OF_BOUNDS[:4])
        if not (low.is_valid().equals(high.is_valid()) and low_key.is_valid().equals(high_key.is_valid())):
            raise ValueError("it has a bound without the other")
        if pc.any(pc.greater(low, high)).as_py():
            raise ValueError("it has a lower bound above the upper one")
        starts, ends = np.array(self._ends("nulls"), dtype=np.int64)
        places = np.arange(len(low)) - np.repeat(starts, ends - starts)
        for keys in (low_key, high_key):
            self._validate_keys(keys, places)

    def _validate_keys(self, keys: pa.ChunkedArray, places: Ints) -> None:
        """Raise ValueError where a key of a text column is no text, or one of a wide decimal no number."""
        types = [column.type for column in self.schema.columns]
        decimals = np.array([is_wide_decimal(type) for type in types], dtype=np.bool_)
        texts = decimals | np.array([key_kind(type) == "str" for type in types], dtype=np.bool_)
        try:
            numbers = (
                keys.filter(pa.array(texts[places])).cast(pa.string()).filter(pa.array(decimals[places[texts[places]]]))
            )
        except pa.ArrowInvalid as error:
            raise ValueError("it has a bound that is not UTF-8") from error
        if pc.any(pc.invert(pc.match_substring_regex(numbers, "^-?[0-9]{1,38}$"))).as_py():
            raise ValueError("it has a bound of a decimal that is no number")

    @property
    def bytes(self) -> int:
        """The bytes in memory with all entries and checksums decoded."""
        return int(self.table.nbytes + _ENTRY_BYTES * self.table.num_rows + _SUM_BYTES * len(self._items("sums")))

    @cached_property
    def keys(self) -> frozenset[str]:
        """The partitions that it says everything of."""
        return frozenset([*self.table["key"].to_pylist(), *self.removed])

    @cached_property
    def files(self) -> Mapping[str, FileDigest]:
        """The digests of the blocks and vectors files that its entries name, by path."""
        digests: dict[str, FileDigest] = {}
        for kind in ("blocks", "deletes"):
            names = [f"{kind}_file", f"{kind}_size", f"{kind}_sha256"]
            distinct = self.table.select(names).group_by(names, use_threads=False).aggregate([])
            for path, size, sha256 in zip(*(distinct[name].to_pylist() for name in names), strict=True):
                if path is not None:
                    digests[path] = FileDigest(size, sha256)
        return digests

    @cached_property
    def entries(self) -> tuple[PartitionEntry, ...]:
        """The entries, with bounds and checksums that are decoded on use."""
        names = ("key", "value", "plan", "load_id", "blocks_file", "rows", "bytes", "source", "native")
        rows = zip(*(self.table[name].to_pylist() for name in names), strict=True)
        places = {name: place for place, name in enumerate(self.schema.names)}
        starts, ends = self._ends("nulls")
        deleted = self.table["deleted_rows"].to_pylist()
        return tuple(
            PartitionEntry(
                key=key,
                value=json.loads(value),
                plan=plan,
                load_id=load_id,
                blocks_file=blocks_file,
                rows=n_rows,
                bounds=_BoundsOfEntry(
                    self.schema.names[: ends[row] - starts[row]], places, partial(self._read_bounds, starts[row])
                ),
                checksums=_SumsOfEntry(partial(self._read_sums, "sums", row)),
                bytes=size,
                source=source,
                deletes=None if deleted[row] is None else self._read_deletes(row, deleted[row]),
                native=native,
            )
            for row, (key, value, plan, load_id, blocks_file, n_rows, size, source, native) in enumerate(rows)
        )

    def _ends(self, name: str) -> tuple[list[int], list[int]]:
        """Return where the items of each row's list begin and end."""
        offsets = one_chunk(self.table[name]).offsets.to_pylist()
        return offsets[:-1], offsets[1:]

    @cached_property
    def _items(self) -> Callable[[str], pa.Array]:
        """Return the items of a column of lists."""
        return cache(lambda name: one_chunk(self.table[name]).values)

    def _read_bounds(self, start: int, place: int) -> Bounds:
        kind, cell = key_kind(self.schema.columns[place].type), start + place
        known = self._items("nulls")[cell].as_py()
        low, high = (self._read_key(kind, self.schema.columns[place].type, name, cell) for name in ("low", "high"))
        if low is None or high is None or low > high:  # type: ignore[operator]
            return Bounds(nulls=known)
        return Bounds(low, high, known)

    def _read_key(self, kind: str | None, type: str, name: str, cell: int) -> Key | None:
        if kind == "int" and not is_wide_decimal(type):
            number: int | None = self._items(name)[cell].as_py()
            return number
        stored: bytes | None = self._items(f"{name}_key")[cell].as_py()
        if stored is None or kind is None:
            return None
        return int(stored) if kind == "int" else stored.decode("utf-8") if kind == "str" else stored

    def _read_sums(self, name: str, row: int) -> dict[str, int]:
        sums = self.table[name][row].as_py()
        return {name: sum for name, sum in zip(self.schema.names, sums, strict=False) if sum is not None}

    def _read_deletes(self, row: int, rows: int) -> Deletes:
        return Deletes(self.table["deletes_file"][row].as_py(), rows, self._read_sums("deleted_sums", row))


# A process reads a snapshot several times, and snapshots share manifests.
_DECODED: LastUsed[tuple[str, Schema], Manifest] = LastUsed(_MOST_CACHED)


def decode_cached(data: bytes, digest: FileDigest, schema: Schema) -> Manifest:
    """Return the content of a file with this digest, perhaps from a cache; raises as :meth:`Manifest.decode`."""
    manifest = _DECODED.get((digest.sha256, schema))
    if manifest is None:
        manifest = Manifest.decode(data, schema)
        _DECODED.put((digest.sha256, schema), manifest, manifest.bytes)
    return manifest


def encode_entries(
    entries: Sequence[PartitionEntry], schema: Schema, files: Mapping[str, FileDigest]
) -> pa.Table | None:
    """Return entries as rows of a manifest; None where a bound is of no kind that manifests hold.

    ``files`` are the digests of the files that they name.
    """
    places = {name: place for place, name in enumerate(schema.names)}
    rows: dict[str, list[Any]] = {name: [] for name in _SCHEMA.names}
    for entry in entries:
        names = schema.names[: len(entry.bounds)]
        if any(name not in entry.bounds for name in names):
            return None
        keys = [
            [_encode_key(key, column.type) for key in (entry.bounds[column.name].low, entry.bounds[column.name].high)]
            for column in schema.columns[: len(names)]
        ]
        deletes = entry.deletes
        values = {
            "key": entry.key,
            "value": json.dumps(entry.value),
            "plan": entry.plan,
            "load_id": entry.load_id,
            "blocks_file": entry.blocks_file,
            "blocks_size": files[entry.blocks_file].size,
            "blocks_sha256": files[entry.blocks_file].sha256,
            "rows": entry.rows,
            "bytes": entry.bytes,
            "source": entry.source,
            "native": entry.native,
            "low": [low if isinstance(low, int) else None for low, _ in keys],
            "high": [high if isinstance(high, int) else None for _, high in keys],
            "low_key": [low if isinstance(low, bytes) else None for low, _ in keys],
            "high_key": [high if isinstance(high, bytes) else None for _, high in keys],
            "nulls": [entry.bounds[name].nulls for name in names],
            "sums": _encode_sums(entry.checksums, places),
            "deletes_file": None if deletes is None else deletes.file,
            "deletes_size": None if deletes is None else files[deletes.file].size,
            "deletes_sha256": None if deletes is None else files[deletes.file].sha256,
            "deleted_rows": None if deletes is None else deletes.rows,
            "deleted_sums": None if deletes is None else _encode_sums(deletes.checksums, places),
        }
        for name, value in values.items():
            rows[name].append(value)
    return pa.table({field.name: pa.array(rows[field.name], field.type) for field in _SCHEMA}, schema=_SCHEMA)


def _encode_key(key: Key | None, type: str) -> int | bytes | None:
    if isinstance(key, int) and is_wide_decimal(type):
        return str(key).encode("ascii")
    return key.encode("utf-8") if isinstance(key, str) else key


def _encode_sums(sums: Mapping[str, int], places: Mapping[str, int]) -> list[int | None]:
    row: list[int | None] = [None] * (1 + max((places[name] for name in sums), default=-1))
    for name, sum in sums.items():
        row[places[name]] = sum
    return row


def encode_manifest(table: pa.Table, removed: Sequence[str]) -> bytes:
    """Return the content of a file with these rows."""
    sink = io.BytesIO()
    named = table.replace_schema_metadata({_REMOVED: json.dumps(sorted(removed))})
    pq.write_table(named, sink, compression="zstd", write_statistics=False)
    return sink.getvalue()
