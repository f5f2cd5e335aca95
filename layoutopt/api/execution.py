"""Choose what runs the tasks of a verb: processes of this machine, or Spark."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

from layoutopt.errors import NeedsSparkError, SettingError
from layoutopt.events import NO_EVENTS, EventLog, Progress, silent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from layoutopt.catalog.table import Catalog
    from layoutopt.changes.commit import ChangeReport
    from layoutopt.events import Stages
    from layoutopt.external.snapshot import SourcePartition
    from layoutopt.loading.append import AppendReport
    from layoutopt.loading.load import LoadSource, LoadsReport
    from layoutopt.methods.interface import PlanRequest
    from layoutopt.model.features_document import FeaturesDocument
    from layoutopt.model.layout import Plan
    from layoutopt.model.requests import AppendRequest, ChangeRequest, LoadRequest
    from layoutopt.planning.pairs import Pairs
    from layoutopt.sources.door import Door
    from layoutopt.sources.source import IsNeeded
    from layoutopt.spark.core.sessions import AnySession
    from layoutopt.writer.task_result import LoadReport

AUTO: Final = "auto"
LOCAL: Final = "local"
SPARK: Final = "spark"

# With more rows, Spark's start is a small part of a load, whose tasks may then run on other machines.
MOST_LOCAL_ROWS: Final = 10_000_000


def has_pyspark() -> bool:
    """Return whether PySpark is installed; it takes a second to import."""
    try:
        return find_spec("pyspark") is not None
    except ModuleNotFoundError:
        return False


@dataclass(frozen=True)
class Execution:
    """What runs the tasks of a verb.

    Attributes:
        executor: ``auto`` takes processes of this machine for plain sources of up to 10 million rows, and Spark for
            the others, if PySpark is installed.
        start: starts Spark, and returns the same session at each call.
        reason: why ``auto`` takes Spark for any source; None if there is no reason.
        reads_otherwise: whether Spark has properties or libraries by which it may read a source otherwise.
    """

    executor: Literal["auto", "local", "spark"]
    start: Callable[[], SparkSession]
    reason: str | None = None
    reads_otherwise: bool = False

    @cached_property
    def spark(self) -> AnySession:
        """The function that starts Spark, or its session where a source can't be checked before."""
        if self.executor == LOCAL:
            return _refuse_spark
        return self.start() if self.reads_otherwise else self.start

    def _prefers_spark(self, reason: str | None) -> bool:
        return self.executor == SPARK or (self.executor == AUTO and reason is not None)

    def needs_spark(self, source: str, reason: str | None) -> bool:
        """Return whether Spark runs the tasks of a source: it is chosen, or ``auto`` has a reason for it.

        Raises:
            SettingError: Spark is chosen, and can't read a file of the source.
        """
        if not self._prefers_spark(reason):
            return False
        if self.executor == AUTO and not has_pyspark():
            return self.reads_otherwise  # which ends with an error
        from layoutopt.sources.parquet_files import find_spark_gap

        gap = None if self.reads_otherwise else find_spark_gap(source)
        if gap is not None and self.executor == SPARK:
            raise SettingError(f"{gap}; give --executor local")
        return gap is None

    def plan(self, source: Any, document: FeaturesDocument, request: PlanRequest, say: Progress = silent) -> Plan:
        """Plan as :func:`layoutopt.spark.planning.indexes.plan_with_indexes`."""
        from layoutopt.spark.planning.indexes import plan_with_indexes

        return plan_with_indexes(self._planning_spark, source, document, request, say)

    def count_pairs(
        self, source: Any, document: FeaturesDocument, request: PlanRequest, say: Progress = silent
    ) -> Pairs:
        """Count as :func:`layoutopt.planning.plan.count_pairs`."""
        from layoutopt.planning.plan import count_pairs
        from layoutopt.spark.planning.source_rows import open_source_rows

        return count_pairs(partial(open_source_rows, self._planning_spark, source), document, request, say)

    @property
    def _planning_spark(self) -> AnySession:
        """The session, started where Spark's tasks plan any source; else as :attr:`spark`."""
        return self.start() if self._prefers_spark(self.reason) else self.spark

    def load(
        self,
        request: LoadRequest,
        say: Progress = silent,
        log: EventLog = NO_EVENTS,
        make_plan: Callable[[], Plan] | None = None,
    ) -> LoadsReport:
        """Load as :func:`layoutopt.loading.load.run_load`."""
        several = self.executor == AUTO and request.parallel > 1 and has_pyspark()
        if several or self.needs_spark(request.source, self.reason):
            from layoutopt.spark.loading import load as spark_load

            return spark_load.run_load(self.spark, request, say, log, make_plan)
        from layoutopt.loading.load import run_load

        return run_load(partial(self._open_anywhere, request, say, log), request, say, log, make_plan)

    def _open_anywhere(
        self, request: LoadRequest, say: Progress, log: EventLog, source: str, plan: Plan, is_needed: IsNeeded
    ) -> Door[LoadSource]:
        """Open a source for processes of this machine, or for Spark if it is large or only Spark reads it."""
        from layoutopt.loading.local_source import open_door, open_local
        from layoutopt.sources.door import Door
        from layoutopt.sources.parquet_files import find_spark_gap

        if self.executor == LOCAL or not has_pyspark() or find_spark_gap(source) is not None:
            return open_door(source, plan, is_needed)

        def open_in_tasks(_: object) -> LoadSource:
            from layoutopt.spark.loading.load import open_in_tasks

            return open_in_tasks(self.spark, source, plan, is_partial=request.is_partial, is_needed=is_needed)

        def open_by_spark(_: object) -> LoadSource:
            from layoutopt.spark.loading.load import open_by_session

            return open_by_session(self.spark, source, plan, is_partial=request.is_partial)

        def open_here(_: object) -> LoadSource:
            opened = open_local(source, plan, is_needed=is_needed)
            rows = sum(partition.rows for partition in _select_partitions(opened, request))
            if rows > MOST_LOCAL_ROWS:
                raise NeedsSparkError(f"there are {rows:,} rows")
            return opened

        door: Door[LoadSource] = Door(open_here, open_in_tasks, open_by_spark, say=say, log=log)
        return door

    def append(self, request: AppendRequest, say: Progress = silent, log: EventLog = NO_EVENTS) -> AppendReport:
        """Append as :func:`layoutopt.loading.append.append_rows`."""
        from layoutopt.loading.append import append_few_rows, append_locally, append_rows
        from layoutopt.sources.parquet_files import find_spark_gap

        # Few rows are appended here also where there is a Spark of its own, whose start takes longer than all of it.
        why = "Spark is chosen" if self.executor == SPARK else self.reason if self.reads_otherwise else None
        openers = [partial(self._open_to_append, by_arrow) for by_arrow in (True, False)]
        if not self.needs_spark(request.source, why):
            if self.executor == LOCAL or not has_pyspark() or find_spark_gap(request.source) is not None:
                return append_locally(request, say, log)
            return append_few_rows(request, self._compact_by_spark, openers, say, log)
        log.write("spark", reason=why)
        return append_rows(openers, request, self._compact_by_spark, say, log)

    def change(self, request: ChangeRequest, say: Progress = silent, log: EventLog = NO_EVENTS) -> ChangeReport:
        """Delete, update or merge rows as :func:`layoutopt.changes.verbs.change_rows`."""
        from layoutopt.changes.arrow_change import open_without_spark
        from layoutopt.changes.verbs import change_rows
        from layoutopt.loading.append import MOST_ROWS
        from layoutopt.sources.door import Door, refuse_spark

        # Few rows are changed here also where there is a Spark of its own, as they are appended.
        by_spark = self.executor != LOCAL and has_pyspark()
        openers: list[Callable[[Exception | None], Any]] = []
        if self.executor == LOCAL or (self.executor == AUTO and not (by_spark and self.reads_otherwise)):
            openers.append(lambda _: partial(open_without_spark, MOST_ROWS if by_spark else None))
        openers.append(self._open_for_change if by_spark else partial(refuse_spark, request.table_path))
        return change_rows(Door(*openers, say=say, log=log), request, say, log)

    def _open_for_change(self, reason: Exception | None) -> Any:
        from layoutopt.spark.changes.spark_change import open_for_change

        return partial(open_for_change, self.spark)

    def _open_to_append(self, by_arrow: bool, source: str, catalog: Catalog, reason: Exception | None) -> LoadSource:
        from layoutopt.spark.changes.append import open_to_append

        return open_to_append(self.spark, source, catalog, by_arrow=by_arrow)

    def _compact_by_spark(self, path: str, keys: Collection[str], watch: Stages) -> LoadReport | None:
        from layoutopt.spark.changes.append import compact_small_entries

        return compact_small_entries(self.start(), path, keys, watch)


