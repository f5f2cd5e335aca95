"""What the scripts under ``jobs/`` share: settings from a configuration file and flags, and clear endings."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from layoutopt.config.settings import VerbSettings, key_of, make_settings, read_spark_properties, read_values
from layoutopt.errors import LayoutoptError
from layoutopt.events import STDERR, EventLog
from layoutopt.spark.core.sessions import spark_session

Verb = TypeVar("Verb", bound=VerbSettings)

_INTERRUPTED = 130  # as a shell has it


def run_job(
    name: str, kind: type[Verb], body: Callable[[SparkSession, Verb], None], arguments: Sequence[str] | None = None
) -> int:
    """Run a job under ``spark-submit`` (or plain Python) and return its exit code, as the command line's verbs do.

    Args:
        name: the job's, in Spark's list of applications and in the help.
        kind: the settings of the verb that the job stands for: each is a flag, ``--conf FILE`` supplies any.
        body: what it does.
        arguments: the flags; those of the process where left out.
    """
    tell: Callable[[str], None] = say
    try:
        settings, properties = _parsed(name, kind, arguments)
        tell = teller(getattr(settings, "log_json", None))
        spark = spark_session(name, **properties)
        try:
            body(spark, settings)
        finally:
            spark.stop()
    except LayoutoptError as error:
        tell(str(error))
        return error.exit_code
    except OSError as error:  # a full disk, a store that does not answer: another try may succeed
        tell(f"{error.filename or 'a file'}: {error.strerror or error}; check the path and the disk")
        return LayoutoptError.exit_code
    except KeyboardInterrupt as error:
        tell(": ".join(["interrupted", *map(str, error.args)]))
        return _INTERRUPTED
    return 0


def say(sentence: str) -> None:
    """Tell the job's log how far it is."""
    sys.stderr.write(f"{sentence}\n")


def teller(log_json: str | None) -> Callable[[str], None]:
    """What a job with a log of events tells its sentences to.

    Under ``spark-submit`` stderr and stdout are one stream, so where events go to stderr, sentences are events too:
    every line of the job is JSON then.
    """
    if log_json != STDERR:
        return say
    return lambda sentence: EventLog(sys.stderr).write("said", sentence=sentence)


def _parsed(name: str, kind: type[Verb], arguments: Sequence[str] | None) -> tuple[Verb, dict[str, str]]:
    """The settings, flags before the file, and the file's properties for Spark."""
    parser = argparse.ArgumentParser(prog=name, description=(kind.__doc__ or "").strip())
    parser.add_argument("--conf", help="a TOML file that supplies any flag, such as conf/tpch.toml")
    for field_name, field in kind.model_fields.items():
        taken: dict[str, Any] = {"action": "store_true", "default": None} if field.annotation is bool else {}
        if isinstance(field.default, tuple):
            taken = {"action": "append"}  # a list repeats its flag, or has commas
        parser.add_argument(f"--{key_of(field_name, field)}", dest=field_name, help=field.description, **taken)
    flags = vars(parser.parse_args(arguments))
    conf = flags.pop("conf")
    in_file = {} if conf is None else read_values(conf, kind)
    given = {field_name: value for field_name, value in flags.items() if value is not None}
    return make_settings(kind, in_file | given), {} if conf is None else read_spark_properties(conf)
