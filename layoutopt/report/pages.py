"""Render an evaluation as a self-contained HTML page, and plot it as SVG or image files."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from layoutopt.errors import SettingError
from layoutopt.inspect.evaluate import INDICATORS
from layoutopt.report.texts import format_bytes, shorten
from layoutopt.spark.planning.hold_out import EvaluatedPlan

# What becomes of rows, in the order of stacked bars.
COLOURS = {
    "read": "#c0392b",
    "index": "#a9cce3",
    "statistics": "#7fb3d5",
    "features": "#2874a6",
    "partition": "#d5d8dc",
}

# The position of zero on a logarithmic axis of shares.
_ZERO_SHARE = 1e-6


def shares_plot(queries: Sequence[Mapping[str, Any]]) -> str:
    """Plot the share of rows that each query reads, would read with statistics alone, and matches."""
    ordered = sorted(queries, key=lambda query: int(query["rows_scanned"]))
    figure, axes = new_axes()
    places = range(1, len(ordered) + 1)
    axes.plot(
        places, _clip_shares(ordered, "rows_scanned_by_statistics"), ".", color="#7fb3d5", label="statistics alone"
    )
    axes.plot(places, _clip_shares(ordered, "rows_scanned"), color=COLOURS["read"], linewidth=2, label="read")
    if any(query.get("rows_matching") is not None for query in ordered):
        axes.plot(places, _clip_shares(ordered, "rows_matching"), ".", color="#1e8449", label="matching")
    axes.set(yscale="log", xlabel="queries, by the rows they read", ylabel="share of the table's rows")
    axes.set_ylim(_find_axis_start(ordered), 1.3)
    legend_above(axes)
    return svg_of(figure)


def _find_axis_start(queries: Sequence[Mapping[str, Any]]) -> float:
    """Return a power of ten below all shares above zero."""
    counts = [(query.get(name), query["rows_total"]) for query in queries for name in ("rows_scanned", "rows_matching")]
    smallest = min((count / total for count, total in counts if count and total), default=1.0)
    start = 0.1
    while start > smallest and start > _ZERO_SHARE:
        start /= 10
    return start


def _clip_shares(queries: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [max((query.get(name) or 0) / max(query["rows_total"], 1), _ZERO_SHARE) for query in queries]


def fates_plot(queries: Sequence[Mapping[str, Any]]) -> str:
    """Plot the share of the blocks' rows that each query reads and that each mechanism skips."""
    ordered = sorted(map(_compute_outcomes, queries), key=lambda outcomes: outcomes["read"])
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


def _compute_outcomes(query: Mapping[str, Any]) -> dict[str, float]:
    skipped = {name: float(amount["rows"]) for name, amount in query["skipped_by"].items()}
    # Evaluations of older versions lack some mechanisms.
    rows = {**dict.fromkeys(COLOURS, 0.0), "read": float(query["rows_scanned"]), **skipped}
    total = sum(rows.values()) or 1.0
    return {name: count / total for name, count in rows.items()}


def factors_plot(queries: Sequence[Mapping[str, Any]]) -> str:
    """Plot the layout factor against the metadata factor of queries whose matching rows are known."""
    known = [query for query in queries if query["indicators"]["layout_factor"]]
    figure, axes = new_axes()
    x = [query["indicators"]["layout_factor"] for query in known]
    y = [query["indicators"]["metadata_factor"] for query in known]
    sizes = [14 + 200 * query["indicators"]["scanning_factor"] for query in known]
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


_MAX_QUERIES = 1000
_MAX_CONJUNCT_CHARS = 300

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1c2833; background: #fff; max-width: 1120px; margin: 2em auto;
  padding: 0 1.2em; }
