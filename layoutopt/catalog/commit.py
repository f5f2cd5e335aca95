"""The commit protocol: write the plan and blocks, then create the snapshot exclusively (SPEC.md, "Commit").

A reader sees a load once its snapshot exists. A crash before that leaves files that nothing names; a crash after it
leaves a committed load, which a retry under the same load id recognises. A restore commits a new snapshot with an older
one's content (SPEC.md, "Restore").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.blocks import encode_blocks
from layoutopt.catalog.deletion_vectors import Marks, mark_partitions, write_vectors
from layoutopt.catalog.entries import grow_schema, partition_entries
from layoutopt.catalog.history import RESTORE
from layoutopt.catalog.manifest_writing import write_version
from layoutopt.catalog.optimistic_commit import (
    Change,
    CommitHook,
    append_snapshot,
    find_change,
    list_contents,
    make_next_snapshot,
    names_of,
    next_number,
    next_time,
    snapshots_since,
)
from layoutopt.catalog.partition_entry import Deletes, PartitionEntry
from layoutopt.catalog.paths import DATA, FileDigest, blocks_path, new_load_id, plan_path
from layoutopt.catalog.snapshot import Snapshot, latest_snapshot
from layoutopt.catalog.source_lists import (
    SourceLists,
    carry_sources,
    list_source_lists,
    name_source_lists,
    write_source_lists,
)
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.storage.index_files import PackedIndexes, add_index_files, count_blocks, write_indexes
from layoutopt.catalog.table import Catalog
from layoutopt.catalog.table_root import ensure_table_root
from layoutopt.errors import AlreadyLoadedError, CatalogError, CommitConflictError, PlanError
from layoutopt.model.layout import Plan
from layoutopt.model.schema import Schema

__all__ = ["CRASH_POINTS", "CommitHook", "commit_load", "ensure_table_root", "partition_entries"]

# The points at which ``at`` is called, in order. Crash tests stop a commit at each of them.
CRASH_POINTS = ("started", "plan-written", "blocks-written", "before-snapshot", "snapshot-created")

# The operation of a load whose rows are added to their partitions.
APPEND: Final = "append"

# The operations whose rows are those of the table, perhaps changed.
REWRITES: Final = frozenset({"delete", "update", "merge", "join", "optimize"})

# How many plans without partitions stay listed, the newest ones.
_MOST_PLANS: Final = 100


@dataclass(frozen=True, kw_only=True)
class Basis:
    """What a load is based on, and does to the table.

    Attributes:
        snapshot: the table's newest when the load was planned, None for a new table; later changes are conflicts.
        whole_table: drop the partitions that the load lacks; the schema may change.
        operation: its name in the history; None derives it from what the load replaces.
        batch: the name of the appended batch; a batch is appended once.
        marks: rows of ``snapshot`` that the same commit deletes; the entries are added to the rest.
        shares: whether the commit may name manifests of earlier ones, which may have values of rows that it removes.
    """

    snapshot: Snapshot | None
    whole_table: bool = False
    operation: str | None = None
    batch: str | None = None
    marks: Marks | None = None
    shares: bool = True

    @property
    def adds_rows(self) -> bool:
        """Whether a load adds rows to its partitions instead of replacing them."""
        return self.operation == APPEND or self.marks is not None


@dataclass(frozen=True)
class Piece:
    """Partitions of a load, in a blocks file of their own.

    Attributes:
        entries: of the partitions; they name the file.
        path: of the file.
        digest: of its content.
        paths: of the data, index and source list files that it names.
    """

    entries: tuple[PartitionEntry, ...]
    path: str
    digest: FileDigest
    paths: frozenset[str]


@dataclass(frozen=True)
class Load:
    """A load to commit, or a piece of it.

    Attributes:
        plan: the plan of all the entries.
        load_id: a second commit under the same identifier returns the first one's snapshot.
        entries: the load's partitions. Each replaces those of the same key, unless the load adds rows.
        blocks: one row a block, as :func:`~layoutopt.catalog.blocks.block_schema`.
        indexes: the plan's, of these blocks, in one or more consecutive parts.
        sources: the source's files that the entries came from, by partition. With None, rows are unknown to be of any
            file, except where they are the table's own: these keep the files of the entries that they were in.
        pieces: other partitions of the load, which are written already.
    """

    basis: Basis
    plan: Plan
    load_id: str
    entries: Sequence[PartitionEntry]
    blocks: pa.Table
    indexes: Sequence[PackedIndexes] = ()
    sources: SourceLists | None = None
    pieces: Sequence[Piece] = ()


def write_piece(files: TableFiles, load: Load) -> Piece:
    """Write the blocks, indexes and source lists of a load whose ``pieces`` are already written; nothing is committed.

    Raises:
        CatalogError, OSError: as :func:`commit_load`.
    """
    _check_agreement(load)
    _check_indexes(load)
    return _write_piece(files, load)


def _write_piece(files: TableFiles, load: Load) -> Piece:
    number, place = next_number(load.basis.snapshot), len(load.pieces)
    index_files = write_indexes(files, load.load_id, number, load.plan.indexes, load.indexes)
    lists = write_source_lists(files, load.load_id, number, load.sources or {}, place)
    named = name_source_lists(add_index_files(load.blocks, index_files), lists)
    path, digest = write_blocks(files, load.load_id, number, encode_blocks(named), place)
    paths = [*pc.unique(load.blocks["file"]).to_pylist(), *(index.path for index in index_files)]
    paths += [] if lists is None else [lists.path]
    return Piece(tuple(replace(entry, blocks_file=path) for entry in load.entries), path, digest, frozenset(paths))


def commit_load(files: TableFiles, load: Load, at: CommitHook = lambda point: None) -> Snapshot:
    """Write a load's plan and blocks, commit the next snapshot and return it.

    Args:
        files: the table's folder, claimed by :func:`ensure_table_root`.
        load: the load.
        at: called at each of CRASH_POINTS, and at "vectors-written" where there are some.

    Raises:
        CommitConflictError: another commit changed one of the partitions (or any, for ``whole_table``) since ``base``.
            Appends never conflict; with ``marks`` only changes of the marked entries do.
        AlreadyLoadedError: the batch was appended before.
        SchemaError: the plan's schema is not the table's, nor the table's with new nullable columns.
        PlanError: the plan partitions by another column than the table.
        CatalogError: the entries and blocks disagree, or a file of the catalog is damaged.
        OSError: the store failed; the table is unchanged.
    """
    plan, load_id, base, marks = load.plan, load.load_id, load.basis.snapshot, load.basis.marks
    _check_agreement(load)
    _check_indexes(load)
    own, load = load, replace(load, entries=[*_list_entries(load.pieces), *load.entries])
    committed = find_change(files, snapshots_since(files, base), load_id)
    if committed is not None:
        return committed
    _make_snapshot(load, latest_snapshot(files), {})  # refuse early what can't succeed
    at("started")
    digests = dict([write_plan(files, plan)])
    at("plan-written")
    sources = _carry_sources(files, load) if load.sources is None else load.sources
    pieces = [*load.pieces, _write_piece(files, replace(own, sources=sources))]
    load = replace(load, entries=_list_entries(pieces))
    at("blocks-written")
    digests |= {piece.path: piece.digest for piece in pieces}
    with write_vectors(files, base, load_id, marks) as vectors:
        if vectors:
            at("vectors-written")
        marked = [] if marks is None or base is None else marks.entries_in(base)
        written = frozenset[str]().union(*(piece.paths for piece in pieces))
        names = names_of([*load.entries, *marked], [*written, *vectors])
        digests |= vectors
        change = Change(load_id, base, names, lambda latest: _make_snapshot(load, latest, digests), load.basis.shares)
        return append_snapshot(files, change, at)


def _list_entries(pieces: Sequence[Piece]) -> list[PartitionEntry]:
    return [entry for piece in pieces for entry in piece.entries]


def _carry_sources(files: TableFiles, load: Load) -> SourceLists:
    """Return the source lists of a change that writes rows of the table anew."""
    base, marks = load.basis.snapshot, load.basis.marks
    if base is None or load.basis.operation not in REWRITES:
        return {}
    keys = {entry.key for entry in load.entries}
    rewritten = [entry for entry in base.partitions if entry.key in keys]
    if marks is not None:
        rewritten = [entry for entry in rewritten if entry.name in {*marks.deleted, *marks.replaced}]
    return carry_sources(files, base, rewritten)


def _check_indexes(load: Load) -> None:
    """Refuse indexes that are not the plan's, or of other blocks."""
    for k, spec in enumerate(load.plan.indexes):
        measured = sum(count_blocks(part[k]) for part in load.indexes if k < len(part))
        if measured != load.blocks.num_rows:
            raise CatalogError(
                f"the load {load.load_id!r} can't be committed: the index {spec} was measured for {measured} blocks, "
                f"not for its {load.blocks.num_rows}"
            )


