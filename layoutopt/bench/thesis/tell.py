"""What running figures prints: which there are, and how we compare."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from layoutopt.bench.thesis.figure import B, Figure
from layoutopt.bench.thesis.page import judged, measured_with
from layoutopt.bench.thesis.plots import advantage, number
from layoutopt.bench.thesis.results import NAME, PAGE

if TYPE_CHECKING:
    from rich.console import Console


def figures_there(figures: Mapping[str, Figure[B]]) -> dict[str, dict[str, str]]:
    """By name what each figure shows, and where the thesis has it."""
    return {name: {"shows": figure.title, "place": figure.place} for name, figure in figures.items()}


def figures_table(figures: Mapping[str, Figure[B]]) -> Table:
    """The same as a table."""
    table = Table(title="figures of the thesis, as --figures takes them", title_justify="left")
    for heading in ("figure", "shows", "in the thesis"):
        table.add_column(heading)
    for name, of in figures_there(figures).items():
        table.add_row(name, of["shows"], of["place"])
    return table


def results_report(console: Console, document: Mapping[str, Any], folder: Path) -> None:
    """Print every comparison that can be judged, the worst first, and where the page is."""
    console.print(measured_with(document))
    table = Table(title="beside the thesis, the worst first", title_justify="left")
    for heading in ("figure", "what", ""):
        table.add_column(heading)
    for heading in ("thesis", "ours", "times as good"):
        table.add_column(heading, justify="right")
    for name, claim in sorted(judged(document["figures"]), key=lambda each: advantage(each[1])):
        numbers = (number(claim["thesis"]), number(claim["ours"]), f"{advantage(claim):.2f}")
        table.add_row(name, claim["text"], claim["verdict"], *numbers)
    console.print(table)
    absent = [name for name, figure in document["figures"].items() if figure["state"] != "measured"]
    if absent:
        console.print(f"Not measured: {', '.join(absent)}.")
    console.print(f"Written: {folder / NAME}, {folder / PAGE}")
