"""Chapter 5, GSOP-R: what copies gain for what they store, response times, loading, retrieval paths."""

from __future__ import annotations

from typing import Final

from layoutopt.bench.steps import Step
from layoutopt.bench.thesis import loading, tables, timing
from layoutopt.bench.thesis.figure import ALL, Claim, Figure, Measured, Point, Products
from layoutopt.bench.thesis.tables import UNSORTED, by_year, rehearsals
from layoutopt.bench.tpch.experiment import Bench, Variant

STREAM: Final = "chapter5"
ONCE: Final = "GSOP"
BUDGETS: Final = {
    "gsop-r": (1.1, 1.2, 1.5, 2.0),
    "gsop-selective": (1.5, 2.0, 3.0, 5.0),
    "gsop-fullcopy": (2.0, 3.0, 4.0),
}
NAMES: Final = {"gsop-r": "GSOP-R", "gsop-selective": "GSOP-SE", "gsop-fullcopy": "GSOP-FC"}
WRITTEN: Final = ("GSOP", "GSOP-R 1.1", "GSOP-R 1.2", "GSOP-R 1.5")
PAR: Final = "PAR"


def gsop(scale: float) -> Variant:
    """What all are compared with: every cell stored once."""
    return by_year(scale, ONCE, "gsop", written=True)


def copies(scale: float, method: str) -> tuple[Variant, ...]:
    """A method with copies at each of its budgets; those that the thesis loads and times are written."""
    return tuple(_with_copies(scale, f"{NAMES[method]} {budget:g}", method, budget) for budget in BUDGETS[method])


def _with_copies(scale: float, label: str, method: str, budget: float) -> Variant:
    more = {"written": True} if label in WRITTEN else UNSORTED
    return by_year(scale, label, method, budget=budget, **more)


def compared(scale: float) -> tuple[Variant, ...]:
    """GSOP, and GSOP-R at the budgets that the thesis loads and times."""
    return (gsop(scale), *(variant for variant in copies(scale, "gsop-r") if variant.written))


def everything(scale: float) -> tuple[Variant, ...]:
    """GSOP, and each method with copies at each of its budgets."""
    return (gsop(scale), *(variant for method in BUDGETS for variant in copies(scale, method)))


def _measured(bench: Bench) -> dict[str, Step]:
    return rehearsals(bench, STREAM, compared(bench.data.scale))


def _read_cells(bench: Bench, products: Products) -> Measured:
    found = tables.rehearsed(bench, products, STREAM, compared(bench.data.scale))
    queries = tables.queries_of(STREAM)
    points = [
        Point(unit, label, tables.scanned(found[label], unit) / queries / 1e6)
        for label in found
        for unit in ("cells", "tids")
    ]
    settings = tables.settings_of(bench, STREAM, compared(bench.data.scale))
    return Measured(tuple(points), settings, tables.details_of(found))


def _measured_copies(bench: Bench) -> dict[str, Step]:
    return rehearsals(bench, STREAM, everything(bench.data.scale))


def _read_copies(bench: Bench, products: Products) -> Measured:
    scale = bench.data.scale
    found = tables.rehearsed(bench, products, STREAM, everything(scale))
    queries = tables.queries_of(STREAM)

    def millions(label: str) -> float:
        return (tables.scanned(found[label], "cells") + tables.scanned(found[label], "tids")) / queries / 1e6

    points = []
    for method, name in NAMES.items():
        points.append(Point(name, 1.0, millions(ONCE)))
        points += [Point(name, budget, millions(f"{name} {budget:g}")) for budget in BUDGETS[method]]
    details = tuple(
        {
            "method": label,
            "cells and tids of a query, millions": round(millions(label), 5),
            "planning, s": round(found[label]["planning_seconds"], 1),
        }
        for label in found
    )
    return Measured(tuple(points), tables.settings_of(bench, STREAM, everything(scale)), details)