def _select_partitions(source: LoadSource, request: LoadRequest) -> Sequence[SourcePartition]:
    if request.partition:
        return source.select_partitions(request.partition)
    if request.is_partial:
        return source.select_range(request.first, request.last)
    return source.partitions


def _refuse_spark() -> NoReturn:
    raise SettingError("this needs Spark, and the executor is local; give --executor spark")


def use_session(spark: SparkSession) -> Execution:
    """Return the execution by a session that runs; raise SettingError if it uses Spark Connect."""
    from layoutopt.spark.core.sessions import start_session

    start_session(spark)
    return Execution(SPARK, lambda: spark, reads_otherwise=True)


def open_execution(executor: Any, frame: Any = None) -> Execution:
    """Return the execution that an argument ``executor`` names; ``frame`` is the DataFrame of Spark to read, if any.

    Raises:
        SettingError: the argument is something else.
    """
    from layoutopt.api.held_rows import is_of_spark
    from layoutopt.spark.core.sessions import has_own_installation, is_submitted, spark_session

    start: Callable[[], SparkSession] = cache(spark_session)
    if is_of_spark(executor):
        return use_session(executor)
    if executor not in (AUTO, LOCAL, SPARK):
        raise SettingError(f"unknown executor {executor!r}: expected auto, local, spark or a SparkSession")
    if is_of_spark(frame):
        start = partial(getattr, frame, "sparkSession")
    return Execution(
        executor, start, "there is a Spark of its own" if is_submitted() or has_own_installation() else None
    )