def _check_agreement(load: Load) -> None:
    """Refuse entries that disagree with the blocks: only measured values are committed."""
    keys = [entry.key for entry in (*_list_entries(load.pieces), *load.entries)]
    if len(set(keys)) < len(keys):
        raise CatalogError(f"the load {load.load_id!r} names a partition twice; give one entry for each")
    try:
        values = {entry.key: entry.value for entry in load.entries}
        measured = partition_entries(load.blocks, load.plan, load.load_id, values)
    except ValueError as error:
        raise CatalogError(f"the load {load.load_id!r} can't be committed: {error}") from error
    for entry, own in zip(sorted(load.entries, key=lambda entry: entry.key), measured, strict=True):
        expected = (entry.plan, entry.load_id, entry.rows, dict(entry.checksums))
        if expected != (own.plan, own.load_id, own.rows, dict(own.checksums)):
            raise CatalogError(
                f"the entry of partition {entry.key!r} ({entry.rows} rows, load {entry.load_id!r}) does not agree with "
                f"its blocks ({own.rows} rows, load {own.load_id!r}); make entries with partition_entries()"
            )


def write_plan(files: TableFiles, plan: Plan) -> tuple[str, FileDigest]:
    """Write the plan unless it exists: equal digests are equal plans."""
    path, data = plan_path(plan.digest), plan.dumps()
    try:
        files.write_new(path, data)
    except FileExistsError:
        if files.read_bytes(path) != data:
            raise CatalogError(f"{files.full_path(path)} is damaged; restore the file from a copy") from None
    return path, FileDigest.of(data)


