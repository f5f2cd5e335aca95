"""`python -m jobs.bench bigdata`: figure 4.7, SOP, GSOP-single and GSOP under workloads of the Big Data Benchmark.

The benchmark joins its rankings and its visits; the joined table has 11 columns. The thesis has 15 million rows of the
benchmark's own generator; here they are random, the same for the same number of rows, with the skew that such logs
have. A query is ``SELECT A1, ..., Ak FROM visits WHERE filter``, where ``filter`` compares one column by ``<``, ``=``
or ``>``. The parameters s, z, k and t are the thesis's (4.7.2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from math import comb
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.bench.experiment import (
    ROLES,
    Experiment,
    Session,
    Source,
    Variant,
    generated_source,
    mean_seconds,
    scanned,
    table_details,
    without_templates,
)
from jobs.bench.figure import Measure, Measured, Point, Suite, read_figures
from jobs.bench.wide import zipf
from layoutopt.errors import SettingError
from layoutopt.model.arrays import Ints

TABLE: Final = "visits"
DEFAULT_ROWS: Final = 200_000
LEAST_ROWS: Final = 10_000
ROWS_OF_THESIS: Final = 15_000_000
BLOCKS: Final = 200
METHODS: Final = {"SOP": "sop", "GSOP-single": "gsop-single", "GSOP": "gsop"}

# Queries of each log (4.7.2).
QUERIES: Final = 100
TOLERANCE: Final = 0.01

# Where around s the constants of a column lie: three for each of ``<`` and ``>``.
_STEPS: Final = (-0.006, 0.0, 0.006)
_SEED: Final = 47
_FILE_ROWS: Final = 100_000

# 1980-01-01, in days since 1970.
_FIRST_DAY: Final = 3_652
_DIGITS: Final = 6

# The figure of each parameter.
FIGURES: Final = {"k": "4.7a", "t": "4.7b", "z": "4.7c", "s": "4.7d"}

# The values of each parameter; the others have their defaults.
VARIED: Final[Mapping[str, tuple[float, ...]]] = {
    "k": (1, 2, 4, 6, 8, 11), "t": (1, 3, 6, 15, 45), "z": (0, 0.5, 1.1, 2, 3), "s": (0.01, 0.05, 0.1, 0.2, 0.4),
}  # fmt: skip

Kind = Literal["number", "day", "text"]


@dataclass(frozen=True)
class Column:
    """A column whose values are drawn as numbers; texts are written so that they have the numbers' order."""

    name: str
    kind: Kind
    draw: Callable[[np.random.Generator, int], Ints]

    def array(self, values: Ints) -> pa.Array:
        """Return the values as the table has them."""
        if self.kind == "text":
            distinct, codes = np.unique(values, return_inverse=True)
            return pa.array([self._text(value) for value in distinct]).take(pa.array(codes))
        return pa.array(values.astype(np.int32)).cast(pa.date32() if self.kind == "day" else pa.int32())

    def literal(self, value: int) -> str:
        """Return a value in SQL."""
        if self.kind == "day":
            return f"DATE '{np.datetime64(int(value), 'D')}'"
        return f"'{self._text(value)}'" if self.kind == "text" else str(value)

    def _text(self, value: int) -> str:
        return f"{self.name}-{value:0{_DIGITS}d}"


def _skewed(distinct: int, exponent: float) -> Callable[[np.random.Generator, int], Ints]:
    """Return what draws values whose frequencies fall with a random rank."""

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


def values_of(column: Column, rows: int) -> Ints:
    """Return a column's values: always the same for the same number of rows."""
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
        z: the exponent of Zipf's law by which filters are used.
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
    """Return all filters of a selectivity, in the order of columns: some constants of each column and comparison."""
    filters = []
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
        filters += [f"{column.name} {sign} {column.literal(int(distinct[place]))}" for sign, place in chosen]
    return filters


def texts_of(mix: Mix, rows: int, role: str) -> list[str]:
    """Return the queries of a log; both logs have the same filters and SELECT lists, each its own draws of them."""
    shared, own = np.random.default_rng([_SEED, 100]), np.random.default_rng([_SEED, 101, ROLES.index(role)])
    filters = filters_of(mix.s, rows)
    ranked = shared.permutation(len(filters))
    lists = list(combinations([column.name for column in COLUMNS], mix.k))
    templates = shared.choice(len(lists), min(mix.t, comb(len(COLUMNS), mix.k)), replace=False)
    chosen = zip(own.choice(templates, QUERIES), own.choice(ranked, QUERIES, p=zipf(len(filters), mix.z)), strict=True)
    return [f"SELECT {', '.join(lists[columns])} FROM {TABLE} WHERE {filters[place]}" for columns, place in chosen]


