"""The input and the result of a layout method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from layoutopt.catalog.partition_names import PlainValue
from layoutopt.features.weights import feature_shares
from layoutopt.model.arrays import Floats
from layoutopt.model.feature import FeatureSet
from layoutopt.model.layout import Scheme
from layoutopt.model.methods import AUTO, DEFAULT_BLOCK_ROWS, DEFAULT_PARTITIONER, FILE_BYTES
from layoutopt.model.query import Query
from layoutopt.model.schema import Schema
from layoutopt.model.vectors import VectorCounts
from layoutopt.search.problem import Unit

if TYPE_CHECKING:
    from layoutopt.planning.pairs import Pairs

T = TypeVar("T")

# What may guide the blocks of one layout.
FEATURES, CUTS, BOTH = GUIDES = ("features", "cuts", "both")
# The default for the storage of a plan with copies, over that of the table stored once.
STORAGE_BUDGET: Final = 1.2


@dataclass(frozen=True, eq=False)
class PartitionHistogram:
    """The planning data of one partition.

    Attributes:
        value: of the partition column.
        rows: of the whole partition.
        vectors: the (vector, count) pairs, of all its rows or of a sample.
        query_weights: of each query, 0 where the partition's own bounds exclude it; ``float64[n_queries]``.
        weights: of each feature here, ``float64[f]``.
    """

    value: PlainValue
    rows: int
    vectors: VectorCounts
    query_weights: Floats
    weights: Floats


@dataclass(frozen=True)
class PlanRequest:
    """Plan a table.

    Attributes:
        method: the name of a method; ``auto`` tries several on a sample, and takes the one with which queries held out
            read the least.
        partition_by: the column by which the table is partitioned, None for none.
        by: columns to order by, for methods by order; chosen from the workload by default.
        guides: what makes the blocks of ``sop``: ``features`` are vectors' bits, ``cuts`` values of columns, and
            ``both`` a tree of cuts at values and at features. ``auto`` is ``features``, or ``cuts`` where queries
            held out then read clearly less.
        num_features: numFeat, the most features that guide the blocking; by default 40 for one layout and all for
            several. Every feature is measured all the same, and skips.
        block_rows: the mean block.
        segment_rows: rows that one task takes into memory.
        max_vectors: distinct vectors that the blocking of a layout uses (4.5): Ward's time grows with their square.
            The lightest features are dropped until it holds.
        seed: the random seed.
        codec: the Parquet compression.
        cost: what searches over column groups count: ``cells`` and tids, or their ``bytes``.
        storage_budget: for methods with copies, the storage over that of the table stored once; a scheme for each. By
            default 1.2; ``auto`` tries copies only where a budget is given.
        choose: the budget whose scheme is the plan's; by default the largest.
        budget_unit: the unit of budgets: ``cells``, or compressed ``bytes``.
        partitioner: the name of the partitioner of a load; searches compare by Ward's method.
        slices: whether ranges of the most filtered column that no feature is about guide blocks too.
        row_order: the columns that sort the rows of each block, or ``auto`` (chosen by what training queries read) or
            ``none`` (as the blocking leaves them); None is ``auto``, but ``none`` for peers.
        tune: whether T, numFeat and the block size are chosen by what queries held out read.
        file_bytes: the size of a data file at which the next block starts another.
        index: indexes for each block, as ``COLUMN:TYPE`` or ``COLUMN:TYPE:NUMBER``.
        index_budget: also choose indexes, up to this share of the data's bytes.
        parquet_index: Parquet's own indexes to write: ``bloom``, ``page``.
        pairs: what was counted of the source before, or its file.
    """

    method: str = AUTO
    partition_by: str | None = None
    by: tuple[str, ...] = ()
    guides: str = AUTO
    num_features: int | None = None
    block_rows: int = DEFAULT_BLOCK_ROWS
    segment_rows: int = 1_000_000
    max_vectors: int = 3_000
    seed: int = 0
    codec: str = "zstd"
    cost: str = "cells"
    storage_budget: tuple[float, ...] | None = None
    choose: float | None = None
    budget_unit: str = "cells"
    partitioner: str = DEFAULT_PARTITIONER
    slices: bool = True
    row_order: tuple[str, ...] | None = None
    tune: bool = False
    file_bytes: int = FILE_BYTES
    index: tuple[str, ...] = ()
    index_budget: float | None = None
    parquet_index: tuple[str, ...] = ()
    pairs: Path | Pairs | None = None

    @property
    def budgets(self) -> tuple[float, ...]:
        """Return the distinct storage budgets, ascending."""
        return (STORAGE_BUDGET,) if self.storage_budget is None else tuple(sorted(set(self.storage_budget)))

    @property
    def chosen_budget(self) -> float:
        """Return the storage budget whose scheme is the plan's."""
        return self.budgets[-1] if self.choose is None else self.choose


class PlanningCache:
    """A cache of results for one source and one log, shared by similar requests.

    With it, plans for several requests (such as one for each storage budget) sample rows and search for column groups
    only once. Plans are the same bytes as without it.
    """

    def __init__(self) -> None:
        self._results: dict[tuple[str, PlanRequest], Any] = {}

    def once(self, name: str, request: PlanRequest, find: Callable[[], T]) -> T:
        """Return the cached result of ``find`` for similar requests.

        Requests are similar if they differ only in the method, its storage, and how blocks are made and sorted;
        ``find`` must not depend on these.
        """
        blocking: dict[str, Any] = {"guides": "", "partitioner": "", "slices": False, "row_order": None, "by": ()}
        key = name, replace(request, method="", storage_budget=None, choose=None, **blocking)
        if key not in self._results:
            self._results[key] = find()
        result: T = self._results[key]
        return result


@dataclass(frozen=True, eq=False)
class PlanningInput:
    """The input of a method.

    Attributes:
        request: the request; its columns are the schema's.
        features: the features of the plan.
        queries: classes of the training queries.
        partitions: the vectors' histograms, in the order of the partitions' values; empty for methods by order.
        bytes: the bytes of a cell of each column and of a tid, if measured.
        known: a cache for several requests.
        predicts: whether the method predicts the outcome of its scheme; for trials that takes longer than the scheme.
    """

    request: PlanRequest
    schema: Schema
    features: FeatureSet
    queries: tuple[Query, ...]
    partitions: tuple[PartitionHistogram, ...]
    bytes: Unit | None = None
    known: PlanningCache = field(default_factory=PlanningCache)
    predicts: bool = True

    @property
    def unit(self) -> Unit | None:
        """Return the cost of reading a cell of each column and a tid; None counts cells, as the thesis does."""
        return self.bytes if self.request.cost == "bytes" else None

    @cached_property
    def shares(self) -> Floats:
        """Return how much of each query each feature covers, ``float64[n_queries, n_features]``."""
        return feature_shares(self.features, self.queries)


@dataclass(frozen=True)
class LayoutProposal:
    """A method's result: the scheme, and its predictions by name (``rows_scanned_fraction``, ...)."""

    scheme: Scheme
    predicted: Mapping[str, float]


class Method(Protocol):
    """A way to lay out a table."""

    def __call__(self, planning: PlanningInput) -> LayoutProposal:
        """Make a scheme. Deterministic; bounded by work, not by the clock."""
        ...
