"""Run Python tasks in Spark's workers, whose Python need not be the driver's, and report where it lacks layoutopt.

Spark starts workers by the name in ``PYSPARK_PYTHON``, else ``python3``. In a notebook or an IDE, where no virtual
environment is activated, that is another Python than the driver's.

PySpark's ``mapInArrow`` looks columns up by name, as if it were SQL: ``a.b`` would be a field of ``a``. So columns are
named by place while rows are shuffled into segments. These names are part of the projection, and cost nothing.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from shutil import copyfile
from threading import Lock
from typing import Any, Final, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import SparkContext, SparkFiles, cloudpickle
from pyspark.sql import DataFrame, SparkSession

from layoutopt import __version__
from layoutopt.model.schema import SEGMENT
from layoutopt.sources.executor import Batches, Pack, RowsFunction, Task
from layoutopt.sources.shuffle import CutJob, Splits, cut_rows
from layoutopt.spark.core.failures import INSTALL_THERE, MISSING_PACKAGE, translate_spark_errors
from layoutopt.spark.core.sessions import AnySession, start_session
from layoutopt.spark.core.versions import repartition_by_id, to_arrow, to_arrow_rdd
from layoutopt.writer.segment import SHUFFLE_BATCH_TYPES, unpack_shuffle_batches

Item = TypeVar("Item")
Value = TypeVar("Value")

# What the tasks of layoutopt import, and the versions of which are told where a worker has others.
LIBRARIES: Final = (
    "cryptography", "duckdb", "fsspec", "numba", "numpy", "pyarrow", "pydantic", "pyroaring", "sqlglot",
)  # fmt: skip

_WHEELS: Final = Lock()
_VALUES: Final = "number bigint, value binary"
# Above as many bytes, Spark itself sends a task's function by other ways.
_MOST_WITH_TASK: Final = 1 << 20
_LONGEST_WAIT: Final = 4.0  # seconds; Spark ends a Python worker two seconds after it gave its task up


@contextmanager
def use_driver_python(spark: SparkSession) -> Iterator[None]:
    """Let tasks created inside run by the driver's Python, for local workers and unless ``PYSPARK_PYTHON`` is set."""
    context = spark.sparkContext
    before = context.pythonExec
    if str(context.master).startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable
    try:
        yield
    finally:
        context.pythonExec = before


def map_in_workers(rows: DataFrame, task: Task, schema: str, label: str = "") -> DataFrame:
    """Return a task's results, of a schema, for the batches of each partition; ``label`` names it in Spark's plans.

    Layoutopt's own errors reach the driver inside Spark's, for :func:`~layoutopt.errors.decode_error`.
    """
    _add_wheels(rows.sparkSession.sparkContext)
    with use_driver_python(rows.sparkSession):
        return rows.mapInArrow(_check_packages(task, label), schema)


def _add_wheels(context: SparkContext) -> None:
    """Let workers import from the wheels in ``--py-files``: Spark copies them, but imports from other archives only."""
    files = context.getConf().get("spark.submit.pyFiles") or ""
    for name in (path.rpartition("/")[2] for path in files.split(",") if path.lower().endswith(".whl")):
        archive = Path(SparkFiles.getRootDirectory(), f"{name}.zip")
        with _WHEELS:
            if not archive.exists():
                copyfile(archive.with_suffix(""), archive)
                context.addPyFile(str(archive))


@cache
def _list_versions() -> dict[str, str]:
    """Return the driver's versions of layoutopt and of the libraries that are installed beside it."""
    versions = {"layoutopt": __version__}
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def _check_packages(task: Task, label: str) -> Task:
    """Return the task with a message for a package that a worker lacks, or has in another version than the driver."""
    pickled: bytes = cloudpickle.dumps(task)  # type: ignore[no-untyped-call]
    message, remedy, versions = MISSING_PACKAGE, INSTALL_THERE, _list_versions()

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        import sys
        from importlib.metadata import PackageNotFoundError, version

        from pyspark import cloudpickle

        try:
            unpickled: Task = cloudpickle.loads(pickled)
            from layoutopt.errors import encode_errors

            with encode_errors():
                yield from unpickled(batches)
        except (AttributeError, ImportError, TypeError) as error:
            missing = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else None
            for name in [missing] if missing else versions:
                try:
                    has = version(name)
                except PackageNotFoundError:
                    has = getattr(sys.modules.get(name), "__version__", "")
                wanted = versions.get(name, "")
                # Their first numbers change where they are not compatible any more.
                differs = has and (has.lstrip("0.").split(".")[0] != wanted.lstrip("0.").split(".")[0])
                if differs or (missing and not has):
                    raise RuntimeError(
                        f"{message} {f'{name} {wanted}'.strip()} ({sys.executable}{f' has {has}' if has else ''}); "
                        f"{remedy}"
                    ) from error
            raise

    run.__name__ = label or run.__name__
    run.__module__ = "__main__"  # so that it is sent as code: by its name, workers would import layoutopt
    return run


