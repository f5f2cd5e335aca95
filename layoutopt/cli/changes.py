"""Define the verbs that change a table, from `append` to `optimize`, then `history`, `expire`, `vacuum`, `restore`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from layoutopt.cli.console import Session, add_verb
from layoutopt.cli.inputs import make_execution, prepare_spark
from layoutopt.config.fields import parse_age
from layoutopt.config.settings import (
    AppendSettings,
    DeleteSettings,
    ExpireSettings,
    HistorySettings,
    MergeSettings,
    OptimizeSettings,
    RestoreSettings,
    UpdateSettings,
    VacuumSettings,
)
from layoutopt.model.requests import AppendRequest, DeleteRequest, MergeRequest, OptimizeRequest, UpdateRequest

if TYPE_CHECKING:
    from layoutopt.model.requests import ChangeRequest

    Changing = DeleteSettings | UpdateSettings | MergeSettings

verbs = typer.Typer()


@add_verb(verbs, AppendSettings, example="layoutopt append tables/events late.parquet --batch-id 2026-02-01")
def append(settings: AppendSettings, session: Session) -> None:
    """Append late rows to their partitions.

    Retries append a batch only once.
    """
    from layoutopt.cli.startup import start_quickly

    start_quickly()
    from layoutopt.events import event_log
    from layoutopt.report.changes import print_append

    request = settings.to_request(AppendRequest)
    with event_log(settings.log_json) as log, session.working("appending", log) as work:
        execution = make_execution(session, settings.executor, table=settings.table_path)
        report = execution.append(request, work.say, log)
    session.show(report.to_json(), lambda console: print_append(console, report))


@add_verb(verbs, DeleteSettings, example='layoutopt delete tables/events --where "user_id = 17"')
def delete(settings: DeleteSettings, session: Session) -> None:
    """Delete rows.

    Writes deletion vectors for few rows, and rewrites the affected partitions for many.
    """
    _change(settings, settings.to_request(DeleteRequest), session, "deleting")


@add_verb(
    verbs,
    UpdateSettings,
    example="layoutopt update tables/events --set \"country = 'CZ'\" --where \"country = 'Czechia'\"",
)
def update(settings: UpdateSettings, session: Session) -> None:
    """Update columns of some rows.

    Writes few rows to new files, and rewrites the affected partitions for many.
    """
    _change(settings, settings.to_request(UpdateRequest), session, "updating")


@add_verb(
    verbs,
    MergeSettings,
    example="layoutopt merge tables/events changes.parquet --on event_id --delete-when \"op = 'D'\"",
)
def merge(settings: MergeSettings, session: Session) -> None:
    """Merge a source into a table by key.

    Replaces rows with the same key, inserts new ones, and deletes those of --delete-when.
    """
    _change(settings, settings.to_request(MergeRequest), session, "merging")


@add_verb(verbs, OptimizeSettings, example="layoutopt optimize tables/events --budget-share 0.1")
def optimize(settings: OptimizeSettings, session: Session) -> None:
    """Rewrite partitions where queries gain most.

    Compacts appended rows and replaces older plans, the best gain per byte first. With --log, makes a new plan for the
    log's queries from the table's rows. With --auto, rewrites only where it pays.
    """
    from layoutopt.events import event_log
    from layoutopt.report.changes import print_optimize
    from layoutopt.spark.changes.optimize import optimize_table

    request = settings.to_request(OptimizeRequest, curve=settings.plot is not None)
    with event_log(settings.log_json) as log, session.working("optimizing", log) as work:
        report = optimize_table(prepare_spark(session, table=settings.table_path), request, work.say, log)
    if settings.plot is not None:
        from layoutopt.report.pages import plot_regained

        plot_regained(report.curve, settings.plot)
    session.show(report.to_json(), lambda console: print_optimize(console, report))


def _change(settings: Changing, request: ChangeRequest, session: Session, title: str) -> None:
    from layoutopt.cli.startup import start_quickly

    start_quickly()
    from layoutopt.events import event_log
    from layoutopt.report.changes import print_change

    with event_log(settings.log_json) as log, session.working(title, log) as work:
        execution = make_execution(session, settings.executor, table=settings.table_path)
        report = execution.change(request, work.say, log)
    session.show(report.to_json(), lambda console: print_change(console, report))


@add_verb(verbs, HistorySettings, example="layoutopt history tables/events")
def history(settings: HistorySettings, session: Session) -> None:
    """List a table's snapshots, oldest first."""
    from layoutopt.catalog.history import history as history_of
    from layoutopt.catalog.source_lists import read_new_sources
    from layoutopt.catalog.table import Catalog
    from layoutopt.report.tables import history_report, print_history

    files = Catalog.open(settings.table_path).files
    snapshots = history_of(files)
    sources = read_new_sources(files, [entry.number for entry in snapshots]) if settings.sources else None
    session.show(
        history_report(snapshots, sources),
        lambda console: print_history(console, snapshots, sources),
    )


@add_verb(verbs, ExpireSettings, example="layoutopt expire tables/events --before 2024-01-01 --dry-run")
def expire(settings: ExpireSettings, session: Session) -> None:
    """Drop old partitions.

    Changes the catalog alone, and reads no row. `vacuum` frees the files later; `restore` brings the partitions back
    until then.
    """
    from layoutopt.catalog.expire import expire as expire_partitions
    from layoutopt.catalog.storage.filesystem import TableFiles
    from layoutopt.publish.publishing import publish_after
    from layoutopt.report.tables import print_expire

    places = () if settings.dry_run else settings.publish
    with session.working("expiring") as work, publish_after(settings.table_path, places, work.say):
        report = expire_partitions(
            TableFiles(settings.table_path),
            partitions=settings.partition,
            before=settings.before,
            keep=None if settings.keep is None else parse_age(settings.keep),
            everything=settings.all,
            dry_run=settings.dry_run,
        )
    session.show(report.to_json(), lambda console: print_expire(console, report))


@add_verb(
    verbs, VacuumSettings, example="layoutopt vacuum tables/events --retain-snapshots 10 --older-than 7d --dry-run"
)
def vacuum(settings: VacuumSettings, session: Session) -> None:
    """Remove old snapshots and unneeded files.

    Keeps the files that a kept snapshot or a running load needs.
    """
    from layoutopt.catalog.storage.filesystem import TableFiles
    from layoutopt.catalog.vacuum import vacuum as vacuum_table
    from layoutopt.report.tables import print_vacuum

    files, age = TableFiles(settings.table_path), parse_age(settings.older_than)
    report = vacuum_table(files, settings.retain_snapshots, age, dry_run=settings.dry_run)
    session.show(report.to_json(), lambda console: print_vacuum(console, report))


@add_verb(verbs, RestoreSettings, example="layoutopt restore tables/events --snapshot 41")
def restore(settings: RestoreSettings, session: Session) -> None:
    """Restore the content of an older snapshot.

    Commits it as a new snapshot; later snapshots stay in the history.
    """
    from layoutopt.catalog.commit import restore as restore_table
    from layoutopt.catalog.storage.filesystem import TableFiles

    new = restore_table(TableFiles(settings.table_path), settings.snapshot)
    value = {"snapshot": new.number, "restored": settings.snapshot, "partitions": len(new.partitions), "rows": new.rows}
    session.show(value, f"Snapshot {new.number} has the content of snapshot {settings.snapshot}: {new.rows:,} rows")