def mixes(parameter: str) -> dict[float, Mix]:
    """Return a workload for each value of a parameter.

    >>> [mix.name for mix in mixes("z").values()][:2]
    ['s=0.2 z=0 k=2 t=6', 's=0.2 z=0.5 k=2 t=6']
    """

    parameters: list[dict[str, Any]] = [{parameter: value} for value in VARIED[parameter]]
    return {float(of[parameter]): Mix(**of) for of in parameters}


@dataclass(frozen=True)
class BigData:
    """The table at one size.

    Raises:
        SettingError: so few rows that no two filters differ.
    """

    rows: int
    root: Path
    spark: Session

    def __post_init__(self) -> None:
        """Refuse tables of a block or two."""
        if self.rows < LEAST_ROWS:
            raise SettingError(f"--rows {self.rows} makes no blocks to skip; give {LEAST_ROWS} at least")

    @property
    def source(self) -> Source:
        """The table."""
        return generated_source(TABLE, self.rows, self.root / "bigdata" / str(self.rows), write_visits)

    @property
    def variants(self) -> tuple[Variant, ...]:
        """What is compared."""
        return tuple(Variant(label, method, None, self.rows // BLOCKS) for label, method in METHODS.items())

    def experiment(self, mix: Mix) -> Experiment:
        """Return the experiment with the logs of some parameters."""
        queries = partial(without_templates, partial(texts_of, mix, self.rows))
        return Experiment(mix.name, self.source, queries, self.spark, counts_rows=True)

    def measures(self) -> dict[str, Measure]:
        """Return the measures of all figures."""
        return {
            name: measure
            for parameter, figure in FIGURES.items()
            for name, measure in ((figure, self._cells(parameter)), (f"{figure}-seconds", self._seconds(parameter)))
        }

    def _cells(self, parameter: str) -> Measure:
        """Measure cells and tids of an average query."""
        tables = {value: self.experiment(mix).tables(self.variants) for value, mix in mixes(parameter).items()}

        def read() -> Measured:
            points, details = [], []
            for value, of_value in tables.items():
                evaluated = of_value.read()
                for label, table in evaluated.items():
                    cells = scanned(table, "cells") + scanned(table, "tids")
                    points.append(Point(label, value, cells / table["queries"] / 1e6))
                details += [
                    {parameter: value, **line, "layouts read": evaluated[str(line["method"])]["layouts"]}
                    for line in table_details(evaluated)
                ]
            return Measured(points, self._settings(), details)

        return Measure([step for of_value in tables.values() for step in of_value.steps], read)

    def _seconds(self, parameter: str) -> Measure:
        """Measure milliseconds of an average query."""
        steps = {value: self.experiment(mix).reading(self.variants) for value, mix in mixes(parameter).items()}

        def read() -> Measured:
            points, details = [], []
            for value, step in steps.items():
                product = step.read()
                for label in METHODS:
                    points.append(Point(label, value, 1000 * mean_seconds(product[label]["seconds"])))
                    memory = round(product[label]["mean"] / 1e6, 3)
                    details.append({parameter: value, "method": label, "memory, mean, MB": memory})
            engine = "layoutopt's own reader, with DuckDB; files in the system's memory"
            return Measured(points, {**self._settings(), "engine": engine}, details)

        return Measure(list(steps.values()), read)

    def _settings(self) -> dict[str, object]:
        fixed = Mix()
        return {
            "rows": self.rows,
            "rows of a block, on average": self.rows // BLOCKS,
            "unseen queries": QUERIES,
            "unless varied": f"s {fixed.s:g}, z {fixed.z:g}, k {fixed.k}, t {fixed.t}",
        }


def bigdata_suite(rows: int | None, root: Path, spark: Session) -> Suite:
    """Return the figures on a table of so many rows.

    Raises:
        SettingError: too few rows.
    """
    bench = BigData(DEFAULT_ROWS if rows is None else rows, root, spark)
    return Suite(
        name="bigdata",
        title="The Big Data Benchmark of Sun 2017, measured by layoutopt",
        about=f"A synthetic table of the benchmark's shape with {bench.rows:,} rows, unseen queries; the thesis had "
        f"{ROWS_OF_THESIS:,} rows.",
        command=f"python -m jobs.bench bigdata --rows {bench.rows}",
        size=bench.rows,
        figures=read_figures("bigdata", columns=len(COLUMNS)),
        measures=bench.measures,
        folder=bench.source.folder / "results",
    )
