"""Questions about a table: `evaluate`, `verify`, `status` and `drift`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from layoutopt.cli.console import Session, add_verb
from layoutopt.cli.opening import analysed, calibration_of, open_at, start_spark
from layoutopt.config.keeping import DriftSettings, StatusSettings
from layoutopt.config.settings import EvaluateSettings, VerifySettings
from layoutopt.errors import ContentMismatchError, DataFileError, QueryError, SettingError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from layoutopt.inspect.regret import Regret
    from layoutopt.inspect.verify import FileChecker, VerifyReport
    from layoutopt.model.query import Query
    from layoutopt.scan.table import Table

verbs = typer.Typer()


@add_verb(verbs, EvaluateSettings, example="layoutopt evaluate tables/events queries.jsonl --json")
def evaluate(settings: EvaluateSettings, session: Session) -> None:
    """Replay a query log on the catalog alone: the rows, cells and bytes that its queries would read."""
    from layoutopt.inspect.evaluate import evaluate as evaluate_queries
    from layoutopt.inspect.predictions import compare
    from layoutopt.inspect.worst import worst_queries
    from layoutopt.report.evaluation import print_evaluation

    table = open_at(session, settings.table_path, settings)
    found = analysed(table, settings.log, settings.column, settings.dialect)
    with session.working("evaluating") as work:
        given = calibration_of(settings.calibration)
        result = evaluate_queries(table, found.queries, settings.actual, work.step, settings.dialect, given)
        worst = worst_queries(table, found.queries, result["queries"], settings.dialect)
        result["predictions"] = compare(table, found.queries, result)
    skipped = [{"id": s.id, "reason": s.reason, "detail": s.detail} for s in found.skipped]
    if settings.html is not None:
        from layoutopt.report.page import evaluation_page

        settings.html.write_text(evaluation_page(result, worst, skipped), encoding="utf-8")
    session.show(
        {**result, "worst": worst, "skipped": skipped},
        lambda console: print_evaluation(console, result, found.skipped, worst, every=settings.all),
    )


@add_verb(verbs, VerifySettings, example="layoutopt verify tables/events --source events.parquet")
def verify(settings: VerifySettings, session: Session) -> None:
    """Read a table's files again and compare them with the catalog, or audit what a log skips; exit 1 if wrong.

    With --source also compare all rows with those that the table was loaded from.
    """
    if settings.queries is not None and settings.source is not None:
        raise SettingError("--queries and --source are two different checks; leave one of them out")
    if settings.queries is not None and settings.engine != "local":
        raise SettingError(f"--queries is audited here; leave out --engine {settings.engine}")
    if settings.queries is not None:
        return _audit(settings, settings.queries, session)
    from layoutopt.inspect.intact import verify_path
    from layoutopt.report.inspections import print_verify

    rows = None if settings.source is None else _open_source(settings.table_path, settings.source, session)
    checker = None if settings.engine == "local" else _in_spark(settings.table_path, session)
    with session.working("verifying") as work:
        report = verify_path(
            settings.table_path, settings.sample, work.step,
            snapshot=settings.snapshot, as_of=settings.as_of, checker=checker,
        )  # fmt: skip
        damaged = not report.ok
        if settings.source is not None and rows is not None:
            report = _against_source(report, rows, settings, session, work.say)
    session.show(report.to_json(), lambda console: print_verify(console, report))
    if damaged:
        raise DataFileError(f"{len(report.problems)} problems in {settings.table_path!r}; load those partitions again")
    if report.source is not None and not report.ok:
        raise ContentMismatchError(
            f"{settings.table_path!r} and {settings.source!r} differ in {report.source.differences} places; "
            "load what is missing or other in the table, unless the source was moved on"
        )
    return None


def _check_is_table(table_path: str) -> None:
    """Whatever is wrong with a path is said before Spark is started, which takes seconds."""
    from layoutopt.catalog.snapshots import check_is_table
    from layoutopt.catalog.storage.filesystem import TableFiles

    check_is_table(TableFiles(table_path))


def _in_spark(table_path: str, session: Session) -> FileChecker:
    _check_is_table(table_path)
    from layoutopt.spark.loading.verifying import in_spark

    return in_spark(start_spark(session, table=table_path))


def _open_source(table_path: str, source: str, session: Session) -> DataFrame:
    """The rows of a source that a table is compared with."""
    _check_is_table(table_path)
    from layoutopt.spark.core.source import open_source

    return open_source(start_spark(session, table=table_path), source)


def _against_source(
    report: VerifyReport, rows: DataFrame, settings: VerifySettings, session: Session, say: Callable[[str], None]
) -> VerifyReport:
    """A report of a table with what its source has and it has not; of a damaged one, that it was not compared."""
    source = str(settings.source)
    if not report.ok:
        return replace(report, unchecked=(*report.unchecked, f"the rows of {source}: what is damaged comes first"))
    from layoutopt.spark.loading.against_source import compare_with_source
    from layoutopt.spark.loading.source_files import source_partitions

    say("comparing with the source")
    source_partitions(rows, source, None)  # proves that Spark reads whole files
    return report.against(compare_with_source(rows, open_at(session, settings.table_path, settings), source))


def _audit(settings: VerifySettings, log: str, session: Session) -> None:
    """Prove that no query of a log skips a row that it asks for.

    Raises:
        DataFileError: one does.
        QueryError: none of them can be looked at.
    """
    from layoutopt.inspect.audit import audit
    from layoutopt.report.inspections import print_audit

    table = open_at(session, settings.table_path, settings)
    found = analysed(table, log, settings.column, settings.dialect)
    with session.working("auditing") as work:
        report = audit(table, found.queries, settings.dialect, work.step)
    session.show(report.to_json(), lambda console: print_audit(console, report))
    if report.losses:
        raise DataFileError(
            f"{len(report.losses)} blocks of {settings.table_path!r} are skipped though queries ask for rows in them, "
            f"the first by {report.losses[0].mechanism}: block {report.losses[0].block} of {report.losses[0].file!r}; "
            "load that partition again"
        )
    if not report.ok:
        why = f": {report.unaudited[0][1]}" if report.unaudited else ""
        raise QueryError(f"no query of {log!r} could be audited, so nothing is proved{why}")


@add_verb(verbs, StatusSettings, example="layoutopt status tables/events --json")
def status(settings: StatusSettings, session: Session) -> None:
    """Say what a table holds: partitions, plans, blocks, bytes and its last loads."""
    from layoutopt.inspect.status import status as status_of
    from layoutopt.report.inspections import print_status

    found = status_of(open_at(session, settings.table_path).catalog)
    session.show(found.to_json(), lambda console: print_status(console, found))


@add_verb(verbs, DriftSettings, example="layoutopt drift tables/events last-week.jsonl --most 0.1")
def drift(settings: DriftSettings, session: Session) -> None:
    """Compare what a recent log skips with what the plan's own queries do; exit 1 where it is much less.

    Says too which families of queries are new, gone, grown and shrunk, and with --regret what planning anew would save.
    """
    from layoutopt.inspect.drift import check_drift
    from layoutopt.inspect.drift import drift as drift_of
    from layoutopt.report.inspections import print_drift

    table = open_at(session, settings.table_path)
    queries = analysed(table, settings.log, settings.column, settings.dialect, settings.half_life).queries
    result = drift_of(table, queries)
    if settings.regret:
        result = replace(result, regret=_regret(table, queries, session))
    value = {**result.to_json(), "most": settings.most, "fits": result.fallen <= settings.most}
    session.show(value, lambda console: print_drift(console, result, settings.most))
    check_drift(result, settings.most)


def _regret(table: Table, queries: Sequence[Query], session: Session) -> Regret:
    """What is lost by not planning a table anew for a log's queries."""
    from layoutopt.inspect.regret import regret_of
    from layoutopt.inspect.status import current_plan
    from layoutopt.spark.changing.fresh import fresh_plan

    with session.working("planning anew") as work:
        fresh = fresh_plan(
            start_spark(session, table=table.catalog.files.root), table, current_plan(table.catalog), queries, work.say
        )
    return regret_of(fresh.reads, fresh.shares, fresh.plan.digest)
