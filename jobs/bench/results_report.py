"""The results as an HTML page, as tables of a Markdown file, and in a terminal.

The page has no links to other files: it says where we fall behind, then shows all figures. In a Markdown file, tables
stand between ``<!-- results: NAME -->`` and its end; a name is a figure's, whose table of methods then stands there, or
``claims``: every comparison with the thesis.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from markupsafe import Markup
from rich.table import Table

from jobs.bench.figure import Figure
from jobs.bench.plots import advantage, figure_plot, format_number, glance_plot
from layoutopt.errors import SettingError
from layoutopt.report.pages import render_page

if TYPE_CHECKING:
    from rich.console import Console

FORMAT: Final = "layoutopt-thesis-results"
VERSION: Final = 1
NAME: Final = "results.json"
PAGE: Final = "index.html"

# The state of a figure whose points are there.
MEASURED: Final = "measured"
CHAPTERS: Final = {"3": "Chapter 3: SOP", "4": "Chapter 4: GSOP", "5": "Chapter 5: GSOP-R"}
# A figure's name, and a claim of it.
Named = tuple[str, Mapping[str, Any]]


def read_results(path: Path) -> dict[str, Any]:
    """Return the document of a file.

    Raises:
        SettingError: there is none, or it is something else.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingError(f"{str(path)!r} is no {NAME}: {error}; make one by `python -m jobs.bench tpch`") from error
    if not isinstance(document, dict) or (document.get("format"), document.get("version")) != (FORMAT, VERSION):
        raise SettingError(
            f"{str(path)!r} is no {FORMAT} of version {VERSION}; make one by `python -m jobs.bench tpch`"
        )
    return document


def results_page(document: Mapping[str, Any]) -> str:
    """Return the page of a ``results.json``."""
    figures, claims = document["figures"], worst_first(document["figures"])
    measured = {name: figure for name, figure in figures.items() if figure["state"] == MEASURED}
    chapters = [
        (
            title,
            [
                _figure_values(name, figure, document["code"])
                for name, figure in measured.items()
                if figure["chapter"] == chapter
            ],
        )
        for chapter, title in CHAPTERS.items()
    ]
    return render_page(
        "results.html.j2",
        package="jobs.bench",
        title=document["title"],
        document=document,
        measured_with=measured_with(document),
        claims=claims,
        number=format_number,
        absent={name: figure for name, figure in figures.items() if name not in measured},
        glance=Markup(glance_plot(claims)) if claims else "",
        chapters=[(title, shown) for title, shown in chapters if shown],
    )


def _figure_values(name: str, figure: Mapping[str, Any], code: str) -> dict[str, Any]:
    """Return what the page shows of a measured figure; ``words`` are the places of details that are texts."""
    older = "" if figure["code"] == [code] else " Made by other code than this page."
    busy = "" if figure["load"] is None else f", on a machine with a load of up to {figure['load']:g}"
    details = figure["details"]
    return {
        "name": name,
        "figure": figure,
        "plot": Markup(figure_plot(figure)),
        "points": pivot(figure),
        "details": [[format_value(line[column]) for column in details[0]] for line in details],
        "words": [i for i, value in enumerate(details[0].values()) if isinstance(value, str)] if details else [],
        "settings": "; ".join(f"{key}: {format_value(value)}" for key, value in figure["settings"].items()),
        "made": f"{versions_text(figure['code'])}; {figure['seconds']:,.0f} s for all of its steps{busy}.{older}",
    }


def versions_text(codes: Sequence[str]) -> str:
    """Return the versions of layoutopt that made a figure's steps, each once.

    >>> versions_text(["0.1.0 at 1a2b", "0.1.0 at 3c4d", "0.2.0"])
    '0.1.0 at 1a2b, 3c4d; 0.2.0'
    """
    commits: dict[str, list[str]] = {}
    for code in codes:
        version, _, commit = code.partition(" at ")
        commits.setdefault(version, []).extend([commit] if commit else [])
    return "; ".join(f"{version} at {', '.join(names)}" if names else version for version, names in commits.items())


