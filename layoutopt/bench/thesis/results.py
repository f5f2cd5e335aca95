"""What a run found, as one document: `results.json`, a CSV file a figure, and the page.

Everything that people look at is made of this document alone. Its fields:

``format``, ``version``
    What this is: ``layoutopt-thesis-results``, 1.
``suite``, ``title``, ``about``, ``scale``
    Which experiment (``tpch`` where left out), the page's title, a sentence on the data, and their size: TPC-H's scale
    factor, or rows.
``code``, ``machine``, ``seconds``
    The layoutopt that wrote the document, the machine in words, and what all steps took, of figures that are kept from
    earlier runs too.
``figures``
    By name: ``title``, ``chapter``, ``place`` (in the thesis), ``unit``, ``axis``, ``shape``, ``log``, ``note``,
    ``command`` that makes it alone, and ``state``: ``measured``, ``not run`` or ``failed`` (then with a ``reason``).
    Measured ones have ``points`` (``series``, ``x``, ``value`` in the unit), ``settings``, ``details`` (more about each
    method; names have units), ``seconds`` (of all steps that it needs), ``code`` (which layoutopt ran these), ``load``
    (the most processes that wanted the machine in the last minute of a step, or null where nobody noted it), and
    ``claims``: the thesis's numbers, each with ``text``, ``thesis``, ``unit``, ``place``, ``better`` (``more``,
    ``less`` or neither), ``ours``, ``ratio`` (ours over the thesis's), ``verdict`` (``ahead``, ``behind`` or none), and
    ``at``: the series and place of a point that it is the thesis's number of, if any.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from layoutopt.bench.steps import code_version, how_made
from layoutopt.bench.thesis.figure import B, Comparison, Figure, Point, compared
from layoutopt.bench.thesis.machine import machine
from layoutopt.bench.thesis.suite import Suite
from layoutopt.errors import SettingError

FORMAT: Final = "layoutopt-thesis-results"
VERSION: Final = 1
MEASURED: Final = "measured"
NOT_RUN: Final = "not run"
FAILED: Final = "failed"
TPCH: Final = "tpch"
NAME: Final = "results.json"
PAGE: Final = "index.html"
_DIGITS: Final = 6


def gathered(suite: Suite[B], failed: Mapping[str, str]) -> dict[str, Any]:
    """All that the products there say.

    Args:
        suite: the figures, and where their products are.
        failed: the reasons of those that failed in this run.
    """
    entries = {name: entry_of(suite, figure, failed.get(name)) for name, figure in suite.figures.items()}
    done = [
        step
        for name, figure in suite.figures.items()
        if entries[name]["state"] == MEASURED
        for step in figure.steps(suite.bench).values()
    ]
    return {
        "format": FORMAT,
        "version": VERSION,
        "suite": suite.name,
        "title": suite.title,
        "about": suite.about,
        "scale": suite.size,
        "code": code_version(),
        "machine": machine(),
        "seconds": round(sum(made.seconds for made in how_made(done)), 1),
        "figures": entries,
    }


def with_earlier(document: Mapping[str, Any], earlier: Mapping[str, Any]) -> dict[str, Any]:
    """Results with the figures of earlier ones that were not measured now; none of another suite, size or machine."""
    same = document.get("suite", TPCH) == earlier.get("suite", TPCH) and all(
        document[name] == earlier[name] for name in ("scale", "machine")
    )
    entries = document["figures"]
    kept = {
        name: {**old, **entries[name], "state": MEASURED}
        for name, old in (earlier["figures"].items() if same else ())
        if old["state"] == MEASURED and name in entries and entries[name]["state"] == NOT_RUN
    }
    # Figures of the same steps have the same seconds.
    seconds = round(document["seconds"] + sum({each["seconds"] for each in kept.values()}), 1)
    return {**document, "seconds": seconds, "figures": {name: kept.get(name, entries[name]) for name in entries}}


def entry_of(suite: Suite[B], figure: Figure[B], failed: str | None = None) -> dict[str, Any]:
    """What is known of one figure."""
    entry: dict[str, Any] = {
        "title": figure.title,
        "chapter": figure.chapter,
        "place": figure.place,
        "unit": figure.unit,
        "axis": figure.axis,
        "shape": figure.shape,
        "log": figure.log,
        "note": figure.note,
        "command": f"{suite.command} --figures {figure.name}",
    }
    if failed is not None:
        return {**entry, "state": FAILED, "reason": failed}
    steps = figure.steps(suite.bench)
    if not all(step.product.exists() for step in steps.values()):
        return {**entry, "state": NOT_RUN}
    products = {key: json.loads(step.product.read_text(encoding="utf-8")) for key, step in steps.items()}
    measured, made = figure.read(suite.bench, products), how_made(steps.values())
    return {
        **entry,
        "state": MEASURED,
        "settings": {name: _rounded(value) for name, value in measured.settings.items()},
        "points": [_point(point) for point in measured.points],
        "details": [{name: _rounded(value) for name, value in each.items()} for each in measured.details],
        "claims": [_claim(each) for each in compared(figure.claims, measured)],
        "seconds": round(sum(each.seconds for each in made), 1),
        "code": sorted({each.code for each in made}),
        "load": max((each.load for each in made if each.load is not None), default=None),
    }


def _point(point: Point) -> dict[str, object]:
    return {"series": point.series, "x": point.x, "value": _rounded(point.value)}


def _claim(comparison: Comparison) -> dict[str, object]:
    claim = comparison.claim
    return {
        "text": claim.text,
        "thesis": _rounded(claim.thesis),
        "unit": claim.unit,
        "place": claim.place,
        "at": list(claim.of) if claim.over is None and claim.of[0] else None,
        "better": claim.better,
        "ours": _rounded(comparison.ours),
        "ratio": _rounded(comparison.ratio),
        "verdict": comparison.verdict,
    }


def _rounded(value: object) -> object:
    """A number with as many digits as mean something."""
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def write_results(document: Mapping[str, Any], folder: Path) -> None:
    """Write ``results.json``, the page, and below ``csv`` the points of each figure, into a folder."""
    from layoutopt.bench.thesis.page import results_page

    tables = folder / "csv"
    tables.mkdir(parents=True, exist_ok=True)
    for name, figure in document["figures"].items():
        if figure["state"] == MEASURED:
            _write_csv(figure["points"], figure["unit"], tables / f"{name}.csv")
    (folder / NAME).write_text(dumps(document), encoding="utf-8")
    (folder / PAGE).write_text(results_page(document), encoding="utf-8")


def _write_csv(points: Iterable[Mapping[str, object]], unit: str, path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(("series", "x", "value", "unit"))
        writer.writerows((point["series"], point["x"], point["value"], unit) for point in points)


def dumps(document: Mapping[str, Any]) -> str:
    """The document as text, a line for each innermost value."""
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def read_results(path: Path) -> dict[str, Any]:
    """The document of a file.

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
