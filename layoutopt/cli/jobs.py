"""Run the scripts under ``jobs/`` with the flags and exit codes of the command line, in a Spark session.

Each script names a job of :data:`JOBS`: the settings of a verb, and the work. The last sentence of a job says what it
did.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import typer

from layoutopt.api.execution import use_session
from layoutopt.cli.console import INTERRUPTED, Session, add_verb, describe_interrupt, run_app
from layoutopt.cli.inputs import check_plan_settings, plan_new_table, start_spark
from layoutopt.config.fields import VerbSettings
from layoutopt.config.settings import AppendSettings, LoadSettings, OptimizeSettings, PlanSettings, VerifySettings
from layoutopt.errors import DataFileError, LayoutoptError, PartitionsFailedError, SettingError, find_interrupt
from layoutopt.events import STDERR, EventLog, event_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from layoutopt.loading.load import LoadsReport

Verb = TypeVar("Verb", bound=VerbSettings)
# Writes a sentence to the job's log.
Tell = Callable[[str], None]
# The work of a job, by its settings and the options that all verbs share.
Job = Callable[["SparkSession", Verb, Session, Tell], None]


def append(spark: SparkSession, settings: AppendSettings, session: Session, tell: Tell) -> None:
    """Append the batch and print a summary."""
    from layoutopt.model.requests import AppendRequest

    with event_log(settings.log_json) as log:
        report = use_session(spark).append(settings.to_request(AppendRequest), tell, log)
    if report.load is None:
        tell(f"batch {report.batch} was appended before: nothing to do")
    else:
        rows, partitions = report.load.rows, len(report.load.partitions)
        tell(f"appended {rows} rows to {partitions} partitions: snapshot {report.load.snapshot} of {report.table}")


def featurize(spark: SparkSession, settings: PlanSettings, session: Session, tell: Tell) -> None:
    """Count the vectors that a plan with these settings counts, and write the pairs."""
    import pyarrow.parquet as pq

    from layoutopt.catalog.partition_names import PartitionNames
    from layoutopt.config.documents import read_features
    from layoutopt.methods.interface import PlanRequest

    if settings.output.suffix != ".parquet":
        raise SettingError(f"--output is {str(settings.output)!r}; name a .parquet file for the pairs")
    document, request = read_features(settings.features), settings.to_request(PlanRequest)
    counted = use_session(spark).count_pairs(settings.source, document, request, tell)
    column = request.partition_by and document.schema.find(request.partition_by).name
    pairs = counted.to_table(PartitionNames.of(document.schema, column))
    pq.write_table(pairs, settings.output)
    tell(f"counted {pairs.num_rows} pairs of partition and vector: {settings.output}")


def load(spark: SparkSession, settings: LoadSettings, session: Session, tell: Tell) -> None:
    """Load the partitions and print a summary."""
    from layoutopt.model.requests import LoadRequest

    check_plan_settings(settings)
    execution = use_session(spark)
    plan_first = partial(plan_new_table, settings, session, execution, tell) if settings.plan_first else None
    try:
        with event_log(settings.log_json) as log:
            report = execution.load(settings.to_request(LoadRequest), tell, log, plan_first)
    except PartitionsFailedError as error:
        _tell_loads(error.report, tell)
        raise
    _tell_loads(report, tell)


def _tell_loads(report: LoadsReport, tell: Tell) -> None:
    for note in report.notes:
        tell(note)
    for key in report.already:
        tell(f"partition {key} was loaded before: nothing to do")
    for key in report.empty:
        tell(f"partition {key} has no rows in the source")
    for failure in report.failed:
        tell(f"partition {failure.partition} was not loaded: {failure.error}")
    for loaded in report.loads:
        tell(
            f"loaded {loaded.rows} rows into {loaded.blocks} blocks of {len(loaded.partitions)} partitions: "
            f"snapshot {loaded.snapshot} of {report.table}"
        )


def optimize(spark: SparkSession, settings: OptimizeSettings, session: Session, tell: Tell) -> None:
    """Optimize the table and print a summary."""
    from layoutopt.model.requests import OptimizeRequest
    from layoutopt.report.pages import plot_regained
    from layoutopt.spark.changes.optimize import optimize_table

    request = settings.to_request(OptimizeRequest, curve=settings.plot is not None)
    with event_log(settings.log_json) as log:
        report = optimize_table(spark, request, tell, log)
    if settings.plot is not None:
        plot_regained(report.curve, settings.plot)
    tell(f"{len(report.candidates)} partitions could be rewritten, {len(report.loads)} of them were")


def plan(spark: SparkSession, settings: PlanSettings, session: Session, tell: Tell) -> None:
    """Plan the layout and write the plan."""
    from layoutopt.config.documents import read_features
    from layoutopt.methods.interface import PlanRequest

    document, request = read_features(settings.features), settings.to_request(PlanRequest)
    new_plan = use_session(spark).plan(settings.source, document, request, tell)
    new_plan.save(settings.output)
    tell(
        f"planned {new_plan.method} with {len(new_plan.features)} features: plan {new_plan.digest} in {settings.output}"
    )


def verify(spark: SparkSession, settings: VerifySettings, session: Session, tell: Tell) -> None:
    """Check the files and print the problems."""
    from layoutopt.inspect.status import verify_path
    from layoutopt.report.texts import printable
    from layoutopt.spark.loading.verify import spark_file_checker

    if settings.queries is not None or settings.source is not None:
        raise SettingError("this job does not support --queries and --source; use `layoutopt verify`")
    report = verify_path(
        settings.table_path,
        settings.sample,
        snapshot=settings.snapshot,
        as_of=settings.as_of,
        checker=spark_file_checker(spark),
    )
    for problem in report.problems:
        tell(printable(f"{problem.check}: {problem.file}: {problem.message}"))
    for text in report.unchecked:
        tell(f"not checked: {text}")
    if not report.ok:
        raise DataFileError(f"{len(report.problems)} problems in {settings.table_path!r}; load those partitions again")
    tell(f"{report.files} files, {report.blocks} blocks, {report.rows} rows read; no problems")


# The settings and the work of each script.
JOBS: Final[Mapping[str, tuple[type[VerbSettings], Job[Any]]]] = MappingProxyType(
    {
        "append": (AppendSettings, append),
        "featurize": (PlanSettings, featurize),
        "load": (LoadSettings, load),
        "optimize": (OptimizeSettings, optimize),
        "plan": (PlanSettings, plan),
        "verify": (VerifySettings, verify),
    }
)


def main(name: str) -> int:
    """Run a job of :data:`JOBS` by the process's flags and return its exit code."""
    return run_job(name, *JOBS[name])


