"""Run the scripts under ``jobs/`` with the flags and exit codes of the command line, in a Spark session."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import typer

from layoutopt.cli.console import INTERRUPTED, Session, add_verb, describe_interrupt, run_app
from layoutopt.cli.inputs import start_spark
from layoutopt.config.fields import VerbSettings
from layoutopt.errors import LayoutoptError, find_interrupt
from layoutopt.events import STDERR, EventLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Verb = TypeVar("Verb", bound=VerbSettings)


def run_job(
    name: str, kind: type[Verb], body: Callable[[SparkSession, Verb], None], arguments: Sequence[str] | None = None
) -> int:
    """Run a job under ``spark-submit`` or plain Python and return its exit code.

    Args:
        name: the script's name under ``jobs/``.
        kind: the settings of the job's verb; each is a flag, or a key of the file after ``--conf``.
        body: the work.
        arguments: the flags; by default those of the process.
    """
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

    def job(settings: Verb, session: Session) -> None:
        tell = teller(getattr(settings, "log_json", None))
        table, encrypt = (getattr(settings, field, None) for field in ("table_path", "encrypt"))
        spark = start_spark(session, f"layoutopt-{name}", table=table, encrypt=encrypt)
        try:
            body(spark, settings)
        except (Exception, KeyboardInterrupt) as error:
            interrupt = None if isinstance(error, LayoutoptError) else find_interrupt(error)
            if tell is say or not (interrupt or isinstance(error, LayoutoptError)):
                raise
            tell(describe_interrupt(interrupt) if interrupt else str(error))
            raise typer.Exit(getattr(error, "exit_code", INTERRUPTED)) from error
        finally:
            spark.stop()

    job.__doc__ = body.__doc__
    add_verb(app, kind, example=f"spark-submit jobs/{name}.py --conf conf/tpch.toml", by_place=False)(job)
    return run_app(app, arguments, f"jobs/{name}.py")


def teller(log_json: str | None) -> Callable[[str], None]:
    """Return the function that prints a job's sentences, given the file of its event log.

    ``spark-submit`` merges stderr and stdout. If events go to stderr, sentences are events too, so that each line is
    JSON.
    """
    if log_json != STDERR:
        return say
    return lambda sentence: EventLog(sys.stderr).write("said", sentence=sentence)


def say(sentence: str) -> None:
    """Write a sentence to the job's log."""
    sys.stderr.write(f"{sentence}\n")
