"""Render an evaluation as a self-contained HTML page, and plot it as SVG or image files."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from layoutopt.errors import SettingError
from layoutopt.inspect.evaluate import Evaluation, EvaluationTotals, QueryEvaluation, WorstQuery
from layoutopt.report.texts import format_bytes, shorten

READ: Final = "read"
# What becomes of rows, in the order of stacked bars.
COLOURS: Final = {
    READ: "#c0392b",
    "index": "#a9cce3",
    "statistics": "#7fb3d5",
    "features": "#2874a6",
    "partition": "#d5d8dc",
}

# The position of zero on a logarithmic axis of shares.
_ZERO_SHARE = 1e-6


def shares_plot(queries: Sequence[QueryEvaluation]) -> str:
    """Plot the share of rows that each query reads, would read with statistics alone, and matches."""
    ordered = sorted(queries, key=lambda query: query.rows_scanned)
    totals = [max(query.rows_total, 1) for query in ordered]
    shares = {
        name: [(getattr(query, name) or 0) / total for query, total in zip(ordered, totals, strict=True)]
        for name in ("rows_scanned_by_statistics", "rows_scanned", "rows_matching")
    }
    figure, axes = new_axes()

    def draw(name: str, label: str, style: str, **more: object) -> None:
        places = range(1, len(ordered) + 1)
        axes.plot(places, [max(share, _ZERO_SHARE) for share in shares[name]], style, label=label, **more)

    draw("rows_scanned_by_statistics", "statistics alone", ".", color="#7fb3d5")
    draw("rows_scanned", READ, "-", color=COLOURS[READ], linewidth=2)
    if any(query.rows_matching is not None for query in ordered):
        draw("rows_matching", "matching", ".", color="#1e8449")
    axes.set(yscale="log", xlabel="queries, by the rows they read", ylabel="share of the table's rows")
    axes.set_ylim(_find_axis_start([*shares["rows_scanned"], *shares["rows_matching"]]), 1.3)
    legend_above(axes)
    return svg_of(figure)


def _find_axis_start(shares: Sequence[float]) -> float:
    """Return a power of ten below all shares above zero."""
    smallest = min(filter(None, shares), default=1.0)
    start = 0.1
    while start > smallest and start > _ZERO_SHARE:
        start /= 10
    return start


def fates_plot(queries: Sequence[QueryEvaluation]) -> str:
    """Plot the share of the blocks' rows that each query reads and that each mechanism skips."""
    ordered = sorted(map(_compute_outcomes, queries), key=lambda outcomes: outcomes[READ])
    figure, axes = new_axes()
    places = list(range(len(ordered)))
    base = [0.0] * len(ordered)
    for name, colour in COLOURS.items():
        heights = [outcomes[name] for outcomes in ordered]
        axes.bar(places, heights, bottom=base, width=1.0, color=colour, label=name, linewidth=0)
        base = [low + height for low, height in zip(base, heights, strict=True)]
    axes.set(xlabel="queries, by the share they read", ylabel="share of the blocks' rows", ylim=(0, 1))
    axes.set_xlim(-0.5, max(len(ordered) - 0.5, 0.5))
    legend_above(axes)
    return svg_of(figure)


def _compute_outcomes(query: QueryEvaluation) -> dict[str, float]:
    rows = {READ: query.rows_scanned, **{name: size.rows for name, size in query.skipped_by.items()}}
    total = sum(rows.values()) or 1
    return {name: count / total for name, count in rows.items()}


def factors_plot(queries: Sequence[QueryEvaluation]) -> str:
    """Plot the layout factor against the metadata factor of queries whose matching rows are known."""
    known = [query.indicators for query in queries if query.indicators.layout_factor]
    figure, axes = new_axes()
    x = [indicators.layout_factor for indicators in known]
    y = [indicators.metadata_factor for indicators in known]
    sizes = [14 + 200 * (indicators.scanning_factor or 0.0) for indicators in known]
    axes.scatter(x, y, s=sizes, color=COLOURS["features"], alpha=0.5, linewidth=0)
    axes.set(xscale="log", xlabel="layout factor (1: matching rows fill their blocks)")
    axes.set(ylim=(-0.02, 1.05), ylabel="metadata factor (1: all blocks read have matches)")
    return svg_of(figure)


def legend_above(axes: Any) -> None:
    """Draw the legend above the plot, where it hides no points."""
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, frameon=False)


def new_axes(height: float = 3.2, width: float = 5.6) -> tuple[Any, Any]:
    """Return an empty figure of a size in inches, and its axes."""
    # Not pyplot, which needs a display and keeps global state. Likewise below.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


_FONTS: Final = ("DejaVu Sans", "Verdana", "Arial", "Helvetica")


