"""Build the indexes of a source, and update them: only new and changed files are measured.

Indexes are written to a separate folder, never into the source. The folder is a catalog like a table's: one blocks file
with a row for each row group, a file for each index, and a snapshot with an entry for each file of the source. A
refresh rewrites all of these and reuses the content for unchanged files, so that readers open one file of each kind.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.catalog.block_index import INDEXES
from layoutopt.catalog.blocks import BlockTable, block_schema, encode_blocks
from layoutopt.catalog.commit import write_blocks, write_plan
from layoutopt.catalog.optimistic_commit import Change, CommitHook, append_snapshot, next_number, next_time
from layoutopt.catalog.partition_entry import PartitionEntry
from layoutopt.catalog.paths import new_load_id
from layoutopt.catalog.snapshot import Snapshot
from layoutopt.catalog.statistics import statistics_type
from layoutopt.catalog.storage.filesystem import TableFiles, absolute, is_url, protocol_of
from layoutopt.catalog.storage.index_files import (
    PackedIndexes,
    add_index_files,
    encode_index,
    pack_index,
    plain_lists,
    split_indexes,
    write_indexes,
)
from layoutopt.catalog.storage.ranges import map_ahead
from layoutopt.catalog.table import Catalog, read_plan
from layoutopt.catalog.table_root import claim_index_root, newest_of_index
from layoutopt.errors import CatalogError, CommitConflictError, SettingError, SourceError
from layoutopt.evaluation.arrow_types import any_arrow_type
from layoutopt.evaluation.expressions import is_computed_here
from layoutopt.external.footers import Footer, is_native
from layoutopt.external.formats import parse_table_name
from layoutopt.external.indexed_source import read_current_footers
from layoutopt.external.listing import Listing, digest_file, list_source, to_arrow_constant
from layoutopt.external.row_groups import (
    make_blocks,
    make_source_plan,
    mask_partitions,
    non_empty_row_groups,
    number_blocks,
)
from layoutopt.external.snapshot import strip_scheme
from layoutopt.external.source_files import SourceFiles, file_key, stored_names
from layoutopt.external.whole_files import ARROW_OPTIONS
from layoutopt.indexes.choosing import IndexEffect, choose_indexes, find_candidates
from layoutopt.indexes.measuring import indexes_type, measure_indexes
from layoutopt.indexes.stored import stored_indexes
from layoutopt.model.arrays import Floats, Ints, spread
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.layout import Plan
from layoutopt.model.query import Query
from layoutopt.model.schema import Schema
from layoutopt.skipping.cannot_match import cannot_match

OPERATION: Final = "index"
# Files that are measured to choose indexes, spread evenly.
TRIAL_FILES: Final = 4
_WORKERS: Final = min(4, os.cpu_count() or 1)
# Measured blocks are encoded once they take so many bytes.
_BATCH_BYTES: Final = 32 << 20
# Seconds within which a local file system may give two changes of a file the same time.
_TIME_RESOLUTION: Final = 0.05

Step = Callable[[int, int], None]
# Measures some indexes of a few files.
Trial = Callable[[tuple[IndexSpec, ...]], BlockTable]
# Chooses the indexes of a source with some columns; candidates can be tried on a few of its files.
ChooseIndexes = Callable[[Schema, Trial], tuple[IndexSpec, ...]]


@dataclass(frozen=True)
class RefreshReport:
    """The result of indexing a source.

    Attributes:
        indexes: the indexes, in addition to the min/max in footers.
        measured: the files measured now.
        kept: the unchanged files.
        gone: the files that were indexed before and no longer exist.
        source_bytes: the compressed bytes of the source's row groups.
    """

    index: str
    source: str
    snapshot: int
    indexes: tuple[str, ...]
    files: int
    row_groups: int
    rows: int
    measured: int
    kept: int
    gone: int
    bytes: int
    source_bytes: int

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return {**self.__dict__, "indexes": list(self.indexes)}


def refresh(
    root: str,
    source: str,
    table: str | None,
    choose: ChooseIndexes | None,
    step: Step = lambda done, total: None,
    at: CommitHook = lambda point: None,
) -> RefreshReport:
    """Index a source, or update its indexes.

    Args:
        source: the :func:`~layoutopt.external.listing.canonical_name` name of the source.
        table: the name of the source in queries; None for its current name, or the last part of its path.
        choose: chooses the indexes to build; None for the existing ones.
        step: called with (files measured, files to measure).
        at: called at the points of the commit.

    Raises:
        NotATableError: the folder holds something else, or the indexes of another source.
        SettingError: an index can't be built here.
        CommitConflictError: another process refreshed the indexes meanwhile.
        StoreError: a store refused a file; the indexes are unchanged.
    """
    name = parse_table_name(source)
    if _is_inside(root, source if name is None else name.place):
        raise SettingError(
            f"{root!r} is in the source {source!r}, where nothing is written; choose a folder outside the source"
        )
    files = TableFiles(root)
    base = newest_of_index(files, source)
    before = None
    if base is not None:
        digest = base.partitions[0].plan
        before = Catalog(files, base, {digest: read_plan(files, base, digest)})
    current = _open_source(source)
    specs = None if choose is None else choose(current.schema, current.try_indexes)
    plan = _make_plan(before, source, table, current.schema, specs)
    kept = _keep_unchanged(before, plan, current.digests)
    changed = [footer for footer in current.footers if footer.key not in kept.keys]
    old_keys = frozenset() if before is None else frozenset(entry.key for entry in before.partitions)
    if before is not None and not changed and old_keys == kept.keys:
        return _make_report(root, source, before.snapshot, kept.blocks, plan, 0, 0, 0)
    measured = map(split_indexes, _combine_small(current.measure(plan, changed, step)))
    parts = [(kept.blocks, kept.indexes), *measured]
    _check_unchanged(current.listing, list_source(source), changed)
    blocks, indexes = number_blocks(pa.concat_tables([table for table, _ in parts])), [packed for _, packed in parts]
    claim_index_root(files, source)
    native = {footer.key for footer in current.footers if is_native(footer, current.schema)}
    snapshot, size = _commit(files, base, plan, blocks, indexes, current.digests, native, at)
    gone = len(old_keys - current.digests.keys())
    return _make_report(root, source, snapshot, blocks, plan, len(changed), gone, size)


def _combine_small(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the tables, concatenated while they are small."""
    batch: list[pa.Table] = []
    size = 0
    for table in tables:
        batch.append(table)
        size += table.nbytes
        if size >= _BATCH_BYTES:
            yield pa.concat_tables(batch)
            batch, size = [], 0
    if batch:
        yield pa.concat_tables(batch)


