"""The curve of what an optimize regains over what it writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from layoutopt.errors import SettingError


def plot_regained(curve: Sequence[tuple[float, float]], path: Path) -> None:
    """Draw the curve to an image file; its suffix (`.png`, `.svg`, `.pdf`) says which kind.

    Args:
        curve: the share of the table's bytes written, and the share of all gains by then, both within 0 and 1.
        path: the file.

    Raises:
        SettingError: an unknown suffix.
        OSError: the file can't be written.
    """
    # Imported here, and without pyplot: the figure needs no display and leaves no global state.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.plot([100 * written for written, _ in curve], [100 * gained for _, gained in curve], marker=".")
    axes.plot([0, 100], [0, 100], linestyle="--", color="grey", label="if every byte gained alike")
    axes.set(xlabel="% of the table's bytes written anew", ylabel="% of what can be regained", xlim=(0, 100))
    axes.set(ylim=(0, 102))
    axes.legend(loc="lower right", frameon=False)
    try:
        figure.savefig(path)
    except ValueError as error:
        raise SettingError(f"the plot {str(path)!r} is of no known kind; name it .png, .svg or .pdf") from error
