"""A figure of the thesis: the steps that it needs, how its points are read off them, and what the thesis says of it.

Our points are always read from products of steps; only the thesis's numbers stand in the code, each with its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Generic, Literal, TypeVar

from layoutopt.bench.steps import Step

Shape = Literal["bars", "stacked", "lines"]
Better = Literal["more", "less", ""]
X = str | float
B = TypeVar("B")
"""What the steps of figures are made from: where data and products are, and a Spark session."""
Products = Mapping[str, Mapping[str, Any]]
"""The products of a figure's steps, by the keys that the figure gave these."""
ALL: Final = ""
"""Of a key: every series, summed, as what is stacked at one place."""


@dataclass(frozen=True)
class Point:
    """One point of a figure.

    Attributes:
        series: the curve, or the part of a bar.
        x: where: a number for curves, the bar's name otherwise.
        value: in the figure's unit.
    """

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

    points: tuple[Point, ...]
    settings: Mapping[str, object] = field(default_factory=dict)
    details: tuple[Mapping[str, object], ...] = ()

    def at(self, series: str, x: X) -> float | None:
        """The value at a place, summed over all series where ``series`` is empty; None where nothing is there."""
        found = [point.value for point in self.points if point.x == x and series in (ALL, point.series)]
        return sum(found) if found else None


@dataclass(frozen=True)
class Claim:
    """A number of the thesis, and how to read ours off a figure's points.

    Attributes:
        text: what is compared.
        thesis: its number.
        place: where the thesis says so.
        of: our value's series and place.
        over: where given, our value is a ratio, divided by what is there.
        unit: of both.
        better: whether more or less is better; empty where neither is, as of another machine's seconds.
    """

    text: str
    thesis: float
    place: str
    of: tuple[str, X]
    over: tuple[str, X] | None = None
    unit: str = "x"
    better: Better = ""

    def ours(self, measured: Measured) -> float | None:
        """Our number; None where it was not measured."""
        value = measured.at(*self.of)
        if self.over is None or value is None:
            return value
        under = measured.at(*self.over)
        return value / under if under else None


@dataclass(frozen=True)
class Figure(Generic[B]):
    """A figure.

    Attributes:
        name: what ``--figures`` calls it.
        title: what it shows.
        place: the figure or section of the thesis.
        unit: of the values.
        axis: what the places are.
        steps: from the bench to the steps that it needs, by keys.
        read: its points, from the bench and the steps' products; needs no Spark.
        shape: how it is plotted.
        claims: the thesis's numbers.
        note: how it differs from the thesis's, in a sentence or two.
        log: which axes are logarithmic: ``x``, ``y``, ``xy`` or none.
        timed: whether it measures seconds; those come last in a run, when nothing else is left to do.
    """

    name: str
    title: str
    place: str
    unit: str
    axis: str
    steps: Callable[[B], Mapping[str, Step]]
    read: Callable[[B, Products], Measured]
    shape: Shape = "bars"
    claims: tuple[Claim, ...] = ()
    note: str = ""
    log: str = ""
    timed: bool = False

    @property
    def chapter(self) -> str:
        """The thesis's chapter.

        >>> from layoutopt.bench.thesis.registry import FIGURES
        >>> FIGURES["4.10a"].chapter
        '4'
        """
        return self.name[0]


@dataclass(frozen=True)
class Comparison:
    """A claim beside what was measured.

    Attributes:
        claim: of the thesis.
        ours: our number; None where it was not measured.
    """

    claim: Claim
    ours: float | None

    @property
    def ratio(self) -> float | None:
        """Ours over the thesis's."""
        return None if self.ours is None else self.ours / self.claim.thesis

    @property
    def verdict(self) -> str:
        """``ahead`` or ``behind`` of the thesis; empty where neither is said, or nothing was measured."""
        if self.ratio is None or not self.claim.better:
            return ""
        ahead = self.ratio >= 1 if self.claim.better == "more" else self.ratio <= 1
        return "ahead" if ahead else "behind"


def compared(claims: Sequence[Claim], measured: Measured) -> tuple[Comparison, ...]:
    """Each claim beside ours."""
    return tuple(Comparison(claim, claim.ours(measured)) for claim in claims)


NOTHING: Final[Mapping[str, Step]] = MappingProxyType({})


def codes_text(codes: Sequence[str]) -> str:
    """Which layoutopt made a figure's steps, a version once.

    >>> codes_text(["0.1.0 at 1a2b", "0.1.0 at 3c4d", "0.2.0"])
    '0.1.0 at 1a2b, 3c4d; 0.2.0'
    """
    commits: dict[str, list[str]] = {}
    for code in codes:
        version, _, commit = code.partition(" at ")
        commits.setdefault(version, []).extend([commit] if commit else [])
    return "; ".join(f"{version} at {', '.join(of)}" if of else version for version, of in commits.items())