@dataclass(frozen=True, eq=False)
class _CurrentSource:
    """A source: its files, and their footers in the same order."""

    listing: Listing
    footers: list[Footer]
    files: SourceFiles

    @property
    def schema(self) -> Schema:
        return self.files.schema

    @cached_property
    def digests(self) -> dict[str, str]:
        """The files' digests by key."""
        names = self.schema.names
        return {file_key(f.file.path): digest_file(f, self.listing.schema, names) for f in self.listing.files}

    def try_indexes(self, specs: tuple[IndexSpec, ...]) -> BlockTable:
        """Return the blocks of a few files, with some indexes."""
        plan = make_source_plan("t", self.schema, specs)
        parts = self.measure(plan, spread(self.footers, TRIAL_FILES), lambda done, total: None)
        return BlockTable.from_arrow(number_blocks(pa.concat_tables(parts)), plan)

    def measure(self, plan: Plan, footers: Sequence[Footer], step: Step) -> Iterator[pa.Table]:
        """Yield the blocks of each file with a plan's indexes; a few files are measured ahead."""
        for done, blocks in enumerate(map_ahead(partial(self._measure_file, plan), footers, _WORKERS), 1):
            step(done, len(footers))
            yield blocks

    def _measure_file(self, plan: Plan, footer: Footer) -> pa.Table:
        blocks, form = make_blocks(footer, self.schema), _block_schema(plan)
        if plan.indexes:
            indexes = _measure_file_indexes(self.files, footer, plan.indexes)
            blocks = blocks.append_column(form.field(INDEXES), indexes)
        return blocks.cast(form)


