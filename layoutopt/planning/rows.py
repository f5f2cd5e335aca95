"""The rows of a source as planning reads them: by Arrow where that surely equals Spark's reading, or by Spark.

What only a plan depends on needs no proof by a second reader: a load reads every row again and verifies it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import pyarrow as pa

from layoutopt.catalog.partition_names import PlainValue
from layoutopt.model.feature import FeatureSet
from layoutopt.model.layout import Plan
from layoutopt.model.schema import Column
from layoutopt.model.vectors import VectorCounts
from layoutopt.sources.door import Door
from layoutopt.sources.executor import Batches, Executor, Value
from layoutopt.sources.segments import Chunk
from layoutopt.writer.segment import FindWords

if TYPE_CHECKING:
    from layoutopt.planning.sample_evaluation import RowSample, SampleRequest
    from layoutopt.planning.segment_evaluation import ChosenSegments


class RowCounts(NamedTuple):
    """What was counted of some partitions.

    Attributes:
        vectors: by partition, its feature vectors.
        bounds: by ``_key`` (the partition's plain value) the ``_rows`` that were bounded, and of the ``i``-th column
            ``_low{i}``, ``_high{i}`` and the number ``_n{i}`` of values other than NULL. NaN is the greatest float.
        columns: the columns whose bounds were measured.
    """

    vectors: dict[PlainValue, VectorCounts]
    bounds: pa.Table
    columns: Sequence[Column]


# From the bounds of some rows, as in :class:`RowCounts`, and their columns, selects those that are worth measuring.
SelectColumns = Callable[[pa.Table, Sequence[Column]], Sequence[Column]]


# Returns results for the batches of a segment. The function finds the features that keys don't decide; without it, the
# batches carry Spark's words for these.
SegmentTask: TypeAlias = Callable[[Batches, FindWords | None], Sequence[Value]]


class Rows(ABC):
    """A source's rows, read by one engine.

    Methods raise NeedsSparkError where Arrow might read a file or a feature otherwise than Spark, or where results are
    too large for this process.
    """

    @property
    @abstractmethod
    def names(self) -> Sequence[str]:
        """The names of the columns."""

    @property
    @abstractmethod
    def tasks(self) -> Executor:
        """The tasks in which work on the rows, and on samples of them, runs in parallel."""

    @property
    @abstractmethod
    def partition_rows(self) -> Mapping[PlainValue, int]:
        """The rows of each partition by its value, NULL first; a table without partitions has the value None."""

    @abstractmethod
    def chunks(self, segment_rows: int) -> list[Chunk]:
        """Return chunks of neighbouring rows of a partition, in the source's order."""

    @abstractmethod
    def count(self, features: FeatureSet, bounded: Sequence[Column], select: SelectColumns) -> RowCounts:
        """Count the vectors of all partitions, or estimate those of some, and measure bounds of the same rows.

        By Spark, of the columns that ``select`` selects. A row group that is not read may have other values.

        Raises:
            BoundError: there are too many distinct vectors.
        """

    @abstractmethod
    def count_some(
        self,
        features: FeatureSet,
        bounded: Sequence[Column],
        select: SelectColumns,
        partition_rows: Mapping[PlainValue, int],
        sample_rows: int,
    ) -> RowCounts:
        """Count the vectors of about ``sample_rows`` rows of some partitions, and measure bounds as :meth:`count`."""

    @abstractmethod
    def draw(self, request: SampleRequest) -> RowSample:
        """Draw rows of some partitions; the same on any number of cores."""

    @abstractmethod
    def draw_all_columns(self, features: FeatureSet, partition: tuple[PlainValue, int], wanted: int) -> pa.Table:
        """Draw about ``wanted`` rows of a partition (its value and rows) with all columns.

        Spark draws by the columns of ``features`` and short columns.
        """

    @abstractmethod
    def map_segments(
        self, plan: Plan, chosen: ChosenSegments, request: SampleRequest, task: SegmentTask[Value]
    ) -> tuple[list[Value], RowSample]:
        """Return a task's results for some segments, and the sample that is requested."""

    def prefetch(self) -> None:  # noqa: B027 - there may be nothing to fetch
        """Begin in the background to read what planning will need."""

    def warm_up(self) -> None:  # noqa: B027 - there may be nothing to warm up
        """Let tasks import what they will need, in the background."""


# A source's rows, by Arrow as long as that can read them, then by Spark.
SourceRows: TypeAlias = Door[Rows]
