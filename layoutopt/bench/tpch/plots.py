"""The experiments' plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from layoutopt.bench.tpch.report import Result

COPYING = ("GSOP-R", "GSOP-selective", "GSOP-fullcopy")
"""The methods of figure 5.8, as labels begin; GSOP, which stores the table once, is where their curves start."""
_ONCE = "GSOP by year"

Curve = list[tuple[float, float]]
"""Points: bytes stored over GSOP's, and millions of cells and tids that an average query scans."""


def replication_curves(results: Sequence[Result], queries: int) -> Mapping[str, Curve]:
    """What copies gain for what they store: a curve for each method with copies, by ascending budget.

    A larger budget may store fewer bytes: copies of some rows let other layouts be narrower.

    Args:
        results: of one stream.
        queries: how many test queries their counts are sums over.

    Returns:
        Nothing where GSOP, or what it stores, is not among the results.
    """
    once = next((result for result in results if result.label == _ONCE), None)
    if once is None or not once.storage:
        return {}
    curves = {}
    for name in COPYING:
        found = sorted((each for each in results if each.label.rpartition(" ")[0] == name), key=_budget)
        points = [
            (each.storage / once.storage, each.cells_and_tids / queries / 1e6)
            for each in (once, *found)
            if each.storage and each.cells_and_tids is not None
        ]
        if len(points) > 1:
            curves[name] = points
    return curves


def _budget(result: Result) -> float:
    return float(result.label.rpartition(" ")[2])


def plot_replication(curves: Mapping[str, Curve], path: Path) -> None:
    """Plot the curves of :func:`replication_curves` as figure 5.8 has them, into a PNG file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for marker, (name, points) in zip("osv", curves.items(), strict=False):
        storage, scanned = zip(*points, strict=True)
        axes.plot(storage, scanned, marker=marker, label=name)
    axes.set(xlabel="bytes stored, over GSOP's", ylabel="cells and tids scanned by a query, in millions")
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})
