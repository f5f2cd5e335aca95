"""The tables of a Markdown file that come from `results.json`: between ``<!-- results: NAME -->`` and its end.

A name is a figure's, whose table of methods then stands there, ``claims``: every comparison with the thesis, or
``query``: the seconds of `query.json`, the output of `layoutopt bench query --json`, beside the results.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from layoutopt.bench.thesis.figure import codes_text
from layoutopt.bench.thesis.page import judged, measured_with, pivot
from layoutopt.bench.thesis.plots import advantage, number
from layoutopt.bench.thesis.results import NAME, read_results
from layoutopt.errors import SettingError

CLAIMS: Final = "claims"
QUERY: Final = "query"
_MARKED: Final = re.compile(r"(<!-- results: ([^>]+?) -->\n)(.*?)(<!-- results end -->)", re.DOTALL)


def run_readme(path: Path, results: Path | None) -> bool:
    """Write a file's tables anew; returns whether anything was other than the results have it.

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
    written = with_tables(text, document)
    if written != text:
        path.write_text(written, encoding="utf-8")
    return written != text


def with_tables(text: str, document: Mapping[str, Any]) -> str:
    """The text with each marked table as the results have it.

    Raises:
        SettingError: a marker names no figure that was measured.
    """
    return _MARKED.sub(lambda found: found.group(1) + table_of(found.group(2), document) + found.group(4), text)


def table_of(name: str, document: Mapping[str, Any]) -> str:
    """The table of a figure, or of all claims, with a line on what it was measured with."""
    if name == CLAIMS:
        return _claims(document)
    if name == QUERY and QUERY in document:
        return query_table(document[QUERY])
    figure = document["figures"].get(name)
    if figure is None or figure["state"] != "measured":
        raise SettingError(f"a marker asks for {name!r}, which was not measured; run layoutopt bench tpch for it first")
    if figure["details"]:
        columns = list(figure["details"][0])
        rows = [[_cell(each[column]) for column in columns] for each in figure["details"]]
    else:
        columns, rows = pivot(figure)
    made = f"Scale factor {document['scale']:g}, by layoutopt {codes_text(figure['code'])}: `{figure['command']}`"
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


def _claims(document: Mapping[str, Any]) -> str:
    figures = document["figures"]
    rows = [
        [
            f"{name}, {claim['text']}",
            _with_unit(claim["thesis"], claim["unit"]),
            _with_unit(claim["ours"], claim["unit"]),
            f"{advantage(claim):.2f}",
            codes_text(figures[name]["code"]),
        ]
        for name, claim in sorted(judged(figures), key=lambda each: advantage(each[1]))
    ]
    columns = ("figure, and what is compared", "thesis", "ours", "times as good", "by layoutopt")
    return f"{_table(columns, rows)}\n{measured_with(document)}\n"


def _with_unit(value: float, unit: str) -> str:
    return number(value) if unit == "x" else f"{number(value)} {unit}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose numbers stand right, and its words left."""
    sides = [
        "---:" if all(row[i][:1].isdigit() or not row[i] for row in rows) else "---" for i in range(1, len(columns))
    ]
    lines = [columns, ["---", *sides], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(value: object) -> str:
    return number(value) if isinstance(value, int | float) else str(value)
