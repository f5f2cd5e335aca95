"""What a method plans from, and what it gives: a method turns what planning knows into a scheme."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar

from layoutopt.catalog.partition_names import PlainValue
from layoutopt.features.weights import feature_shares
from layoutopt.model.arrays import Floats
from layoutopt.model.feature import FeatureSet
from layoutopt.model.layout import Scheme
from layoutopt.model.query import Query
from layoutopt.model.schema import Schema
from layoutopt.model.vectors import VectorCounts
from layoutopt.partitioning.registry import DEFAULT
from layoutopt.search.problem import Unit

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class PartitionPairs:
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


@dataclass(frozen=True, eq=False)
class Replication:
    """What methods with copies may store.

    Attributes:
        budgets: storage over that of the table stored once, ascending; a scheme is searched for each.
        choose: the one of them whose scheme is the plan's.
        copies: of the whole table, for the method that makes full copies.
        in_bytes: whether budgets are of compressed bytes, not of cells (Sun 2017, Eq. 5.2).
        bytes: of a cell of each column and of a tid; None if unknown.
    """

    budgets: tuple[float, ...] = (1.2,)
    choose: float = 1.2
    copies: int = 2
    in_bytes: bool = False
    bytes: Unit | None = None


@dataclass(frozen=True, eq=False)
class Planning:
    """What a method has to make a scheme of.

    Attributes:
        schema: the table's.
        features: those of the plan.
        queries: classes of the training queries.
        partitions: the pairs, in the order of the partitions' values; empty for methods by order.
        by: the columns that the user wants rows ordered by.
        block_rows, segment_rows, max_vectors, seed: the plan's.
        unit: what reading a cell of each column and a tid costs; None counts cells, as the thesis does.
        replication: for methods with copies.
        partitioner: what the load blocks by vectors with, by its name; searches compare by Ward's method.
    """

    schema: Schema
    features: FeatureSet
    queries: tuple[Query, ...]
    partitions: tuple[PartitionPairs, ...]
    by: tuple[str, ...]
    block_rows: int
    segment_rows: int
    max_vectors: int
    seed: int
    unit: Unit | None = None
    replication: Replication = Replication()
    partitioner: str = DEFAULT

    @cached_property
    def shares(self) -> Floats:
        """How much of each query each feature covers, ``float64[n_queries, n_features]``."""
        return feature_shares(self.features, self.queries)


@dataclass(frozen=True)
class Designed:
    """A method's result: the scheme, and what it expects of it by name (``rows_scanned_fraction``, ...)."""

    scheme: Scheme
    predicted: Mapping[str, float]


class Method(Protocol):
    """A way to lay out a table."""

    def __call__(self, planning: Planning) -> Designed:
        """Make a scheme. Deterministic; bounded by work, not by the clock."""
        ...


def spread(values: Sequence[T], count: int) -> list[T]:
    """At most ``count`` of the values, spread evenly.

    >>> spread([1992, 1993, 1994, 1995, 1996, 1997, 1998], 3)
    [1993, 1995, 1997]
    """
    count = min(len(values), count)
    return [values[(2 * i + 1) * len(values) // (2 * count)] for i in range(count)]