def map_items(
    spark: SparkSession, items: Sequence[Item], task: Callable[[Item], Iterator[pa.RecordBatch]], schema: str,
    label: str = "",
) -> DataFrame:  # fmt: skip
    """Return the batches of a task for each item, as :func:`map_in_workers`; a task unpickles its own item alone.

    Few bytes of items travel with the task, which saves a copy to Java; many as the rows that the task is given.
    """
    pickled: list[bytes] = [cloudpickle.dumps(item) for item in items]  # type: ignore[no-untyped-call]
    if sum(map(len, pickled)) <= _MOST_WITH_TASK:
        numbers = spark.range(0, len(items), 1, max(1, len(items)))
        return map_in_workers(numbers, partial(_run_task, task, pickled), schema, label)
    rows = to_arrow_rdd(spark, pa.table({"item": pa.array(pickled)}), batch_rows=1)
    return map_in_workers(rows, partial(_run_task, task, None), schema, label)


def _run_task(
    task: Callable[[Item], Iterator[pa.RecordBatch]], pickled: Sequence[bytes] | None, batches: Batches
) -> Iterator[pa.RecordBatch]:
    for row in (row for batch in batches for row in batch.column(0).to_pylist()):
        yield from task(cloudpickle.loads(row if pickled is None else pickled[row]))


def run_in_workers(spark: SparkSession, items: Sequence[Item], function: Callable[[Item], Value]) -> list[Value]:
    """Return a function's value for each item, from a task; function, items and values travel pickled.

    Raises:
        LayoutoptError: the function raised it in a task; as
            :func:`~layoutopt.spark.core.failures.translate_spark_errors`.
        pyspark.errors.PySparkException: anything else failed there.
    """
    with translate_spark_errors("the source"):
        values = _collect_values(map_items(spark, list(enumerate(items)), partial(_call, function), _VALUES))
    return [values[number] for number in range(len(items))]


def _collect_values(results: DataFrame) -> dict[int, Any]:
    """Return the values by their numbers."""
    table = to_arrow(results)
    numbers = table["number"].to_pylist()
    return {number: cloudpickle.loads(table["value"][row].as_buffer()) for row, number in enumerate(numbers)}


def _call(function: Callable[[Item], object], item: tuple[int, Item]) -> Iterator[pa.RecordBatch]:
    yield _pack_value(item[0], function(item[1]))


def _call_with_rows(names: Sequence[str], function: RowsFunction[object], batches: Batches) -> Iterator[pa.RecordBatch]:
    """Yield a function's value for a segment, all of whose rows these are; nothing for none."""
    rest = (batch.rename_columns(names) for batch in batches)
    first = next((batch for batch in rest if batch.num_rows), None)
    if first is not None:
        segment: int = first.column(SEGMENT)[0].as_py()
        yield _pack_value(segment, function(segment, chain([first], rest)))


def _call_with_shuffled_rows(function: RowsFunction[Value], segment: int, batches: Batches) -> Value:
    return function(segment, unpack_shuffle_batches(batches))


def _pack_value(number: int, value: object) -> pa.RecordBatch:
    pickled: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    return pa.RecordBatch.from_pydict({"number": pa.array([number], pa.int64()), "value": pa.array([pickled])})


class SparkTasks:
    """Tasks of a session, which is started once it is needed: an :class:`~layoutopt.sources.executor.Executor`."""

    shuffles_openly = False  # or as the session is configured

    def __init__(self, spark: AnySession) -> None:
        self._start = spark

    @property
    def _spark(self) -> SparkSession:
        return start_session(self._start)

    @property
    def cores(self) -> int:
        """Spark's default parallelism."""
        return int(self._spark.sparkContext.defaultParallelism)

    def begin(self, function: Callable[[int], object]) -> None:
        """Do nothing: Spark starts its workers."""

    def map(self, items: Sequence[Item], function: Callable[[Item], Value]) -> list[Value]:
        """Map as :func:`run_in_workers` does."""
        return run_in_workers(self._spark, items, function)

    def shuffle(
        self, job: CutJob, tasks: Sequence[Splits], function: RowsFunction[Value], pack: Pack[Value] = list
    ) -> list[Value | None]:
        """Cut the rows, and shuffle them to the tasks that call the function, in one job."""
        count = len(job.ranges.values)
        batches = map_items(self._spark, tasks, partial(cut_rows, job), SHUFFLE_BATCH_TYPES)
        with translate_spark_errors("the source"):
            values = map_segments(batches, count, partial(_call_with_shuffled_rows, function))
        return [values.get(segment) for segment in range(count)]

    def wait(self) -> None:
        """Wait some seconds while tasks run: after one of a job has failed, others still write files."""
        until = time.monotonic() + _LONGEST_WAIT
        with suppress(AttributeError, Py4JError, OSError):  # the session may have been stopped, Java may have ended
            tracker = self._spark.sparkContext._jsc.sc().statusTracker()
            while any(info.numRunningTasks() for info in tracker.getExecutorInfos()) and time.monotonic() < until:
                time.sleep(0.05)


def map_segments(rows: DataFrame, segments: int, function: RowsFunction[Value]) -> dict[int, Value]:
    """Return a function's values of all rows of each segment that has any, by the segment's number.

    ``rows`` have ``_segment``; the function gets the number and the batches under their columns' names.
    """
    names = rows.columns
    places = [f"c{place}" for place in range(len(names))]
    by_segment = repartition_by_id(rows.toDF(*places), max(1, segments), places[names.index(SEGMENT)])
    return _collect_values(map_in_workers(by_segment, partial(_call_with_rows, names, function), _VALUES))
