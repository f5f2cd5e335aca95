"""Building indexes of a source, and bringing them up to date: only what is new or changed is measured.

What is measured goes into a folder of the user's choice, never into the source's. It is a catalog as a table's: one
blocks file with a row for each row group, a file for each index, and a snapshot that names them, with an entry for each
file of the source. A refresh writes all of these anew, with what is known of files that are as they were, so that
readers find one file of each kind, whatever became of the source.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from layoutopt.catalog.paths import new_load_id
from layoutopt.catalog.snapshot import PartitionEntry, Snapshot, claim_index_root, newest_of_index
from layoutopt.catalog.statistics import statistics_type
from layoutopt.catalog.storage.filesystem import TableFiles, absolute, is_url, protocol_of
from layoutopt.catalog.storage.index_files import (
    PackedIndexes,
    encode_index,
    naming,
    pack_index,
    plain_lists,
    split_indexes,
    write_indexes,
)
from layoutopt.catalog.storage.prefetch import made_ahead
from layoutopt.catalog.table import Catalog, read_plan
from layoutopt.errors import CatalogError, CommitConflictError, SettingError, SourceError
from layoutopt.external.footers import Footer, merged_columns, read_footers
from layoutopt.external.listing import Listing, constant, list_source, mark_of, with_columns
from layoutopt.external.row_groups import ArrowTypes, blocks_of, in_partitions, numbered, plan_of, row_groups
from layoutopt.external.source_files import SourceFiles, file_key, source_files, stored_names
from layoutopt.indexes.choosing import Judged, candidates, worth_their_bytes
from layoutopt.indexes.expressions import is_computed_here
from layoutopt.indexes.measuring import indexes_type, measure_indexes
from layoutopt.indexes.stored import stored_indexes
from layoutopt.model.arrays import Floats, Ints, spread
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.layout import Plan
from layoutopt.model.query import Query
from layoutopt.model.schema import Schema
from layoutopt.skipping.cannot_match import cannot_match
from layoutopt.sources.snapshot import ending, source_name
from layoutopt.sources.whole_files import ARROW_OPTIONS

# ----------------------------------------------------------------------------------------------------
# The indexes of a file's row groups, measured by reading one of them after the other.


def measured_indexes(
    files: SourceFiles, footer: Footer, specs: Sequence[IndexSpec], types: ArrowTypes
) -> pa.StructArray:
    """The indexes of a file's row groups that have rows, [row groups]; the memory of one row group is taken.

    Args:
        files: the source's.
        footer: the file's.
        specs: what to measure.
        types: the Arrow types of the source's columns.

    Raises:
        SourceError: the file can't be read, or holds other values than its footer says.
        SettingError, SchemaError: as :func:`~layoutopt.indexes.measuring.measure_indexes`.
    """
    schema = files.schema.select(sorted({name for spec in specs for name in spec.subject.columns}))
    parts = [pa.array([], indexes_type(specs))]
    path = footer.listed.file.path
    names = stored_names(footer.listed.file, files.schema, footer.arrow.names)
    try:
        with pq.ParquetFile(files.open_input(footer.key), metadata=footer.metadata, **ARROW_OPTIONS) as parquet:
            for group in row_groups(footer):
                rows = _columns(parquet, group, footer, schema, names, types)
                parts.append(measure_indexes(specs, rows, np.array([0, rows.num_rows], dtype=np.int64)))
    except (pa.ArrowException, OSError) as error:
        raise SourceError(
            f"the source's file {path!r} can't be read ({' '.join(str(error).split())[:200]}); mend it, or try again "
            "when nobody changes the source"
        ) from error
    return pa.concat_arrays(parts)


def _columns(
    parquet: pq.ParquetFile, group: int, footer: Footer, schema: Schema, names: dict[str, str], types: ArrowTypes
) -> pa.Table:
    """Some columns of a row group, under their names and types."""
    stored = [names[name] for name in schema.names if name in names]
    n = footer.metadata.row_group(group).num_rows
    read = parquet.read_row_group(group, columns=stored) if stored else None
    arrays = []
    for column in schema.columns:
        type = types[column.name]
        if read is not None and column.name in names:
            arrays.append(read.column(names[column.name]).cast(type))
        else:
            value = footer.listed.file.constants.get(column.name)
            arrays.append(pa.chunked_array([pa.repeat(constant(value, column, type), n)]))
    return pa.Table.from_arrays(arrays, names=list(schema.names))


# ----------------------------------------------------------------------------------------------------
# Which indexes of a source are worth their bytes to a log's queries, tried on a few of its files.

TRIED: Final = 4
"""Files that are measured to choose by, spread evenly."""

Trial = Callable[[tuple[IndexSpec, ...]], BlockTable]
"""Measures some indexes of a few files."""


def within_budget(queries: Sequence[Query], trial: Trial, share: float) -> tuple[IndexSpec, ...]:
    """The indexes that save queries the most bytes for each of their own (Ta-Shma 2020, IV-B).

    Args:
        queries: a log's.
        trial: measures all that there could be.
        share: the most bytes of those taken, in the compressed bytes of the row groups tried.
    """
    possible = tuple(
        spec for spec in candidates(query.filter.root for query in queries) if is_computed_here(spec.subject)
    )
    if not possible:
        return ()
    blocks = trial(possible)
    read = _read(queries, blocks)
    indexes = [_judged(spec, queries, blocks, read) for spec in possible]
    return tuple(possible[i] for i in worth_their_bytes(indexes, read, share * float(blocks.bytes.sum())))


def _read(queries: Sequence[Query], blocks: BlockTable) -> Floats:
    """The bytes that each query reads of each block by footers alone, by weight, ``float64[queries, blocks]``."""
    read = np.zeros((len(queries), blocks.n))
    for place, query in enumerate(queries):
        left = ~cannot_match(query.filter.root, blocks.block_statistics(), None)
        sizes: Ints = sum((blocks.column_bytes(name) for name in query.columns), np.zeros(blocks.n, np.int64))
        read[place] = query.weight * np.where(left, sizes, 0)
    return read


def _judged(spec: IndexSpec, queries: Sequence[Query], blocks: BlockTable, read: Floats) -> Judged:
    """What one index lets the queries skip, and how many of its bytes they read for that."""
    alone = replace(blocks.block_statistics(), indexes=stored_indexes([spec], blocks))
    stored = blocks.stored_index(spec)
    size = 0.0 if stored is None else float(len(encode_index(stored)))
    skipped, asked = np.zeros(read.shape, np.bool_), 0.0
    for place, query in enumerate(queries):
        if spec.subject.columns <= query.filter.root.columns and read[place].any():
            skipped[place] = cannot_match(query.filter.root, alone, None)
            asked += query.weight
    return Judged(skipped, size, asked * size)


OPERATION: Final = "index"
_WORKERS: Final = min(4, os.cpu_count() or 1)
_GATHERED_BYTES: Final = 32 << 20
"""What is measured of files is encoded once it takes so much."""
_TICK: Final = 0.05
"""Seconds within which a local file system may give two changes of a file one time."""

Step = Callable[[int, int], None]
ChooseIndexes = Callable[[Schema, Trial], tuple[IndexSpec, ...]]
"""Names the indexes of a source with such columns; what there could be may be tried on a few of its files."""


@dataclass(frozen=True)
class RefreshReport:
    """What indexing a source did.

    Attributes:
        index: the folder.
        source: whose files are indexed.
        snapshot: the newest.
        indexes: what row groups are indexed by, beside the minima and maxima of their footers.
        files, row_groups, rows: of the source.
        measured: how many of the files were measured now.
        kept: how many were as they were.
        gone: how many that were indexed before are gone.
        bytes: of what was written.
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
        """The report as JSON."""
        return {**self.__dict__, "indexes": list(self.indexes)}


