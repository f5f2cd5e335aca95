"""Wide tables by chance, of SDSS's and Conviva's stated shapes: what figures compare on them, and how they are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from layoutopt.bench.generated import access_log, star
from layoutopt.bench.generated.tables import Rows, Workload, mean_seconds, reading_step, table_step, vectors_step
from layoutopt.bench.steps import Step
from layoutopt.bench.thesis import tables
from layoutopt.bench.thesis.figure import Measured, Point, Products
from layoutopt.bench.thesis.tables import FULL_SCAN, MATCHING, UNSORTED
from layoutopt.bench.tpch.experiment import Variant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS: Final = 20_000
TIMES: Final = 4
"""The access log has so many times the rows: it has a quarter of the columns."""
BLOCKS: Final = 100
BLOCKS_A_DAY: Final = 150
NUMBERS_OF_FEATURES: Final = (2, 5, 10, 20, 40)
PAR: Final = "PAR"
GROUPINGS: Final = {
    "SOP": "sop", "GSOP-single": "gsop-single", "GSOP": "gsop", "GSOP-hc": "gsop-hillclimb", "GSOP-hy": "gsop-hyrise",
}  # fmt: skip
BUDGETS: Final = (1.5, 2.0)


@dataclass(frozen=True)
class Shapes:
    """Where both tables, their logs and their layouts are, and a Spark session made when first asked for."""

    size: int
    root: Path
    spark: Callable[[], SparkSession]

    @property
    def folder(self) -> Path:
        """Of all products."""
        return self.root / "wide" / str(self.size)

    @property
    def star(self) -> Workload:
        """SDSS's shape."""
        rows = Rows(star.TABLE, self.size, self.folder / star.TABLE, star.write_star)
        return Workload(rows, "log", star.star_texts, self.spark)

    @property
    def sessions(self) -> Workload:
        """Conviva's."""
        rows = Rows(access_log.TABLE, TIMES * self.size, self.folder / access_log.TABLE, access_log.write_sessions)
        return Workload(rows, "log", access_log.session_texts, self.spark)


