"""All figures, in the thesis's order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from layoutopt.bench.thesis import chapter3, chapter4, chapter5
from layoutopt.bench.thesis.figure import Figure
from layoutopt.errors import SettingError

FIGURES: Final[Mapping[str, Figure]] = MappingProxyType(
    {figure.name: figure for figure in (*chapter3.FIGURES, *chapter4.FIGURES, *chapter5.FIGURES)}
)


def chosen_figures(names: Sequence[str]) -> tuple[Figure, ...]:
    """The figures asked for, all where none is, in the order of running: those that measure seconds last.

    A name without its letter means all figures of that number, and a chapter's number all of the chapter.

    Raises:
        SettingError: one is not known.

    >>> [figure.name for figure in chosen_figures(["4.10", "3.2a"])]
    ['3.2a', '4.10b', '4.10a']
    """
    found: list[Figure] = []
    for name in names:
        named = [
            figure for figure in FIGURES.values() if name in (figure.name, figure.name.rstrip("abc"), figure.chapter)
        ]
        if not named:
            raise SettingError(f"--figures names {name!r}, which is no figure; choose of {', '.join(FIGURES)}, or list")
        found += named
    asked = {figure.name for figure in found} if names else set(FIGURES)
    return tuple(sorted((FIGURES[name] for name in FIGURES if name in asked), key=lambda figure: figure.timed))