def refresh(
    root: str,
    source: str,
    table: str | None,
    choose: ChooseIndexes | None,
    type_of: Callable[[str], pa.DataType],
    step: Step = lambda done, total: None,
    at: CommitHook = lambda point: None,
) -> RefreshReport:
    """Index a source, or bring its indexes up to date.

    Args:
        root: the folder of the indexes.
        source: whose files are indexed, as :func:`~layoutopt.external.listing.canonical` has it.
        table: the name by which queries call the source; None for the one that it has, or its path's last part.
        choose: names the indexes to build; None for those that there are.
        type_of: the Arrow type of a Spark type.
        step: told how many files of how many are measured.
        at: called at the points of the commit.

    Raises:
        NotATableError: the folder holds something else, or the indexes of another source.
        SourceError, SchemaError: the source can't be read.
        SettingError: an index can't be built here.
        CommitConflictError: somebody else refreshed the indexes meanwhile.
        OSError: a store failed; the indexes are as they were.
    """
    if _lies_in(root, _place_of(source)):
        raise SettingError(f"{root!r} lies in the source {source!r}, where nothing is written; name a folder elsewhere")
    files = TableFiles(root)
    before = _newest(files, source)
    found = _found(source, type_of)
    specs = None if choose is None else choose(found.schema, found.tried)
    plan = _plan(before, table or _name_of(source), table, found.schema, specs)
    kept = _kept(before, plan, found.marks)
    fresh = [footer for footer in found.footers if footer.key not in kept.keys]
    was = frozenset() if before is None else frozenset(entry.key for entry in before.partitions)
    if before is not None and not fresh and was == kept.keys:
        return _report(root, source, before.snapshot, kept.blocks, plan, 0, 0, 0)
    parts = [(kept.blocks, kept.indexes), *map(split_indexes, _gathered(found.measured(plan, fresh, step)))]
    _check_unchanged(found.listing, list_source(source), fresh)
    blocks, indexes = numbered(pa.concat_tables([of for of, _ in parts])), [packed for _, packed in parts]
    claim_index_root(files, source)
    base = None if before is None else before.snapshot
    snapshot, size = _commit(files, base, plan, blocks, indexes, found.marks, at)
    return _report(root, source, snapshot, blocks, plan, len(fresh), len(was - found.marks.keys()), size)


