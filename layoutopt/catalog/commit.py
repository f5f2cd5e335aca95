"""The commit protocol: plan, blocks, then the snapshot by exclusive creation.

A reader sees a load from the moment its snapshot exists. A crash before that leaves files that nothing names; a
crash after it leaves a committed load, which a retry under the same load id recognises. See SPEC.md, "Commit".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.blocks import encode_blocks
from layoutopt.catalog.deletion_vectors import Marks, marked_partitions, vectors_written
from layoutopt.catalog.entries import grown, partition_entries
from layoutopt.catalog.optimistic_commit import (
    Change,
    CommitHook,
    append_snapshot,
    contents,
    find_change,
    followed,
    names_of,
    next_number,
    next_time,
    snapshots_since,
)
from layoutopt.catalog.paths import DATA, FileDigest, blocks_path, new_load_id, plan_path
from layoutopt.catalog.snapshot import (
    RESTORE,
    Deletes,
    PartitionEntry,
    Snapshot,
    ensure_table_root,
    latest_snapshot,
)
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.storage.index_files import PackedIndexes, naming, packed_blocks, write_indexes
from layoutopt.catalog.table import Catalog
from layoutopt.errors import AlreadyLoadedError, CatalogError, CommitConflictError, PlanError
from layoutopt.model.layout import Plan
from layoutopt.model.schema import Schema

__all__ = ["CRASH_POINTS", "CommitHook", "commit_load", "ensure_table_root", "partition_entries"]

CRASH_POINTS = ("started", "plan-written", "blocks-written", "before-snapshot", "snapshot-created")
"""Where ``at`` is called, in order: a test that kills the commit at each has killed it everywhere that matters."""

APPEND: Final = "append"
"""The operation of a load whose rows stand beside those that their partitions have."""

_MOST_VERSIONS = 100
_MOST_PLANS: Final = 100
"""So many plans are remembered after no partition names them any more, those that came last."""


def comes_beside(operation: str | None, marks: Marks | None) -> bool:
    """Whether the rows of a load stand beside those that its partitions have, but for the ones that it deletes."""
    return operation == APPEND or marks is not None


@dataclass(frozen=True)
class _Load:
    """What is to be committed."""

    base: Snapshot | None
    plan: Plan
    load_id: str
    entries: tuple[PartitionEntry, ...]
    whole_table: bool
    operation: str | None = None
    batch: str | None = None
    marks: Marks | None = None

    @property
    def is_beside(self) -> bool:
        """Whether its rows stand beside others, see :func:`comes_beside`."""
        return comes_beside(self.operation, self.marks)


def commit_load(
    files: TableFiles,
    base: Snapshot | None,
    plan: Plan,
    load_id: str,
    entries: Sequence[PartitionEntry],
    blocks: pa.Table,
    *,
    indexes: Sequence[PackedIndexes] = (),
    whole_table: bool = False,
    operation: str | None = None,
    batch: str | None = None,
    marks: Marks | None = None,
    at: CommitHook = lambda point: None,
) -> Snapshot:
    """Make a load visible: write its plan and blocks, then the next snapshot, and return that.

    Args:
        files: the table's folder, claimed by :func:`ensure_table_root`.
        base: the snapshot that the load was planned on, None for a new table.
        plan: the plan of all the entries.
        load_id: the load's identifier; a second commit under the same one returns the first one's snapshot.
        entries: the partitions that the load has; each replaces those of the same key, but for :data:`APPEND` and
            where there are ``marks``.
        blocks: one row a block, as :func:`~layoutopt.catalog.blocks.block_schema`.
        indexes: the plan's, of these blocks, in one or more parts that follow each other.
        whole_table: partitions that the load does not have disappear, and the schema may change.
        operation: what the history calls it; a load, by what it replaces, when None.
        batch: names what is appended; a batch is appended once.
        marks: rows that are deleted in the same commit, of ``base``; the entries then stand beside what is left.
        at: called at each of CRASH_POINTS, and at "vectors-written" where there are some.

    Raises:
        CommitConflictError: somebody else committed one of the partitions (or any, for ``whole_table``) since ``base``;
            rows are appended to whatever is there, and with ``marks`` come beside what was not changed.
        AlreadyLoadedError: the batch was appended before.
        SchemaError: the plan's schema is not the table's, nor the table's with new nullable columns.
        PlanError: the plan partitions by another column than the table.
        CatalogError: the entries and blocks disagree, or a file of the catalog is damaged.
        OSError: the store failed; the table is as it was.
    """
    load = _Load(base, plan, load_id, tuple(entries), whole_table, operation, batch, marks)
    _check_agreement(load, blocks)
    _check_indexes(load, blocks, indexes)
    committed = find_change(snapshots_since(files, base), load_id)
    if committed is not None:
        return committed
    _next_snapshot(load, latest_snapshot(files), {})  # refuse early what can't succeed
    at("started")
    digests = dict([write_plan(files, plan)])
    at("plan-written")
    index_files = write_indexes(files, load_id, plan.indexes, indexes)
    path, digest = write_blocks(files, load_id, encode_blocks(naming(blocks, index_files)))
    load = replace(load, entries=tuple(replace(entry, blocks_file=path) for entry in load.entries))
    at("blocks-written")
    digests[path] = digest
    written = [*pc.unique(blocks["file"]).to_pylist(), *(index.path for index in index_files)]
    with vectors_written(files, load_id, marks) as vectors:
        if vectors:
            at("vectors-written")
        marked = [] if marks is None or base is None else marks.entries_in(base)
        names = names_of([*load.entries, *marked], [*written, *vectors])
        digests |= vectors
        change = Change(load_id, base, names, lambda latest: _next_snapshot(load, latest, digests))
        return append_snapshot(files, change, at)


def _check_indexes(load: _Load, blocks: pa.Table, indexes: Sequence[PackedIndexes]) -> None:
    """Refuse indexes that are not the plan's, or of other blocks."""
    for k, spec in enumerate(load.plan.indexes):
        measured = sum(packed_blocks(part[k]) for part in indexes if k < len(part))
        if measured != blocks.num_rows:
            raise CatalogError(
                f"the load {load.load_id!r} can't be committed: of its {blocks.num_rows} blocks the index {spec} was "
                f"measured for {measured}"
            )


