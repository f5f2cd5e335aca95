"""The results of a suite: `results.json`, a CSV file a figure, and the page.

Everything that is shown is made of ``results.json`` alone. Its fields:

``format``, ``version``
    ``layoutopt-thesis-results``, 1.
``suite``, ``title``, ``about``, ``scale``
    The experiment (``tpch`` where left out), the page's title, a sentence on the data, and their size: TPC-H's scale
    factor, or rows.
``code``, ``machine``, ``seconds``
    The layoutopt that wrote the document, the machine in words, and the seconds of all steps, also of figures that are
    kept from earlier runs.
``figures``
    By name: ``title``, ``chapter``, ``place`` (in the thesis), ``unit``, ``axis``, ``shape``, ``log``, ``note``,
    ``command`` that makes it alone, and ``state``: ``measured``, ``not run`` or ``failed`` (then with a ``reason``).
    Measured ones have ``points`` (``series``, ``x``, ``value`` in the unit), ``settings``, ``details`` (more about each
    method; names have units), ``seconds`` (of all steps that it needs), ``code`` (which layoutopt ran these), ``load``
    (the highest load average at the end of a step, or null where it is unknown), and ``claims``: the thesis's numbers,
    each with ``text``, ``thesis``, ``unit``, ``place``, ``better`` (``more``, ``less`` or neither), ``ours``, ``ratio``
    (ours over the thesis's), ``verdict`` (``ahead``, ``behind`` or none), and ``at``: the series and place of a point
    that it is the thesis's number of, if any.
"""

from __future__ import annotations

import csv
import json
import logging
import os
import platform
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from jobs.bench.experiment import Session
from jobs.bench.figure import Claim, Figure, Measure, Measured, Suite, choose_figures
from jobs.bench.results_report import FORMAT, MEASURED, NAME, PAGE, VERSION, read_results, results_page
from jobs.bench.steps import Say, code_version, how_made, run, spark_when_needed
from layoutopt.errors import LayoutoptError

NOT_RUN, FAILED = "not run", "failed"
_DIGITS: Final = 6
_LOGGER = logging.getLogger("jobs.bench")


def run_figures(
    suite_with: Callable[[Session], Suite], *, names: Sequence[str] = (), results: Path | None = None, say: Say
) -> tuple[Path, Mapping[str, Any]]:
    """Run the steps of figures that have not been run, and write what is known of all figures.

    A figure that fails is reported, and the others run. What was run before is in the results too.

    Args:
        suite_with: the suite, given what makes a Spark session.
        names: of the figures; all without names.
        results: the folder for the results; the suite's where left out. Its results of other figures are kept, if
            suite, size and machine are the same.
        say: called with a sentence at each step.

    Returns:
        The folder of the results, and the content of ``results.json``.

    Raises:
        SettingError: an unknown figure, data that can't be generated, or results that are something else.
        LayoutoptError: a figure failed; the results of the others are written.
    """
    failed: dict[str, str] = {}
    with spark_when_needed("layoutopt-figures") as spark:
        suite = suite_with(spark)
        chosen, measures = choose_figures(suite.figures, names), suite.measures()
        folder = results or suite.folder
        earlier = read_results(folder / NAME) if (folder / NAME).exists() else None
        for figure in chosen:
            _run(figure, measures[figure.name], failed, say)
            document = gather(suite, failed)
            document = document if earlier is None else keep_earlier(document, earlier)
            write_results(document, folder)
    if failed:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
        raise LayoutoptError(f"{len(failed)} figures failed: {reasons}")
    return folder, document


def _run(figure: Figure, measure: Measure, failed: dict[str, str], say: Say) -> None:
    try:
        for step in measure.steps:
            run(step, lambda sentence: say(f"{figure.name}: {sentence}"))
    except Exception as error:  # the other figures can still be measured
        if not isinstance(error, LayoutoptError):
            _LOGGER.exception("%s failed", figure.name)
        reason = str(error) if isinstance(error, LayoutoptError) else f"{type(error).__name__}: {error}".split("\n")[0]
        failed[figure.name] = reason
        say(f"{figure.name} failed: {reason}")


def gather(suite: Suite, failed: Mapping[str, str]) -> dict[str, Any]:
    """Return the results of all products that are there.

    Args:
        suite: the figures.
        failed: the reasons of those that failed in this run.
    """
    measures = suite.measures()
    entries = {
        name: figure_entry(suite, figure, measures[name], failed.get(name)) for name, figure in suite.figures.items()
    }
    steps = [step for name, entry in entries.items() if entry["state"] == MEASURED for step in measures[name].steps]
    return {
        "format": FORMAT,
        "version": VERSION,
        "suite": suite.name,
        "title": suite.title,
        "about": suite.about,
        "scale": suite.size,
        "code": code_version(),
        "machine": machine(),
        "seconds": round(sum(made.seconds for made in how_made(steps)), 1),
        "figures": entries,
    }