def write_blocks(files: TableFiles, load_id: str, number: int, data: bytes, place: int = 0) -> tuple[str, FileDigest]:
    """Write blocks of a load under an unused name; raises as ``write_version``.

    ``number`` is as in the path, and ``place`` that of the piece among the load's.
    """
    return write_version(files, lambda version: blocks_path(load_id, number, place + version), data)


def _make_snapshot(load: Load, latest: Snapshot | None, digests: Mapping[str, FileDigest]) -> Snapshot:
    schema, batches = _merge_schemas(load, latest), _list_batches(load, latest)
    basis = load.basis
    if not basis.adds_rows or (basis.marks is not None and basis.marks.alone):
        _check_conflicts(load, latest)
    before = () if latest is None or basis.whole_table else latest.partitions
    if basis.marks is not None:
        before = mark_partitions(basis.snapshot, latest, load.load_id, basis.marks)
    replaced = set() if basis.adds_rows else {entry.key for entry in load.entries}
    kept = [entry for entry in before if entry.key not in replaced]
    if {entry.name for entry in kept} & {(entry.key, load.load_id) for entry in load.entries}:
        # This is no CommitConflictError, after which a load's files are removed: the existing entry may need them.
        raise CatalogError(f"the load id {load.load_id!r} was used before; make the change again")
    partitions = sorted([*kept, *load.entries], key=lambda entry: entry.key)  # stable: the newest of a key comes last
    digests_by_path = {**({} if latest is None else latest.files), **digests}
    paths = {path for entry in partitions for path in (*entry.catalog_files, plan_path(entry.plan))}
    paths = paths or {plan_path(load.plan.digest)}  # an empty table keeps its plan
    return Snapshot(
        number=next_number(latest),
        parent=None if latest is None else latest.number,
        created_at=next_time(latest),
        operation=basis.operation or _name_operation(load, before),
        load_id=load.load_id,
        schema=schema,
        partition_by=load.plan.partition_by,
        partitions=tuple(partitions),
        files={path: digests_by_path[path] for path in sorted(paths) if path in digests_by_path},
        batches=batches,
        plans=_list_plans(load, latest, partitions),
    )


def _name_operation(load: Load, before: Sequence[PartitionEntry]) -> str:
    if load.basis.whole_table:
        return "load-table"
    keys = {entry.key for entry in load.entries}
    return "reload" if any(entry.live_rows for entry in before if entry.key in keys) else "load"


def _list_plans(load: Load, latest: Snapshot | None, partitions: Sequence[PartitionEntry]) -> tuple[str, ...]:
    known = () if latest is None or load.basis.whole_table else latest.plans_in_order
    if (load.entries or not partitions) and load.plan.digest not in known:
        known = (*known, load.plan.digest)
    return list_plans(known, partitions)


def list_plans(known: Sequence[str], partitions: Sequence[PartitionEntry]) -> tuple[str, ...]:
    """Return the plans that a snapshot lists, of those known; none while its partitions name the only plan."""
    kept = {*known[-_MOST_PLANS:], *(entry.plan for entry in partitions)}
    noted = len(known) > 1 or not partitions
    return tuple(digest for digest in known if digest in kept) if noted else ()


def _list_batches(load: Load, latest: Snapshot | None) -> tuple[str, ...]:
    """Return the appended batches after the load; raise AlreadyLoadedError if the load's batch was appended before."""
    known = () if latest is None else latest.batches
    if load.basis.batch is None:
        return known
    if load.basis.batch in known:
        raise AlreadyLoadedError(f"the batch {load.basis.batch!r} was appended before; give new rows a new --batch-id")
    return (*known, load.basis.batch)


