"""Changing a table that is there: `append`, `delete`, `update`, `merge` and `optimize`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import typer

from layoutopt.cli.console import Session, add_verb
from layoutopt.cli.opening import start_spark
from layoutopt.config.changing import (
    AppendSettings,
    DeleteSettings,
    MergeSettings,
    OptimizeSettings,
    UpdateSettings,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from layoutopt.events import Stages
    from layoutopt.spark.changing.rewrite import ChangeReport
    from layoutopt.writer.load_report import LoadReport

    Changing = DeleteSettings | UpdateSettings | MergeSettings

verbs = typer.Typer()


@add_verb(verbs, AppendSettings, example="layoutopt append tables/events late.parquet --batch-id 2026-02-01")
def append(settings: AppendSettings, session: Session) -> None:
    """Add late rows to the partitions they belong to, each batch once however often this is retried."""
    from layoutopt.cli.startup import start_quickly

    start_quickly()
    from layoutopt.direct.append import append_few
    from layoutopt.errors import NeedsSparkError
    from layoutopt.events import event_log
    from layoutopt.report.changes import print_append

    with session.working("appending") as work, event_log(settings.log_json) as log:
        try:
            _check_no_own_rules(session)
            report = append_few(settings, partial(_join_many, session), work.say, log)
        except NeedsSparkError as reason:
            from layoutopt.spark.changing.append import append_by

            log.write("spark", reason=str(reason))
            report = append_by(start_spark(session, table=settings.table_path), settings, work.say, log)
    session.show(report.to_json(), lambda console: print_append(console, report))


def _check_no_own_rules(session: Session) -> None:
    """Leave an append to Spark where its properties may change what it reads (the calendar of old dates, a store)."""
    from layoutopt.errors import NeedsSparkError

    own = [key for key in session.spark_properties() if key.startswith(("spark.sql.", "spark.hadoop."))]
    if own:
        raise NeedsSparkError(f"the configuration file sets {own[0]}")


def _join_many(session: Session, path: str, keys: Collection[str], watch: Stages) -> LoadReport | None:
    """Join small entries of many rows by Spark."""
    from layoutopt.spark.changing.joining import join_small

    return join_small(start_spark(session, table=path), path, keys, watch)


@add_verb(verbs, DeleteSettings, example='layoutopt delete tables/events --where "user_id = 17"')
def delete(settings: DeleteSettings, session: Session) -> None:
    """Delete rows: few are marked by deletion vectors, with more the partitions that have any are written anew."""
    from layoutopt.spark.changing.rows import delete_by

    _change(settings, session, "deleting", delete_by)


@add_verb(
    verbs,
    UpdateSettings,
    example="layoutopt update tables/events --set \"country = 'CZ'\" --where \"country = 'Czechia'\"",
)
def update(settings: UpdateSettings, session: Session) -> None:
    """Give columns of some rows new values: few are marked and put beside, with more their partitions written anew."""
    from layoutopt.spark.changing.rows import update_by

    _change(settings, session, "updating", update_by)


@add_verb(
    verbs,
    MergeSettings,
    example="layoutopt merge tables/events changes.parquet --on event_id --delete-when \"op = 'D'\"",
)
def merge(settings: MergeSettings, session: Session) -> None:
    """Put rows in the place of those with the same key, add new ones, and delete those that are marked so."""
    from layoutopt.spark.changing.merge import merge_by

    _change(settings, session, "merging", merge_by)


@add_verb(verbs, OptimizeSettings, example="layoutopt optimize tables/events --budget-share 0.1")
def optimize(settings: OptimizeSettings, session: Session) -> None:
    """Write partitions anew where queries gain most for each byte: appended rows joined, older plans replaced.

    With --log by a fresh plan for its queries, made on the table's own rows; with --auto only where that pays by now.
    """
    from layoutopt.events import event_log
    from layoutopt.report.changes import print_optimize
    from layoutopt.spark.changing.optimize import optimize_by

    with session.working("optimizing") as work, event_log(settings.log_json) as log:
        report = optimize_by(start_spark(session, table=settings.table_path), settings, work.say, log)
    if settings.plot is not None:
        from layoutopt.report.regained_plot import plot_regained

        plot_regained(report.curve, settings.plot)
    session.show(report.to_json(), lambda console: print_optimize(console, report))


def _change(settings: Changing, session: Session, doing: str, change: Callable[..., ChangeReport]) -> None:
    """Change rows, and show what was done."""
    from layoutopt.events import event_log
    from layoutopt.report.changes import print_change

    with session.working(doing) as work, event_log(settings.log_json) as log:
        report = change(start_spark(session, table=settings.table_path), settings, work.say, log)
    session.show(report.to_json(), lambda console: print_change(console, report))