def svg_of(figure: Any) -> str:
    """Return a figure as a self-contained, deterministic SVG element."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "layoutopt", "svg.fonttype": "none", "font.sans-serif": list(_FONTS)}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = buffer.getvalue()
    element = text[text.index("<svg") :]
    element = re.sub(r"<metadata>.*?</metadata>", "", element, flags=re.DOTALL)
    element = re.sub(r'\b(?:d|x|y|transform)="[^"]*"', _round_coordinates, element)
    return re.sub(r"\s*\n\s*", "\n", element)


def _round_coordinates(attribute: re.Match[str]) -> str:
    """Round to a hundredth of a point, which halves the page."""
    return re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", attribute[0])


_MAX_QUERIES: Final = 1000


_REPORT: Final = "layoutopt.report"


@cache
def _templates(package: str) -> Environment:
    """Return the templates of a package and of reports; they escape every value but those of ``Markup``."""
    templates = Environment(
        loader=ChoiceLoader([PackageLoader(name) for name in dict.fromkeys((package, _REPORT))]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= {
        "bytes": format_bytes,
        "number": format_number,
        "percent": format_percent,
        "shorten": shorten,
        "thousands": "{:,}".format,
    }
    return templates


def render_page(template: str, *, package: str = _REPORT, **values: object) -> str:
    """Return the HTML page that a template of a package's ``templates`` makes of values, among them the ``title``."""
    return _templates(package).get_template(template).render(values)


def evaluation_page(evaluation: Evaluation, worst: Sequence[WorstQuery], skipped: Mapping[str, int]) -> str:
    """Return the HTML page of an evaluation, with its worst queries and how many statements are unusable, by reason."""
    queries, totals = evaluation.queries, evaluation.totals
    cards = [
        (format_percent(totals.rows_scanned, totals.rows_total), "of the rows are read"),
        (format_percent(totals.rows_scanned_by_statistics, totals.rows_total), "without features"),
        (format_percent(totals.rows_matching, totals.rows_total), "of the rows match"),
        (format_bytes(totals.bytes_scanned), "of columns read"),
        (f"{totals.blocks_scanned:,}", f"of {totals.blocks_total:,} blocks read"),
    ]
    if totals.rows_matching is None:
        del cards[2]
    return render_page(
        "evaluation.html.j2",
        title=f"{evaluation.table}, snapshot {evaluation.snapshot}: what a log reads",
        evaluation=evaluation,
        cards_shown=cards,
        bytes_by_fate=_divide_bytes(totals),
        plots=[(caption, Markup(svg)) for caption, svg in _plot_queries(queries)],
        worst=worst,
        most_queries=_MAX_QUERIES,
        skipped=list(skipped.items()),
    )


def _divide_bytes(totals: EvaluationTotals) -> list[dict[str, object]]:
    """Return the shares of the bytes of all queries that are read, and that each mechanism skips."""
    amounts = {name: totals.bytes_scanned if name == READ else totals.skipped_by[name].bytes for name in COLOURS}
    whole = sum(amounts.values()) or 1
    return [
        {
            "name": name if name == READ else f"skipped by {name}",
            "colour": COLOURS[name],
            "percent": 100 * amount / whole,
            "share": format_percent(amount, whole),
        }
        for name, amount in amounts.items()
    ]


def _plot_queries(queries: Sequence[QueryEvaluation]) -> Iterator[tuple[str, str]]:
    """Yield captions and SVG elements."""
    if queries:
        yield "What each query reads", shares_plot(queries)
        yield "What becomes of the rows", fates_plot(queries)
    if any(query.indicators.layout_factor for query in queries):
        yield "What holds a query back", factors_plot(queries)


def format_percent(part: float | None, whole: float) -> str:
    """Return a share in percent with three significant digits, a dash where it is unknown."""
    if part is None or not whole:
        return "-"
    share = 100 * part / whole
    return f"{share:.3g} %" if share else "0 %"


def format_number(value: float | None) -> str:
    """Return a number with three significant digits, a dash where it is unknown."""
    return "-" if value is None else f"{value:.3g}"


def plot_regained(curve: Sequence[tuple[float, float]], path: Path) -> None:
    """Plot what `optimize` gains over what it writes to a file whose suffix (`.png`, `.svg`, `.pdf`) is its format.

    Args:
        curve: pairs of the share of the table's bytes written and the share of all gains, both from 0 to 1.
        path: the file.

    Raises:
        SettingError: the suffix is unknown.
        OSError: the file can't be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot([100 * written for written, _ in curve], [100 * gained for _, gained in curve], marker=".")
    axes.plot([0, 100], [0, 100], linestyle="--", color="grey", label="if all bytes gained alike")
    axes.set(xlabel="% of the table's bytes rewritten", ylabel="% of the possible gain", xlim=(0, 100))
    axes.set(ylim=(0, 102))
    axes.legend(loc="lower right", frameon=False)
    try:
        figure.savefig(path)
    except ValueError as error:
        raise SettingError(f"unknown format of the plot {str(path)!r}: expected .png, .svg or .pdf") from error