h1 { font-size: 1.5em; margin-bottom: 0; } h2 { font-size: 1.15em; margin: 2.2em 0 .5em; }
.sub, .note { color: #5d6d7e; } .note { font-size: .9em; }
.cards { display: flex; flex-wrap: wrap; gap: .8em; margin: 1.2em 0; }
.card { border: 1px solid #d5d8dc; border-radius: 6px; padding: .6em 1em; min-width: 9em; }
.card b { display: block; font-size: 1.5em; font-variant-numeric: tabular-nums; }
.bar { display: flex; height: 1.6em; border-radius: 4px; overflow: hidden; }
.legend span { margin-right: 1.4em; }
.legend i { display: inline-block; width: .8em; height: .8em; margin-right: .4em; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(430px, 1fr)); gap: 1.2em; }
figure { margin: 0; } figure svg { width: 100%; height: auto; } figcaption { font-weight: 600; }
.scroll { overflow-x: auto; max-height: 36em; overflow-y: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9em; }
th, td { padding: .25em .7em; text-align: right; border-bottom: 1px solid #eaecee; vertical-align: top;
  font-variant-numeric: tabular-nums; }
thead th { position: sticky; top: 0; background: #f4f6f7; } .text { text-align: left; }
code { font-size: .88em; white-space: pre-wrap; overflow-wrap: anywhere; }
.worst { border-left: 3px solid #c0392b; padding: .1em 0 .1em 1em; margin: 1.2em 0; }
.code { background: #eaf2f8; border-radius: 3px; padding: 0 .35em; white-space: nowrap; }
.code.skips { background: #e8f6ef; }
"""


def evaluation_page(
    result: Mapping[str, Any], worst: Sequence[Mapping[str, Any]], skipped: Sequence[Mapping[str, Any]]
) -> str:
    """Return the HTML page of an evaluation.

    Args:
        result: the value of :func:`layoutopt.inspect.evaluate.evaluate`.
        worst: the value of :func:`layoutopt.inspect.evaluate.worst_queries`.
        skipped: the log's unusable statements, with ``reason``.
    """
    title = f"{result['table']}, snapshot {result['snapshot']}: what a log reads"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="sub">{len(result["queries"]):,} scans evaluated from the catalog by layoutopt</p>',
        _render_cards(result),
        _render_bar(result["totals"]),
        _render_plots(result["queries"]),
        _render_indicators(result["totals"]["indicators"]),
        _render_worst_queries(worst),
        _render_queries(result["queries"]),
        _render_skipped(skipped),
    ]
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{"".join(parts)}\n</body></html>\n'


def _render_cards(result: Mapping[str, Any]) -> str:
    totals = result["totals"]
    matching = totals.get("rows_matching")
    cards = [
        (_format_percent(totals["rows_scanned"], totals["rows_total"]), "of the rows are read"),
        (_format_percent(totals["rows_scanned_by_statistics"], totals["rows_total"]), "without features"),
        *([(_format_percent(matching, totals["rows_total"]), "of the rows match")] if matching is not None else []),
        (format_bytes(totals["bytes_scanned"]), "of columns read"),
        (f"{totals['blocks_scanned']:,}", f"of {totals['blocks_total']:,} blocks read"),
    ]
    inner = "".join(f'<div class="card"><b>{number}</b>{text}</div>' for number, text in cards)
    return f'<div class="cards">{inner}</div>'


def _render_bar(totals: Mapping[str, Any]) -> str:
    """Render what became of the bytes of all queries as one bar."""
    skipped = {name: amount["bytes"] for name, amount in totals["skipped_by"].items()}
    amounts = {**dict.fromkeys(COLOURS, 0), "read": totals["bytes_scanned"], **skipped}
    whole = sum(amounts.values()) or 1
    pieces = "".join(
        f'<div style="width:{100 * amounts[name] / whole:.3f}%;background:{colour}"></div>'
        for name, colour in COLOURS.items()
    )
    legend = "".join(
        f'<span><i style="background:{colour}"></i>{"" if name == "read" else "skipped by "}{name} '
        f"{_format_percent(amounts[name], whole)}</span>"
        for name, colour in COLOURS.items()
    )
    return f'<h2>Where the bytes went</h2><div class="bar">{pieces}</div><p class="legend">{legend}</p>'


def _render_plots(queries: Sequence[Mapping[str, Any]]) -> str:
    if not queries:
        return ""
    plots = [("What each query reads", shares_plot(queries)), ("What becomes of the rows", fates_plot(queries))]
    if any(query["indicators"]["layout_factor"] for query in queries):
        plots.append(("What holds a query back", factors_plot(queries)))
    figures = "".join(f"<figure><figcaption>{name}</figcaption>{svg}</figure>" for name, svg in plots)
    return f'<h2>Query by query</h2><div class="plots">{figures}</div>'


def _render_indicators(means: Mapping[str, Any]) -> str:
    meanings = {
        "selectivity": "rows that match / all rows",
        "layout_factor": "rows that match / rows of the blocks with a match; low: another layout would help",
        "metadata_factor": "rows of the blocks with a match / rows read; low: features or statistics would help",
        "scanning_factor": "rows read / all rows = selectivity / (layout factor × metadata factor)",
    }
    rows = [(name.replace("_", " "), _format_number(means[name]), meanings[name]) for name in INDICATORS]
    unknown = "" if means["selectivity"] is not None else " Use <code>--actual</code> to compute the others."
    note = f'<p class="note">Geometric means over {means["queries"]:,} queries that read or match a row.{unknown}</p>'
    return "<h2>Skipping indicators</h2>" + note + html_table(("indicator", "mean", "is"), rows, text=(0, 2))


def _render_worst_queries(worst: Sequence[Mapping[str, Any]]) -> str:
    if not worst:
        return ""
    known = any(query["rows_wasted"] is not None for query in worst)
    most = "the most rows without a match" if known else "the most rows (--actual counts matches)"
    note = f"These queries read {most}, over all their runs. Each part of a filter shows what it would skip alone."
    return f'<h2>The worst queries, and why</h2><p class="note">{note}</p>' + "".join(map(_render_worst_query, worst))


def _render_worst_query(query: Mapping[str, Any]) -> str:
    share = _format_percent(query["rows_scanned"], query["rows_total"])
    wasted = "matches unknown" if query["rows_wasted"] is None else f"{query['rows_wasted']:,} without a match"
    runs = f"{query['runs']:,.0f} runs" if query["runs"] != 1 else "1 run"
    text = f"<b>query {query['id']}</b>, {runs}: reads {share} of the rows ({wasted})"
    head = f"<p>{text}<br><code>{escape(query['sql'])}</code></p>"
    rows = [
        (
            f"<code>{escape(shorten(conjunct['text'], _MAX_CONJUNCT_CHARS))}</code>",
            f'<span class="code {conjunct["reason"]}">{conjunct["reason"]}</span>',
            escape("" if conjunct["reason"] == "skips" else conjunct["detail"]),
            *(f"{count:,}" for count in conjunct["blocks_skipped_alone"].values()),
        )
        for conjunct in query["conjuncts"]
    ]
    alone = ("blocks skipped by partition", "by features", "by statistics", "by an index")
    columns = ("part of the filter", "code", "why it skips no more", *alone)
    reasons = html_table(columns, rows, text=(0, 1, 2)) if rows else '<p class="note">It has no filter.</p>'
    return f'<div class="worst">{head}{reasons}</div>'


def _render_queries(queries: Sequence[Mapping[str, Any]]) -> str:
    actual = any("rows_matching" in query for query in queries)
    columns = ["query", "rows read", "of all", "by statistics alone", "blocks", "bytes"]
    columns += ["matching", *(name.replace("_", " ") for name in INDICATORS[:3])] if actual else []
    rows = [_format_query(query, actual) for query in queries[:_MAX_QUERIES]]
    more = len(queries) - len(rows)
    note = f'<p class="note">The JSON has {more:,} more.</p>' if more > 0 else ""
    return f'<h2>All queries</h2><div class="scroll">{html_table(columns, rows)}</div>{note}'


def _format_query(query: Mapping[str, Any], actual: bool) -> list[str]:
    total, matching = query["rows_total"], query.get("rows_matching")
    row = [
        str(query["id"]),
        f"{query['rows_scanned']:,}",
        _format_percent(query["rows_scanned"], total),
        _format_percent(query["rows_scanned_by_statistics"], total),
        f"{query['blocks_scanned']:,} / {query['blocks_total']:,}",
        format_bytes(query["bytes_scanned"]),
    ]
    if actual:
        row.append("?" if matching is None else f"{matching:,}")
        row += [_format_number(query["indicators"][name]) for name in INDICATORS[:3]]
    return row


def _render_skipped(skipped: Sequence[Mapping[str, Any]]) -> str:
    if not skipped:
        return ""
    counts = Counter(str(statement["reason"]) for statement in skipped)
    rows = [(reason, f"{count:,}") for reason, count in counts.most_common()]
    return "<h2>Unusable statements</h2>" + html_table(("reason", "statements"), rows, text=(0,))


def html_table(columns: Sequence[str], rows: Iterable[Sequence[str]], text: Sequence[int] = ()) -> str:
    """Return a table of HTML cells; ``text`` are the numbers of left-aligned columns."""
    kinds = [' class="text"' if place in text else "" for place in range(len(columns))]
    head = "".join(f"<th{kind}>{escape(name)}</th>" for name, kind in zip(columns, kinds, strict=True))
    # A row may be shorter: parts of a filter that analysis leaves out have no counts.
    body = "".join(
        f"<tr>{''.join(f'<td{kind}>{cell}</td>' for cell, kind in zip(row, kinds[: len(row)], strict=True))}</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _format_percent(part: float | None, whole: float) -> str:
    if part is None or not whole:
        return "-"
    share = 100 * part / whole
    return f"{share:.3g} %" if share else "0 %"


def _format_number(value: float | None) -> str:
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
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 4), layout="constrained")
    FigureCanvasAgg(figure)
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


def plot_tuning(evaluated: Sequence[EvaluatedPlan], path: Path) -> None:
    """Plot what hold-out queries read over T, numFeat and block sizes, like the thesis's figures 3.6 and 3.7.

    Raises:
        SettingError: matplotlib is missing, or the file's suffix is unknown.
        OSError: the file can't be written.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise SettingError("--tune-plot needs matplotlib, which is not installed; leave it out") from error

    figure = Figure(figsize=(12, 4), layout="constrained")
    FigureCanvasAgg(figure)
    over_t, over_features, over_blocks = figure.subplots(1, 3)
    first = evaluated[0].settings.block_rows
    grid = [trial for trial in evaluated if trial.settings.block_rows == first]
    best = min(grid, key=lambda trial: trial.score)
    same = (best.threshold, best.settings.num_features)
    blocks = [trial for trial in evaluated if (trial.threshold, trial.settings.num_features) == same]

    def threshold(trial: EvaluatedPlan) -> int:
        return trial.threshold

    def num_features(trial: EvaluatedPlan) -> int | None:
        return trial.settings.num_features

    _plot_scores(over_t, grid, "T", threshold, "numFeat", num_features)
    _plot_scores(over_features, grid, "numFeat", num_features, "T", threshold)
    _plot_scores(over_blocks, blocks, "rows per block", lambda trial: trial.settings.block_rows, "T", threshold)
    over_blocks.set_xscale("log")
    try:
        figure.savefig(path)
    except ValueError as error:
        raise SettingError(f"unknown format of the plot {str(path)!r}: expected .png, .svg or .pdf") from error


def _plot_scores(
    axes: Any,
    evaluated: Sequence[EvaluatedPlan],
    label: str,
    x: Callable[[EvaluatedPlan], Any],
    series_label: str,
    series: Callable[[EvaluatedPlan], Any],
) -> None:
    for value in sorted(set(map(series, evaluated))):
        trials = sorted((trial for trial in evaluated if series(trial) == value), key=x)
        scores = [100 * trial.score for trial in trials]
        axes.plot([x(trial) for trial in trials], scores, "o-", label=f"{series_label} = {value}")
    axes.set(xlabel=label, ylabel="% of the bytes of full scans", ylim=(0, None))
    axes.legend()
