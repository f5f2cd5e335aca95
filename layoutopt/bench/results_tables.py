"""Tables of results: in a terminal, and in a Markdown file between ``<!-- results: NAME -->`` and its end.

A name is a figure's, whose table of methods then stands there, or ``claims``: every comparison with the thesis.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.table import Table

from layoutopt.bench.figure import Figure
from layoutopt.bench.page import format_value, measured_with, pivot, versions_text, worst_first
from layoutopt.bench.plots import advantage, format_number
from layoutopt.bench.results import MEASURED, NAME, PAGE, read_results
from layoutopt.errors import SettingError

if TYPE_CHECKING:
    from rich.console import Console

CLAIMS: Final = "claims"
_MARKED: Final = re.compile(r"(<!-- results: ([^>]+?) -->\n)(.*?)(<!-- results end -->)", re.DOTALL)


def update_tables(path: Path, results: Path | None) -> bool:
    """Update a file's tables; return whether anything changed.

    Args:
        path: the Markdown file.
        results: the folder with the results; ``docs/results`` beside the file where left out.

    Raises:
        SettingError: there are no results, no such file, or a marker names no figure that was measured.
    """
    document = read_results((results or path.parent / "docs" / "results") / NAME)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingError(f"{str(path)!r} can't be read: {error}; give a Markdown file to --readme") from error
    updated = with_tables(text, document)
    if updated != text:
        path.write_text(updated, encoding="utf-8")
    return updated != text


def with_tables(text: str, document: Mapping[str, Any]) -> str:
    """Return the text with each marked table as in the results.

    Raises:
        SettingError: a marker names no figure that was measured.
    """
    return _MARKED.sub(lambda match: match.group(1) + table_of(match.group(2), document) + match.group(4), text)


def table_of(name: str, document: Mapping[str, Any]) -> str:
    """Return the table of a figure, or of all claims, with a line on what it was measured with."""
    if name == CLAIMS:
        return _claims(document)
    figure = document["figures"].get(name)
    if figure is None or figure["state"] != MEASURED:
        raise SettingError(f"a marker asks for {name!r}, which was not measured; run layoutopt bench tpch for it first")
    if figure["details"]:
        columns = list(figure["details"][0])
        rows = [[format_value(line[column]) for column in columns] for line in figure["details"]]
    else:
        columns, rows = pivot(figure)
    made = f"Scale factor {document['scale']:g}, by layoutopt {versions_text(figure['code'])}: `{figure['command']}`"
    return f"{_table(columns, rows)}\n{made}\n"


def _claims(document: Mapping[str, Any]) -> str:
    rows = []
    for name, claim in worst_first(document["figures"]):
        unit = "" if claim["unit"] == "x" else f" {claim['unit']}"
        values = [f"{format_number(claim[key])}{unit}" for key in ("thesis", "ours")]
        versions = versions_text(document["figures"][name]["code"])
        rows.append([f"{name}, {claim['text']}", *values, f"{advantage(claim):.2f}", versions])
    columns = ("figure, and what is compared", "thesis", "ours", "times as good", "by layoutopt")
    return f"{_table(columns, rows)}\n{measured_with(document)}\n"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table with numbers aligned to the right and words to the left."""
    sides = [
        "---:" if all(row[i][:1].isdigit() or not row[i] for row in rows) else "---" for i in range(1, len(columns))
    ]
    lines = [columns, ["---", *sides], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def list_figures(figures: Mapping[str, Figure]) -> dict[str, dict[str, str]]:
    """Return by name what each figure shows, and its place in the thesis."""
    return {name: {"shows": figure.title, "place": figure.place} for name, figure in figures.items()}


def figures_table(figures: Mapping[str, Figure]) -> Table:
    """Return what :func:`list_figures` does as a table."""
    title = "figures of the thesis, as --figures takes them"
    table = Table("figure", "shows", "in the thesis", title=title, title_justify="left")
    for name, figure in figures.items():
        table.add_row(name, figure.title, figure.place)
    return table


def results_report(console: Console, document: Mapping[str, Any], folder: Path) -> None:
    """Print every comparison that can be judged, the worst first, and where the page is."""
    console.print(measured_with(document))
    table = Table("figure", "what", "", title="beside the thesis, the worst first", title_justify="left")
    for heading in ("thesis", "ours", "times as good"):
        table.add_column(heading, justify="right")
    for name, claim in worst_first(document["figures"]):
        numbers = (format_number(claim["thesis"]), format_number(claim["ours"]), f"{advantage(claim):.2f}")
        table.add_row(name, claim["text"], claim["verdict"], *numbers)
    console.print(table)
    absent = [name for name, figure in document["figures"].items() if figure["state"] != MEASURED]
    if absent:
        console.print(f"Not measured: {', '.join(absent)}.")
    console.print(f"Written: {folder / NAME}, {folder / PAGE}")
