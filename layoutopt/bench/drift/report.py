"""What `bench drift` shows: a table of ratios to the best in hindsight, and a plot of the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from layoutopt.bench.drift.policies import POLICIES

if TYPE_CHECKING:
    from layoutopt.bench.drift.experiment import Figure

ALL = "all together"


def drift_report(figures: Sequence[Figure]) -> Table:
    """Of each stream and price what each policy costs, as a multiple of the best in hindsight; and of all together."""
    table = Table(title="bytes read + price x bytes written, over the best in hindsight", title_justify="left")
    table.add_column("drift")
    for name in ("price", *POLICIES, "best: partitions"):
        table.add_column(name, justify="right")
    for stream, price in dict.fromkeys((one.stream, one.price) for one in figures):
        mine = [one for one in figures if (one.stream, one.price) == (stream, price)]
        ratios = {one.policy: f"{one.ratio:.2f}" for one in mine}
        table.add_row(stream, f"{price:g}", *(ratios[name] for name in POLICIES), f"{mine[0].best:,.0f}")
    totals = totals_of(figures)
    table.add_row(ALL, "", *(f"{totals[name]:.2f}" for name in POLICIES), "")
    return table


def totals_of(figures: Sequence[Figure]) -> dict[str, float]:
    """By policy what it costs over all streams and prices, as a multiple of the best in hindsight."""
    best = sum(one.best for one in figures) / len(POLICIES)
    return {name: sum(one.cost for one in figures if one.policy == name) / best for name in POLICIES}


def plot_drift(figures: Sequence[Figure], path: Path) -> None:
    """Draw the ratios over the price, one plot for each stream, into an image file."""
    from matplotlib.figure import Figure as Picture

    streams = list(dict.fromkeys(one.stream for one in figures))
    picture = Picture(figsize=(3.2 * len(streams), 3.2), layout="constrained")
    for axes, stream in zip(picture.subplots(1, len(streams), sharey=True, squeeze=False)[0], streams, strict=True):
        for name in POLICIES:
            mine = [one for one in figures if (one.stream, one.policy) == (stream, name)]
            axes.plot([one.price for one in mine], [one.ratio for one in mine], marker="o", label=name)
        axes.set(xscale="log", xlabel="price of a byte written", title=stream)
        axes.spines[["top", "right"]].set_visible(False)
    first = picture.axes[0]
    first.set(ylabel="cost over the best in hindsight")
    first.legend(frameon=False)
    picture.savefig(path)