def _check_agreement(load: _Load, blocks: pa.Table) -> None:
    """Refuse entries that are not the blocks' own: what is committed must be what was measured."""
    values = {entry.key: entry.value for entry in load.entries}
    if len(values) < len(load.entries):
        raise CatalogError(f"the load {load.load_id!r} names a partition twice; give one entry for each")
    try:
        measured = partition_entries(blocks, load.plan, load.load_id, values)
    except ValueError as error:
        raise CatalogError(f"the load {load.load_id!r} can't be committed: {error}") from error
    for entry, found in zip(sorted(load.entries, key=lambda entry: entry.key), measured, strict=True):
        named = (entry.plan, entry.load_id, entry.rows, dict(entry.checksums))
        if named != (found.plan, found.load_id, found.rows, dict(found.checksums)):
            raise CatalogError(
                f"the entry of partition {entry.key!r} ({entry.rows} rows, load {entry.load_id!r}) does not agree with "
                f"its blocks ({found.rows} rows, load {found.load_id!r}); make entries with partition_entries()"
            )


def write_plan(files: TableFiles, plan: Plan) -> tuple[str, FileDigest]:
    """Write the plan where it is not there yet: equal digests are equal plans."""
    path, data = plan_path(plan.digest), plan.dumps()
    try:
        files.write_new(path, data)
    except FileExistsError:
        if files.read_bytes(path) != data:
            raise CatalogError(f"{files.full_path(path)} is damaged; restore the file from a copy") from None
    return path, FileDigest.of(data)