def _read_paths(bench: Bench, products: Products) -> Measured:
    found = tables.rehearsed(bench, products, STREAM, compared(bench.data.scale))
    paths = {label: table["evaluation"]["totals"]["greedy_paths"] for label, table in found.items()}
    with_choice = {label: of for label, of in paths.items() if of["queries"]}
    points = [Point("queries", label, 100 * of["cheapest"] / of["queries"]) for label, of in with_choice.items()]
    details = tuple(
        {"scheme": label, "queries with a choice": of["queries"], "at worst, times the cheapest": of["worst_ratio"]}
        for label, of in with_choice.items()
    )
    return Measured(tuple(points), tables.settings_of(bench, STREAM, compared(bench.data.scale)), details)


def _timed(bench: Bench) -> dict[str, Step]:
    return {STREAM: timing.times_step(bench, STREAM, compared(bench.data.scale))}


def _read_times(bench: Bench, products: Products) -> Measured:
    points = (*timing.mean_of(products[STREAM], timing.COLD), *timing.mean_of(products[STREAM], timing.WARM))
    return Measured(points, timing.settings_of(bench, STREAM, compared(bench.data.scale), products[STREAM]))


def _loads(bench: Bench) -> dict[str, Step]:
    return loading.steps(bench, STREAM, compared(bench.data.scale))


def _read_loads(bench: Bench, products: Products) -> Measured:
    return loading.read(bench, STREAM, compared(bench.data.scale), products, PAR)


FIGURES: Final[tuple[Figure[Bench], ...]] = (
    Figure(
        "5.7a",
        "Cells and tids of an average query",
        "figure 5.7 (a), 5.7.2",
        "millions",
        "scheme",
        _measured,
        _read_cells,
        "stacked",
        (
            Claim("GSOP over GSOP-R 1.2", 2, "5.7.2", (ALL, ONCE), (ALL, "GSOP-R 1.2"), better="more"),
            Claim("GSOP over GSOP-R 1.5", 3, "5.7.2", (ALL, ONCE), (ALL, "GSOP-R 1.5"), better="more"),
        ),
        "GSOP-R 1.2 may store 20 % more cells than GSOP.",
    ),
    Figure(
        "5.7b",
        "Response time of an average query",
        "figure 5.7 (b), 5.7.2",
        "seconds",
        "scheme",
        _timed,
        _read_times,
        "bars",
        tuple(
            Claim(
                f"GSOP over GSOP-R {budget}, cold",
                times,
                "5.7.2",
                (timing.COLD, ONCE),
                (timing.COLD, f"GSOP-R {budget}"),
                better="more",
            )
            for budget, times in (("1.1", 1.6), ("1.2", 2.0), ("1.5", 3.0))
        ),
        "Where a query takes mostly what any Spark job takes, nothing is left to gain.",
        timed=True,
    ),
    Figure(
        "5.8",
        "What copies gain for what they store",
        "figure 5.8, 5.7.2",
        "millions of cells and tids a query",
        "storage budget",
        _measured_copies,
        _read_copies,
        "lines",
        (
            Claim(
                "GSOP-SE at 5 over GSOP-R at 1.5",
                1,
                "5.7.2: what GSOP-R does with 1.5 takes GSOP-SE 5",
                ("GSOP-SE", 5.0),
                ("GSOP-R", 1.5),
                better="more",
            ),
            Claim(
                "GSOP over GSOP-FC with three copies",
                2,
                "5.7.2: almost 2x",
                ("GSOP-FC", 1.0),
                ("GSOP-FC", 3.0),
                better="more",
            ),
        ),
        "Budgets, in cells over the table stored once; a scheme may store less than its budget.",
    ),
    Figure(
        "5.9",
        "Loading",
        "figure 5.9, 5.7.2",
        "seconds",
        "scheme",
        _loads,
        _read_loads,
        "stacked",
        (
            Claim(
                "GSOP-R 1.5 over GSOP",
                1.2,
                "5.7.2: less than 20 % more",
                (ALL, "GSOP-R 1.5"),
                (ALL, ONCE),
                better="less",
            ),
        ),
        "The first phase is analysis and planning, the second loading.",
        timed=True,
    ),
    Figure(
        "5-paths",
        "Greedy retrieval paths that are the cheapest",
        "5.7.2, Retrieval Path Search",
        "% of the queries with a choice",
        "scheme",
        _measured,
        _read_paths,
        "bars",
        (),
        "The thesis says: almost always. Each is compared with all paths of the query.",
    ),
)
