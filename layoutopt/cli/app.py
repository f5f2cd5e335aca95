"""The command line: each verb parses, calls and prints. What a verb calls is imported when it runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from layoutopt.cli.console import Session, add_verb, run_app
from layoutopt.config.settings import (
    AnalyzeSettings,
    BenchSettings,
    DriftSettings,
    EvaluateSettings,
    ExplainSettings,
    FilesSettings,
    HistorySettings,
    LoadSettings,
    PlanSettings,
    QuerySettings,
    ReloadSettings,
    RestoreSettings,
    SnapshotSettings,
    StatusSettings,
    VacuumSettings,
    VerifySettings,
    make_settings,
    parse_age,
)
from layoutopt.errors import ContentMismatchError, DataFileError, PlanError, SettingError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from rich.console import Console

    from layoutopt.inspect.condition import BlockConditions
    from layoutopt.inspect.dry_run import DryRun
    from layoutopt.inspect.verify import VerifyReport
    from layoutopt.scan.explain import Explanation
    from layoutopt.scan.table import Scan, Table

app = typer.Typer(
    help="Rewrites date-partitioned Parquet tables into blocks that the queries of a log can skip.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        from layoutopt import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def layoutopt(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Take what is said before the verb."""


@add_verb(app, AnalyzeSettings, example="layoutopt analyze queries.jsonl --schema events.parquet -o features.json")
def analyze(settings: AnalyzeSettings, session: Session) -> None:
    """Find the filters of a query log that are worth skipping by, and write them to a features file."""
    from layoutopt.features.analysis import analyze_log
    from layoutopt.features.stability import plot
    from layoutopt.report.features import print_analysis, summary

    with session.working("analysing the log"):
        analysis = analyze_log(settings)
        settings.output.write_bytes(analysis.document.dumps())
        if settings.plot:
            plot(analysis.document.queries, settings.plot)
    session.show(summary(analysis, settings.output), lambda console: print_analysis(console, analysis, settings.output))


@add_verb(app, PlanSettings, example="layoutopt plan events.parquet --features features.json --partition-by day")
def plan(settings: PlanSettings, session: Session) -> None:
    """Decide how a table's partitions will be laid out, from its rows and a features file, and write a plan."""
    from layoutopt.model.document import FeaturesDocument
    from layoutopt.report.tables import plan_report, print_plan

    document = FeaturesDocument.loads(_read(settings.features, "layoutopt analyze"))
    # Only now: Spark takes seconds to import, and a bad file should not wait for it.
    from layoutopt.report.tuning_plot import plot
    from layoutopt.spark.planning.automatic import plan_best

    with session.working("planning") as work:
        made = plan_best(_spark(session), settings, document, work.say, plot)
        settings.output.write_bytes(made.dumps())
    session.show(plan_report(made, settings.output), lambda console: print_plan(console, made, settings.output))


@add_verb(
    app, LoadSettings, example="layoutopt load events.parquet tables/events --plan plan.json --partition day=2026-01-31"
)
def load(settings: LoadSettings, session: Session) -> None:
    """Write a source's partitions as blocks into a table, once each, and commit them once rows and checksums agree."""
    _load(settings, session)


def _load(settings: LoadSettings, session: Session) -> None:
    from layoutopt.events import event_log

    _check_plan_is_there(settings)
    # Only now: Spark takes seconds to import, and a bad file should not wait for it.
    from layoutopt.report.tables import print_loads
    from layoutopt.spark.loading.loads import load_by

    with session.working("loading") as work, event_log(settings.log_json) as log:
        report = load_by(_spark(session), settings, work.say, log)
    session.show(report.to_json(), lambda console: print_loads(console, report))


@add_verb(
    app,
    ReloadSettings,
    example="layoutopt reload tables/events events.parquet --partition day=2026-01-31 --plan new.json",
)
def reload(settings: ReloadSettings, session: Session) -> None:
    """Load partitions once more in place of what they hold, by the table's plan or a new one."""
    if not settings.partition and settings.first is None and settings.last is None:
        raise SettingError(f"no partition of {settings.table_path!r} is named; give --partition, or --from and --to")
    given = {name: getattr(settings, name) for name in type(settings).model_fields}
    _load(make_settings(LoadSettings, {**given, "replace": True}), session)


@add_verb(
    app, QuerySettings, example="layoutopt query tables/events \"SELECT count(*) FROM events WHERE country = 'FR'\""
)
def query(settings: QuerySettings, session: Session) -> None:
    """Answer a query, reading only the blocks that may match."""
    table = _open(settings.table_path, settings)
    from layoutopt.report.tables import answer_report, print_answer

    with session.working("reading"):
        answer = _answer(table, settings, session)
    limit = settings.limit or (None if session.json else 100)
    session.show(answer_report(answer, limit), lambda console: print_answer(console, answer, limit))