def write_blocks(files: TableFiles, load_id: str, data: bytes) -> tuple[str, FileDigest]:
    """Write the blocks under a name that nobody has.

    What an attempt that crashed left stays as it is: it may be of another attempt that still runs.
    """
    for version in range(1, _MOST_VERSIONS):
        path = blocks_path(load_id, version)
        try:
            files.write_new(path, data)
        except FileExistsError:
            if files.read_bytes(path) != data:
                continue
        return path, FileDigest.of(data)
    raise CommitConflictError(f"the load id {load_id!r} was used {_MOST_VERSIONS} times; load under a new one")


def _next_snapshot(load: _Load, latest: Snapshot | None, digests: Mapping[str, FileDigest]) -> Snapshot:
    """The snapshot that adds the load to the latest one."""
    schema = _schema_after(load, latest)
    batches = _batches_after(load, latest)
    if not load.is_beside or (load.marks is not None and load.marks.alone):
        _check_conflicts(load, latest)
    before = () if latest is None or load.whole_table else latest.partitions
    if load.marks is not None:
        before = marked_partitions(load.base, latest, load.load_id, load.marks)
    replaced = set() if load.is_beside else {entry.key for entry in load.entries}
    kept = [entry for entry in before if entry.key not in replaced]
    if {entry.name for entry in kept} & {(entry.key, load.load_id) for entry in load.entries}:
        # No conflict, after which a load's files are removed: these may be of the entry that is there.
        raise CatalogError(f"the load id {load.load_id!r} was used before; make the change again")
    partitions = sorted([*kept, *load.entries], key=lambda entry: entry.key)  # stable: the newest of a key comes last
    known = {**({} if latest is None else latest.files), **digests}
    named = {path for entry in partitions for path in (*entry.catalog_files, plan_path(entry.plan))}
    named = named or {plan_path(load.plan.digest)}  # an empty table keeps its plan
    return Snapshot(
        number=next_number(latest),
        parent=None if latest is None else latest.number,
        created_at=next_time(latest),
        operation=load.operation or _operation(load, before),
        load_id=load.load_id,
        schema=schema,
        partition_by=load.plan.partition_by,
        partitions=tuple(partitions),
        files={path: known[path] for path in sorted(named) if path in known},
        batches=batches,
        plans=_plans_after(load, latest, partitions),
    )


def _operation(load: _Load, before: Sequence[PartitionEntry]) -> str:
    """What the history calls a load: whether it takes the place of rows, or of all."""
    if load.whole_table:
        return "load-table"
    keys = {entry.key for entry in load.entries}
    return "reload" if any(entry.live_rows for entry in before if entry.key in keys) else "load"


def _plans_after(load: _Load, latest: Snapshot | None, partitions: Sequence[PartitionEntry]) -> tuple[str, ...]:
    """The plans that came to the table, once the load is there; none where partitions name the only one."""
    known = () if latest is None or load.whole_table else latest.plans_in_order
    if (load.entries or not partitions) and load.plan.digest not in known:
        known = (*known, load.plan.digest)
    kept = {*known[-_MOST_PLANS:], *(entry.plan for entry in partitions)}
    noted = len(known) > 1 or not partitions
    return tuple(digest for digest in known if digest in kept) if noted else ()


def _batches_after(load: _Load, latest: Snapshot | None) -> tuple[str, ...]:
    """The batches that were appended once the load is there.

    Raises:
        AlreadyLoadedError: this one was before.
    """
    known = () if latest is None else latest.batches
    if load.batch is None:
        return known
    if load.batch in known:
        raise AlreadyLoadedError(f"the batch {load.batch!r} was appended before; give other rows another --batch-id")
    return (*known, load.batch)


def _schema_after(load: _Load, latest: Snapshot | None) -> Schema:
    """The table's schema with the load; refuses a plan that would mix two meanings of a column in one table.

    A plan that some partition has already fits, however the table has grown since.
    """
    if latest is None or load.whole_table:
        return load.plan.schema
    if load.plan.partition_by != latest.partition_by:
        raise PlanError(
            f"the plan partitions by {load.plan.partition_by!r} but the table by {latest.partition_by!r}; "
            "plan with the table's column, or load the whole table"
        )
    if load.plan.digest in {entry.plan for entry in latest.partitions}:
        return latest.schema
    return grown(latest.schema, load.plan.schema)


