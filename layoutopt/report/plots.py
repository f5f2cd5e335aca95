"""The plots of an evaluation's page, as SVG that stands in the page itself."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

COLOURS = {
    "read": "#c0392b",
    "index": "#a9cce3",
    "statistics": "#7fb3d5",
    "features": "#2874a6",
    "partition": "#d5d8dc",
}
"""What became of rows, in the order in which bars are stacked."""

_SMALLEST = 1e-6
"""Where shares of nothing stand on a logarithmic axis."""


def shares_plot(queries: Sequence[Mapping[str, Any]]) -> str:
    """The share of the table's rows that each query reads, that statistics alone would leave, and that matches."""
    ordered = sorted(queries, key=lambda query: int(query["rows_scanned"]))
    figure, axes = new_axes()
    places = range(1, len(ordered) + 1)
    axes.plot(places, _shares(ordered, "rows_scanned_by_statistics"), ".", color="#7fb3d5", label="statistics alone")
    axes.plot(places, _shares(ordered, "rows_scanned"), color=COLOURS["read"], linewidth=2, label="read")
    if any(query.get("rows_matching") is not None for query in ordered):
        axes.plot(places, _shares(ordered, "rows_matching"), ".", color="#1e8449", label="matching")
    axes.set(yscale="log", xlabel="queries, by the rows that they read", ylabel="share of the table's rows")
    axes.set_ylim(_lowest(ordered), 1.3)
    legend_above(axes)
    return svg_of(figure)


def _lowest(queries: Sequence[Mapping[str, Any]]) -> float:
    """A power of ten below every share that is not zero."""
    names = ("rows_scanned", "rows_matching")
    shares = [
        query[n] / query["rows_total"] for query in queries for n in names if query.get(n) and query["rows_total"]
    ]
    lowest = 0.1
    while lowest > min(shares, default=1.0) and lowest > _SMALLEST:
        lowest /= 10
    return lowest


def _shares(queries: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [max((query.get(name) or 0) / max(query["rows_total"], 1), _SMALLEST) for query in queries]


def fates_plot(queries: Sequence[Mapping[str, Any]]) -> str:
    """What becomes of the blocks' rows in each query: read, or skipped by which mechanism."""
    rows = [_fates(query) for query in queries]
    ordered = sorted(rows, key=lambda outcomes: outcomes["read"])
    figure, axes = new_axes()
    places = list(range(len(ordered)))
    base = [0.0] * len(ordered)
    for name, colour in COLOURS.items():
        heights = [outcomes[name] for outcomes in ordered]
        axes.bar(places, heights, bottom=base, width=1.0, color=colour, label=name, linewidth=0)
        base = [low + height for low, height in zip(base, heights, strict=True)]
    axes.set(xlabel="queries, by the share that they read", ylabel="share of the blocks' rows", ylim=(0, 1))
    axes.set_xlim(-0.5, max(len(ordered) - 0.5, 0.5))
    legend_above(axes)
    return svg_of(figure)


def _fates(query: Mapping[str, Any]) -> dict[str, float]:
    skipped = {name: float(amount["rows"]) for name, amount in query["skipped_by"].items()}
    # Evaluations of older versions know fewer mechanisms.
    rows = {**dict.fromkeys(COLOURS, 0.0), "read": float(query["rows_scanned"]), **skipped}
    total = sum(rows.values()) or 1.0
    return {name: count / total for name, count in rows.items()}


def factors_plot(queries: Sequence[Mapping[str, Any]]) -> str:
    """Layout factor against metadata factor: which of the two holds a query back. Needs the queries' matching rows."""
    known = [query for query in queries if query["indicators"]["layout_factor"]]
    figure, axes = new_axes()
    x = [query["indicators"]["layout_factor"] for query in known]
    y = [query["indicators"]["metadata_factor"] for query in known]
    sizes = [14 + 200 * query["indicators"]["scanning_factor"] for query in known]
    axes.scatter(x, y, s=sizes, color=COLOURS["features"], alpha=0.5, linewidth=0)
    axes.set(xscale="log", xlabel="layout factor (1: matching rows fill their blocks)")
    axes.set(ylim=(-0.02, 1.05), ylabel="metadata factor (1: no block in vain)")
    return svg_of(figure)


def legend_above(axes: Any) -> None:
    """A legend above the plot: nowhere within is surely free of points."""
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, frameon=False)


def new_axes(height: float = 3.2, width: float = 5.6) -> tuple[Any, Any]:
    """An empty figure of so many inches, and its axes."""
    # Imported here, and without pyplot: the figure needs no display and leaves no global state.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


_FONTS: Final = ("DejaVu Sans", "Verdana", "Arial", "Helvetica")


def svg_of(figure: Any) -> str:
    """A figure as an SVG element: the same text for the same figure, with nothing that is fetched from elsewhere."""
    import matplotlib

    written = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "layoutopt", "svg.fonttype": "none", "font.sans-serif": list(_FONTS)}):
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    element = written.getvalue()
    element = element[element.index("<svg") :]
    element = re.sub(r"<metadata>.*?</metadata>", "", element, flags=re.DOTALL)
    element = re.sub(r'\b(?:d|x|y|transform)="[^"]*"', _shorter, element)
    return re.sub(r"\s*\n\s*", "\n", element)


def _shorter(attribute: re.Match[str]) -> str:
    """Coordinates to a hundredth of a point: pages are half as large."""
    return re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", attribute[0])
