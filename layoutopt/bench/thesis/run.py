"""`layoutopt bench tpch`: the steps of the figures asked for, taken up where they stopped, and what comes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from layoutopt.bench.session import spark_when_needed
from layoutopt.bench.steps import run
from layoutopt.bench.thesis.figure import Figure
from layoutopt.bench.thesis.registry import FIGURES, chosen_figures
from layoutopt.bench.thesis.results import NAME, gathered, read_results, with_earlier, write_results
from layoutopt.bench.tpch.data import DEFAULT_ROOT, TpchData
from layoutopt.bench.tpch.experiment import Bench
from layoutopt.errors import LayoutoptError


def run_figures(
    scale: float,
    *,
    root: Path = DEFAULT_ROOT,
    names: Sequence[str] = (),
    results: Path | None = None,
    say: Callable[[str], None],
) -> tuple[Path, Mapping[str, Any]]:
    """Run the steps of some figures that have not been run, and write what is known of all.

    A figure that fails is said to have failed, and the others are run; what was run before is in the results too.

    Args:
        scale: TPC-H's scale factor.
        root: the folder of all experiments; each step's product is kept there.
        names: of the figures; all where left out.
        results: the folder for ``results.json``, the page and the tables; ``results`` beside the scale factor's data
            where left out. What it has of other figures is kept, if scale and machine are the same.
        say: told each step that is run.

    Returns:
        The folder of the results, and the content of ``results.json``.

    Raises:
        SettingError: an unknown figure, a scale factor that can't be generated, or results that are something else.
        LayoutoptError: a figure failed; the results of the others are written.
    """
    asked = chosen_figures(names)
    failed: dict[str, str] = {}
    with spark_when_needed("layoutopt-tpch") as spark:
        bench = Bench(TpchData(scale, root), spark)
        folder = results or bench.data.folder / "results"
        earlier = read_results(folder / NAME) if (folder / NAME).exists() else None
        for figure in asked:
            _run(bench, figure, failed, say)
            document = gathered(bench, FIGURES, failed)
            document = document if earlier is None else with_earlier(document, earlier)
            write_results(document, folder)
    if failed:
        raise LayoutoptError(
            f"{len(failed)} figures failed: " + "; ".join(f"{of}: {why}" for of, why in failed.items())
        )
    return folder, document


def _run(bench: Bench, figure: Figure, failed: dict[str, str], say: Callable[[str], None]) -> None:
    try:
        for step in figure.steps(bench).values():
            run(step, lambda sentence: say(f"{figure.name}: {sentence}"))
    except LayoutoptError as error:
        failed[figure.name] = str(error)
        say(f"{figure.name} failed: {error}")