def _check_conflicts(load: _Load, latest: Snapshot | None) -> None:
    """Refuse to replace what was not there when the load was planned (not: when it commits)."""
    planned_on, now = _loads_of(load.base), _loads_of(latest)
    ours = (planned_on.keys() | now.keys()) if load.whole_table else {entry.key for entry in load.entries}
    if load.marks is not None:
        ours |= {key for key, _ in load.marks.deleted}
    changed = sorted(key for key in ours if planned_on.get(key) != now.get(key))
    if changed:
        raise CommitConflictError(
            f"partition {changed[0]!r} was loaded by somebody else ({_newest(now, changed[0])!r}) while this load ran; "
            "look at the table, then load the partition again if it still needs it"
        )


def _newest(loads: Mapping[str, Sequence[tuple[str, Deletes | None]]], key: str) -> str | None:
    return loads[key][-1][0] if key in loads else None


def _loads_of(snapshot: Snapshot | None) -> dict[str, list[tuple[str, Deletes | None]]]:
    """By partition the loads that it has, each with what of it is deleted."""
    return {key: [(load_id, gone) for load_id, _, gone in loads] for key, loads in contents(snapshot).items()}


# ----------------------------------------------------------------------------------------------------
# Restore: a new snapshot with an older one's content, committed as any other (SPEC.md, "Restore").

RESTORE_POINTS = ("started", "before-snapshot", "snapshot-created")
"""Where ``at`` is called, in order."""


def restore(files: TableFiles, number: int, *, at: CommitHook = lambda point: None) -> Snapshot:
    """Make the table what it was at a snapshot, and return the newest snapshot, which then has that content.

    Nothing is copied or removed: what came in between stays in the history. A table that has the content already is
    left as it is, so that a retry after a crash makes no second snapshot.

    Raises:
        NotATableError: the path holds no table.
        CatalogError: there is no such snapshot, or it, its catalog files or its data are damaged or missing.
        CommitConflictError: somebody else committed meanwhile, or a vacuum's tombstones have what the snapshot names.
        OSError: the store failed; the table is as it was.
    """
    catalog = Catalog.open(files.root, snapshot=number)
    target, latest = catalog.snapshot, latest_snapshot(files)
    at("started")
    if latest is not None and _same(target, latest):
        return latest
    data = _data_files(catalog)

    def after(now: Snapshot | None) -> Snapshot:
        if contents(now) != contents(latest):
            raise CommitConflictError(
                f"somebody else committed snapshot {next_number(now) - 1} while snapshot {number} was being restored; "
                "look at the table, then restore again if it still needs it"
            )
        return followed(now, target, RESTORE, load_id)

    load_id = f"restore-{new_load_id()}"
    # Planned on the old snapshot: what has a tombstone since then can't be named again.
    change = Change(load_id, target, names_of(target.partitions, data | _index_files(catalog)), after)
    return append_snapshot(files, change, at)


def _index_files(catalog: Catalog) -> frozenset[str]:
    """The index files of the snapshot; queries do without one that is missing."""
    return frozenset(index.path for _, blocks in catalog.block_tables() for index in blocks.index_files)


def _same(target: Snapshot, latest: Snapshot) -> bool:
    return (
        contents(target) == contents(latest)
        and target.schema == latest.schema
        and target.partition_by == latest.partition_by
    )


def _data_files(catalog: Catalog) -> frozenset[str]:
    """The data files of the snapshot, all there.

    Raises:
        CatalogError: one is missing, or a catalog file is damaged.
    """
    named = frozenset(path for _, blocks in catalog.block_tables() for path in blocks.files)
    there = {file.path for file in catalog.files.walk(DATA)}
    missing = {path for path in named if catalog.files.stored_path(path) not in there}
    if missing:
        raise CatalogError(
            f"snapshot {catalog.snapshot.number} can't be restored, its data file {min(missing)!r} is missing; "
            "restore that file from a copy, or choose another snapshot that `history` lists"
        )
    return named
