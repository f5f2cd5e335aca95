"""Define the verbs that read a table: `query`, `explain`, `files`, `evaluate`, `verify`, `status` and `drift`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from layoutopt.cli.console import Session, add_verb
from layoutopt.cli.inputs import answer_scan, open_at, open_further, prepare_spark, start_spark
from layoutopt.config.settings import (
    DriftSettings,
    EvaluateSettings,
    ExplainSettings,
    FilesSettings,
    QuerySettings,
    StatusSettings,
    VerifySettings,
)
from layoutopt.errors import ContentMismatchError, DataFileError, QueryError, SettingError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from rich.console import Console

    from layoutopt.inspect.block_condition import BlockConditions
    from layoutopt.inspect.cost import DryRun
    from layoutopt.inspect.drift import Regret
    from layoutopt.inspect.evaluate import Evaluation
    from layoutopt.inspect.gate import GateReport
    from layoutopt.inspect.verify import FileChecker, VerifyReport
    from layoutopt.model.query import Query
    from layoutopt.scan.explain import Explanation
    from layoutopt.scan.table import Scan, Table


verbs = typer.Typer()


@add_verb(
    verbs, QuerySettings, example="layoutopt query tables/events \"SELECT count(*) FROM events WHERE country = 'FR'\""
)
def query(settings: QuerySettings, session: Session) -> None:
    """Answer a query; read only blocks that may match.

    The query may join further tables, given by --with.
    """
    options = {} if settings.read_through is None else {"read_through": settings.read_through}
    from layoutopt.report.answers import answer_report, choose_writer, describe_read, print_answer

    write = None if settings.output is None else choose_writer(settings.output)
    table = open_at(session, settings.table_path, settings, indexed=True, **options)
    from layoutopt.inspect.cost import dry_run

    scan = table.scan(settings.sql, tables=open_further(session, settings.further), max_bytes=settings.max_bytes)
    catalog = table.catalog.files.traffic.so_far
    with session.working("reading"):
        answer = answer_scan(scan, settings, session)
    data = table.catalog.files.traffic.so_far - catalog
    limit = settings.limit or (None if session.json else 100)
    read = dry_run(scan)
    if write is not None:
        write(answer)
    traffic = {"traffic": {"catalog": catalog.to_json(), "data": data.to_json()}} if settings.stats else {}

    def show(console: Console) -> None:
        if write is None:
            print_answer(console, answer, limit)
        else:
            console.print(f"Written: {settings.output}, {answer.num_rows:,} rows")
        console.print(describe_read(read))
        if settings.stats:
            local = table.catalog.files.local_root is not None
            text = f"the catalog took {catalog}, data files {data}"
            console.print("files on a local disk: requests are not counted" if local else text)

    rows = answer_report(answer, limit) if write is None else {"output": settings.output, "rows_total": answer.num_rows}
    session.show({**rows, "read": read.to_json(), **traffic}, show)


@add_verb(
    verbs, ExplainSettings, example="layoutopt explain tables/events \"SELECT * FROM events WHERE country = 'FR'\""
)
def explain(settings: ExplainSettings, session: Session) -> None:
    """Explain which blocks a query reads.

    Shows what skips the others, and why each predicate skips no more. A condition alone is enough instead of a query.
    """
    if settings.predicate and settings.bytes:
        raise SettingError("--predicate and --bytes exclude each other; give one of them")
    table = open_at(session, settings.table_path, settings, indexed=True)
    scan = _scan(table, settings.sql, open_further(session, settings.further))
    result: BlockConditions | DryRun | Explanation
    if settings.predicate:
        from layoutopt.inspect.block_condition import block_conditions

        result = block_conditions(scan)
        value, text = result.to_json(), str(result)
    elif settings.bytes:
        from layoutopt.inspect.cost import dry_run

        result = dry_run(scan)
        value, text = result.to_json(), str(result)
    else:
        result = scan.explain()
        value, text = result.to_json(), str(result)
        if session.json and table.catalog.others is None:
            from layoutopt.scan.explain import list_entries

            value = {**value, "entries": list_entries(table, scan.reads)}
        if table.catalog.files.local_root is None:
            traffic = table.catalog.files.traffic.so_far
            value, text = {**value, "traffic": {"catalog": traffic.to_json()}}, f"{text}\nthe catalog took {traffic}"
    if table.catalog.others is not None:
        from layoutopt.external.indexed_source import count_unindexed_files

        count = count_unindexed_files(table.catalog)
        value = {**value, "files_not_indexed": count}
        text += f"\n{count:,} files are newer than the indexes and read whole; `refresh` indexes them" if count else ""
    session.show(value, text)


def _scan(table: Table, text: str, tables: Mapping[str, Table]) -> Scan:
    if re.match(r"[\s(]*(select|with|from|values|table)\b", text, re.IGNORECASE):
        return table.scan(text, tables=tables)
    if tables:
        raise SettingError(f"{text!r} is a condition on {table.name!r} alone; leave out --with, or write a SELECT")
    return table.scan(where=text)


@add_verb(verbs, FilesSettings, example="layoutopt files tables/events")
def files(settings: FilesSettings, session: Session) -> None:
    """List the data files of a layout.

    For engines that read plain Parquet.
    """
    paths = open_at(session, settings.table_path, indexed=True).files(settings.layout)
    session.show(list(paths), "\n".join(paths))


@add_verb(verbs, EvaluateSettings, example="layoutopt evaluate tables/events queries.jsonl --json")
def evaluate(settings: EvaluateSettings, session: Session) -> None:
    """Compute what a log's queries would read.

    Counts rows, cells and bytes from the catalog. --min-skipped and --fail-on-new-full-scan are gates for CI: if the
    log skips less, the command lists the queries that fall short and exits with 5.
    """
    table = open_at(session, settings.table_path, settings)  # before numpy is imported
    from layoutopt.api.functions import analyze_table_log
    from layoutopt.inspect.evaluate import compare, worst_queries
    from layoutopt.inspect.evaluate import evaluate as evaluate_queries
    from layoutopt.report.inspections import print_evaluation

    analysis = analyze_table_log(table, settings.log, settings.column, settings.dialect)
    queries = analysis.queries
    with session.working("evaluating") as work:
        result = evaluate_queries(table, queries, settings.actual, work.step, settings.dialect)
        worst = worst_queries(table, queries, result.queries, settings.dialect)
        predictions = compare(table, queries, result)
    gates = _check_gates(table, queries, result, settings)
    if settings.html is not None:
        from layoutopt.report.pages import evaluation_page

        settings.html.write_text(evaluation_page(result, worst, analysis.reasons), encoding="utf-8")
    session.show(
        lambda: {  # which takes seconds for a long log
            **result.to_json(),
            "predictions": predictions.to_json(),
            **({} if gates is None else {"gates": gates.to_json()}),
            "worst": [query.to_json() for query in worst],
            "skipped": [{"id": s.id, "reason": s.reason, "detail": s.detail} for s in analysis.skipped],
            "skipped_by_reason": analysis.reasons,
        },
        lambda console: print_evaluation(
            console, result, analysis.counts["skipped"], worst, predictions, every=settings.all, gates=gates
        ),
    )
    if gates is not None:
        gates.check()


def _check_gates(
    table: Table, queries: Sequence[Query], result: Evaluation, settings: EvaluateSettings
) -> GateReport | None:
    if not settings.min_skipped and settings.fail_on_new_full_scan is None:
        return None
    from layoutopt.config.fields import parse_threshold
    from layoutopt.inspect.gate import check_gates

    required = dict(map(parse_threshold, settings.min_skipped))
    stored = table.catalog.snapshot.stored_rows
    return check_gates(queries, result, stored, required, settings.fail_on_new_full_scan)


@add_verb(verbs, VerifySettings, example="layoutopt verify tables/events --source events.parquet")
def verify(settings: VerifySettings, session: Session) -> None:
    """Check a table's files or a log's queries.

    Compares the files with the catalog, or proves that a log's queries skip no matching row. Exits with 1 if anything
    is wrong. With --source, also compares all rows with their source.
    """
    if settings.queries is not None and settings.source is not None:
        raise SettingError("--queries and --source are different checks; leave one of them out")
    if settings.queries is not None and settings.engine != "local":
        raise SettingError(f"--queries runs in this process; leave out --engine {settings.engine}")
    if settings.queries is not None:
        return _audit(settings, settings.queries, session)
    from layoutopt.inspect.status import verify_path
    from layoutopt.report.inspections import print_verify

    rows = None if settings.source is None else _open_source(settings.table_path, settings.source, session)
    checker = None if settings.engine == "local" else _make_spark_checker(settings.table_path, session)
    with session.working("verifying") as work:
        report = verify_path(
            settings.table_path, settings.sample, work.step,
            snapshot=settings.snapshot, as_of=settings.as_of, checker=checker,
        )  # fmt: skip
        damaged = not report.ok
        if settings.source is not None and rows is not None:
            report = _compare_with_source(report, rows, settings, session, work.say)
    session.show(report.to_json(), lambda console: print_verify(console, report))
    if damaged:
        raise DataFileError(f"{len(report.problems)} problems in {settings.table_path!r}; load those partitions again")
    if report.source is not None and not report.ok:
        raise ContentMismatchError(
            f"{settings.table_path!r} and {settings.source!r} differ in {report.source.differences} places; "
            "load the missing and different rows again, unless the source has changed since"
        )
    return None


def _check_is_table(table_path: str) -> None:
    """Fail before Spark starts, which takes seconds."""
    from layoutopt.catalog.storage.filesystem import TableFiles
    from layoutopt.catalog.table_root import check_is_table

    check_is_table(TableFiles(table_path))


def _make_spark_checker(table_path: str, session: Session) -> FileChecker:
    _check_is_table(table_path)
    from layoutopt.spark.loading.verify import spark_file_checker

    return spark_file_checker(start_spark(session, table=table_path))


def _open_source(table_path: str, source: str, session: Session) -> DataFrame:
    from layoutopt.external.source_check import check_source
    from layoutopt.sources.parquet_files import find_spark_gap

    schema = open_at(session, table_path).schema
    if gap := find_spark_gap(source):
        raise SettingError(f"{gap}, so `verify` can't compare {source!r}; leave out --source, as the load compared it")
    spark = prepare_spark(session, table=table_path)
    if callable(spark):
        check_source(source, schema, "the table")
    from layoutopt.spark.core.sessions import start_session
    from layoutopt.spark.core.source import open_source

    return open_source(start_session(spark), source)


def _compare_with_source(
    report: VerifyReport, rows: DataFrame, settings: VerifySettings, session: Session, say: Callable[[str], None]
) -> VerifyReport:
    """Return a report with the differences between a table and its source; a damaged table is not compared."""
    source = str(settings.source)
    if not report.ok:
        return replace(report, unchecked=(*report.unchecked, f"the rows of {source}: repair the damaged files first"))
    from layoutopt.spark.loading.source_files import source_partitions
    from layoutopt.spark.loading.verify import compare_with_source

    say("comparing with the source")
    source_partitions(rows, source, None)  # proves that Spark reads whole files
    return report.against(compare_with_source(rows, open_at(session, settings.table_path, settings), source))


def _audit(settings: VerifySettings, log: str, session: Session) -> None:
    """Prove that no query of a log skips a row that it matches.

    Raises:
        DataFileError: a query does.
        QueryError: no query can be audited.
    """
    from layoutopt.api.functions import analyze_table_log
    from layoutopt.inspect.audit import audit
    from layoutopt.report.inspections import print_audit

    table = open_at(session, settings.table_path, settings)
    queries = analyze_table_log(table, log, settings.column, settings.dialect).queries
    with session.working("auditing") as work:
        report = audit(table, queries, settings.dialect, work.step, settings.sample)
    session.show(report.to_json(), lambda console: print_audit(console, report))
    if report.losses:
        raise DataFileError(
            f"{len(report.losses)} blocks of {settings.table_path!r} are skipped although queries match rows in them, "
            f"the first by {report.losses[0].mechanism}: block {report.losses[0].block} of {report.losses[0].file!r}; "
            "load that partition again"
        )
    if not report.ok:
        why = f": {report.unaudited[0][1]}" if report.unaudited else ""
        raise QueryError(f"no query of {log!r} could be audited, so nothing is proved{why}")


@add_verb(verbs, StatusSettings, example="layoutopt status tables/events --json")
def status(settings: StatusSettings, session: Session) -> None:
    """Show a table's partitions, plans, blocks, bytes and last loads."""
    from layoutopt.inspect.status import status as status_of
    from layoutopt.report.inspections import print_status

    report = status_of(open_at(session, settings.table_path).catalog)
    session.show(report.to_json(), lambda console: print_status(console, report))


