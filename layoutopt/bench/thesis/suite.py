"""Figures that are measured on the same data, and told on one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic

from layoutopt.bench.thesis.figure import B, Figure
from layoutopt.errors import SettingError

EVERY: Final = "all"


@dataclass(frozen=True)
class Suite(Generic[B]):
    """What `layoutopt bench NAME` measures at one size.

    Attributes:
        name: of the experiment, as the command line calls it.
        title: of the page.
        about: a sentence on the data, and on the thesis's.
        command: what runs it at this size; ``--figures NAME`` makes it one figure's.
        size: of the data; results of another size are not kept beside these.
        figures: by name, in the thesis's order.
        bench: what figures' steps are made from.
        folder: where results go if nothing else is said.
    """

    name: str
    title: str
    about: str
    command: str
    size: float
    figures: Mapping[str, Figure[B]]
    bench: B
    folder: Path


def chosen_figures(figures: Mapping[str, Figure[B]], names: Sequence[str]) -> tuple[Figure[B], ...]:
    """The figures asked for, all where none is, in the order of running: those that measure seconds last.

    A name without its letter means all figures of that number, and a chapter's number all of the chapter.

    Raises:
        SettingError: one is not known.

    >>> from layoutopt.bench.thesis.registry import FIGURES
    >>> [figure.name for figure in chosen_figures(FIGURES, ["4.10", "3.2a"])]
    ['3.2a', '4.10b', '4.10a']
    """
    found: list[Figure[B]] = []
    for name in names:
        named = [
            figure
            for figure in figures.values()
            if name in (figure.name, figure.name.rstrip("abcd"), figure.chapter, EVERY)
        ]
        if not named:
            raise SettingError(f"--figures names {name!r}, which is no figure; choose of {', '.join(figures)}, or list")
        found += named
    asked = {figure.name for figure in found} if names else set(figures)
    return tuple(sorted((figures[name] for name in figures if name in asked), key=lambda figure: figure.timed))