def star_variants(size: int) -> tuple[Variant, ...]:
    """What figure 4.12 compares."""
    rows = max(1, size // BLOCKS)
    plain = Variant(PAR, "input-order", None, rows, features=False)
    return (plain, *(Variant(label, method, None, rows, **UNSORTED) for label, method in GROUPINGS.items()))


def copies(size: int) -> tuple[Variant, ...]:
    """What figure 5.10 compares."""
    gsop = next(variant for variant in star_variants(size) if variant.label == "GSOP")
    return (
        gsop,
        *(replace(gsop, label=f"GSOP-R {budget:g}", method="gsop-r", budget=budget) for budget in BUDGETS),
    )


def session_variants(size: int) -> tuple[Variant, ...]:
    """What figure 3.9 compares: ranges of a day's customers, and SOP with 3.7.4's 40 features."""
    rows = max(1, TIMES * size // access_log.DAYS // BLOCKS_A_DAY)
    by_range = Variant("range", "range", access_log.DAY, rows, (access_log.CUSTOMER,), features=False)
    return (by_range, _sop(rows, 40))


def _sop(rows: int, count: int) -> Variant:
    return Variant(f"SOP, {count} features", "sop", access_log.DAY, rows, num_features=count, **UNSORTED)


def sops(size: int) -> dict[int, Variant]:
    """What figure 3.10 compares."""
    rows = session_variants(size)[0].block_rows
    return {count: _sop(rows, count) for count in NUMBERS_OF_FEATURES}


Variants = Callable[[int], Sequence[Variant]]


def stars_written(variants: Variants, bench: Shapes) -> dict[str, Step]:
    """Each variant of SDSS's shape, planned, loaded and replayed."""
    return {variant.label: table_step(bench.star, variant) for variant in variants(bench.size)}


def sessions_written(bench: Shapes) -> dict[str, Step]:
    """The same of Conviva's."""
    return {variant.label: table_step(bench.sessions, variant) for variant in session_variants(bench.size)}


def read_star(variants: Variants, bench: Shapes, products: Products) -> Measured:
    """Cells and tids as shares of a full scan."""
    found = {variant.label: products[variant.label] for variant in variants(bench.size)}
    points = [
        Point(unit, label, 100 * tables.scanned(table, unit) / tables.full_scan(table, "cells"))
        for label, table in found.items()
        for unit in ("cells", "tids")
    ]
    return Measured(tuple(points), _settings(bench, found), _details(found))


def read_groups(bench: Shapes, products: Products) -> Measured:
    """How many layouts the unseen queries read, by who groups columns."""
    chosen = [variant.label for variant in star_variants(bench.size) if variant.label not in (PAR, "SOP")]
    points = tuple(Point("column groups", label, float(products[label]["layouts"])) for label in chosen)
    return Measured(points, _settings(bench, products))


def read_loading(bench: Shapes, products: Products) -> Measured:
    """Seconds of planning and loading, and what was stored."""
    points = [
        Point(phase, label, products[label][f"{phase}_seconds"])
        for label in products
        for phase in ("planning", "loading")
    ]
    return Measured(tuple(points), _settings(bench, products), _details(products))


def stars_read(variants: Variants, bench: Shapes) -> dict[str, Step]:
    """The unseen queries' rows, read from each variant of SDSS's shape."""
    return {"read": reading_step(bench.star, variants(bench.size))}


def sessions_read(bench: Shapes) -> dict[str, Step]:
    """The same of Conviva's."""
    return {"read": reading_step(bench.sessions, session_variants(bench.size))}


def read_seconds(variants: Variants, bench: Shapes, products: Products) -> Measured:
    """An average query's milliseconds, and its memory."""
    read = {variant.label: products["read"][variant.label] for variant in variants(bench.size)}
    points = tuple(Point("mean of the queries", label, 1000 * mean_seconds(each)) for label, each in read.items())
    details = tuple(
        {
            "method": label,
            "memory, mean, MB": round(each["mean"] / 1e6, 3),
            "memory, most, MB": round(each["most"] / 1e6, 3),
            "queries that read several layouts": each["assembled"],
        }
        for label, each in read.items()
    )
    engine = "layoutopt's own reader, with DuckDB; files in the system's memory"
    return Measured(points, {"rows of the smaller table": bench.size, "engine": engine}, details)


def read_sessions(bench: Shapes, products: Products) -> Measured:
    """Rows scanned as shares of a full scan, and those that match."""
    found = {variant.label: products[variant.label] for variant in session_variants(bench.size)}
    whole = tables.full_scan(found["range"], "rows")
    points = [
        Point("rows", FULL_SCAN, 100.0),
        *(Point("rows", label, 100 * tables.scanned(table, "rows") / whole) for label, table in found.items()),
        Point("rows", MATCHING, 100 * found["range"]["matching"] / whole),
    ]
    return Measured(tuple(points), _settings(bench, found), _details(found))


def many_features(bench: Shapes) -> dict[str, Step]:
    """SOP by each number of features."""
    return {str(count): table_step(bench.sessions, variant) for count, variant in sops(bench.size).items()}


def read_many_features(bench: Shapes, products: Products) -> Measured:
    """Rows scanned over those that match, by the number of features."""
    points = tuple(
        Point("SOP", float(count), tables.scanned(table, "rows") / table["matching"])
        for count, table in ((count, products[str(count)]) for count in NUMBERS_OF_FEATURES)
    )
    return Measured(points, _settings(bench, products))


def vectors_counted(bench: Shapes) -> dict[str, Step]:
    """The distinct vectors by each number of features."""
    return {"vectors": vectors_step(bench.sessions, NUMBERS_OF_FEATURES, access_log.DAY)}


def read_vectors(bench: Shapes, products: Products) -> Measured:
    """Their mean over the days."""
    found = products["vectors"]
    points = tuple(Point("SOP", float(count), found[str(count)]["mean"]) for count in NUMBERS_OF_FEATURES)
    return Measured(points, {"partitions": access_log.DAY})


def _settings(bench: Shapes, found: Mapping[str, Mapping[str, Any]]) -> dict[str, object]:
    (queries,) = {table["queries"] for table in found.values()}
    return {"rows of the smaller table": bench.size, "unseen queries": queries}


def _details(found: Mapping[str, Mapping[str, Any]]) -> tuple[Mapping[str, object], ...]:
    return tuple(
        {
            **each,
            "loading, s": round(table["loading_seconds"], 1),
            "stored, MB": round(table["storage_bytes"] / 1e6, 3),
            "layouts read": table["layouts"],
            "features": table["features"],
            "planner's memory so far, MB": round(table["peak_bytes"] / 1e6),
        }
        for each, table in zip(tables.details_of(found), found.values(), strict=True)
    )
