"""Plots: of results as SVG in the page, where black diamonds are the thesis's numbers, and of studies as files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from layoutopt.report.pages import legend_above, new_axes, svg_of

_COLOURS: Final = ("#2874a6", "#e59866", "#1e8449", "#7d3c98", "#7f8c8d", "#c0392b")
_AHEAD, _BEHIND = "#1e8449", "#c0392b"

# The name of a series, or of single marks, of numbers that the thesis gives.
THESIS: Final = "the thesis's"
_MARKERS: Final = "osv^Dx"
_WIDTH: Final = 0.8

# The angle of names of bars that are longer than their place.
_STEEP: Final = 45

# Letters that fit below all bars of a plot together.
_PLACE: Final = 70


def figure_plot(figure: Mapping[str, Any]) -> str:
    """Return a measured figure of ``results.json`` as an SVG element."""
    drawn, axes = new_axes(height=4.2 if _steep(figure) else 3.2)
    if figure["shape"] == "lines":
        _draw_lines(axes, figure)
    else:
        _draw_bars(axes, figure, stacked=figure["shape"] == "stacked")
    axes.set(xlabel=figure["axis"], ylabel=figure["unit"])
    axes.margins(y=0.12)
    if "y" in figure["log"]:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(plain_tick)
    else:
        axes.set_ylim(bottom=0, top=axes.get_ylim()[1])
    if len(axes.get_legend_handles_labels()[1]) > 1:
        legend_above(axes)
    return svg_of(drawn)


def _series(points: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(point["series"] for point in points))


def _steep(figure: Mapping[str, Any]) -> bool:
    names = {str(point["x"]) for point in figure["points"]}
    return figure["shape"] != "lines" and max(map(len, names)) * len(names) > _PLACE


def _draw_lines(axes: Any, figure: Mapping[str, Any]) -> None:
    for place, name in enumerate(_series(figure["points"])):
        points = sorted((each["x"], each["value"]) for each in figure["points"] if each["series"] == name)
        x, y = zip(*points, strict=True)
        axes.plot(x, y, marker=_MARKERS[place], markersize=4, color=_COLOURS[place], label=name)
    if "x" in figure["log"]:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(plain_tick)
    _draw_thesis(axes, figure, lambda series, x: x)
    axes.grid(visible=True, alpha=0.3)


def _draw_bars(axes: Any, figure: Mapping[str, Any], *, stacked: bool) -> None:
    names = list(dict.fromkeys(point["x"] for point in figure["points"]))
    series = _series(figure["points"])
    width = _WIDTH if stacked else _WIDTH / len(series)
    base = [0.0] * len(names)
    for place, name in enumerate(series):
        values = {each["x"]: each["value"] for each in figure["points"] if each["series"] == name}
        heights = [values.get(x, 0.0) for x in names]
        at = [i if stacked else i - _WIDTH / 2 + width * (place + 0.5) for i in range(len(names))]
        bars = axes.bar(at, heights, width * 0.94, bottom=base if stacked else None, color=_COLOURS[place], label=name)
        if stacked:
            base = [low + height for low, height in zip(base, heights, strict=True)]
        else:
            axes.bar_label(bars, [format_number(values.get(x)) for x in names], fontsize=7, padding=1)
    if stacked:
        for i, height in enumerate(base):
            text = format_number(height)
            axes.annotate(text, (i, height), (0, 2), textcoords="offset points", ha="center", fontsize=7)
    steep = _steep(figure)
    axes.set_xticks(range(len(names)), [str(x) for x in names], rotation=_STEEP if steep else 0, fontsize=8)
    if steep:
        for label in axes.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")

    def place_of(name: str, x: object) -> float:
        start = -width / 2 if stacked or name not in series else -_WIDTH / 2 + width * series.index(name)
        return names.index(x) + start  # beside the bar's middle, where its number stands

    _draw_thesis(axes, figure, place_of)


def _draw_thesis(axes: Any, figure: Mapping[str, Any], place_of: Any) -> None:
    """Draw the thesis's numbers that are of the figure's own unit."""
    if THESIS in _series(figure["points"]):
        return
    shown = [claim for claim in figure["claims"] if claim["at"] is not None and claim["ours"] is not None]
    if shown:
        at = [place_of(*claim["at"]) for claim in shown]
        axes.plot(at, [claim["thesis"] for claim in shown], "D", color="black", markersize=5, label=THESIS)


def plain_tick(value: float, place: object = None) -> str:
    """Format a number at an axis without powers of ten."""
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def glance_plot(claims: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Plot how many times as good as the thesis we are, by claims with a verdict and the names of their figures."""
    drawn, axes = new_axes(height=0.6 + 0.2 * len(claims), width=7.4)
    gains = [advantage(claim) for _, claim in claims]
    colours = [_AHEAD if gain >= 1 else _BEHIND for gain in gains]
    axes.barh(range(len(gains)), [gain - 1 for gain in gains], left=1, color=colours, height=0.7)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    low, high = min([*gains, 0.5]) / 2.5, max([*gains, 2.0]) * 1.6  # room for the figure beside each bar
    axes.set_xlim(low, high)
    ticks = [tick for tick in (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50) if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    for place, gain in enumerate(gains):
        side = 3 if gain >= 1 else -3
        axes.annotate(
            f"{format_number(gain)}x", (gain, place), (side, 0), textcoords="offset points", va="center", fontsize=7,
            ha="left" if gain >= 1 else "right",
        )  # fmt: skip
    axes.set_yticks(range(len(gains)), [f"{name}  {claim['text']}" for name, claim in claims], fontsize=7)
    axes.set(xlabel="times as good as the thesis (1: the same)")
    return svg_of(drawn)


def advantage(claim: Mapping[str, Any]) -> float:
    """Return how many times as good as the thesis's number ours is; below 1 where it is worse."""
    ratio: float = claim["ratio"]
    return ratio if claim["better"] == "more" else 1 / ratio


def format_number(value: float | None) -> str:
    """Format a number with three significant digits.

    >>> format_number(0.01234), format_number(5.0), format_number(1315.2), format_number(None)
    ('0.0123', '5', '1,315', '')
    """
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def megabytes(count: float | None) -> str:
    """Format bytes as megabytes (10^6).

    >>> megabytes(61_234_567), megabytes(1_234), megabytes(None)
    ('61.2 MB', '0.0 MB', '')
    """
    return "" if count is None else f"{count / 1e6:,.1f} MB"


@contextmanager
def plot_file(path: Path, width: float, height: float, panels: int = 1) -> Iterator[list[Any]]:
    """Yield so many panels of a plot, which is written as an image file at the end; sizes are in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    yield list(figure.subplots(1, panels, sharey=True, squeeze=False)[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})