def _measure_file_indexes(files: SourceFiles, footer: Footer, specs: Sequence[IndexSpec]) -> pa.StructArray:
    """Return the indexes of a file's non-empty row groups, reading one row group at a time."""
    schema = files.schema.select(sorted({name for spec in specs for name in spec.subject.columns}))
    parts = [pa.array([], indexes_type(specs))]
    path = footer.listed.file.path
    names = stored_names(footer.listed.file, files.schema, footer.arrow.names)
    try:
        with pq.ParquetFile(files.open_input(footer.key), metadata=footer.metadata, **ARROW_OPTIONS) as parquet:
            for group in non_empty_row_groups(footer):
                rows = _read_columns(parquet, group, footer, schema, names)
                parts.append(measure_indexes(specs, rows, np.array([0, rows.num_rows], dtype=np.int64)))
    except (pa.ArrowException, OSError) as error:
        raise SourceError(
            f"the source's file {path!r} can't be read ({' '.join(str(error).split())[:200]}); repair it, or try again "
            "when the source is not being changed"
        ) from error
    return pa.concat_arrays(parts)


def _read_columns(
    parquet: pq.ParquetFile, group: int, footer: Footer, schema: Schema, names: dict[str, str]
) -> pa.Table:
    stored = [names[name] for name in schema.names if name in names]
    n = footer.metadata.row_group(group).num_rows
    rows = parquet.read_row_group(group, columns=stored) if stored else None
    arrays = []
    for column in schema.columns:
        if rows is not None and column.name in names:
            arrays.append(rows.column(names[column.name]).cast(any_arrow_type(column.type)))
        else:
            value = footer.listed.file.constants.get(column.name)
            arrays.append(pa.chunked_array([pa.repeat(to_arrow_constant(value, column), n)]))
    return pa.Table.from_arrays(arrays, names=list(schema.names))


def _open_source(source: str) -> _CurrentSource:
    listing = list_source(source)
    if not listing.files:
        raise SourceError(f"{source!r} has no file; index or refresh it when it has rows")
    time.sleep(_TIME_RESOLUTION)  # a file that is written from now on gets another version than the listed one
    return _CurrentSource(listing, *read_current_footers(listing))


def _is_inside(path: str, folder: str) -> bool:
    """Return whether a path is a folder or inside it."""
    if protocol_of(path) != protocol_of(folder):
        return False
    inner, outer = (strip_scheme(p) if is_url(p) else str(Path(absolute(p)).resolve()) for p in (path, folder))
    return f"{inner}/".startswith(f"{outer.rstrip('/')}/")


def _check_unchanged(before: Listing, after: Listing, measured: Sequence[Footer]) -> None:
    """Refuse files that were written while they were measured."""
    versions = {listed.file.path: listed.mark for listed in after.files}
    for footer in measured:
        path = footer.listed.file.path
        if versions.get(path) not in (None, footer.listed.mark):
            raise SourceError(
                f"the source's file {path!r} was written while it was indexed; try again once it is complete"
            )


def _default_name(source: str) -> str:
    """Return the last part of a source's name, as a table's name.

    >>> _default_name("/data/web-events.parquet"), _default_name("iceberg:prod/sales.orders")
    ('web_events', 'orders')
    """
    name = parse_table_name(source)
    last = source.rpartition(":")[2].rstrip("/").rpartition("/")[2].removesuffix(".parquet")
    last = last.rpartition(".")[2] if name is not None and name.format.in_catalogs else last
    return re.sub(r"\W", "_", last) or "t"


