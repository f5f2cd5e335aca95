"""The Big Data Benchmark's table and the scan queries of 4.7.2: s, z, k and t are the thesis's.

The benchmark joins its rankings and its visits; the joined table has 11 columns. The thesis has 15 million rows of the
benchmark's own generator; here they are drawn by chance, the same for the same number of rows, with the skew that such
logs have. A query is ``SELECT A1, ..., Ak FROM visits WHERE filter``, where ``filter`` compares one column by ``<``,
``=`` or ``>``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from math import comb
from pathlib import Path
from typing import Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.model.arrays import Floats, Ints

TABLE: Final = "visits"
QUERIES: Final = 100  # of each log, 4.7.2
ROLES: Final = ("train", "test")
TOLERANCE: Final = 0.01
_STEPS: Final = (-0.006, 0.0, 0.006)
"""Where around s the constants of a column lie: three for each of ``<`` and ``>``."""
_SEED: Final = 47
_FILE_ROWS: Final = 100_000
_FIRST_DAY: Final = 3_652  # 1980-01-01, in days since 1970
_DIGITS: Final = 6

Kind = Literal["number", "day", "text"]


@dataclass(frozen=True)
class Column:
    """A column whose values are drawn as numbers; texts are written so that they have the numbers' order."""

    name: str
    kind: Kind
    draw: Callable[[np.random.Generator, int], Ints]

    def array(self, values: Ints) -> pa.Array:
        """The values as the table has them."""
        if self.kind == "text":
            distinct, codes = np.unique(values, return_inverse=True)
            return pa.array([self._text(value) for value in distinct]).take(pa.array(codes))
        return pa.array(values.astype(np.int32)).cast(pa.date32() if self.kind == "day" else pa.int32())

    def literal(self, value: int) -> str:
        """One of the values in SQL."""
        if self.kind == "day":
            return f"DATE '{np.datetime64(int(value), 'D')}'"
        return f"'{self._text(value)}'" if self.kind == "text" else str(value)

    def _text(self, value: int) -> str:
        return f"{self.name}-{value:0{_DIGITS}d}"


def _skewed(distinct: int, exponent: float) -> Callable[[np.random.Generator, int], Ints]:
    """Values whose frequencies fall with the rank; which value has which rank is drawn once."""

    def draw(rng: np.random.Generator, rows: int) -> Ints:
        ranked = rng.permutation(distinct)
        return np.asarray(ranked[rng.choice(distinct, rows, p=zipf(distinct, exponent))])

    return draw


def _even(low: int, high: int) -> Callable[[np.random.Generator, int], Ints]:
    return lambda rng, rows: rng.integers(low, high, rows)


COLUMNS: Final = (
    Column("pageURL", "text", _skewed(20_000, 0.8)),
    Column(
        "pageRank", "number", lambda rng, rows: np.floor(rng.pareto(1.2, rows) * 10).clip(0, 10**6).astype(np.int64)
    ),
    Column("avgDuration", "number", _even(1, 100)),
    Column("sourceIP", "text", _even(0, 200_000)),
    Column("visitDate", "day", _even(_FIRST_DAY, _FIRST_DAY + 12_000)),
    Column("adRevenue", "number", _even(0, 100_000)),
    Column("userAgent", "text", _skewed(300, 0.9)),
    Column("countryCode", "text", _skewed(60, 1.3)),
    Column("languageCode", "text", _skewed(12, 0.7)),
    Column("searchWord", "text", _skewed(1_000, 0.6)),
    Column("duration", "number", _even(1, 11)),
)


def zipf(n: int, exponent: float) -> Floats:
    """The probabilities of n ranks; an exponent of 0 makes them equal."""
    weights = np.arange(1.0, n + 1.0) ** -exponent
    return np.asarray(weights / weights.sum())


def values_of(column: Column, rows: int) -> Ints:
    """A column's values: always the same for the same number of rows."""
    return column.draw(np.random.default_rng([_SEED, COLUMNS.index(column)]), rows)


def write_visits(rows: int, folder: Path) -> None:
    """Write the table as Parquet."""
    table = pa.table({column.name: column.array(values_of(column, rows)) for column in COLUMNS})
    for number, start in enumerate(range(0, rows, _FILE_ROWS)):
        pq.write_table(table.slice(start, _FILE_ROWS), folder / f"{number:04d}.parquet", compression="zstd")


@dataclass(frozen=True)
class Mix:
    """The parameters of a workload (4.7.2), with its defaults (4.7.4, whose d is taken for t).

    Attributes:
        s: the selectivity of filters, within 0.01.
        z: filters are used by Zipf's law with this exponent.
        k: columns of the SELECT list.
        t: different SELECT lists; all there are, if those are fewer.
    """

    s: float = 0.2
    z: float = 1.1
    k: int = 2
    t: int = 6

    @property
    def name(self) -> str:
        """Its parameters."""
        return f"s={self.s:g} z={self.z:g} k={self.k} t={self.t}"


def filters_of(s: float, rows: int) -> list[str]:
    """All filters of a selectivity, in the order of columns: a few constants of each column and comparison."""
    found = []
    for column in COLUMNS:
        distinct, counts = np.unique(values_of(column, rows), return_counts=True)
        below = np.concatenate([[0], np.cumsum(counts)]) / rows
        under = {int(np.abs(below[:-1] - (s + step)).argmin()) for step in _STEPS}
        over = {int(np.abs(1 - below[1:] - (s + step)).argmin()) for step in _STEPS}
        nearest = np.argsort(np.abs(counts / rows - s), kind="stable")[: len(_STEPS)]
        chosen = [
            *(("<", place) for place in sorted(under) if abs(below[place] - s) <= TOLERANCE),
            *(("=", place) for place in nearest if abs(counts[place] / rows - s) <= TOLERANCE),
            *((">", place) for place in sorted(over) if abs(1 - below[place + 1] - s) <= TOLERANCE),
        ]
        found += [f"{column.name} {sign} {column.literal(int(distinct[place]))}" for sign, place in chosen]
    return found


def texts_of(mix: Mix, rows: int, role: str) -> list[str]:
    """The queries of a log; both logs have the same filters and SELECT lists, each its own draws of them."""
    shared, own = np.random.default_rng([_SEED, 100]), np.random.default_rng([_SEED, 101, ROLES.index(role)])
    filters = filters_of(mix.s, rows)
    ranked = shared.permutation(len(filters))
    lists = list(combinations([column.name for column in COLUMNS], mix.k))
    templates = shared.choice(len(lists), min(mix.t, comb(len(COLUMNS), mix.k)), replace=False)
    chosen = zip(own.choice(templates, QUERIES), own.choice(ranked, QUERIES, p=zipf(len(filters), mix.z)), strict=True)
    return [f"SELECT {', '.join(lists[columns])} FROM {TABLE} WHERE {filters[of]}" for columns, of in chosen]