@add_verb(verbs, DriftSettings, example="layoutopt drift tables/events last-week.jsonl --most 0.1")
def drift(settings: DriftSettings, session: Session) -> None:
    """Check whether a plan still fits a log.

    Compares what the log skips with what the plan's own queries skip, and exits with 5 if it is much less. Also lists
    query families that are new, gone, more or less frequent. --regret estimates what a new plan would save.
    """
    from layoutopt.api.functions import analyze_table_log
    from layoutopt.inspect.drift import check_drift
    from layoutopt.inspect.drift import measure_drift as drift_of
    from layoutopt.report.inspections import print_drift

    table = open_at(session, settings.table_path)
    queries = analyze_table_log(table, settings.log, settings.column, settings.dialect, settings.half_life).queries
    result = drift_of(table, queries)
    if settings.regret:
        result = replace(result, regret=_measure_regret(table, queries, session))
    value = {**result.to_json(), "most": settings.most, "fits": result.fallen <= settings.most}
    session.show(value, lambda console: print_drift(console, result, settings.most))
    check_drift(result, settings.most)


def _measure_regret(table: Table, queries: Sequence[Query], session: Session) -> Regret:
    """Return what a log's queries lose because the table is not planned for them."""
    from layoutopt.inspect.drift import measure_regret
    from layoutopt.inspect.status import current_plan
    from layoutopt.spark.changes.replan import make_fresh_plan

    with session.working("replanning") as work:
        fresh = make_fresh_plan(
            start_spark(session, table=table.catalog.files.root), table, current_plan(table.catalog), queries, work.say
        )
    return measure_regret(fresh.reads, fresh.shares, fresh.plan.digest)