def measured_with(document: Mapping[str, Any]) -> str:
    """Return what everything was measured with, in a sentence."""
    machine = document["machine"]
    words = [f"{name} {value}" for name, value in machine.items() if name in ("Python", "Java", "Spark", "DuckDB")]
    return (
        f"{document['about']} "
        f"Written by layoutopt {document['code']}, measured on {machine['cores']} cores, {machine['memory, GiB']} GiB, "
        f"{', '.join(words)}. "
        f"All steps took {document['seconds'] / 60:.0f} minutes."
    )


def worst_first(figures: Mapping[str, Mapping[str, Any]]) -> list[Named]:
    """Return the claims with a verdict, each with its figure's name, by how we compare with the thesis."""
    measured = ((name, figure["claims"]) for name, figure in figures.items() if figure["state"] == MEASURED)
    judged = [(name, claim) for name, claims in measured for claim in claims if claim["verdict"]]
    return sorted(judged, key=lambda named: advantage(named[1]))


def pivot(figure: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return a figure's points as a table: a line a place, a column a series."""
    series = list(dict.fromkeys(point["series"] for point in figure["points"]))
    places = list(dict.fromkeys(point["x"] for point in figure["points"]))
    values = {(point["series"], point["x"]): point["value"] for point in figure["points"]}
    rows = [[format_value(x), *(format_number(values.get((name, x))) for name in series)] for x in places]
    return [figure["axis"] or "what", *series], rows


def format_value(value: object) -> str:
    """Format a number with three significant digits, and anything else as text."""
    return format_number(value) if isinstance(value, int | float) else str(value)


CLAIMS: Final = "claims"
QUERY: Final = "query"
_MARKED: Final = re.compile(r"(<!-- results: ([^>]+?) -->\n)(.*?)(<!-- results end -->)", re.DOTALL)


def update_tables(path: Path, results: Path | None) -> bool:
    """Update a file's tables; return whether anything changed.

    Args:
        path: the Markdown file.
        results: the folder with the results; ``docs/results`` beside the file where left out.

    Raises:
        SettingError: there are no results, no such file, or a marker names no figure that was measured.
    """
    folder = results or path.parent / "docs" / "results"
    document, timed = read_results(folder / NAME), folder / f"{QUERY}.json"
    if timed.exists():
        document = {**document, QUERY: json.loads(timed.read_text(encoding="utf-8"))}
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
        return _claims_table(document)
    if name == QUERY and QUERY in document:
        return query_table(document[QUERY])
    figure = document["figures"].get(name)
    if figure is None or figure["state"] != MEASURED:
        raise SettingError(f"a marker asks for {name!r}, which was not measured; run `python -m jobs.bench tpch` first")
    if figure["details"]:
        columns = list(figure["details"][0])
        rows = [[format_value(line[column]) for column in columns] for line in figure["details"]]
    else:
        columns, rows = pivot(figure)
    made = f"Scale factor {document['scale']:g}, by layoutopt {versions_text(figure['code'])}: `{figure['command']}`"
    return f"{_table(columns, rows)}\n{made}\n"


def query_table(timed: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """Return the table of what `python -m jobs.bench query --json` printed: a row for each stream and engine."""
    columns = (
        "stream",
        "queries",
        "engine",
        "plain Parquet, s",
        "optimised table, s",
        "times faster",
        "slower queries",
    )
    rows = [
        [
            stream,
            str(summary["queries"]),
            engine,
            *(f"{summary[way]['seconds']:.2f}" for way in ("plain Parquet", "optimised table")),
            f"{summary['ratio']:.2f}",
            str(summary["slowed"]),
        ]
        for stream, engines in timed.items()
        for engine, summary in engines.items()
    ]
    (rounds,) = {summary["rounds"] for engines in timed.values() for summary in engines.values()}
    made = f"`python -m jobs.bench query --streams {','.join(timed)} --json`, warm, medians of {rounds} rounds"
    return f"{_table(columns, rows)}\n{made}\n"


def _claims_table(document: Mapping[str, Any]) -> str:
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
