"""A suite of figures: the steps of those asked for, taken up where they stopped, and what comes of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layoutopt.bench.session import spark_when_needed
from layoutopt.bench.steps import run
from layoutopt.bench.thesis.figure import B, Figure
from layoutopt.bench.thesis.results import NAME, gathered, read_results, with_earlier, write_results
from layoutopt.bench.thesis.suite import Suite, chosen_figures
from layoutopt.errors import LayoutoptError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGGER = logging.getLogger("layoutopt.bench")


def run_figures(
    suite_with: Callable[[Callable[[], SparkSession]], Suite[B]],
    *,
    names: Sequence[str] = (),
    results: Path | None = None,
    say: Callable[[str], None],
) -> tuple[Path, Mapping[str, Any]]:
    """Run the steps of some figures that have not been run, and write what is known of all.

    A figure that fails is said to have failed, and the others are run; what was run before is in the results too.

    Args:
        suite_with: the figures and what they are measured on, given what makes a Spark session.
        names: of the figures; all where left out.
        results: the folder for ``results.json``, the page and the tables; the suite's where left out. What it has of
            other figures is kept, if suite, size and machine are the same.
        say: told each step that is run.

    Returns:
        The folder of the results, and the content of ``results.json``.

    Raises:
        SettingError: an unknown figure, data that can't be generated, or results that are something else.
        LayoutoptError: a figure failed; the results of the others are written.
    """
    failed: dict[str, str] = {}
    with spark_when_needed("layoutopt-figures") as spark:
        suite = suite_with(spark)
        asked = chosen_figures(suite.figures, names)
        folder = results or suite.folder
        earlier = read_results(folder / NAME) if (folder / NAME).exists() else None
        for figure in asked:
            _run(suite.bench, figure, failed, say)
            document = gathered(suite, failed)
            document = document if earlier is None else with_earlier(document, earlier)
            write_results(document, folder)
    if failed:
        raise LayoutoptError(
            f"{len(failed)} figures failed: " + "; ".join(f"{of}: {why}" for of, why in failed.items())
        )
    return folder, document


def _run(bench: B, figure: Figure[B], failed: dict[str, str], say: Callable[[str], None]) -> None:
    try:
        for step in figure.steps(bench).values():
            run(step, lambda sentence: say(f"{figure.name}: {sentence}"))
    except Exception as error:  # whatever it is, the other figures may be had
        if not isinstance(error, LayoutoptError):
            _LOGGER.exception("%s failed", figure.name)
        reason = str(error) if isinstance(error, LayoutoptError) else f"{type(error).__name__}: {error}".split("\n")[0]
        failed[figure.name] = reason
        say(f"{figure.name} failed: {reason}")
