"""What a few segments of a table say of all of it, for queries that read some partitions and not others.

A query for a month of 1995 reads nothing of the other years. By a few years alone, scaled up by their rows, it would
seem to read nothing, or several times too much. So a few rows of every partition are blocked too, which says roughly
what each query reads where. The segments that were tried say how far off that is, for the queries of each family (those
of the same columns that filter by the same ones), and it is set right by as much in the partitions that were not tried:
a ratio estimate from a double sample (Cochran, *Sampling Techniques*, 12.9).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from layoutopt.catalog.partition_names import PlainValue
from layoutopt.features.splits import family_of
from layoutopt.model.arrays import Floats, Ints
from layoutopt.model.query import Query


@dataclass(frozen=True, eq=False)
class Tried:
    """Which part of a table was tried.

    Attributes:
        values: of each segment that was tried, its partition's.
        rows: of each of them, ``float64[segments]``.
        partition_rows: by value, the rows of each partition of the table.
    """

    values: tuple[PlainValue, ...]
    rows: Floats
    partition_rows: Mapping[PlainValue, int]

    @property
    def times(self) -> Floats:
        """The rows of its partition that each segment stands for, for each of its own, ``float64[segments]``."""
        tried = {value: self.rows[[each == value for each in self.values]].sum() for value in self.values}
        return np.array([self.partition_rows[value] / tried[value] for value in self.values], dtype=np.float64)

    @property
    def total(self) -> int:
        """The rows of the table."""
        return sum(self.partition_rows.values())

    @property
    def is_everywhere(self) -> bool:
        """Whether a segment of every partition was tried."""
        return set(self.values) == set(self.partition_rows)

    def by_rows(self, figures: Floats) -> Floats:
        """Figures that every partition has alike, for the table: each segment stands for as many rows.

        Args:
            figures: ``float64[segments, ...]``.
        """
        times = self.total / len(self.rows) / self.rows
        return np.asarray(np.tensordot(times, figures, axes=1), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Roughly:
    """What a few rows of each partition say of a figure.

    Attributes:
        values: the partitions'.
        figures: ``float64[partitions, queries]``.
    """

    values: tuple[PlainValue, ...]
    figures: Floats


def scaled_up(tried: Tried, figures: Floats, rough: Roughly, families: Ints) -> Floats:
    """Figures of the segments that were tried, and of other partitions what is said roughly, set right by family.

    A family of which nothing is said roughly where segments were tried is set right as the median of families is.

    Args:
        tried: the segments.
        figures: of each segment and query, ``float64[segments, queries, ...]``.
        rough: of the partitions that were tried, and of all others or some of them.
        families: which family each query is of, ``int64[queries]``.

    Returns:
        ``float64[queries, ...]``.
    """
    known: Floats = np.tensordot(tried.times, figures, axes=1)
    is_tried = np.array([value in tried.values for value in rough.values], dtype=np.bool_)
    there, elsewhere = rough.figures[is_tried].sum(axis=0), rough.figures[~is_tried].sum(axis=0)
    if not there.any() or not elsewhere.any():
        return known
    rows = np.array([tried.partition_rows[value] for value in rough.values], dtype=np.float64)
    left = tried.total - rows[is_tried].sum()
    ratios = _ratios(known, there, families)
    more = elsewhere * (left / rows[~is_tried].sum())
    return np.asarray(known + more.reshape(-1, *(1,) * (known.ndim - 1)) * ratios, dtype=np.float64)


def _ratios(known: Floats, rough: Floats, families: Ints) -> Floats:
    """The sums of each query's family over what was roughly said; where that is 0 the median of the families."""
    of_families = np.zeros((families.max() + 1, *known.shape[1:]))
    np.add.at(of_families, families, known)
    sizes = np.bincount(families, weights=rough)
    told = sizes > 0
    of_families[told] /= sizes[told].reshape(-1, *(1,) * (known.ndim - 1))
    of_families[~told] = np.median(of_families[told], axis=0)
    return of_families[families]


def families_of(queries: Sequence[Query]) -> Ints:
    """Which family each query is of, numbered from 0, ``int64[queries]``."""
    numbers = {family: number for number, family in enumerate(dict.fromkeys(map(family_of, queries)))}
    return np.array([numbers[family_of(query)] for query in queries], dtype=np.int64)
