"""From a query log to a plan: `analyze`, `plan`, and what to choose by: `calibrate` and `mine`."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

import typer

from layoutopt.cli.console import Session, add_verb
from layoutopt.cli.opening import spark_if_needed, start_spark
from layoutopt.config.measuring import CalibrateSettings, MineSettings
from layoutopt.config.settings import AnalyzeSettings, PlanSettings

if TYPE_CHECKING:
    from rich.console import Console

verbs = typer.Typer()


@add_verb(verbs, AnalyzeSettings, example="layoutopt analyze queries.jsonl --schema events.parquet -o features.json")
def analyze(settings: AnalyzeSettings, session: Session) -> None:
    """Find the filters of a query log that are worth skipping by, and write them to a features file."""
    from layoutopt.features.analysis import analyze_log
    from layoutopt.features.stability import plot
    from layoutopt.indexes.suggesting import suggested_indexes
    from layoutopt.report.features import print_analysis, summary
    from layoutopt.sources.opening import read_schema

    with session.working("analysing the log"):
        analysis = analyze_log(settings, session.udfs(), schema=read_schema(settings.schema_source))
        settings.output.write_bytes(analysis.document.dumps())
        indexes = suggested_indexes(analysis.document.queries, analysis.document.features)
        if settings.plot:
            plot(analysis.document.queries, settings.plot)
    value = summary(analysis, indexes, settings.output)
    session.show(value, lambda console: print_analysis(console, analysis, indexes, settings.output))


@add_verb(verbs, PlanSettings, example="layoutopt plan events.parquet --features features.json --partition-by day")
def plan(settings: PlanSettings, session: Session) -> None:
    """Decide how a table's partitions will be laid out, from its rows and a features file, and write a plan."""
    from layoutopt.config.documents import read_features
    from layoutopt.report.tables import plan_report, print_plan

    document = read_features(settings.features)
    # Only now: PySpark takes a second to import, and a bad file should not wait for it.
    from layoutopt.report.tuning_plot import plot
    from layoutopt.spark.planning.indexes import plan_with_indexes

    with session.working("planning") as work:
        spark = spark_if_needed(session, document.features.settings)
        made = plan_with_indexes(spark, settings, document, work.say, plot)
        settings.output.write_bytes(made.dumps())
    session.show(plan_report(made, settings.output), lambda console: print_plan(console, made, settings.output))


@add_verb(verbs, CalibrateSettings, example="layoutopt calibrate -o calibration.json")
def calibrate(settings: CalibrateSettings, session: Session) -> None:
    """Measure what each kind of work costs Spark, DuckDB and Arrow on this machine; takes some minutes."""
    from layoutopt.report.calibration import calibration_table
    from layoutopt.spark.planning.calibrate import calibrate

    with session.working("calibrating") as work:
        fitted = calibrate(start_spark(session, "layoutopt-calibrate"), work.say)
    settings.output.write_bytes(fitted.calibration.dumps())

    def show(console: Console) -> None:
        console.print(calibration_table(fitted))
        console.print(f"Written: {settings.output}")

    session.show({**fitted.calibration.to_json(), "missed": dict(fitted.missed)}, show)


@add_verb(verbs, MineSettings, example="layoutopt mine events.parquet queries.jsonl --partition-by day")
def mine(settings: MineSettings, session: Session) -> None:
    """Compare methods on a table and its log: each plans by the older queries and is judged by the newest quarter."""
    from layoutopt.model.methods import COMPARED
    from layoutopt.report.method_comparison import methods_table
    from layoutopt.spark.planning.method_comparison import compare_on_log

    with session.working("comparing methods") as work:
        spark = cache(partial(start_spark, session, "layoutopt-mine"))
        methods = compare_on_log(settings, settings.methods or COMPARED, spark, work.say)
    title = f"{settings.log}: its newest queries, which no plan has seen"
    session.show(methods, lambda console: console.print(methods_table(title, methods)))
