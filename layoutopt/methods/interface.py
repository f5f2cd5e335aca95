"""What a method plans from, and what it gives: a method turns what planning knows into a scheme."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, TypeVar

from layoutopt.catalog.partition_names import PlainValue
from layoutopt.features.weights import MARGINAL, feature_shares
from layoutopt.model.arrays import Floats
from layoutopt.model.feature import FeatureSet
from layoutopt.model.layout import Scheme
from layoutopt.model.query import Query
from layoutopt.model.schema import Schema
from layoutopt.model.vectors import VectorCounts
from layoutopt.partitioning.registry import DEFAULT
from layoutopt.search.problem import Unit

T = TypeVar("T")

FEATURES, CUTS, BOTH = GUIDES = ("features", "cuts", "both")
"""What may guide the blocks of one layout."""

USUAL, TEXT = SEARCHES = ("default", "text")
"""How column groups and copies may be searched for."""

SELECTIVITY, COUNT = RANKINGS = ("selectivity", "count")
"""What the local features of a column group may be ranked by."""


@dataclass(frozen=True, eq=False)
class PartitionHistogram:
    """What planning knows of one partition.

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
    """What a user asks of a plan.

    Attributes:
        method: one of the methods' names.
        partition_by: the column by which the table is partitioned, None for none.
        by: columns to order by, for methods by order; chosen from the workload where left out.
        guides: of ``sop``: what its blocks are made by. ``features`` are vectors' bits, ``cuts`` values of columns, and
            ``both`` a tree of cuts at values and at features.
        num_features: numFeat, the most features that guide the blocking; 40 for one layout and all for several where
            left out. Every feature is measured all the same, and skips.
        min_features: fewer features than these are not worth a plan by features.
        block_rows: the mean block.
        segment_rows: rows that one task takes into memory.
        max_vectors: distinct vectors that blocking takes of a layout (4.5): Ward's time grows with their square. The
            lightest features go until it holds.
        seed: of everything with chance.
        codec: the Parquet compression.
        cost: what methods that search over column groups count: ``cells`` and tids, or their ``bytes``.
        storage_budgets: for methods with copies, what they may store over the table stored once; a scheme for each.
        choose: the budget whose scheme is the plan's; the largest where left out.
        budget_unit: what budgets are of: ``cells``, or compressed ``bytes``.
        copies: how often ``gsop-fullcopy`` stores the table.
        partitioner: what a load blocks by vectors with, by its name; searches compare by Ward's method.
        weights: what features count for while blocks are made: ``marginal``, or as in Equation 3.1 ``subsumed``.
        slices: whether ranges of the most filtered column that no feature is about guide blocks too.
        row_order: the columns that sort the rows of each block, or alone ``auto`` (chosen by what training queries
            read) or ``none`` (as the blocking leaves them); None is ``auto``, but ``none`` for peers.
        search: how column groups and copies are searched for: ``default``, or as the ``text`` has it.
        local_features: how those of a group are ranked (4.5): by weight and ``selectivity``, or as the text has it by
            the ``count`` of queries.
    """

    method: str = "sop"
    partition_by: str | None = None
    by: tuple[str, ...] = ()
    guides: str = FEATURES
    num_features: int | None = None
    min_features: int = 1
    block_rows: int = 10_000
    segment_rows: int = 1_000_000
    max_vectors: int = 3_000
    seed: int = 0
    codec: str = "zstd"
    cost: str = "cells"
    storage_budgets: tuple[float, ...] = (1.2,)
    choose: float | None = None
    budget_unit: str = "cells"
    copies: int = 2
    partitioner: str = DEFAULT
    weights: str = MARGINAL
    slices: bool = True
    row_order: tuple[str, ...] | None = None
    search: str = USUAL
    local_features: str = SELECTIVITY

    @property
    def budgets(self) -> tuple[float, ...]:
        """The storage budgets, each once, ascending."""
        return tuple(sorted(set(self.storage_budgets)))

    @property
    def chosen_budget(self) -> float:
        """The storage budget whose scheme is the plan's."""
        return self.budgets[-1] if self.choose is None else self.choose


class Known:
    """What was found of one source for one log, for other requests that ask about the same.

    Whoever plans by several, as by one for each storage budget, gives one of these to all: rows are then sampled, and
    column groups searched for, once. Plans are the same bytes as without it.
    """

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._found: dict[tuple[str, PlanRequest], Any] = {}

    def key(self, what: str, request: PlanRequest) -> tuple[str, PlanRequest]:
        """What is equal for requests that are alike."""
        return what, _common(request)

    def once(self, what: str, request: PlanRequest, find: Callable[[], T]) -> T:
        """What ``find`` gives, found when it is first asked for by a request that is alike.

        Requests are alike that differ in the method, what it may store, and how blocks are made and sorted at last:
        nothing of these may be looked at by ``find``.
        """
        key = self.key(what, request)
        if key not in self._found:
            self._found[key] = find()
        found: T = self._found[key]
        return found


def _common(request: PlanRequest) -> PlanRequest:
    """What samples and searches go by."""
    return replace(
        request,
        method="",
        by=(),
        guides="",
        min_features=0,
        storage_budgets=(),
        choose=None,
        copies=0,
        partitioner="",
        weights="",
        slices=False,
        row_order=None,
    )


@dataclass(frozen=True, eq=False)
class PlanningInput:
    """What a method has to make a scheme of.

    Attributes:
        request: what is asked; its columns are the schema's.
        schema: the table's.
        features: those of the plan.
        queries: classes of the training queries.
        partitions: the vectors' histograms, in the order of the partitions' values; empty for methods by order.
        bytes: what a cell of each column and a tid take, where that was measured.
        known: what was found for other requests.
        predicts: whether a method is to say what it expects of its scheme; of trials that takes longer than the scheme.
    """

    request: PlanRequest
    schema: Schema
    features: FeatureSet
    queries: tuple[Query, ...]
    partitions: tuple[PartitionHistogram, ...]
    bytes: Unit | None = None
    known: Known = field(default_factory=Known)
    predicts: bool = True

    @property
    def unit(self) -> Unit | None:
        """What reading a cell of each column and a tid costs; None counts cells, as the thesis does."""
        return self.bytes if self.request.cost == "bytes" else None

    @cached_property
    def shares(self) -> Floats:
        """How much of each query each feature covers, ``float64[n_queries, n_features]``."""
        return feature_shares(self.features, self.queries)


@dataclass(frozen=True)
class LayoutProposal:
    """A method's result: the scheme, and what it expects of it by name (``rows_scanned_fraction``, ...)."""

    scheme: Scheme
    predicted: Mapping[str, float]


class Method(Protocol):
    """A way to lay out a table."""

    def __call__(self, planning: PlanningInput) -> LayoutProposal:
        """Make a scheme. Deterministic; bounded by work, not by the clock."""
        ...