def keep_earlier(document: Mapping[str, Any], earlier: Mapping[str, Any]) -> dict[str, Any]:
    """Add the figures of earlier results that were not measured now; none of another suite, size or machine."""
    same = document.get("suite", "tpch") == earlier.get("suite", "tpch") and all(
        document[name] == earlier[name] for name in ("scale", "machine")
    )
    entries = document["figures"]
    kept = {
        name: {**old, **entries[name], "state": MEASURED}
        for name, old in (earlier["figures"].items() if same else ())
        if old["state"] == MEASURED and name in entries and entries[name]["state"] == NOT_RUN
    }
    # Figures of the same steps have the same seconds.
    seconds = round(document["seconds"] + sum({entry["seconds"] for entry in kept.values()}), 1)
    return {**document, "seconds": seconds, "figures": {name: kept.get(name, entries[name]) for name in entries}}


def figure_entry(suite: Suite, figure: Figure, measure: Measure, failed: str | None = None) -> dict[str, Any]:
    """Return what is known of one figure."""
    names = ("title", "chapter", "place", "unit", "axis", "shape", "log", "note")
    entry = {**{name: getattr(figure, name) for name in names}, "command": f"{suite.command} --figures {figure.name}"}
    if failed is not None:
        return {**entry, "state": FAILED, "reason": failed}
    if not all(step.product.exists() for step in measure.steps):
        return {**entry, "state": NOT_RUN}
    measured, made = measure.read(), how_made(measure.steps)
    return {
        **entry,
        "state": MEASURED,
        "settings": _rounded(measured.settings),
        "points": [
            {"series": point.series, "x": point.x, "value": _significant(point.value)} for point in measured.points
        ],
        "details": [_rounded(line) for line in measured.details],
        "claims": [_claim(claim, measured) for claim in figure.claims],
        "seconds": round(sum(each.seconds for each in made), 1),
        "code": sorted({each.code for each in made}),
        "load": max((each.load for each in made if each.load is not None), default=None),
    }


def _claim(claim: Claim, measured: Measured) -> dict[str, object]:
    value = claim.measured_value(measured)
    return {
        "text": claim.text,
        "thesis": _significant(claim.thesis),
        "unit": claim.unit,
        "place": claim.place,
        "at": list(claim.of) if claim.over is None and claim.of[0] else None,
        "better": claim.better,
        "ours": _significant(value),
        "ratio": _significant(None if value is None else value / claim.thesis),
        "verdict": claim.verdict(value),
    }


def _rounded(values: Mapping[str, object]) -> dict[str, object]:
    return {name: _significant(value) for name, value in values.items()}


def _significant(value: object) -> object:
    """Return a number with as many digits as are significant."""
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def write_results(document: Mapping[str, Any], folder: Path) -> None:
    """Write ``results.json``, the page, and below ``csv`` the points of each figure, into a folder."""
    tables = folder / "csv"
    tables.mkdir(parents=True, exist_ok=True)
    for name, figure in document["figures"].items():
        if figure["state"] == MEASURED:
            with (tables / f"{name}.csv").open("w", encoding="utf-8", newline="") as stream:
                writer = csv.writer(stream)
                writer.writerow(("series", "x", "value", "unit"))
                for point in figure["points"]:
                    writer.writerow((point["series"], point["x"], point["value"], figure["unit"]))
    (folder / NAME).write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (folder / PAGE).write_text(results_page(document), encoding="utf-8")


def machine() -> dict[str, object]:
    """Return the machine in words, without its name: cores, memory, and the versions of what runs on it."""
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory, GiB": _memory(),
        "system": f"{platform.system()} on {platform.machine()}",
        "Python": platform.python_version(),
        "Java": _java(),
        "Spark": version("pyspark"),
        "pyarrow": version("pyarrow"),
        "DuckDB": version("duckdb"),
    }


def _memory() -> float | None:
    """Return the GiB of the machine, or of the control group where that has less."""
    try:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text().strip() if limit.exists() else "max"
    return round(min(whole, int(text) if text.isdigit() else whole) / 2**30, 1)


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else "java"
    try:
        output = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
    except OSError:
        return "unknown"
    match = re.search(r'version "([^"]+)"', output)
    return match.group(1) if match else "unknown"
