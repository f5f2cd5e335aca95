"""A figure of the thesis: what it shows and claims, the steps that measure it, and the points that are read off them.

What the thesis says stands in ``figures.toml``, each number with its place. Our points always come from products.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Literal

from jobs.bench.experiment import Evaluated, Tables
from jobs.bench.steps import Step
from layoutopt.errors import SettingError, expected_names

Shape = Literal["bars", "stacked", "lines"]
Better = Literal["more", "less", ""]
X = str | float

# As the series of a claim: all series summed, as they are stacked at one place.
ALL: Final = ""

# As a name of `--figures`: all of them.
EVERY_FIGURE: Final = "all"


@dataclass(frozen=True)
class Point:
    """A point of a figure: the curve or the part of a bar, the place (a number, or the bar's name), and the value."""

    series: str
    x: X
    value: float


@dataclass(frozen=True)
class Measured:
    """What was measured for a figure.

    Attributes:
        points: as plotted.
        settings: what it was measured with, as text or numbers.
        details: more about each method: rows of the same columns, whose names have the units.
    """

    points: Sequence[Point]
    settings: Mapping[str, object] = field(default_factory=dict)
    details: Sequence[Mapping[str, object]] = ()

    def at(self, series: str, x: X) -> float | None:
        """Return the value at a place, summed over all series where ``series`` is empty; None without a point."""
        values = [point.value for point in self.points if point.x == x and series in (ALL, point.series)]
        return sum(values) if values else None


@dataclass(frozen=True)
class Claim:
    """A number of the thesis, and where our value is among a figure's points.

    Attributes:
        text: what is compared.
        thesis, place: its number, and where it says so.
        of, over: the series and place of our value, and of the value that it is divided by, if any.
        unit: of both.
        better: whether more or less is better; empty where neither is, as for another machine's seconds.
    """

    text: str
    thesis: float
    place: str
    of: tuple[str, X]
    over: tuple[str, X] | None = None
    unit: str = "x"
    better: Better = ""

    def measured_value(self, measured: Measured) -> float | None:
        """Return our value; None where it was not measured."""
        value = measured.at(*self.of)
        if self.over is None or value is None:
            return value
        divisor = measured.at(*self.over)
        return value / divisor if divisor else None

    def verdict(self, value: float | None) -> str:
        """Return ``ahead`` or ``behind`` the thesis; an empty text where neither can be said."""
        if value is None or not self.better:
            return ""
        ratio = value / self.thesis
        return "ahead" if (ratio >= 1 if self.better == "more" else ratio <= 1) else "behind"


@dataclass(frozen=True)
class Figure:
    """What a figure shows.

    Attributes:
        name, title: as ``--figures`` takes it, and what it shows.
        place: the figure or section of the thesis.
        unit, axis: of the values, and what the places are.
        shape, log: how it is plotted, and the logarithmic axes: ``x``, ``y``, ``xy`` or none.
        claims: the thesis's numbers.
        note: how it differs from the thesis's, in a sentence or two.
        timed: whether it measures seconds; such figures run last, when the machine does nothing else.
    """

    name: str
    title: str
    place: str
    unit: str
    axis: str = ""
    shape: Shape = "bars"
    claims: tuple[Claim, ...] = ()
    note: str = ""
    log: str = ""
    timed: bool = False

    @property
    def chapter(self) -> str:
        """The thesis's chapter."""
        return self.name[0]


@dataclass(frozen=True)
class Measure:
    """How a figure is measured: the steps, and what reads the points off their products without Spark."""

    steps: Sequence[Step]
    read: Callable[[], Measured]


def measure_tables(tables: Tables, read: Callable[[Evaluated], Measured]) -> Measure:
    """Return the measure of a figure whose points are read off the evaluations of tables."""
    return Measure(tables.steps, lambda: read(tables.read()))


@dataclass(frozen=True)
class Suite:
    """Figures that are measured on the same data and shown on one page.

    Attributes:
        name, command: of the experiment on the command line; ``--figures NAME`` restricts it to one figure.
        title, about: of the page, and a sentence on the data and on the thesis's.
        size: of the data; results of another size are not kept beside these.
        figures, measures: by name, in the thesis's order.
        folder: where results go by default.
    """

    name: str
    title: str
    about: str
    command: str
    size: float
    figures: Mapping[str, Figure]
    measures: Callable[[], Mapping[str, Measure]]
    folder: Path


def read_figures(suite: str, **constants: object) -> dict[str, Figure]:
    """Return the figures of a suite of ``figures.toml`` by name; constants are filled into their notes."""
    document = tomllib.loads((files("jobs.bench") / "figures.toml").read_text(encoding="utf-8"))
    notes = {name: text.format_map(_Blanks(constants)) for name, text in document["notes"].items()}
    entries = {entry["name"]: entry for entry in document[suite]}
    return {
        name: _figure({**entries.get(entry.pop("like", ""), {}), **entry}, notes) for name, entry in entries.items()
    }


class _Blanks(dict[str, object]):
    """Constants for notes; those of other suites stay blank."""

    def __missing__(self, key: str) -> str:
        return ""


def _figure(entry: Mapping[str, Any], notes: Mapping[str, str]) -> Figure:
    claims = tuple(_claim(claim) for claim in entry.get("claims", ()))
    return Figure(**{**entry, "note": entry.get("note", "").format_map(notes), "claims": claims})


def _claim(entry: Mapping[str, Any]) -> Claim:
    thesis = entry["thesis"]
    number = thesis[0] / thesis[1] if isinstance(thesis, list) else thesis
    over = tuple(entry["over"]) if "over" in entry else None
    return Claim(**{**entry, "thesis": number, "of": tuple(entry["of"]), "over": over})


def choose_figures(figures: Mapping[str, Figure], names: Sequence[str]) -> tuple[Figure, ...]:
    """Return the figures of these names, all without names, in running order: those that measure seconds last.

    A name without its letter means all figures of that number, and a chapter's number all of the chapter.

    Raises:
        SettingError: a name is not known.

    >>> [figure.name for figure in choose_figures(read_figures("tpch"), ["4.10", "3.2a"])]
    ['3.2a', '4.10b', '4.10a']
    """
    chosen = set() if names else set(figures)
    for name in names:
        named = {
            figure.name
            for figure in figures.values()
            if name in (figure.name, figure.name.rstrip("abcd"), figure.chapter, EVERY_FIGURE)
        }
        if not named:
            known = [*figures, "list"]
            raise SettingError(f"--figures names {name!r}, which is not a figure: {expected_names(name, known)}")
        chosen |= named
    return tuple(sorted((figures[name] for name in figures if name in chosen), key=lambda figure: figure.timed))