def run_job(
    name: str,
    kind: type[Verb],
    body: Job[Verb],
    arguments: Sequence[str] | None = None,
) -> int:
    """Run a job under ``spark-submit`` or plain Python and return its exit code.

    Args:
        name: the script's name under ``jobs/``.
        kind: the settings of the job's verb; each is a flag, or a key of the file after ``--conf``.
        body: the work; its last argument writes a sentence to the job's log.
        arguments: the flags; by default those of the process.
    """
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

    def job(settings: Verb, session: Session) -> None:
        if getattr(settings, "executor", None) == "local":
            raise SettingError(
                f"a job runs in Spark, not by --executor local; leave that out, or run `layoutopt {name}`"
            )
        tell = _teller(getattr(settings, "log_json", None))
        table, encrypt = (getattr(settings, field, None) for field in ("table_path", "encrypt"))
        spark = start_spark(session, f"layoutopt-{name}", table=table, encrypt=encrypt)
        try:
            body(spark, settings, session, tell)
        except (Exception, KeyboardInterrupt) as error:
            interrupt = None if isinstance(error, LayoutoptError) else find_interrupt(error)
            if tell is _say or not (interrupt or isinstance(error, LayoutoptError)):
                raise
            tell(describe_interrupt(interrupt) if interrupt else str(error))
            raise typer.Exit(getattr(error, "exit_code", INTERRUPTED)) from error
        finally:
            spark.stop()

    job.__doc__ = body.__doc__
    add_verb(app, kind, example=f"spark-submit jobs/{name}.py --conf conf/tpch.toml", by_place=False)(job)
    return run_app(app, arguments, f"jobs/{name}.py")


def _teller(log_json: str | None) -> Tell:
    """Return the function that writes a job's sentences, given the file of its event log.

    ``spark-submit`` merges stderr and stdout. If events go to stderr, sentences are events too, so that each line is
    JSON.
    """
    if log_json != STDERR:
        return _say
    return lambda sentence: EventLog(sys.stderr).write("said", sentence=sentence)


def _say(sentence: str) -> None:
    sys.stderr.write(f"{sentence}\n")
