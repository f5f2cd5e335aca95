"""What tuning tried as curves, like figures 3.6 and 3.7 of the thesis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from layoutopt.errors import SettingError
from layoutopt.spark.planning.hold_out import EvaluatedPlan


def plot(evaluated: Sequence[EvaluatedPlan], path: Path) -> None:
    """Draw what the queries held back read over T, over numFeat and over block sizes.

    Raises:
        SettingError: matplotlib is missing, or the file's suffix names no kind of image that it can draw.
        OSError: the file can't be written.
    """
    try:
        # Without pyplot: the figure needs no display and leaves no global state.
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise SettingError("--tune-plot needs matplotlib, which is not installed; leave it out") from error

    figure = Figure(figsize=(12, 4), layout="constrained")
    FigureCanvasAgg(figure)
    over_t, over_features, over_blocks = figure.subplots(1, 3)
    first = evaluated[0].settings.block_rows
    grid = [trial for trial in evaluated if trial.settings.block_rows == first]
    best = min(grid, key=lambda trial: trial.score)
    blocks = [
        trial
        for trial in evaluated
        if (trial.threshold, trial.settings.num_features) == (best.threshold, best.settings.num_features)
    ]
    _draw(over_t, grid, "T", lambda one: one.threshold, "numFeat", lambda one: one.settings.num_features)
    _draw(over_features, grid, "numFeat", lambda one: one.settings.num_features, "T", lambda one: one.threshold)
    _draw(over_blocks, blocks, "rows a block", lambda one: one.settings.block_rows, "T", lambda one: one.threshold)
    over_blocks.set_xscale("log")
    try:
        figure.savefig(path)
    except ValueError as error:
        raise SettingError(f"the plot {str(path)!r} is of no known kind; name it .png, .svg or .pdf") from error


def _draw(
    axes: Any,
    evaluated: Sequence[EvaluatedPlan],
    label: str,
    x: Callable[[EvaluatedPlan], Any],
    of_lines: str,
    line: Callable[[EvaluatedPlan], Any],
) -> None:
    for value in sorted({line(trial) for trial in evaluated}):
        along = sorted((trial for trial in evaluated if line(trial) == value), key=x)
        axes.plot([x(one) for one in along], [100 * one.score for one in along], "o-", label=f"{of_lines} = {value}")
    axes.set(xlabel=label, ylabel="% of the bytes of full scans", ylim=(0, None))
    axes.legend()