def _make_plan(
    before: Catalog | None, source: str, table: str | None, schema: Schema, specs: tuple[IndexSpec, ...] | None
) -> Plan:
    """Return the source's plan; its name and indexes are those of the older plan unless others are passed."""
    older = None if before is None else next(iter(before.plans.values()))
    name = older.table if older is not None and table is None else table or _default_name(source)
    if specs is None:
        specs = () if older is None else older.indexes
    for spec in specs:
        if not is_computed_here(spec.subject):
            raise SettingError(
                f"only Spark computes the values of the index {spec}, but external files are indexed without Spark; "
                "index a column, a field of a struct, lower() or upper() of one, an array, map_keys() or map_values()"
            )
    return make_source_plan(name, schema, specs)


@dataclass(frozen=True, eq=False)
class _UnchangedFiles:
    """The keys of files that have not changed, their blocks, and the indexes of these."""

    keys: frozenset[str]
    blocks: pa.Table
    indexes: PackedIndexes


def _keep_unchanged(before: Catalog | None, plan: Plan, digests: Mapping[str, str]) -> _UnchangedFiles:
    nothing = _UnchangedFiles(frozenset(), *split_indexes(_block_schema(plan).empty_table()))
    if before is None or plan.digest not in before.plans:
        return nothing
    try:
        blocks = before.file_blocks(before.partitions[0])
    except CatalogError:  # damaged blocks are measured again
        return nothing
    keys = frozenset(entry.key for entry in before.partitions if digests.get(entry.key) == entry.source)
    mask, indexes = pa.array(mask_partitions(blocks, keys)), []
    for spec, field in zip(plan.indexes, indexes_type(plan.indexes), strict=True):
        stored = blocks.stored_index(spec)
        if stored is None or plain_lists(stored.slice(0, 0)).type != field.type:
            return nothing  # an index file is damaged or missing: all is measured again
        indexes.append(pack_index(stored.filter(mask)))
    return _UnchangedFiles(keys, _to_table(blocks, plan).filter(mask), indexes)


def _block_schema(plan: Plan) -> pa.Schema:
    form = block_schema(plan.schema, 1).remove_metadata()
    return form.append(pa.field(INDEXES, indexes_type(plan.indexes), nullable=False)) if plan.indexes else form


def _to_table(blocks: BlockTable, plan: Plan) -> pa.Table:
    """Return the blocks without indexes, in the form in which a load measures them."""
    form = block_schema(plan.schema, 1).remove_metadata()
    stats = [blocks.statistics_of(i) for i in range(len(plan.schema.columns))]
    arrays: dict[str, Any] = {
        name: blocks.block_index[name] for name in form.names if name in blocks.block_index.column_names
    }
    arrays["stats"] = pa.StructArray.from_arrays(stats, fields=list(statistics_type(plan.schema)))
    return pa.table([arrays[name] for name in form.names], schema=form)


def _commit(
    files: TableFiles,
    base: Snapshot | None,
    plan: Plan,
    blocks: pa.Table,
    indexes: Sequence[PackedIndexes],
    source_digests: Mapping[str, str],
    native: Collection[str],
    at: CommitHook,
) -> tuple[Snapshot, int]:
    """Return the committed snapshot, and the bytes that were written."""
    load_id = new_load_id()
    digests = dict([write_plan(files, plan)])
    number = next_number(base)
    index_files = write_indexes(files, load_id, number, plan.indexes, indexes)
    at("indexes-written")
    block_index = add_index_files(blocks.select(block_schema(plan.schema, 1).names), index_files)
    path, digest = write_blocks(files, load_id, number, encode_blocks(block_index))
    digests[path] = digest
    at("blocks-written")
    entries = tuple(_make_entries(blocks, plan, load_id, path, source_digests, native))

    def make_snapshot(latest: Snapshot | None) -> Snapshot:
        if (latest and latest.number) != (base and base.number):
            raise CommitConflictError(
                f"another process refreshed the indexes {files.root!r} meanwhile; refresh them again if needed"
            )
        return Snapshot(
            number=next_number(latest), parent=None if latest is None else latest.number, created_at=next_time(latest),
            operation=OPERATION, load_id=load_id, schema=plan.schema, partition_by=None, partitions=entries,
            files={name: digests[name] for name in sorted(digests)},
        )  # fmt: skip

    names = frozenset([path, *(file.path for file in index_files)])
    snapshot = append_snapshot(files, Change(load_id, base, names, make_snapshot), at)
    return snapshot, sum(file.digest.size for file in index_files) + digest.size