def _gathered(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Tables put together while they are small."""
    held: list[pa.Table] = []
    taken = 0
    for table in tables:
        held.append(table)
        taken += table.nbytes
        if taken >= _GATHERED_BYTES:
            yield pa.concat_tables(held)
            held, taken = [], 0
    if held:
        yield pa.concat_tables(held)


def _newest(files: TableFiles, source: str) -> Catalog | None:
    """What is known of a source already."""
    base = newest_of_index(files, source)
    if base is None:
        return None
    digest = base.partitions[0].plan
    return Catalog(files, base, {digest: read_plan(files, base, digest)})


@dataclass(frozen=True, eq=False)
class _Found:
    """A source as it is: its files, their footers in the same order, and the Arrow types of its columns."""

    listing: Listing
    footers: list[Footer]
    files: SourceFiles
    types: ArrowTypes

    @property
    def schema(self) -> Schema:
        """The columns."""
        return self.files.schema

    @cached_property
    def marks(self) -> dict[str, str]:
        """The files' marks, by their keys."""
        names = self.schema.names
        return {file_key(one.file.path): mark_of(one, self.listing.schema, names) for one in self.listing.files}

    def tried(self, specs: tuple[IndexSpec, ...]) -> BlockTable:
        """The blocks of a few files, with some indexes."""
        trial = plan_of("t", self.schema, specs)
        parts = self.measured(trial, spread(self.footers, TRIED), lambda done, total: None)
        return BlockTable.from_arrow(numbered(pa.concat_tables(parts)), trial)

    def measured(self, plan: Plan, footers: Sequence[Footer], step: Step) -> Iterator[pa.Table]:
        """The blocks of each file with a plan's indexes; a few files ahead of what is taken."""
        for done, blocks in enumerate(made_ahead(partial(self._measured, plan), footers, _WORKERS), 1):
            step(done, len(footers))
            yield blocks

    def _measured(self, plan: Plan, footer: Footer) -> pa.Table:
        blocks, form = blocks_of(footer, self.schema, self.types), _form(plan)
        if plan.indexes:
            indexes = measured_indexes(self.files, footer, plan.indexes, self.types)
            blocks = blocks.append_column(form.field(INDEXES), indexes)
        return blocks.cast(form)


def _found(source: str, type_of: Callable[[str], pa.DataType]) -> _Found:
    listing = list_source(source)
    if not listing.files:
        raise SourceError(f"{source!r} has no file; index or refresh it when it has rows")
    time.sleep(_TICK)  # what is read now was written before, or has another mark than the one just listed
    files = source_files(listing.files, listing.schema)
    footers, schema = read_footers(files, listing.files), listing.schema
    if listing.is_folder:
        schema = with_columns(listing, merged_columns((), footers))
    types = {column.name: type_of(column.type) for column in schema.columns}
    return _Found(listing, footers, replace(files, schema=schema), types)


def _place_of(source: str) -> str:
    """Where a source lies, as a path or URL; of a table in a catalog its name."""
    name = source_name(source)
    return source if name is None else name.place


def _lies_in(path: str, folder: str) -> bool:
    """Whether a path is a folder or lies in it, whichever way they are written."""
    if protocol_of(path) != protocol_of(folder):
        return False
    inner, outer = (ending(one) if is_url(one) else str(Path(absolute(one)).resolve()) for one in (path, folder))
    return f"{inner}/".startswith(f"{outer.rstrip('/')}/")


def _check_unchanged(before: Listing, after: Listing, measured: Sequence[Footer]) -> None:
    """Refuse what was measured of a file while somebody wrote it."""
    now = {one.file.path: one.mark for one in after.files}
    for footer in measured:
        one = footer.listed
        if now.get(one.file.path) not in (None, one.mark):
            raise SourceError(
                f"the source's file {one.file.path!r} was written while it was indexed; try again when it is whole"
            )


def _name_of(source: str) -> str:
    """The last part of a source's name, as a table's name.

    >>> _name_of("/data/web-events.parquet"), _name_of("iceberg:prod/sales.orders")
    ('web_events', 'orders')
    """
    last = source.rpartition(":")[2].rstrip("/").rpartition("/")[2].removesuffix(".parquet")
    last = last.rpartition(".")[2] if source.startswith("iceberg:") else last
    return re.sub(r"\W", "_", last) or "t"


def _plan(
    before: Catalog | None, name: str, asked: str | None, schema: Schema, asked_for: tuple[IndexSpec, ...] | None
) -> Plan:
    """What is measured of the source: its plan, which lays nothing out."""
    known = None if before is None else next(iter(before.plans.values()))
    if known is not None and asked is None:
        name = known.table
    kept = () if known is None else known.indexes
    specs = kept if asked_for is None else asked_for
    for spec in specs:
        if not is_computed_here(spec.subject):
            raise SettingError(
                f"the index {spec} is of values that Spark computes, and files of others are indexed without Spark; "
                "index a column, a field of a struct, lower() or upper() of one, an array, map_keys() or map_values()"
            )
    return plan_of(name, schema, specs)


@dataclass(frozen=True, eq=False)
class _Kept:
    """What is known already of files that are as they were: their keys, their blocks, and the indexes of these."""

    keys: frozenset[str]
    blocks: pa.Table
    indexes: PackedIndexes


def _kept(before: Catalog | None, plan: Plan, marks: Mapping[str, str]) -> _Kept:
    form = _form(plan)
    nothing = _Kept(frozenset(), *split_indexes(form.empty_table()))
    if before is None or plan.digest not in before.plans:
        return nothing
    try:
        blocks = before.file_blocks(before.partitions[0])
    except CatalogError:  # what is damaged is measured again
        return nothing
    same = frozenset(entry.key for entry in before.partitions if marks.get(entry.key) == entry.source)
    chosen, indexes = pa.array(in_partitions(blocks, same)), []
    for spec, field in zip(plan.indexes, indexes_type(plan.indexes), strict=True):
        stored = blocks.stored_index(spec)
        if stored is None or plain_lists(stored.slice(0, 0)).type != field.type:
            return nothing  # an index file is damaged or gone: all is measured again
        indexes.append(pack_index(stored.filter(chosen)))
    return _Kept(same, _as_table(blocks, plan).filter(chosen), indexes)


def _form(plan: Plan) -> pa.Schema:
    form = block_schema(plan.schema, 1).remove_metadata()
    return form.append(pa.field(INDEXES, indexes_type(plan.indexes), nullable=False)) if plan.indexes else form


def _as_table(blocks: BlockTable, plan: Plan) -> pa.Table:
    """Blocks as a load measures them, without indexes."""
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
    marks: Mapping[str, str],
    at: CommitHook,
) -> tuple[Snapshot, int]:
    """The snapshot that is the indexes' newest now, and the bytes that were written."""
    load_id = new_load_id()
    digests = dict([write_plan(files, plan)])
    named = write_indexes(files, load_id, plan.indexes, indexes)
    at("indexes-written")
    path, digest = write_blocks(
        files, load_id, encode_blocks(naming(blocks.select(block_schema(plan.schema, 1).names), named))
    )
    digests[path] = digest
    at("blocks-written")
    entries = tuple(_entries(blocks, plan, load_id, path, marks))

    def after(latest: Snapshot | None) -> Snapshot:
        if (latest and latest.number) != (base and base.number):
            raise CommitConflictError(
                f"somebody else refreshed the indexes {files.root!r} meanwhile; refresh them again if that is needed"
            )
        return Snapshot(
            number=next_number(latest), parent=None if latest is None else latest.number, created_at=next_time(latest),
            operation=OPERATION, load_id=load_id, schema=plan.schema, partition_by=None, partitions=entries,
            files={name: digests[name] for name in sorted(digests)},
        )  # fmt: skip

    names = frozenset([path, *(one.path for one in named)])
    snapshot = append_snapshot(files, Change(load_id, base, names, after), at)
    return snapshot, sum(one.digest.size for one in named) + digest.size


