"""The results as one HTML page that stands alone: where we fall behind first, then the story, then each figure."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any, Final

from layoutopt.bench.thesis.figure import codes_text
from layoutopt.bench.thesis.plots import advantage, figure_plot, glance_plot, number
from layoutopt.report.pages import STYLE, html_table

CHAPTERS: Final = {"3": "Chapter 3: SOP", "4": "Chapter 4: GSOP", "5": "Chapter 5: GSOP-R"}
_STYLE: Final = """
.figure { display: grid; grid-template-columns: minmax(360px, 5fr) 6fr; gap: 1.6em; align-items: start; }
@media (max-width: 900px) { .figure { display: block; } }
.figure svg, .glance svg { width: 100%; height: auto; }
.ahead { color: #1e8449; } .behind { color: #c0392b; font-weight: 600; }
h3 { margin: 2.4em 0 .2em; font-size: 1.05em; } details { margin: .6em 0; } .glance { max-width: 860px; }
"""

Named = tuple[str, Mapping[str, Any]]


def results_page(document: Mapping[str, Any]) -> str:
    """The page of a ``results.json``."""
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


def measured_with(document: Mapping[str, Any]) -> str:
    """What everything was measured with, in a sentence."""
    machine = document["machine"]
    words = [f"{name} {value}" for name, value in machine.items() if name in ("Python", "Java", "Spark", "DuckDB")]
    return (
        f"{document['about']} "
        f"Written by layoutopt {document['code']}, measured on {machine['cores']} cores, {machine['memory, GiB']} GiB, "
        f"{', '.join(words)}. "
        f"All steps took {document['seconds'] / 60:.0f} minutes."
    )


def judged(figures: Mapping[str, Mapping[str, Any]]) -> list[Named]:
    """The claims that have a verdict, each with its figure's name."""
    return [
        (name, claim)
        for name, figure in figures.items()
        if figure["state"] == "measured"
        for claim in figure["claims"]
        if claim["verdict"]
    ]


def _behind(figures: Mapping[str, Mapping[str, Any]]) -> str:
    claims = judged(figures)
    behind = sorted((each for each in claims if each[1]["verdict"] == "behind"), key=lambda each: advantage(each[1]))
    head = "<h2>Where we fall behind the thesis</h2>"
    if not behind:
        return f"{head}<p>In none of {len(claims)} comparisons.</p>"
    rows = [(_link(name), *_claim_cells(claim), escape(figures[name]["note"])) for name, claim in behind]
    note = f"<p>In {len(behind)} of {len(claims)} comparisons, the worst first.</p>"
    columns = ("figure", "what", "thesis", "ours", "ours / thesis", "", "said of it")
    return head + note + html_table(columns, rows, text=(0, 1, 5, 6))


def _missing(figures: Mapping[str, Mapping[str, Any]]) -> str:
    absent = [(name, figure) for name, figure in figures.items() if figure["state"] != "measured"]
    if not absent:
        return ""
    rows = [
        (name, escape(figure["title"]), escape(figure.get("reason", figure["state"])), _code(figure["command"]))
        for name, figure in absent
    ]
    head = "<h2>Figures that are not here</h2>"
    return head + html_table(("figure", "shows", "state", "made by"), rows, text=(0, 1, 2, 3))


def _glance(figures: Mapping[str, Mapping[str, Any]]) -> str:
    claims = judged(figures)
    if not claims:
        return ""
    ahead = sum(claim["verdict"] == "ahead" for _, claim in claims)
    text = (
        f"As good as the thesis or better in {ahead} of {len(claims)} comparisons of ratios and shares. Seconds and "
        "sizes of other machines and data are shown beside each figure, but not judged."
    )
    return f'<h2>At a glance</h2><p>{text}</p><div class="glance">{glance_plot(claims)}</div>'


def _chapter(chapter: str, figures: Mapping[str, Mapping[str, Any]], code: str) -> str:
    chosen = [
        (name, figure)
        for name, figure in figures.items()
        if figure["chapter"] == chapter and figure["state"] == "measured"
    ]
    if not chosen:
        return ""
    return f"<h2>{CHAPTERS[chapter]}</h2>" + "".join(_figure(name, figure, code) for name, figure in chosen)


def _figure(name: str, figure: Mapping[str, Any], code: str) -> str:
    settings = "; ".join(f"{key}: {_text(value)}" for key, value in figure["settings"].items())
    older = "" if figure["code"] == [code] else " Made by other code than this page."
    busy = "" if figure["load"] is None else f", on a machine with a load of up to {figure['load']:g}"
    made = f"{codes_text(figure['code'])}; {figure['seconds']:,.0f} s for all of its steps{busy}.{older}"
    return (
        f'<h3 id="{name}">{name} {escape(figure["title"])}</h3>'
        f'<p class="note">{escape(figure["place"])}. {escape(figure["note"])}</p>'
        f'<div class="figure"><figure>{figure_plot(figure)}</figure><div>{_claims(figure)}{_points(figure)}</div></div>'
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
    ours = "not measured" if claim["ours"] is None else f"{number(claim['ours'])}{unit}"
    verdict = f'<span class="{claim["verdict"]}">{claim["verdict"]}</span>'
    return (escape(claim["text"]), f"{number(claim['thesis'])}{unit}", ours, number(claim["ratio"]), verdict)


def pivot(figure: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """A figure's points as a table: a line a place, a column a series."""
    series = list(dict.fromkeys(point["series"] for point in figure["points"]))
    places = list(dict.fromkeys(point["x"] for point in figure["points"]))
    values = {(point["series"], point["x"]): point["value"] for point in figure["points"]}
    rows = [[_text(x), *(number(values.get((name, x))) for name in series)] for x in places]
    return [figure["axis"] or "what", *series], rows


def _points(figure: Mapping[str, Any]) -> str:
    columns, rows = pivot(figure)
    table = html_table(columns, [[escape(cell) for cell in row] for row in rows], text=(0,))
    return f'<p class="note">Ours, {escape(figure["unit"])}:</p>{table}'


def _details(figure: Mapping[str, Any]) -> str:
    if not figure["details"]:
        return ""
    columns = list(figure["details"][0])
    rows = [[escape(_text(each[column])) for column in columns] for each in figure["details"]]
    words = [i for i, column in enumerate(columns) if isinstance(figure["details"][0][column], str)]
    return f"<details><summary>more about each method</summary>{html_table(columns, rows, text=words)}</details>"


def _text(value: object) -> str:
    return number(value) if isinstance(value, int | float) else str(value)


def _link(name: str) -> str:
    return f'<a href="#{name}">{name}</a>'


def _code(command: str) -> str:
    return f"<code>{escape(command)}</code>"