def _merge_schemas(load: Load, latest: Snapshot | None) -> Schema:
    """Return the table's schema after the load; refuse a plan that gives a column another meaning."""
    if latest is None or load.basis.whole_table:
        return load.plan.schema
    if load.plan.partition_by != latest.partition_by:
        raise PlanError(
            f"the plan partitions by {load.plan.partition_by!r} but the table by {latest.partition_by!r}; "
            "plan with the table's column, or load the whole table"
        )
    if load.plan.digest in {entry.plan for entry in latest.partitions}:
        return latest.schema
    return grow_schema(latest.schema, load.plan.schema)


def _check_conflicts(load: Load, latest: Snapshot | None) -> None:
    """Refuse to replace partitions that changed since the load was planned."""
    planned_on, current = _list_loads(load.basis.snapshot), _list_loads(latest)
    keys = (planned_on.keys() | current.keys()) if load.basis.whole_table else {entry.key for entry in load.entries}
    if load.basis.marks is not None:
        keys |= {key for key, _ in load.basis.marks.deleted}
    changed = sorted(key for key in keys if planned_on.get(key) != current.get(key))
    if changed:
        newest = current[changed[0]][-1][0] if changed[0] in current else None
        raise CommitConflictError(
            f"partition {changed[0]!r} was loaded by another commit ({newest!r}) while this load ran; "
            "look at the table, then load the partition again if it still needs it"
        )


def _list_loads(snapshot: Snapshot | None) -> dict[str, list[tuple[str, Deletes | None]]]:
    return {
        key: [(load_id, deletes) for load_id, _, deletes in loads] for key, loads in list_contents(snapshot).items()
    }


# The points at which ``at`` is called, in order.
RESTORE_POINTS = ("started", "before-snapshot", "snapshot-created")


def restore(files: TableFiles, number: int, *, at: CommitHook = lambda point: None) -> Snapshot:
    """Commit a snapshot with an older one's content, and return the newest snapshot.

    Nothing is copied or removed. A table with that content gets no new snapshot, so a retry after a crash is safe.

    Raises:
        NotATableError: the path holds no table.
        CatalogError: there is no such snapshot, or it, its catalog files or its data are damaged or missing.
        CommitConflictError: another commit came first, or a vacuum's tombstones include files of the snapshot.
        OSError: the store failed; the table is unchanged.
    """
    catalog = Catalog.open(files.root, snapshot=number)
    target, latest = catalog.snapshot, latest_snapshot(files)
    at("started")
    if latest is not None and _list_content(target) == _list_content(latest):
        return latest
    data = _list_data_files(catalog)
    # Missing index files are no error: queries work without them.
    index_files = {index.path for blocks, _ in catalog.blocks_by_plan().values() for index in blocks.index_files}

    def after(newest: Snapshot | None) -> Snapshot:
        if list_contents(newest) != list_contents(latest):
            raise CommitConflictError(
                f"another commit made snapshot {next_number(newest) - 1} while snapshot {number} was being restored; "
                "look at the table, then restore again if it still needs it"
            )
        return make_next_snapshot(newest, target, RESTORE, load_id)

    load_id = f"restore-{new_load_id()}"
    # Planned on the old snapshot: files with a tombstone since then can't be named again.
    lists = {name.path for name in list_source_lists(files, target).values()}
    change = Change(load_id, target, names_of(target.partitions, data | index_files | lists), after)
    return append_snapshot(files, change, at)


def forget_superseded_entries(files: TableFiles, operation: str) -> None:
    """Commit the newest snapshot's content again if its manifests have entries that it replaced or removed.

    Then a vacuum removes the bounds and values of those entries with the older snapshots.

    Raises:
        CommitConflictError: there are too many concurrent commits.
        OSError: the store failed; the table is unchanged.
    """
    latest = latest_snapshot(files)
    if latest is None or sum(manifest.entries for manifest in latest.manifests) <= len(latest.partitions):
        return
    load_id = new_load_id()

    def after(newest: Snapshot | None) -> Snapshot:
        assert newest is not None, "the table has a snapshot"
        return make_next_snapshot(newest, newest, operation, load_id)

    append_snapshot(files, Change(load_id, latest, frozenset(), after, shares=False))


def _list_content(snapshot: Snapshot) -> object:
    return list_contents(snapshot), snapshot.schema, snapshot.partition_by


def _list_data_files(catalog: Catalog) -> frozenset[str]:
    """Return the snapshot's data files; raise CatalogError if one is missing, or a catalog file is damaged."""
    paths = frozenset(path for blocks, _ in catalog.blocks_by_plan().values() for path in blocks.files)
    stored = {file.path for file in catalog.files.walk(DATA)}
    missing = {path for path in paths if catalog.files.stored_path(path) not in stored}
    if missing:
        raise CatalogError(
            f"snapshot {catalog.snapshot.number} can't be restored: its data file {min(missing)!r} is missing; "
            "restore that file from a copy, or choose another snapshot that `history` lists"
        )
    return paths
