"""A table's past: `history`, `vacuum` and `restore`."""

from __future__ import annotations

import typer

from layoutopt.cli.console import Session, add_verb
from layoutopt.config.fields import parse_age
from layoutopt.config.keeping import HistorySettings, RestoreSettings, VacuumSettings

verbs = typer.Typer()


@add_verb(verbs, HistorySettings, example="layoutopt history tables/events")
def history(settings: HistorySettings, session: Session) -> None:
    """List a table's snapshots, the newest last."""
    from layoutopt.report.tables import history_report, print_history

    found = history_report(settings.table_path)
    session.show(found, lambda console: print_history(console, found))


@add_verb(
    verbs, VacuumSettings, example="layoutopt vacuum tables/events --retain-snapshots 10 --older-than 7d --dry-run"
)
def vacuum(settings: VacuumSettings, session: Session) -> None:
    """Remove old snapshots, and the files that no kept snapshot and no running load needs."""
    from layoutopt.catalog.retention.vacuum import vacuum as vacuum_table
    from layoutopt.catalog.storage.filesystem import TableFiles
    from layoutopt.report.tables import print_vacuum

    files, age = TableFiles(settings.table_path), parse_age(settings.older_than)
    report = vacuum_table(files, settings.retain_snapshots, age, dry_run=settings.dry_run)
    session.show(report.to_json(), lambda console: print_vacuum(console, report))


@add_verb(verbs, RestoreSettings, example="layoutopt restore tables/events --snapshot 41")
def restore(settings: RestoreSettings, session: Session) -> None:
    """Make a table what it was at an older snapshot, by a new one; nothing is lost by it."""
    from layoutopt.catalog.restore import restore as restore_table
    from layoutopt.catalog.storage.filesystem import TableFiles

    now = restore_table(TableFiles(settings.table_path), settings.snapshot)
    value = {"snapshot": now.number, "restored": settings.snapshot, "partitions": len(now.partitions), "rows": now.rows}
    session.show(value, f"Snapshot {now.number} has the content of snapshot {settings.snapshot}: {now.rows:,} rows")
