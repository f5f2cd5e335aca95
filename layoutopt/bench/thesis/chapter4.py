"""Chapter 4, GSOP: cells and tids, column groups, estimates, local features, memory, loading, response times."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from layoutopt.bench.steps import Step
from layoutopt.bench.thesis import loading, memory, tables, timing
from layoutopt.bench.thesis.figure import ALL, Claim, Figure, Measured, Point, Products
from layoutopt.bench.thesis.plots import THESIS
from layoutopt.bench.thesis.searches import objective_step
from layoutopt.bench.thesis.tables import JOINS, by_year, plain_parquet, rehearsals
from layoutopt.bench.tpch.experiment import Bench, Variant, plan_step
from layoutopt.bench.tpch.normalised import joins_step
from layoutopt.search.rows import Estimate

STREAM: Final = "chapter4"
PAR_D: Final = "PAR-d"
GROUPINGS: Final = {
    "SOP": "sop", "GSOP-single": "gsop-single", "GSOP": "gsop", "GSOP-hc": "gsop-hillclimb", "GSOP-hy": "gsop-hyrise",
}  # fmt: skip
OF_GROUPING: Final = ("GSOP", "GSOP-hc", "GSOP-hy")
OF_LAYOUTS: Final = ("SOP", "GSOP-single", "GSOP")
ESTIMATES: Final[Mapping[Estimate, str]] = {
    "full": "Full Compt.", "block": "Block Est.", "selectivity": "Sel. Est.", "coarse": "ours: coarse",
}  # fmt: skip
GROUPS_OF_THESIS: Final = (21, 48, 23, 100, 23, 100, 26, 101, 6, 1)  # 4.7.5: ten numbers of "8 column groups"


def methods(scale: float) -> tuple[Variant, ...]:
    """What chapter 4 compares, by year."""
    return tuple(by_year(scale, label, method, written=True) for label, method in GROUPINGS.items())


def _rehearsed(bench: Bench) -> dict[str, Step]:
    return rehearsals(bench, STREAM, (plain_parquet(bench.data.scale), *methods(bench.data.scale)))


def _rehearsed_and_joined(bench: Bench) -> dict[str, Step]:
    return {**_rehearsed(bench), JOINS: joins_step(bench, STREAM, plain_parquet(bench.data.scale).block_rows)}


def _read_cells(labels: tuple[str, ...], bench: Bench, products: Products) -> Measured:
    """Cells and tids as shares of what a full scan of the denormalised table reads."""
    chosen = (plain_parquet(bench.data.scale), *methods(bench.data.scale))
    found = tables.rehearsed(bench, products, STREAM, chosen)
    plain = found.pop("Parquet min/max")
    whole = tables.full_scan(plain, "cells")
    shown = {PAR_D: plain, **found, **({JOINS: _beside(plain, products[JOINS])} if JOINS in products else {})}
    points = [
        Point(unit, label, 100 * tables.scanned(shown[label], unit) / whole)
        for label in labels
        for unit in ("cells", "tids")
    ]
    details = tables.details_of({label: shown[label] for label in labels})
    return Measured(tuple(points), tables.settings_of(bench, STREAM, chosen), details)


def _beside(plain: Mapping[str, Any], joins: Mapping[str, Any]) -> Mapping[str, Any]:
    """What joins read, as shares of the rows and cells of the denormalised table."""
    denormalised = {unit: plain["full_scan"][unit] for unit in ("rows_scanned", "cells_scanned")}
    return {**joins, "full_scan": {**joins["full_scan"], **denormalised}}


def _plans(bench: Bench) -> dict[str, Step]:
    return {variant.label: plan_step(bench, STREAM, variant) for variant in methods(bench.data.scale)}


def _read_groups(bench: Bench, products: Products) -> Measured:
    chosen = [variant for variant in methods(bench.data.scale) if variant.label != "SOP"]
    points = [Point("column groups", each.label, len(loading.layouts_read(bench, STREAM, each))) for each in chosen]
    return Measured(tuple(points), tables.settings_of(bench, STREAM, chosen))


def _read_local(bench: Bench, products: Products) -> Measured:
    gsop = next(variant for variant in methods(bench.data.scale) if variant.label == "GSOP")
    counts = sorted((len(layout.features) for layout in loading.layouts_read(bench, STREAM, gsop)), reverse=True)
    points = [Point("ours", float(place), float(count)) for place, count in enumerate(counts, 1)]
    thesis = sorted(GROUPS_OF_THESIS, reverse=True)
    points += [Point(THESIS, float(place), float(count)) for place, count in enumerate(thesis, 1)]
    return Measured(tuple(points), tables.settings_of(bench, STREAM, [gsop]))


def _searched(bench: Bench) -> dict[str, Step]:
    return {estimate: objective_step(bench, STREAM, estimate) for estimate in ESTIMATES}


def _read_searches(unit: str, bench: Bench, products: Products) -> Measured:
    best = products["full"]["objective"] if unit == "objective" else 1.0
    points = tuple(Point("search", label, products[estimate][unit] / best) for estimate, label in ESTIMATES.items())
    details = tuple(
        {
            "estimate": label,
            "objective, % of a full scan": round(100 * products[estimate]["fraction"], 3),
            "column groups": products[estimate]["groups"],
            "seconds": round(products[estimate]["seconds"], 2),
        }
        for estimate, label in ESTIMATES.items()
    )
    return Measured(
        points, {"scale factor": bench.data.scale, "objective": "cells and tids of the training queries"}, details
    )


def _loads(bench: Bench) -> dict[str, Step]:
    return loading.steps(bench, STREAM, methods(bench.data.scale))


def _loads_of_normalised(bench: Bench) -> dict[str, Step]:
    return {**_loads(bench), "joining": loading.joining_step(bench)}


def _read_loads(bench: Bench, products: Products) -> Measured:
    return loading.read(bench, STREAM, methods(bench.data.scale), products, PAR_D)


def _read_loads_of_normalised(bench: Bench, products: Products) -> Measured:
    """As loads of the joined table, with the join before the first phase; the baseline rewrites the tables unjoined."""
    of_joined = loading.read(bench, STREAM, methods(bench.data.scale), products, PAR_D)
    joined = products["joining"]
    points = [point for point in of_joined.points if point.x != PAR_D]
    points += [Point("joining", label, joined["joining"]) for label in GROUPINGS]
    points.append(Point("loading", JOINS, joined["rewriting"]))
    return Measured(tuple(points), of_joined.settings)


def _timed(bench: Bench) -> dict[str, Step]:
    return {STREAM: timing.times_step(bench, STREAM, methods(bench.data.scale), joins=True)}


def _read_times(labels: tuple[str, ...], bench: Bench, products: Products) -> Measured:
    found = [*timing.mean_of(products[STREAM], timing.COLD), *timing.mean_of(products[STREAM], timing.WARM)]
    renamed = [Point(each.series, PAR_D if each.x == tables.FULL_SCAN else each.x, each.value) for each in found]
    points = tuple(point for point in renamed if point.x in labels)
    return Measured(points, timing.settings_of(bench, STREAM, methods(bench.data.scale), products[STREAM]))


def _memory(bench: Bench) -> dict[str, Step]:
    chosen = [variant for variant in methods(bench.data.scale) if variant.label != "SOP"]
    return {variant.label: memory.memory_step(bench, STREAM, variant) for variant in chosen}


def _read_memory(bench: Bench, products: Products) -> Measured:
    points = [Point("mean of the queries", label, products[label]["mean"] / 1e6) for label in products]
    details = tuple(
        {
            "method": label,
            "mean, MB": round(product["mean"] / 1e6, 2),
            "most, MB": round(product["most"] / 1e6, 2),
            "queries that read several layouts": product["assembled"],
        }
        for label, product in products.items()
    )
    settings = {"scale factor": bench.data.scale, "engine": "layoutopt's own readers, with DuckDB"}
    return Measured(tuple(points), settings, details)


_PAR_N: Final = (
    "PAR-n joins plain normalised tables, whose rows it has once; queries of dimensions alone, 40 of 100, read no line "
    "item there. Cells are those of the columns that a join names, keys too."
)
_ROWS: Final = "Of the tables that are written, by their catalogs."

FIGURES: Final[tuple[Figure[Bench], ...]] = (
    Figure(
        "4.8a",
        "Cells and tids read",
        "figure 4.8 (a), 4.7.5",
        "% of a full scan's cells",
        "layout",
        _rehearsed_and_joined,
        partial(_read_cells, (PAR_D, JOINS, *OF_LAYOUTS)),
        "stacked",
        (
            Claim("PAR-n over GSOP", 14, "4.7.5", (ALL, JOINS), (ALL, "GSOP"), better="more"),
            Claim("PAR-d over GSOP", 20, "4.7.5", (ALL, PAR_D), (ALL, "GSOP"), better="more"),
            Claim("PAR-d over SOP", 20 / 6.5, "20 over 6.5, 4.7.5 and 4.1", (ALL, PAR_D), (ALL, "SOP"), better="more"),
            Claim("SOP over GSOP", 6.5, "chapter 4, end of 4.1", (ALL, "SOP"), (ALL, "GSOP"), better="more"),
        ),
        f"{_ROWS} {_PAR_N}",
    ),
    Figure(
        "4.8b",
        "Response time of an average query",
        "figure 4.8 (b), 4.7.5",
        "seconds",
        "layout",
        _timed,
        partial(_read_times, (PAR_D, JOINS, *OF_LAYOUTS)),
        "bars",
        (
            Claim("PAR-n over GSOP, cold", 5.1, "4.7.5", (timing.COLD, JOINS), (timing.COLD, "GSOP"), better="more"),
            Claim(
                "PAR-d over PAR-n, cold", 6.7 / 5.1, "6.7 over 5.1, 4.7.5", (timing.COLD, PAR_D), (timing.COLD, JOINS)
            ),
            Claim("PAR-d over GSOP, cold", 6.7, "4.7.5", (timing.COLD, PAR_D), (timing.COLD, "GSOP"), better="more"),
            Claim("SOP over GSOP, cold", 3.3, "4.7.5", (timing.COLD, "SOP"), (timing.COLD, "GSOP"), better="more"),
        ),
        "The thesis's are of a cluster, cold, means of three runs. At small scale factors a query takes mostly "
        "what any Spark job takes. PAR-n is that of 4.8a.",
        timed=True,
    ),
    Figure(
        "4.9a",
        "Cells and tids read, by who groups columns",
        "figure 4.9 (a), 4.7.5",
        "% of a full scan's cells",
        "grouping",
        _rehearsed,
        partial(_read_cells, OF_GROUPING),
        "stacked",
        (),
        f"{_ROWS} The thesis has no numbers, but says: much fewer tids by GSOP, and slightly more cells.",
    ),
    Figure(
        "4.9b",
        "Response time, by who groups columns",
        "figure 4.9 (b), 4.7.5",
        "seconds",
        "grouping",
        _timed,
        partial(_read_times, OF_GROUPING),
        "bars",
        (
            Claim(
                "GSOP-hc over GSOP, cold",
                1.35,
                "4.7.5: 35 %",
                (timing.COLD, "GSOP-hc"),
                (timing.COLD, "GSOP"),
                better="more",
            ),
            Claim(
                "GSOP-hy over GSOP, cold",
                1.35,
                "4.7.5: 35 %",
                (timing.COLD, "GSOP-hy"),
                (timing.COLD, "GSOP"),
                better="more",
            ),
        ),
        "The thesis's 35 % are read as 1.35 times.",
        timed=True,
    ),
    Figure(
        "4-groups",
        "Column groups",
        "4.7.5",
        "layouts",
        "grouping",
        _plans,
        _read_groups,
        "bars",
        (
            Claim("GSOP", 8, "4.7.5", ("column groups", "GSOP"), unit="groups"),
            Claim("GSOP-hc", 17, "4.7.5", ("column groups", "GSOP-hc"), unit="groups"),
            Claim("GSOP-hy", 18, "4.7.5", ("column groups", "GSOP-hy"), unit="groups"),
        ),
        "Groups that some query reads. Columns that no query reads are kept apart by some methods, and together by "
        "others.",
    ),
    Figure(
        "4-memory",
        "Memory of a query, by layout",
        "4.7.5, Memory Consumption",
        "MB",
        "layout",
        _memory,
        _read_memory,
        "bars",
        (
            Claim(
                "GSOP-single over GSOP",
                1.9 / 0.8,
                "1.9 G over 0.8 G, 4.7.5",
                (ALL, "GSOP-single"),
                (ALL, "GSOP"),
                better="more",
            ),
            Claim(
                "GSOP-hc over GSOP",
                1.5 / 0.8,
                "1.5 G over 0.8 G, 4.7.5",
                (ALL, "GSOP-hc"),
                (ALL, "GSOP"),
                better="more",
            ),
            Claim(
                "GSOP-hy over GSOP",
                1.5 / 0.8,
                "1.5 G over 0.8 G, 4.7.5",
                (ALL, "GSOP-hy"),
                (ALL, "GSOP"),
                better="more",
            ),
        ),
        "Arrow's memory at its peak over the whole table; the thesis's is for one file of 10 million rows.",
    ),
    Figure(
        "4.10a",
        "Time of the search, by how the objective is found",
        "figure 4.10 (a), 4.7.5",
        "seconds",
        "evaluation",
        _searched,
        partial(_read_searches, "seconds"),
        "bars",
        (
            Claim("Full Compt., at least", 86_400, "4.7.5: more than a day", ("search", "Full Compt."), unit="s"),
            Claim("Block Est., at most", 2_640, "4.7.5: within 44 minutes", ("search", "Block Est."), unit="s"),
            Claim("Sel. Est., at most", 2_640, "4.7.5: within 44 minutes", ("search", "Sel. Est."), unit="s"),
        ),
        "On samples of feature vectors, as planning does it, with Ward's method.",
        log="y",
        timed=True,
    ),
    Figure(
        "4.10b",
        "Objective reached, by how it is found during the search",
        "figure 4.10 (b), 4.7.5",
        "times the objective of Full Compt.",
        "evaluation",
        _searched,
        partial(_read_searches, "objective"),
        "bars",
        (),
        "What each search ends with is evaluated exactly. The thesis has no numbers, but says: almost as small by "
        "Block Est., much worse by Sel. Est.",
    ),
    Figure(
        "4-local-features",
        "Local features of each column group",
        "4.7.5, Local Feature Selection",
        "local features",
        "column group, by its number of features",
        _plans,
        _read_local,
        "lines",
        (Claim("the most", 101, "4.7.5", ("ours", 1.0), unit="features"),),
        "The thesis gives ten numbers for eight groups; all ten are shown.",
    ),
    Figure(
        "4.11a",
        "Loading, from the joined table",
        "figure 4.11 (a), 4.7.5",
        "seconds",
        "layout",
        _loads,
        _read_loads,
        "stacked",
        (Claim("GSOP over PAR-d", 2.6, "4.7.5", (ALL, "GSOP"), (ALL, PAR_D), better="less"),),
        "From Parquet, rewritten by Spark as PAR-d; the thesis loads text, which takes its baseline longer.",
        timed=True,
    ),
    Figure(
        "4.11b",
        "Loading, from normalised tables",
        "figure 4.11 (b), 4.7.5",
        "seconds",
        "layout",
        _loads_of_normalised,
        _read_loads_of_normalised,
        "stacked",
        (Claim("GSOP over PAR-n", 7.6, "4.7.5", (ALL, "GSOP"), (ALL, JOINS), better="less"),),
        "All columns are joined, the thesis joins those that the log reads.",
        timed=True,
    ),
)