@add_verb(app, ExplainSettings, example="layoutopt explain tables/events \"SELECT * FROM events WHERE country = 'FR'\"")
def explain(settings: ExplainSettings, session: Session) -> None:
    """Say which blocks a query reads, what skips the others, and for each predicate why it skips no more.

    Of the query only what it reads matters, so a bare condition will do.
    """
    scan = _scan(_open(settings.table_path, settings), settings.sql)
    result: BlockConditions | DryRun | Explanation
    if settings.predicate:
        from layoutopt.inspect.condition import block_conditions

        result = block_conditions(scan)
    elif settings.bytes:
        from layoutopt.inspect.dry_run import dry_run

        result = dry_run(scan)
    else:
        result = scan.explain()
    session.show(result.to_json(), lambda console: console.print(result))


@add_verb(app, EvaluateSettings, example="layoutopt evaluate tables/events queries.jsonl --json")
def evaluate(settings: EvaluateSettings, session: Session) -> None:
    """Replay a query log on the catalog alone: the rows, cells and bytes that each query would read."""
    from layoutopt.inspect.evaluate import evaluate as evaluate_queries
    from layoutopt.inspect.predictions import compare
    from layoutopt.inspect.worst import worst_queries
    from layoutopt.report.tables import print_evaluation
    from layoutopt.workload.analyze import analyze as analyze_queries
    from layoutopt.workload.log import read_log

    table = _open(settings.table_path, settings)
    entries = read_log(settings.log, column=settings.column, dialect=settings.dialect)
    found = analyze_queries(entries, table.schema, table.name, settings.dialect, table.settings)
    with session.working("evaluating") as work:
        result = evaluate_queries(table, found.queries, settings.actual, work.step, settings.dialect)
        worst = worst_queries(table, found.queries, result["queries"], settings.dialect)
        result["predictions"] = compare(table, result)
    skipped = [{"id": s.id, "reason": s.reason, "detail": s.detail} for s in found.skipped]
    if settings.html is not None:
        from layoutopt.report.page import evaluation_page

        settings.html.write_text(evaluation_page(result, worst, skipped), encoding="utf-8")
    session.show(
        {**result, "worst": worst, "skipped": skipped},
        lambda console: print_evaluation(console, result, found.skipped, worst),
    )


@add_verb(app, VerifySettings, example="layoutopt verify tables/events --source events.parquet")
def verify(settings: VerifySettings, session: Session) -> None:
    """Read a table's files again and compare them with the catalog, or audit what a log skips; exit 1 if wrong.

    With --source also compare all rows with those that the table was loaded from.
    """
    if settings.queries is not None and settings.source is not None:
        raise SettingError("--queries and --source are two different checks; leave one of them out")
    if settings.queries is not None:
        return _audit(settings, settings.queries, session)
    from layoutopt.inspect.intact import verify_path

    rows = None if settings.source is None else _open_source(settings.table_path, settings.source, session)
    with session.working("verifying") as work:
        report = verify_path(
            settings.table_path, settings.sample, work.step, snapshot=settings.snapshot, as_of=settings.as_of
        )
        damaged = not report.ok
        if settings.source is not None and rows is not None:
            report = _against_source(report, rows, settings, settings.source, work.say)
    session.show(report.to_json(), lambda console: console.print(report))
    if damaged:
        raise DataFileError(f"{len(report.problems)} problems in {settings.table_path!r}; load those partitions again")
    if report.source is not None and not report.ok:
        raise ContentMismatchError(
            f"{settings.table_path!r} and {settings.source!r} differ in {report.source.differences} places; "
            "load what is missing or other in the table, unless the source was moved on"
        )
    return None


@add_verb(app, FilesSettings, example="layoutopt files tables/events")
def files(settings: FilesSettings, session: Session) -> None:
    """List the current snapshot's data files of one layout, for engines that read plain Parquet."""
    paths = _open(settings.table_path).files(settings.layout)
    session.show(list(paths), lambda console: console.out("\n".join(paths), highlight=False))


@add_verb(app, HistorySettings, example="layoutopt history tables/events")
def history(settings: HistorySettings, session: Session) -> None:
    """List a table's snapshots, the newest last."""
    from layoutopt.report.tables import history_report, print_history

    snapshots = history_report(settings.table_path)
    session.show(snapshots, lambda console: print_history(console, snapshots))


