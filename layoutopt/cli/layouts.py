"""Define the verbs from a query log to a table: `analyze`, `plan`, `advise`, `load`, `reload`."""

from __future__ import annotations

import sys
from functools import cache, partial
from typing import TYPE_CHECKING

import typer

from layoutopt.cli.console import Session, add_verb
from layoutopt.cli.inputs import (
    check_plan_settings,
    find_reading_property,
    find_spark_reason,
    make_execution,
    plan_new_table,
    start_spark,
)
from layoutopt.config.files import make_settings
from layoutopt.config.settings import AdviseSettings, AnalyzeSettings, LoadSettings, PlanSettings, ReloadSettings
from layoutopt.errors import PartitionsFailedError, SettingError, find_interrupt

if TYPE_CHECKING:
    from layoutopt.advice import Advice

verbs = typer.Typer()


@add_verb(verbs, AnalyzeSettings, example="layoutopt analyze queries.jsonl --schema events.parquet -o features.json")
def analyze(settings: AnalyzeSettings, session: Session) -> None:
    """Find the features of a query log.

    Features are filters that help to skip rows. They are written to a features file.
    """
    from layoutopt.external.external_tables import read_schema
    from layoutopt.features.analysis import analyze_log
    from layoutopt.indexes.choosing import suggest_indexes
    from layoutopt.model.requests import AnalyzeRequest
    from layoutopt.report.inspections import analysis_report, print_analysis

    with session.working("analysing the log"):
        schema = read_schema(settings.schema_source, settings.table)
        analysis = analyze_log(settings.to_request(AnalyzeRequest), schema, session.udfs())
        analysis.save(settings.output)
        indexes = suggest_indexes(analysis.document.queries, analysis.document.features)
    value = analysis_report(analysis, indexes, settings.output)
    session.show(value, lambda console: print_analysis(console, analysis, indexes, settings.output))


@add_verb(verbs, PlanSettings, example="layoutopt plan events.parquet --features features.json --partition-by day")
def plan(settings: PlanSettings, session: Session) -> None:
    """Choose a layout for a table.

    Plans from the table's rows and a features file, and writes a plan.
    """
    from layoutopt.config.documents import read_features
    from layoutopt.methods.interface import PlanRequest
    from layoutopt.report.tables import plan_report, print_plan

    document = read_features(settings.features)
    with session.working("planning") as work:
        execution = make_execution(session, settings.executor, document.features.settings)
        new_plan = execution.plan(settings.source, document, settings.to_request(PlanRequest), work.say)
        new_plan.save(settings.output)
    session.show(plan_report(new_plan, settings.output), lambda console: print_plan(console, new_plan, settings.output))


@add_verb(verbs, AdviseSettings, example="layoutopt advise events.parquet queries.jsonl --queries-per-month 40000")
def advise(settings: AdviseSettings, session: Session) -> None:
    """Estimate what layouts would save a log.

    Also prints statements for other engines. Writes nothing, and takes about a minute on two cores for a table of any
    size. A first estimate takes seconds; Ctrl-C ends with what is known.
    """
    from layoutopt.model.requests import AdviseRequest
    from layoutopt.planning.advise import check_request
    from layoutopt.report.advice import describe_estimate
    from layoutopt.spark.planning.advise import advise

    request = settings.to_request(AdviseRequest)
    check_request(request, is_local=find_reading_property(session) is None)
    estimates: list[Advice] = []

    def tell(estimate: Advice) -> None:
        if not session.json and estimate.layouts:
            session.show(None, describe_estimate(estimate))
            sys.stdout.flush()
        estimates.append(estimate)

    try:
        with session.working("advising") as work:
            spark, by_arrow = cache(partial(start_spark, session)), find_spark_reason(session) is None
            advice = advise(spark, request, work.say, session.udfs(), tell, by_arrow=by_arrow)
    except (Exception, KeyboardInterrupt) as error:
        if find_interrupt(error) is None or not estimates:
            raise
        _show_advice(estimates[-1], settings, session)
        raise KeyboardInterrupt("what is printed is a first estimate; run it again for the whole advice") from error
    _show_advice(advice, settings, session)


def _show_advice(advice: Advice, settings: AdviseSettings, session: Session) -> None:
    from layoutopt.report.advice import advice_page, print_advice

    if settings.html is not None:
        settings.html.write_text(advice_page(advice), encoding="utf-8")
    session.show(advice.to_json(), lambda console: print_advice(console, advice))


@add_verb(
    verbs,
    LoadSettings,
    example="layoutopt load events.parquet tables/events --plan plan.json --partition day=2026-01-31",
)
def load(settings: LoadSettings, session: Session) -> None:
    """Load a source's partitions into a table.

    Loads each partition once, and commits only if rows and checksums agree. Of several partitions those that fail are
    listed at the end, after the others are loaded; the same command then loads the rest.
    """
    from layoutopt.events import event_log

    check_plan_settings(settings)
    _check_plan_exists(settings)
    from layoutopt.model.requests import LoadRequest
    from layoutopt.report.tables import print_loads

    request = settings.to_request(LoadRequest)
    try:
        with event_log(settings.log_json) as log, session.working("loading", log) as work:
            execution = make_execution(session, settings.executor, table=settings.table_path, encrypt=settings.encrypt)
            plan_first = partial(plan_new_table, settings, session, execution, work.say)
            report = execution.load(request, work.say, log, plan_first if settings.plan_first else None)
    except PartitionsFailedError as error:
        failed = error.report
        session.show(failed.to_json(), lambda console: print_loads(console, failed))
        raise
    session.show(report.to_json(), lambda console: print_loads(console, report))


@add_verb(
    verbs,
    ReloadSettings,
    example="layoutopt reload tables/events events.parquet --partition day=2026-01-31 --plan new.json",
)
def reload(settings: ReloadSettings, session: Session) -> None:
    """Replace partitions with a source's rows.

    Uses the table's plan or a new one.
    """
    if not settings.partition and settings.first is None and settings.last is None:
        raise SettingError(f"no partition of {settings.table_path!r} is given; give --partition, or --from and --to")
    values = {name: getattr(settings, name) for name in type(settings).model_fields}
    load(make_settings(LoadSettings, {**values, "replace": True}), session)


def _check_plan_exists(settings: LoadSettings) -> None:
    from layoutopt.catalog.paths import MARKER
    from layoutopt.catalog.storage.filesystem import TableFiles
    from layoutopt.config.documents import DEFAULT_PLAN, read_plan

    if settings.plan_first is None and (
        settings.plan is not None or not TableFiles(settings.table_path).exists(MARKER)
    ):
        read_plan(settings.plan or DEFAULT_PLAN)
