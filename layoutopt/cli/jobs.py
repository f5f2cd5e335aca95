"""What the scripts under ``jobs/`` share: the flags and endings of the command line, with a Spark session."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import typer

from layoutopt.cli.console import INTERRUPTED, Session, add_verb, interruption, run_app
from layoutopt.cli.inputs import start_spark
from layoutopt.config.fields import VerbSettings
from layoutopt.errors import LayoutoptError, interrupt_behind
from layoutopt.events import STDERR, EventLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Verb = TypeVar("Verb", bound=VerbSettings)


def run_job(
    name: str, kind: type[Verb], body: Callable[[SparkSession, Verb], None], arguments: Sequence[str] | None = None
) -> int:
    """Run a job under ``spark-submit`` (or plain Python) and return its exit code, as the command line's verbs do.

    Args:
        name: the job's, under ``jobs/``.
        kind: the settings of the verb that the job stands for: each is a flag, ``--conf FILE`` supplies any.
        body: what it does.
        arguments: the flags; those of the process where left out.
    """
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

    def job(settings: Verb, session: Session) -> None:
        tell = teller(getattr(settings, "log_json", None))
        of = {key: getattr(settings, field, None) for key, field in (("table", "table_path"), ("encrypt", "encrypt"))}
        spark = start_spark(session, f"layoutopt-{name}", **of)
        try:
            body(spark, settings)
        except (Exception, KeyboardInterrupt) as error:
            pressed = None if isinstance(error, LayoutoptError) else interrupt_behind(error)
            if tell is say or not (pressed or isinstance(error, LayoutoptError)):
                raise
            tell(interruption(pressed) if pressed else str(error))
            raise typer.Exit(getattr(error, "exit_code", INTERRUPTED)) from error
        finally:
            spark.stop()

    job.__doc__ = body.__doc__
    add_verb(app, kind, example=f"spark-submit jobs/{name}.py --conf conf/tpch.toml", by_place=False)(job)
    return run_app(app, arguments, f"jobs/{name}.py")


def teller(log_json: str | None) -> Callable[[str], None]:
    """What a job with a log of events tells its sentences to.

    Under ``spark-submit`` stderr and stdout are one stream, so where events go to stderr, sentences are events too:
    every line of the job is JSON then.
    """
    if log_json != STDERR:
        return say
    return lambda sentence: EventLog(sys.stderr).write("said", sentence=sentence)


def say(sentence: str) -> None:
    """Tell the job's log how far it is."""
    sys.stderr.write(f"{sentence}\n")