@add_verb(app, StatusSettings, example="layoutopt status tables/events --json")
def status(settings: StatusSettings, session: Session) -> None:
    """Say what a table holds: partitions, plans, blocks, bytes and its last loads."""
    from layoutopt.inspect.status import status as status_of

    found = status_of(_open(settings.table_path).catalog)
    session.show(found.to_json(), lambda console: console.print(found))


@add_verb(app, DriftSettings, example="layoutopt drift tables/events last-week.jsonl --most 0.1")
def drift(settings: DriftSettings, session: Session) -> None:
    """Compare what a recent log skips with what the plan's own queries do; exit 1 where it is much less."""
    from layoutopt.inspect.drift import check_drift
    from layoutopt.inspect.drift import drift as drift_of
    from layoutopt.workload.analyze import analyze as analyze_queries
    from layoutopt.workload.log import read_log

    table = _open(settings.table_path)
    entries = read_log(settings.log, column=settings.column, dialect=settings.dialect)
    found = analyze_queries(entries, table.schema, table.name, settings.dialect, table.settings)
    result = drift_of(table, found.queries)
    session.show(result.to_json(), lambda console: console.print(result))
    check_drift(result, settings.most)


@add_verb(app, VacuumSettings, example="layoutopt vacuum tables/events --retain-snapshots 10 --older-than 7d --dry-run")
def vacuum(settings: VacuumSettings, session: Session) -> None:
    """Remove old snapshots, and the files that no kept snapshot and no running load needs."""
    from layoutopt.catalog.storage.filesystem import TableFiles
    from layoutopt.catalog.vacuum import vacuum as vacuum_table
    from layoutopt.report.tables import print_vacuum

    files, age = TableFiles(settings.table_path), parse_age(settings.older_than)
    report = vacuum_table(files, settings.retain_snapshots, age, dry_run=settings.dry_run)
    session.show(report.to_json(), lambda console: print_vacuum(console, report))


@add_verb(app, RestoreSettings, example="layoutopt restore tables/events --snapshot 41")
def restore(settings: RestoreSettings, session: Session) -> None:
    """Make a table what it was at an older snapshot, by a new one; nothing is lost by it."""
    from layoutopt.catalog.restore import restore as restore_table
    from layoutopt.catalog.storage.filesystem import TableFiles

    now = restore_table(TableFiles(settings.table_path), settings.snapshot)
    value = {"snapshot": now.number, "restored": settings.snapshot, "partitions": len(now.partitions), "rows": now.rows}
    text = f"Snapshot {now.number} has the content of snapshot {settings.snapshot}: {now.rows:,} rows"
    session.show(value, lambda console: console.print(text))


@add_verb(app, BenchSettings, example="layoutopt bench demo --sf 0.1")
def bench(settings: BenchSettings, session: Session) -> None:
    """Run an experiment: generate its data, lay it out in several ways, and compare what queries scan."""
    if settings.experiment == "demo":
        from layoutopt.bench.tpch.demo import run_demo

        run_demo(settings.sf, root=settings.folder)
    elif settings.experiment == "tpch":
        from layoutopt.bench.tpch.runner import run_tpch

        results = run_tpch(settings.sf, root=settings.folder, streams=settings.streams)
        session.show({"results": str(results)}, lambda console: console.print(f"Written: {results}"))
    elif settings.experiment == "query":
        from layoutopt.bench.queries import queries_report, run_queries

        with session.working("timing queries") as work:
            timed = run_queries(settings.sf, root=settings.folder, say=work.say)
        session.show(timed, lambda console: console.print(queries_report(timed, settings.sf)))
    elif settings.experiment == "memory":
        from layoutopt.bench.memory import memory_figures, print_memory
        from layoutopt.bench.scan_memory import print_scans, scan_figures

        figures = memory_figures(settings.sf, root=settings.folder)
        scans = scan_figures(settings.sf, root=settings.folder)

        def both(console: Console) -> None:
            print_memory(console, figures)
            print_scans(console, scans)

        session.show({"loads": [vars(each) for each in figures], "scans": [vars(each) for each in scans]}, both)
    elif settings.experiment == "wide":
        from layoutopt.bench.wide import print_wide, wide_result

        with session.working("planning a synthetic wide table"):
            result = wide_result()
        session.show(result.to_json(), lambda console: print_wide(console, result))
    elif settings.experiment == "estimates":
        from layoutopt.bench.estimates import estimate_figures, print_estimates

        with session.working("comparing estimates") as work:
            compared, stages = estimate_figures(settings.sf, root=settings.folder, say=work.say)
        session.show(
            [figure.to_json() for figure in compared], lambda console: print_estimates(console, compared, stages)
        )
    elif settings.experiment == "partitioners":
        from layoutopt.bench.partitioners import partitioner_figures, print_partitioners

        with session.working("comparing partitioners") as work:
            made = partitioner_figures(settings.sf, root=settings.folder, streams=settings.streams, say=work.say)
        session.show([vars(each) for each in made], lambda console: print_partitioners(console, made))
    elif settings.experiment == "tuning":
        from layoutopt.bench.tpch.tuning import print_tuning, tuning_figures

        with session.working("tuning") as work:
            tuned = tuning_figures(settings.sf, root=settings.folder, streams=settings.streams, say=work.say)
        session.show([vars(each) for each in tuned], lambda console: print_tuning(console, tuned))
    else:
        from layoutopt.bench.figures import run_micro

        run_micro(settings.sf, root=settings.folder)


