"""What a layout would save, before anything is written: `advise`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import typer

from layoutopt.cli.console import Session, add_verb
from layoutopt.cli.opening import start_spark
from layoutopt.config.advising import AdviseSettings

verbs = typer.Typer()


@add_verb(verbs, AdviseSettings, example="layoutopt advise events.parquet queries.jsonl --queries-per-month 40000")
def advise(settings: AdviseSettings, session: Session) -> None:
    """Say what a log's queries read, what each method would save, and what to tell other engines; nothing is written.

    It takes one to two minutes on two cores, whatever the size of the table.
    """
    from layoutopt.report.advice import print_advice
    from layoutopt.spark.planning.advising import advise_when_started  # before the thread: two would import pyspark

    with session.working("advising") as work, ThreadPoolExecutor(1) as starting:
        # Spark takes seconds to start, in which the log is read.
        spark = starting.submit(start_spark, session)
        found = advise_when_started(spark.result, settings, work.say, session.udfs())
    if settings.html is not None:
        from layoutopt.report.advice_page import advice_page

        settings.html.write_text(advice_page(found), encoding="utf-8")
    session.show(found.to_json(), lambda console: print_advice(console, found))
