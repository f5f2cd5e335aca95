"""Delete, update and merge rows of a table, whatever computes the rows.

Each verb says which rows go and which come; :mod:`layoutopt.changes.commit` commits them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, TypeAlias

from layoutopt.catalog.commit import forget_superseded_entries
from layoutopt.catalog.deletion_vectors import DELETE
from layoutopt.catalog.load_check import Content
from layoutopt.catalog.partition_names import PlainValue
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.vacuum import vacuum
from layoutopt.changes.affected_rows import Rows, TableChange, choose_marks, mark_limit
from layoutopt.changes.commit import ChangeReport, NewRows, RowChange, commit_change
from layoutopt.errors import PublicationError, SourceError
from layoutopt.events import NO_EVENTS, EventLog, Progress, Stages, silent
from layoutopt.external.source_check import check_source
from layoutopt.inspect.status import current_plan
from layoutopt.model.requests import ChangeRequest, DeleteRequest, MergeRequest, UpdateRequest
from layoutopt.model.types import unquote_name
from layoutopt.publish.publishing import publish_after
from layoutopt.scan.table import Table
from layoutopt.sources.door import Door
from layoutopt.sql.expression_check import check_condition, check_expression, find_column, split_assignments

# Opens a table to be changed, at its newest snapshot, by its path; the function checks the change beforehand.
OpenChange: TypeAlias = Callable[[str, Callable[[Table], None]], TableChange[Rows]]


def change_rows(
    door: Door[OpenChange[Any]], request: ChangeRequest, say: Progress = silent, log: EventLog = NO_EVENTS
) -> ChangeReport:
    """Delete, update or merge rows, as the request says.

    Deletion vectors are used where few rows of the affected partitions are changed. Hard deletes and published tables
    rewrite the partitions, since readers of other formats don't know the vectors.

    A hard delete also rewrites all partitions with deleted rows, then removes the older snapshots and their files, so
    no data file has a copy of a deleted row, and no manifest its bounds. The catalog's file of a load keeps the least
    and greatest values of blocks that are gone while another partition of that load is unchanged. Concurrent readers of
    older snapshots fail; concurrent loads may have to retry.

    Raises:
        SettingError: a condition, an assignment or a key column is invalid.
        SourceError: the source of a merge has a key twice or a NULL key.
        CommitConflictError: another commit changed one of the partitions.
        PublicationError: of a hard delete: an older snapshot is still published.
        NeedsSparkError: only Spark surely knows the rows, and the door has no opener for it; nothing was written.
        LayoutoptError: as :func:`layoutopt.loading.load.load`.
    """
    watch = Stages(say, log)
    change: Callable[[OpenChange[Any]], ChangeReport]
    match request:
        case DeleteRequest():
            change = partial(_delete, request, watch)
        case UpdateRequest():
            change = partial(_update, request, watch)
        case MergeRequest():
            change = partial(_merge, request, watch)
    is_hard = isinstance(request, DeleteRequest) and request.hard
    with publish_after(request.table_path, request.publish, say, log):
        report = door.read(change)
        if is_hard and report.load is None:  # its commit shares no manifest
            forget_superseded_entries(TableFiles(request.table_path), DELETE)
    if not is_hard:
        return report
    with watch.stage("vacuum", "removing older snapshots"):
        removed = vacuum(TableFiles(request.table_path), 1, timedelta(0))
    if removed.published:
        snapshots = ", ".join(map(str, removed.published))
        raise PublicationError(
            f"the rows are deleted, but copies are left: snapshots {snapshots} are published as tables of another "
            "format; publish the newest snapshot there, or run `publish --forget`, then run the same command again"
        )
    return replace(report, vacuum=removed)


def _delete(request: DeleteRequest, watch: Stages, open_change: OpenChange[Rows]) -> ChangeReport:
    with watch.stage("all", "looking for rows to delete"):
        change = open_change(request.table_path, lambda table: check_condition("--where", request.where, table.schema))
        limit = 0.0 if request.hard else mark_limit(change.table, request)
        removed = choose_marks(change.table, change.find(request.where, locate=limit > 0), limit)
        values: tuple[PlainValue, ...] = ()
        if request.hard:  # no copy of rows deleted earlier may be left either
            keys = {entry.key for entry in change.table.catalog.partitions if entry.deletes is not None}
            values = change.read_stored_values(keys)
    report = ChangeReport(request.table_path, deleted=removed.content.rows)
    if not removed.content.rows and not values:
        return report
    keep = partial(change.exclude, where=request.where)
    row_change = RowChange(removed, keep, values=values, shares=not request.hard)
    return commit_change(change, DELETE, report, row_change, watch)


def _update(request: UpdateRequest, watch: Stages, open_change: OpenChange[Rows]) -> ChangeReport:
    with watch.stage("all", "looking for rows to update"):
        change = open_change(request.table_path, partial(_check_update, request))
        names = split_assignments(request.assignments, change.table.schema, change.plan.partition_by)
        assign, limit = change.parse_assignments(names), mark_limit(change.table, request)
        removed = choose_marks(change.table, change.find(request.where, locate=limit > 0), limit)
    report = ChangeReport(request.table_path, updated=removed.content.rows)
    if not removed.content.rows:
        return report
    with watch.stage("all", "computing the new rows"), change.translate_errors(request.assignments):
        new_rows = assign(removed.rows, None)
        if removed.segments is None:
            content = change.measure(new_rows, repr(request.table_path))
        else:  # computed once, since an expression may return another value each time
            new_rows = change.compute(new_rows)
            unchanged = [name for name in change.plan.schema.names if name not in names]
            content = Content(removed.content.rows, {name: removed.content.sums[name] for name in unchanged})
    row_change = RowChange(removed, lambda rows: assign(rows, request.where), NewRows(new_rows, content))
    return commit_change(change, "update", report, row_change, watch)


def _check_update(request: UpdateRequest, table: Table) -> None:
    partition_by = current_plan(table.catalog).partition_by if table.catalog.plans else None
    for name, value in split_assignments(request.assignments, table.schema, partition_by).items():
        check_expression("--set", f"{name} ={value}", table.schema)
    check_condition("--where", request.where, table.schema)


def _merge(request: MergeRequest, watch: Stages, open_change: OpenChange[Rows]) -> ChangeReport:
    with watch.stage("all", "comparing keys"):
        change = open_change(request.table_path, partial(_check_merge, request))
        keys = [find_column("--on", unquote_name(name), change.plan.schema).name for name in request.on]
        source, upserts = change.read_source(request)
        repeated = change.find_repeated_key(source, keys, request.source)
        if repeated is not None:
            key = ", ".join(f"{name}={value!r}" for name, value in zip(keys, repeated, strict=False))
            raise SourceError(f"{request.source!r} has {repeated[-1]} rows with {key}; keep the newest of each key")
        # Both are read several times, and joins may return rows in another order each time.
        removed = choose_marks(change.table, change.find_keys(source, keys), mark_limit(change.table, request))
        new_rows = change.compute(upserts)
        new = change.measure(new_rows, repr(request.source))
        common = change.select_keys(new_rows, removed.rows, keys, present=True)
        updated = change.measure(common, repr(request.source)).rows
        values = change.list_values(new_rows) if removed.segments is None else ()
    report = ChangeReport(request.table_path, removed.content.rows - updated, updated, new.rows - updated)
    if not removed.content.rows and not new.rows:
        return report

    def rewritten(rows: Rows) -> Rows:
        return change.compute(change.unite(change.select_keys(rows, source, keys, present=False), new_rows))

    row_change = RowChange(removed, rewritten, NewRows(new_rows, new), values, exclusive=True)
    return commit_change(change, "merge", report, row_change, watch)


def _check_merge(request: MergeRequest, table: Table) -> None:
    schema = current_plan(table.catalog).schema
    for name in request.on:
        find_column("--on", unquote_name(name), schema)
    has_more = request.delete_when is not None
    columns = check_source(request.source, schema, "the table", more=has_more)
    if request.delete_when is not None and columns is not None:
        check_condition("--delete-when", request.delete_when, columns)
