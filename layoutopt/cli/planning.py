"""From a query log to a plan: `analyze` and `plan`."""

from __future__ import annotations

import typer

from layoutopt.cli.console import Session, add_verb
from layoutopt.cli.opening import spark_if_needed
from layoutopt.config.settings import AnalyzeSettings, PlanSettings

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