def _entries(
    blocks: pa.Table, plan: Plan, load_id: str, path: str, marks: Mapping[str, str]
) -> Iterator[PartitionEntry]:
    """An entry for each file, also for one without rows, so that it counts as known."""
    sums = blocks.group_by("partition").aggregate([("rows", "sum"), ("bytes", "sum")])
    rows, sizes = (
        dict(zip(sums["partition"].to_pylist(), sums[f"{name}_sum"].to_pylist(), strict=True))
        for name in ("rows", "bytes")
    )
    for key in sorted(marks):
        yield PartitionEntry(
            key=key, value=None, plan=plan.digest, load_id=load_id, blocks_file=path, rows=rows.get(key, 0), bounds={},
            checksums={}, bytes=sizes.get(key, 0), source=marks[key],
        )  # fmt: skip


def _report(
    root: str, source: str, snapshot: Snapshot, blocks: pa.Table, plan: Plan, measured: int, gone: int, size: int
) -> RefreshReport:
    files = len(snapshot.partitions)
    return RefreshReport(
        index=root, source=source, snapshot=snapshot.number, indexes=tuple(map(str, plan.indexes)), files=files,
        row_groups=blocks.num_rows, rows=snapshot.rows, measured=measured, kept=files - measured, gone=gone, bytes=size,
        source_bytes=sum(entry.bytes for entry in snapshot.partitions),
    )  # fmt: skip