def _make_entries(
    blocks: pa.Table, plan: Plan, load_id: str, path: str, source_digests: Mapping[str, str], native: Collection[str]
) -> Iterator[PartitionEntry]:
    """Yield an entry for each file, including those without rows, so that they count as indexed."""
    sums = blocks.group_by("partition").aggregate([("rows", "sum"), ("bytes", "sum")])
    rows, sizes = (
        dict(zip(sums["partition"].to_pylist(), sums[f"{name}_sum"].to_pylist(), strict=True))
        for name in ("rows", "bytes")
    )
    for key in sorted(source_digests):
        yield PartitionEntry(
            key=key, value=None, plan=plan.digest, load_id=load_id, blocks_file=path, rows=rows.get(key, 0), bounds={},
            checksums={}, bytes=sizes.get(key, 0), source=source_digests[key],
            native=key in native,
        )  # fmt: skip


def _make_report(
    root: str, source: str, snapshot: Snapshot, blocks: pa.Table, plan: Plan, measured: int, gone: int, size: int
) -> RefreshReport:
    files = len(snapshot.partitions)
    return RefreshReport(
        index=root, source=source, snapshot=snapshot.number, indexes=tuple(map(str, plan.indexes)), files=files,
        row_groups=blocks.num_rows, rows=snapshot.rows, measured=measured, kept=files - measured, gone=gone, bytes=size,
        source_bytes=sum(entry.bytes for entry in snapshot.partitions),
    )  # fmt: skip


def choose_within_budget(queries: Sequence[Query], trial: Trial, share: float) -> tuple[IndexSpec, ...]:
    """Choose the indexes that save queries the most bytes for each of their own (Ta-Shma 2020, IV-B).

    ``share`` is the most bytes of the chosen indexes, relative to the compressed bytes of the files of the trial.
    """
    specs = tuple(
        spec for spec in find_candidates(query.filter.root for query in queries) if is_computed_here(spec.subject)
    )
    if not specs:
        return ()
    blocks = trial(specs)
    read = np.zeros((len(queries), blocks.n))  # bytes by footers alone, times the queries' weights
    for place, query in enumerate(queries):
        possible = ~cannot_match(query.filter.root, blocks.block_statistics(), None)
        sizes: Ints = sum((blocks.column_bytes(name) for name in query.columns), np.zeros(blocks.n, np.int64))
        read[place] = query.weight * np.where(possible, sizes, 0)
    indexes = [_judge_index(spec, queries, blocks, read) for spec in specs]
    return tuple(specs[i] for i in choose_indexes(indexes, read, share * float(blocks.bytes.sum())))


def _judge_index(spec: IndexSpec, queries: Sequence[Query], blocks: BlockTable, read: Floats) -> IndexEffect:
    """Return what one index lets the queries skip, and how many of its bytes they read for that."""
    statistics = replace(blocks.block_statistics(), indexes=stored_indexes([spec], blocks))
    stored = blocks.stored_index(spec)
    size = 0.0 if stored is None else float(len(encode_index(stored)))
    skipped, uses = np.zeros(read.shape, np.bool_), 0.0
    for place, query in enumerate(queries):
        if spec.subject.columns <= query.filter.root.columns and read[place].any():
            skipped[place] = cannot_match(query.filter.root, statistics, None)
            uses += query.weight
    return IndexEffect(skipped, size, uses * size)
