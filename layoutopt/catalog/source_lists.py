"""Source lists: the source's files that the rows of a load's partitions came from (SPEC.md, "Sources").

A load has one list, a file of its own: an entry may come from thousands of files, and queries never ask. The blocks
file names it with its digest in its metadata. After Big Metadata (Edara and Pasupuleti 2021, 4.1), which notes in the
metadata of a table where its data came from.
"""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.catalog.block_index import check_expansion, damage_error
from layoutopt.catalog.manifest_writing import write_version
from layoutopt.catalog.partition_entry import PartitionEntry
from layoutopt.catalog.paths import FileDigest, SafePath, read_field, sources_path
from layoutopt.catalog.snapshot import Snapshot, read_checked, read_snapshot
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import CatalogError
from layoutopt.model.records import Record, to_json
from layoutopt.model.summary import Report

_KEY: Final = b"layoutopt.sources"
_SCHEMA: Final = pa.schema(
    [
        ("partition", pa.string()),
        ("source", pa.string()),
        ("path", pa.string()),
        ("size", pa.int64()),
        ("modified", pa.int64()),
    ]
)


@dataclass(frozen=True)
class LoadedFile(Report):
    """A file that rows came from, and its version.

    Attributes:
        source: what was loaded, as a load names it; a table of another format with its version.
        path: the file's URI.
        size: in bytes.
        modified: the time of its last change, in microseconds since 1970.
    """

    source: str
    path: str
    size: int
    modified: int


# The files of each partition, by its key.
SourceLists = Mapping[str, Sequence[LoadedFile]]


@dataclass(frozen=True)
class SourceListName(Record):
    """The file of a load's lists, as a blocks file names it."""

    path: SafePath
    digest: FileDigest


def write_source_lists(
    files: TableFiles, load_id: str, number: int, lists: SourceLists, place: int = 0
) -> SourceListName | None:
    """Write the lists of a load, or of the piece at a place of it, and return their name; None without files."""
    rows = [{"partition": key, **asdict(file)} for key in sorted(lists) for file in sorted(lists[key], key=_order)]
    if not rows:
        return None
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, _SCHEMA), sink, compression="zstd", write_statistics=False)
    return SourceListName(
        *write_version(files, lambda version: sources_path(load_id, number, place + version), sink.getvalue())
    )


def _order(file: LoadedFile) -> tuple[str, str]:
    return file.source, file.path


def name_source_lists(blocks: pa.Table, name: SourceListName | None) -> pa.Table:
    """Return the blocks of a load with the name of its lists in the metadata."""
    if name is None:
        return blocks
    text = json.dumps(to_json(name), sort_keys=True).encode("utf-8")
    return blocks.replace_schema_metadata({**(blocks.schema.metadata or {}), _KEY: text})


def find_source_lists(metadata: Mapping[bytes, bytes] | None, where: str) -> SourceListName | None:
    """Return the name in the metadata of a blocks file ``where``, None if it has none; CatalogError if damaged."""
    text = (metadata or {}).get(_KEY)
    if text is None:
        return None
    try:
        value = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise damage_error(where, str(error)) from error
    name: SourceListName = read_field(SourceListName, value, f"{where}, sources")
    return name


def list_source_lists(files: TableFiles, snapshot: Snapshot) -> dict[str, SourceListName]:
    """Return the names of a snapshot's source lists, by blocks file; CatalogError if one of these is damaged."""
    names = {path: _read_name(files, snapshot, path) for path in {entry.blocks_file for entry in snapshot.partitions}}
    return {path: name for path, name in names.items() if name is not None}


def _read_name(files: TableFiles, snapshot: Snapshot, blocks_file: str) -> SourceListName | None:
    where = files.full_path(blocks_file)
    try:
        metadata = pq.read_metadata(io.BytesIO(read_checked(files, snapshot, blocks_file))).metadata
    except (pa.ArrowException, OSError) as error:
        raise damage_error(where, str(error)) from error
    return find_source_lists(metadata, where)


def read_source_list(files: TableFiles, name: SourceListName) -> pa.Table:
    """Return the lists of a load, a row a file; raise CatalogError if they are missing or damaged."""
    where = files.full_path(name.path)
    try:
        data = files.read_bytes(name.path)
    except OSError as error:
        raise CatalogError(f"the source list {where} can't be read ({error.strerror or error}); restore it") from error
    if FileDigest.of(data) != name.digest:
        raise damage_error(where, f"its {len(data)} bytes are not those that its load wrote")
    try:
        check_expansion(pq.read_metadata(io.BytesIO(data)), len(data), where)
        return pq.read_table(io.BytesIO(data), columns=_SCHEMA.names).cast(_SCHEMA)
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise damage_error(where, str(error)) from error


def read_sources(
    files: TableFiles, snapshot: Snapshot, entries: Collection[PartitionEntry]
) -> dict[tuple[str, str], tuple[LoadedFile, ...]]:
    """Return the files that entries of a snapshot came from, by the entries' names.

    An entry is left out where they are unknown: an older version or a DataFrame, or a list that is lost.
    """
    names = list_source_lists(files, replace(snapshot, partitions=tuple(entries)))
    by_file: dict[str, list[PartitionEntry]] = {}
    for entry in entries:
        if entry.blocks_file in names:
            by_file.setdefault(entry.blocks_file, []).append(entry)
    sources: dict[tuple[str, str], tuple[LoadedFile, ...]] = {}
    for path, of_file in by_file.items():
        with suppress(CatalogError):  # rows can be read without; `verify` reports it
            lists = _by_partition(read_source_list(files, names[path]).to_pylist())
            sources |= {entry.name: tuple(lists[entry.key]) for entry in of_file if entry.key in lists}
    return sources


def read_new_sources(files: TableFiles, numbers: Iterable[int]) -> dict[int, dict[str, tuple[LoadedFile, ...] | None]]:
    """Return the files that the entries came from which each of some snapshots wrote, by partition; None if unknown."""
    sources: dict[int, dict[str, tuple[LoadedFile, ...] | None]] = {}
    for number in numbers:
        snapshot = read_snapshot(files, number)
        written = [entry for entry in snapshot.partitions if entry.load_id == snapshot.load_id]
        known = read_sources(files, snapshot, written)
        sources[number] = {entry.key: known.get(entry.name) for entry in written}
    return sources


def _by_partition(rows: Iterable[Mapping[str, object]]) -> dict[str, list[LoadedFile]]:
    lists: dict[str, list[LoadedFile]] = {}
    for row in rows:
        file = LoadedFile(**{name: value for name, value in row.items() if name != "partition"})  # type: ignore[arg-type]
        lists.setdefault(str(row["partition"]), []).append(file)
    return lists


def carry_sources(files: TableFiles, base: Snapshot, replaced: Collection[PartitionEntry]) -> SourceLists:
    """Return the lists of partitions whose rows are written anew: the files that the replaced entries came from."""
    lists: dict[str, dict[LoadedFile, None]] = {}
    for (key, _), loaded in read_sources(files, base, replaced).items():
        lists.setdefault(key, {}).update(dict.fromkeys(loaded))
    return {key: tuple(of_key) for key, of_key in lists.items()}
