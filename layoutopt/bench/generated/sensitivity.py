"""Figure 4.7: SOP, GSOP-single and GSOP under workloads of the Big Data Benchmark, by k, t, z and s."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from layoutopt.bench.generated.bigdata import COLUMNS, QUERIES, TABLE, Mix, texts_of, write_visits
from layoutopt.bench.generated.tables import Rows, Workload, mean_seconds, reading_step, table_step
from layoutopt.bench.steps import Step
from layoutopt.bench.thesis import tables
from layoutopt.bench.thesis.figure import Claim, Figure, Measured, Point, Products
from layoutopt.bench.thesis.suite import Suite
from layoutopt.bench.tpch.experiment import Variant
from layoutopt.errors import SettingError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS: Final = 200_000
LEAST_ROWS: Final = 10_000
BLOCKS: Final = 200
ROWS_OF_THESIS: Final = 15_000_000
METHODS: Final = {"SOP": "sop", "GSOP-single": "gsop-single", "GSOP": "gsop"}
VARIED: Final[Mapping[str, tuple[float, ...]]] = MappingProxyType(
    {"k": (1, 2, 4, 6, 8, 11), "t": (1, 3, 6, 15, 45), "z": (0, 0.5, 1.1, 2, 3), "s": (0.01, 0.05, 0.1, 0.2, 0.4)}
)
"""The values of each parameter; the others have their defaults."""


@dataclass(frozen=True)
class BigData:
    """Where the table, its logs and its layouts are, and a Spark session made when first asked for.

    Raises:
        SettingError: so few rows that no two filters differ.
    """

    size: int
    root: Path
    spark: Callable[[], SparkSession]

    def __post_init__(self) -> None:
        """Refuse tables of a block or two."""
        if self.size < LEAST_ROWS:
            raise SettingError(f"--rows {self.size} makes no blocks to skip; give {LEAST_ROWS} at least")

    @property
    def rows(self) -> Rows:
        """The table."""
        return Rows(TABLE, self.size, self.root / "bigdata" / str(self.size), write_visits)

    @property
    def variants(self) -> tuple[Variant, ...]:
        """What is compared."""
        return tuple(Variant(label, method, None, self.size // BLOCKS) for label, method in METHODS.items())

    def workload(self, mix: Mix) -> Workload:
        """The logs of some parameters."""
        return Workload(self.rows, mix.name, partial(texts_of, mix, self.size), self.spark)


def mixes(parameter: str) -> dict[float, Mix]:
    """A workload for each value of a parameter.

    >>> [mix.name for mix in mixes("z").values()][:2]
    ['s=0.2 z=0 k=2 t=6', 's=0.2 z=0.5 k=2 t=6']
    """
    return {float(value): _mix(parameter, value) for value in VARIED[parameter]}


def _mix(parameter: str, value: float) -> Mix:
    whole = int(value)
    return {"s": Mix(s=value), "z": Mix(z=value), "k": Mix(k=whole), "t": Mix(t=whole)}[parameter]


def _tables(parameter: str, bench: BigData) -> dict[str, Step]:
    return {
        f"{value:g} {variant.label}": table_step(bench.workload(mix), variant)
        for value, mix in mixes(parameter).items()
        for variant in bench.variants
    }


def _read_cells(parameter: str, bench: BigData, products: Products) -> Measured:
    """Cells and tids of an average query."""
    points, details = [], []
    for value in mixes(parameter):
        found = {variant.label: products[f"{value:g} {variant.label}"] for variant in bench.variants}
        for label, table in found.items():
            read = tables.scanned(table, "cells") + tables.scanned(table, "tids")
            points.append(Point(label, value, read / table["queries"] / 1e6))
        layouts = {label: table["layouts"] for label, table in found.items()}
        details += [
            {parameter: value, **each, "layouts read": layouts[str(each["method"])]}
            for each in tables.details_of(found)
        ]
    return Measured(tuple(points), _settings(bench), tuple(details))


def _readings(parameter: str, bench: BigData) -> dict[str, Step]:
    return {f"{value:g}": reading_step(bench.workload(mix), bench.variants) for value, mix in mixes(parameter).items()}


def _read_seconds(parameter: str, bench: BigData, products: Products) -> Measured:
    points, details = [], []
    for value in mixes(parameter):
        for label in METHODS:
            read = products[f"{value:g}"][label]
            points.append(Point(label, value, 1000 * mean_seconds(read)))
            details.append({parameter: value, "method": label, "memory, mean, MB": round(read["mean"] / 1e6, 3)})
    settings = {**_settings(bench), "engine": "layoutopt's own reader, with DuckDB; files in the system's memory"}
    return Measured(tuple(points), settings, tuple(details))


def _settings(bench: BigData) -> dict[str, object]:
    fixed = Mix()
    return {
        "rows": bench.size,
        "rows of a block, on average": bench.size // BLOCKS,
        "unseen queries": QUERIES,
        "unless varied": f"s {fixed.s:g}, z {fixed.z:g}, k {fixed.k}, t {fixed.t}",
    }


def _never_worse(parameter: str) -> tuple[Claim, ...]:
    """Claims that the others read at least what GSOP does: SOP everywhere, GSOP-single at both ends."""
    values = [float(value) for value in VARIED[parameter]]
    compared = [*(("SOP", value) for value in values), ("GSOP-single", values[0]), ("GSOP-single", values[-1])]
    return tuple(
        Claim(f"{other} over GSOP at {parameter} {value:g}", 1, _PLACE, (other, value), ("GSOP", value), better="more")
        for other, value in compared
    )


_PLACE: Final = "4.7.4: GSOP no worse under all circumstances"
_SYNTHETIC: Final = (
    f"Synthetic: {len(COLUMNS)} columns drawn by chance in place of the benchmark's generator; the thesis has 15 "
    "million rows, and seconds."
)
_TOLD: Final[Mapping[str, tuple[str, str, str, str]]] = MappingProxyType(
    {
        "k": (
            "4.7a",
            "columns read",
            "k, columns of the SELECT list",
            "The thesis has no numbers, but says: GSOP-single is better than SOP for few columns, and GSOP is SOP "
            "above 70 % of the columns. Here SOP reads less than twice the rows that match, which is the least that "
            "several groups could, with a tid for each cell; GSOP keeps one group.",
        ),
        "t": (
            "4.7b",
            "column templates",
            "t, different SELECT lists",
            "The thesis has no numbers, but says: GSOP gains most where t is small. Its 45 are all pairs of ten "
            "columns; those of eleven are 55.",
        ),
        "z": (
            "4.7c",
            "skew of filters",
            "z, exponent of Zipf's law",
            "The thesis has no numbers, but says: the more skew, the better SOP, and less so the others.",
        ),
        "s": (
            "4.7d",
            "selectivity of filters",
            "s, share of the rows that a filter selects",
            "The thesis has no numbers, but says: GSOP-single suffers most from filters that select more.",
        ),
    }
)
"""Of each parameter: the figure, what it varies, its axis, and what the thesis says."""


def _of(parameter: str) -> tuple[Figure[BigData], Figure[BigData]]:
    """A figure of cells, and the one of seconds."""
    name, what, axis, said = _TOLD[parameter]
    place = f"figure 4.7 ({name[-1]}), 4.7.4"
    log = {"t": "x", "s": "x"}.get(parameter, "")
    claims = _never_worse(parameter)
    if parameter == "k":
        # Which of the others is better is no merit of ours.
        claims += (Claim("SOP over GSOP-single at k 1, at least", 1, "4.7.4", ("SOP", 1.0), ("GSOP-single", 1.0)),)
    cells = Figure[BigData](
        name,
        f"Cells and tids read, by {what}",
        place,
        "millions of cells and tids a query",
        axis,
        partial(_tables, parameter),
        partial(_read_cells, parameter),
        "lines",
        claims,
        f"{_SYNTHETIC} {said}",
        log,
    )
    seconds = Figure[BigData](
        f"{name}-seconds",
        f"Response time of an average query, by {what}",
        place,
        "milliseconds",
        axis,
        partial(_readings, parameter),
        partial(_read_seconds, parameter),
        "lines",
        claims,
        f"{_SYNTHETIC} {said}",
        log,
        timed=True,
    )
    return cells, seconds


FIGURES: Final[Mapping[str, Figure[BigData]]] = MappingProxyType(
    {figure.name: figure for both in map(_of, VARIED) for figure in both}
)


def bigdata_suite(rows: int | None, root: Path, spark: Callable[[], SparkSession]) -> Suite[BigData]:
    """The figures on a table of so many rows.

    Raises:
        SettingError: too few rows.
    """
    size = ROWS if rows is None else rows
    bench = BigData(size, root, spark)
    return Suite(
        name="bigdata",
        title="The Big Data Benchmark of Sun 2017, measured by layoutopt",
        about=f"A synthetic table of the benchmark's shape with {size:,} rows, unseen queries; the thesis had "
        f"{ROWS_OF_THESIS:,} rows.",
        command=f"layoutopt bench bigdata --rows {size}",
        size=size,
        figures=FIGURES,
        bench=bench,
        folder=bench.rows.folder / "results",
    )