def _read(path: Path, maker: str) -> bytes:
    """A document's bytes.

    Raises:
        PlanError: the file can't be read; the message names the verb that makes it.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise PlanError(f"{str(path)!r} can't be read ({error.strerror}); make it with `{maker}`") from error


def _check_plan_is_there(settings: LoadSettings) -> None:
    """Before Spark starts: the plan's file can be read, unless the table has a plan itself."""
    from layoutopt.catalog.paths import MARKER
    from layoutopt.catalog.storage.filesystem import TableFiles
    from layoutopt.model.layout import Plan

    if settings.plan is not None or not TableFiles(settings.table_path).exists(MARKER):
        Plan.loads(_read(settings.plan or Path("plan.json"), "layoutopt plan"))


def _open(path: str, at: SnapshotSettings | None = None) -> Table:
    from layoutopt.cli.startup import start_quickly

    start_quickly()
    from layoutopt.scan.table import open_table

    return open_table(path) if at is None else open_table(path, snapshot=at.snapshot, as_of=at.as_of)


def _open_source(table_path: str, source: str, session: Session) -> DataFrame:
    """The rows of a source that a table is compared with; whatever is wrong with a path is said before much is read."""
    from layoutopt.catalog.snapshots import check_is_table
    from layoutopt.catalog.storage.filesystem import TableFiles

    check_is_table(TableFiles(table_path))
    # Only now: Spark takes seconds to import.
    from layoutopt.spark.core.source import open_source

    return open_source(_spark(session), source)


def _against_source(
    report: VerifyReport, rows: DataFrame, settings: VerifySettings, source: str, say: Callable[[str], None]
) -> VerifyReport:
    """A report of a table with what its source has and it has not; of a damaged one, that it was not compared."""
    if not report.ok:
        return replace(report, unchecked=(*report.unchecked, f"the rows of {source}: what is damaged comes first"))
    from layoutopt.spark.loading.against_source import compare_with_source

    say("comparing with the source")
    return report.against(compare_with_source(rows, _open(settings.table_path, settings), source))


def _audit(settings: VerifySettings, log: str, session: Session) -> None:
    """Prove that no query of a log skips a row that it asks for.

    Raises:
        DataFileError: one does.
    """
    from layoutopt.inspect.audit import audit
    from layoutopt.workload.analyze import analyze as analyze_queries
    from layoutopt.workload.log import read_log

    table = _open(settings.table_path, settings)
    entries = read_log(log, column=settings.column, dialect=settings.dialect)
    found = analyze_queries(entries, table.schema, table.name, settings.dialect, table.settings)
    with session.working("auditing") as work:
        report = audit(table, found.queries, settings.dialect, work.step)
    session.show(report.to_json(), lambda console: console.print(report))
    if not report.ok:
        raise DataFileError(
            f"{len(report.losses)} blocks of {settings.table_path!r} are skipped though queries ask for rows in them, "
            f"the first by {report.losses[0].mechanism}: block {report.losses[0].block} of {report.losses[0].file!r}; "
            "load that partition again"
        )


def _scan(table: Table, text: str) -> Scan:
    """The scan of a SQL text, or of a condition alone."""
    is_query = re.match(r"[\s(]*(select|with|from|values|table)\b", text, re.IGNORECASE)
    return table.scan(text) if is_query else table.scan(where=text)


def _spark(session: Session) -> SparkSession:
    from layoutopt.spark.core.sessions import spark_session

    return spark_session("layoutopt", **session.spark_properties())


def _answer(table: Table, settings: QuerySettings, session: Session) -> pa.Table:
    from layoutopt.cli.startup import keep_what_is_loaded

    scan = table.scan(settings.sql)
    if settings.engine == "spark":
        return scan.to_spark(_spark(session)).toArrow()
    keep_what_is_loaded()
    return scan.to_arrow()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code: 0 done, 1 failed, 2 bad usage or bad input."""
    return run_app(app, arguments)
