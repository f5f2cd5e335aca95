"""Chapter 5, GSOP-R: what copies gain for what they store, response times, loading, retrieval paths; and its suite."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from jobs.bench.chapter3 import chapter3
from jobs.bench.chapter4 import chapter4, measure_loads
from jobs.bench.cold_times import mean_times, time_settings, times_step
from jobs.bench.experiment import TEST, UNSORTED, Evaluated, Session, Variant, scanned, table_details
from jobs.bench.figure import Measure, Measured, Point, Suite, measure_tables, read_figures
from jobs.bench.tpch import EVERY, Tpch, tpch_at

STREAM: Final = "chapter5"
ONCE: Final = "GSOP"
PAR: Final = "PAR"
BUDGETS: Final = {
    "gsop-r": (1.1, 1.2, 1.5, 2.0),
    "gsop-selective": (1.5, 2.0, 3.0, 5.0),
    "gsop-fullcopy": (2.0, 3.0, 4.0),
}
NAMES: Final = {"gsop-r": "GSOP-R", "gsop-selective": "GSOP-SE", "gsop-fullcopy": "GSOP-FC"}

# What the thesis loads and times.
WRITTEN: Final = ("GSOP", "GSOP-R 1.1", "GSOP-R 1.2", "GSOP-R 1.5")


def chapter5(tpch: Tpch) -> dict[str, Measure]:
    """Return the measures of the chapter's figures."""
    return {
        "5.7a": _cells(tpch),
        "5.7b": _times(tpch),
        "5.8": _copies(tpch),
        "5.9": measure_loads(tpch, tpch.stream(STREAM), written(tpch), PAR),
        "5-paths": _paths(tpch),
    }


def schemes(tpch: Tpch) -> tuple[Variant, ...]:
    """Return GSOP, and each method with copies at each of its budgets."""

    def copying(method: str, budget: float) -> Variant:
        label = f"{NAMES[method]} {budget:g}"
        more = {"written": True} if label in WRITTEN else UNSORTED
        return tpch.by_year(label, method, budget=budget, **more)

    copies = [copying(method, budget) for method, budgets in BUDGETS.items() for budget in budgets]
    return (tpch.by_year(ONCE, "gsop", written=True), *copies)


def written(tpch: Tpch) -> tuple[Variant, ...]:
    """Return GSOP, and GSOP-R at the budgets that the thesis loads and times."""
    return tuple(variant for variant in schemes(tpch) if variant.written)


def _cells(tpch: Tpch) -> Measure:
    stream, variants = tpch.stream(STREAM), written(tpch)

    def read(evaluated: Evaluated) -> Measured:
        queries = len(stream.queries(TEST))
        points = [
            Point(unit, label, scanned(table, unit) / queries / 1e6)
            for label, table in evaluated.items()
            for unit in ("cells", "tids")
        ]
        return Measured(points, tpch.settings(stream, variants), table_details(evaluated))

    return measure_tables(stream.tables(variants), read)


def _times(tpch: Tpch) -> Measure:
    stream, variants = tpch.stream(STREAM), written(tpch)
    step = times_step(tpch, stream, variants)

    def read() -> Measured:
        return Measured(mean_times(step.read()), time_settings(tpch, stream, variants, step.read()))

    return Measure([step], read)


def _copies(tpch: Tpch) -> Measure:
    """Measure cells and tids by storage budget; every curve starts at GSOP, which stores the table once."""
    stream, variants = tpch.stream(STREAM), schemes(tpch)

    def read(evaluated: Evaluated) -> Measured:
        queries = len(stream.queries(TEST))
        millions = {
            label: (scanned(table, "cells") + scanned(table, "tids")) / queries / 1e6
            for label, table in evaluated.items()
        }
        points = []
        for method, name in NAMES.items():
            points.append(Point(name, 1.0, millions[ONCE]))
            points += [Point(name, budget, millions[f"{name} {budget:g}"]) for budget in BUDGETS[method]]
        details = [
            {
                "method": label,
                "cells and tids of a query, millions": round(millions[label], 5),
                "planning, s": round(table["planning_seconds"], 1),
            }
            for label, table in evaluated.items()
        ]
        return Measured(points, tpch.settings(stream, variants), details)

    return measure_tables(stream.tables(variants), read)


def _paths(tpch: Tpch) -> Measure:
    """Measure how many of the greedy retrieval paths are the cheapest."""
    stream, variants = tpch.stream(STREAM), written(tpch)

    def read(evaluated: Evaluated) -> Measured:
        paths = {label: table["evaluation"]["totals"]["greedy_paths"] for label, table in evaluated.items()}
        with_choice = {label: counts for label, counts in paths.items() if counts["queries"]}
        points = [
            Point("queries", label, 100 * counts["cheapest"] / counts["queries"])
            for label, counts in with_choice.items()
        ]
        details = [
            {
                "scheme": label,
                "queries with a choice": counts["queries"],
                "at worst, times the cheapest": counts["worst_ratio"],
            }
            for label, counts in with_choice.items()
        ]
        return Measured(points, tpch.settings(stream, variants), details)

    return measure_tables(stream.tables(variants), read)


def tpch_suite(scale: float, root: Path, spark: Session) -> Suite:
    """Return all figures that are measured on TPC-H, at a scale factor, in the folder of all experiments.

    Raises:
        SettingError: a scale factor that can't be generated.
    """
    tpch = tpch_at(scale, root, spark)
    return Suite(
        name="tpch",
        title="The figures of Sun 2017, measured by layoutopt",
        about=f"TPC-H at scale factor {scale:g}, unseen queries; the thesis had scale factor 100 and a cluster.",
        command=f"python -m jobs.bench tpch --sf {scale:g}",
        size=scale,
        figures=read_figures("tpch", every=EVERY),
        measures=lambda: {**chapter3(tpch), **chapter4(tpch), **chapter5(tpch)},
        folder=tpch.data.folder / "results",
    )
