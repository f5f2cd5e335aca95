"""The results as an HTML page, as tables of a Markdown file, and in a terminal.

The page has no links to other files: it says where we fall behind, then shows all figures. In a Markdown file, tables
stand between ``<!-- results: NAME -->`` and its end; a name is a figure's, whose table of methods then stands there, or
``claims``: every comparison with the thesis.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.table import Table

from layoutopt.bench.figure import Figure
from layoutopt.bench.plots import advantage, figure_plot, format_number, glance_plot
from layoutopt.errors import SettingError
from layoutopt.report.pages import STYLE, html_table

if TYPE_CHECKING:
    from rich.console import Console

FORMAT: Final = "layoutopt-thesis-results"
VERSION: Final = 1
NAME: Final = "results.json"
PAGE: Final = "index.html"

# The state of a figure whose points are there.
MEASURED: Final = "measured"
CHAPTERS: Final = {"3": "Chapter 3: SOP", "4": "Chapter 4: GSOP", "5": "Chapter 5: GSOP-R"}
_STYLE: Final = """
.figure { display: grid; grid-template-columns: minmax(360px, 5fr) 6fr; gap: 1.6em; align-items: start; }
@media (max-width: 900px) { .figure { display: block; } }
.figure svg, .glance svg { width: 100%; height: auto; }
.ahead { color: #1e8449; } .behind { color: #c0392b; font-weight: 600; }
h3 { margin: 2.4em 0 .2em; font-size: 1.05em; } details { margin: .6em 0; } .glance { max-width: 860px; }
"""

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
        raise SettingError(f"{str(path)!r} is no {NAME}: {error}; make one by layoutopt bench tpch") from error
    if not isinstance(document, dict) or (document.get("format"), document.get("version")) != (FORMAT, VERSION):
        raise SettingError(f"{str(path)!r} is no {FORMAT} of version {VERSION}; make one by layoutopt bench tpch")
    return document


def results_page(document: Mapping[str, Any]) -> str:
    """Return the page of a ``results.json``."""
    figures, title = document["figures"], escape(document["title"])
    parts = [
        f"<h1>{title}</h1>",
        f'<p class="sub">{escape(measured_with(document))}</p>',
        _behind(figures),
        _missing(figures),
        _glance(figures),
        *(_chapter(name, figures, document["code"]) for name in CHAPTERS),
    ]
    head = f'<meta charset="utf-8"><title>{title}</title><style>{STYLE}{_STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{"".join(parts)}\n</body></html>\n'


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


def _behind(figures: Mapping[str, Mapping[str, Any]]) -> str:
    claims = worst_first(figures)
    behind = [(name, claim) for name, claim in claims if claim["verdict"] == "behind"]
    head = "<h2>Where we fall behind the thesis</h2>"
    if not behind:
        return f"{head}<p>In none of {len(claims)} comparisons.</p>"
    rows = [
        (f'<a href="#{name}">{name}</a>', *_claim_cells(claim), escape(figures[name]["note"])) for name, claim in behind
    ]
    note = f"<p>In {len(behind)} of {len(claims)} comparisons, the worst first.</p>"
    columns = ("figure", "what", "thesis", "ours", "ours / thesis", "", "said of it")
    return head + note + html_table(columns, rows, text=(0, 1, 5, 6))


def _missing(figures: Mapping[str, Mapping[str, Any]]) -> str:
    absent = [(name, figure) for name, figure in figures.items() if figure["state"] != MEASURED]
    if not absent:
        return ""
    rows = [
        (name, *map(escape, (figure["title"], figure.get("reason", figure["state"]))), _code(figure["command"]))
        for name, figure in absent
    ]
    table = html_table(("figure", "shows", "state", "made by"), rows, text=(0, 1, 2, 3))
    return f"<h2>Figures that are not here</h2>{table}"


def _glance(figures: Mapping[str, Mapping[str, Any]]) -> str:
    claims = worst_first(figures)
    if not claims:
        return ""
    ahead = sum(claim["verdict"] == "ahead" for _, claim in claims)
    text = (
        f"As good as the thesis or better in {ahead} of {len(claims)} comparisons of ratios and shares. Seconds and "
        "sizes of other machines and data are shown beside each figure, but not judged."
    )
    return f'<h2>At a glance</h2><p>{text}</p><div class="glance">{glance_plot(claims)}</div>'


def _chapter(chapter: str, figures: Mapping[str, Mapping[str, Any]], code: str) -> str:
    measured = {name: figure for name, figure in figures.items() if figure["state"] == MEASURED}
    shown = [_figure(name, figure, code) for name, figure in measured.items() if figure["chapter"] == chapter]
    return "".join([f"<h2>{CHAPTERS[chapter]}</h2>", *shown]) if shown else ""


def _figure(name: str, figure: Mapping[str, Any], code: str) -> str:
    settings = "; ".join(f"{key}: {format_value(value)}" for key, value in figure["settings"].items())
    older = "" if figure["code"] == [code] else " Made by other code than this page."
    busy = "" if figure["load"] is None else f", on a machine with a load of up to {figure['load']:g}"
    columns, rows = pivot(figure)
    points = html_table(columns, [[escape(cell) for cell in row] for row in rows], text=(0,))
    measured = f'{_claims(figure)}<p class="note">Ours, {escape(figure["unit"])}:</p>{points}'
    made = f"{versions_text(figure['code'])}; {figure['seconds']:,.0f} s for all of its steps{busy}.{older}"
    return (
        f'<h3 id="{name}">{name} {escape(figure["title"])}</h3>'
        f'<p class="note">{escape(figure["place"])}. {escape(figure["note"])}</p>'
        f'<div class="figure"><figure>{figure_plot(figure)}</figure><div>{measured}</div></div>'
        f"{_details(figure)}"
        f'<p class="note">{escape(settings)}. By layoutopt {escape(made)}<br>{_code(figure["command"])}</p>'
    )


def _claims(figure: Mapping[str, Any]) -> str:
    if not figure["claims"]:
        return '<p class="note">The thesis\'s text gives no number.</p>'
    rows = [(*_claim_cells(claim), escape(claim["place"])) for claim in figure["claims"]]
    return html_table(("what", "thesis", "ours", "ours / thesis", "", "said in"), rows, text=(0, 4, 5))


def _claim_cells(claim: Mapping[str, Any]) -> tuple[str, ...]:
    unit = "" if claim["unit"] == "x" else f" {escape(claim['unit'])}"
    ours = "not measured" if claim["ours"] is None else f"{format_number(claim['ours'])}{unit}"
    verdict = f'<span class="{claim["verdict"]}">{claim["verdict"]}</span>'
    thesis, ratio = f"{format_number(claim['thesis'])}{unit}", format_number(claim["ratio"])
    return (escape(claim["text"]), thesis, ours, ratio, verdict)


def pivot(figure: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return a figure's points as a table: a line a place, a column a series."""
    series = list(dict.fromkeys(point["series"] for point in figure["points"]))
    places = list(dict.fromkeys(point["x"] for point in figure["points"]))
    values = {(point["series"], point["x"]): point["value"] for point in figure["points"]}
    rows = [[format_value(x), *(format_number(values.get((name, x))) for name in series)] for x in places]
    return [figure["axis"] or "what", *series], rows


def _details(figure: Mapping[str, Any]) -> str:
    if not figure["details"]:
        return ""
    columns = list(figure["details"][0])
    rows = [[escape(format_value(each[column])) for column in columns] for each in figure["details"]]
    words = [i for i, column in enumerate(columns) if isinstance(figure["details"][0][column], str)]
    return f"<details><summary>more about each method</summary>{html_table(columns, rows, text=words)}</details>"


def format_value(value: object) -> str:
    """Format a number with three significant digits, and anything else as text."""
    return format_number(value) if isinstance(value, int | float) else str(value)


def _code(command: str) -> str:
    return f"<code>{escape(command)}</code>"


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
        raise SettingError(f"a marker asks for {name!r}, which was not measured; run layoutopt bench tpch for it first")
    if figure["details"]:
        columns = list(figure["details"][0])
        rows = [[format_value(line[column]) for column in columns] for line in figure["details"]]
    else:
        columns, rows = pivot(figure)
    made = f"Scale factor {document['scale']:g}, by layoutopt {versions_text(figure['code'])}: `{figure['command']}`"
    return f"{_table(columns, rows)}\n{made}\n"


def query_table(timed: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """Return the table of what `layoutopt bench query --json` printed: a row for each stream and engine."""
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
    made = f"`layoutopt bench query --streams {','.join(timed)} --json`, warm, medians of {rounds} rounds"
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
