"""Query streams over the denormalised TPC-H table, drawn from the templates of ``streams.toml``."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Final, TypeVar

from jobs.bench.experiment import LoggedQuery
from layoutopt.errors import SettingError, expected_names

TABLE: Final = "tpch"

# Queries of each template.
TRAINING_QUERIES: Final = 100
TEST_QUERIES: Final = 10

_DOCUMENT: Final = tomllib.loads((files("jobs.bench") / "streams.toml").read_text(encoding="utf-8"))
REGION_OF_NATION: Final[Mapping[str, str]] = _DOCUMENT["nations"]
NATIONS: Final = tuple(REGION_OF_NATION)
REGIONS: Final = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
SEGMENTS: Final = ("AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD")
SHIP_MODES: Final = ("REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB")
TYPES: Final = (
    ("STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO"),
    ("ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED"),
    ("TIN", "NICKEL", "BRASS", "STEEL", "COPPER"),
)
CONTAINERS: Final = (("SM", "LG", "MED", "JUMBO", "WRAP"), ("CASE", "BOX", "BAG", "JAR", "PKG", "PACK", "CAN", "DRUM"))
SIZES: Final = range(1, 51)

# By clause 4.2.2.9.
COUNTRY_CODES: Final = tuple(str(nation_key + 10) for nation_key in range(len(NATIONS)))

T = TypeVar("T")


class Draw:
    """Draws substitution parameters: uniformly, or, when `skew` is given, by Zipf's law with that exponent.

    Dates are uniform in either case.
    """

    def __init__(self, rng: random.Random, skew: float | None = None) -> None:
        self.rng = rng
        self._skew = skew

    def one(self, values: Sequence[T]) -> T:
        """Draw one of `values`; under skew the earlier, the likelier."""
        if self._skew is None:
            return self.rng.choice(values)
        weights = [rank**-self._skew for rank in range(1, len(values) + 1)]
        return self.rng.choices(values, weights)[0]

    def several(self, values: Sequence[T], count: int) -> list[T]:
        """Draw `count` different ones of `values`, one after the other."""
        left, drawn = list(values), []
        for _ in range(count):
            drawn.append(self.one(left))
            left.remove(drawn[-1])
        return drawn

    def syllables(self, lists: Sequence[Sequence[str]]) -> str:
        """Draw one syllable from each list."""
        return " ".join(self.one(values) for values in lists)

    def quoted(self, values: Sequence[str], count: int) -> str:
        """Draw an IN list of `count` different texts."""
        return ", ".join(f"'{value}'" for value in self.several(values, count))

    def month(self, first: tuple[int, int], last: tuple[int, int]) -> str:
        """Draw the first day of a month between two (year, month), both included."""
        start, end = (year * 12 + month - 1 for year, month in (first, last))
        year, month = divmod(self.rng.randint(start, end), 12)
        return f"{year}-{month + 1:02d}-01"


# What draws a parameter of a template, by its name in ``streams.toml``.
_PARAMETERS: Final[Mapping[str, Callable[[Draw], object]]] = {
    "size": lambda draw: draw.one(SIZES),
    "eight sizes": lambda draw: ", ".join(map(str, draw.several(SIZES, 8))),
    "1 to 10": lambda draw: draw.one(range(1, 11)),
    "10 to 20": lambda draw: draw.one(range(10, 21)),
    "20 to 30": lambda draw: draw.one(range(20, 31)),
    "percent": lambda draw: draw.one(range(2, 10)),
    "quantity": lambda draw: draw.one((24, 25)),
    "metal": lambda draw: draw.one(TYPES[2]),
    "type": lambda draw: draw.syllables(TYPES),
    "two syllables of a type": lambda draw: draw.syllables(TYPES[:2]),
    "container": lambda draw: draw.syllables(CONTAINERS),
    "brand": lambda draw: f"Brand#{draw.one('12345')}{draw.one('12345')}",
    "segment": lambda draw: draw.one(SEGMENTS),
    "region": lambda draw: draw.one(REGIONS),
    "nation": lambda draw: draw.one(NATIONS),
    "two nations": lambda draw: draw.several(NATIONS, 2),
    "region of a nation": lambda draw: REGION_OF_NATION[draw.one(NATIONS)],
    "two ship modes": lambda draw: draw.quoted(SHIP_MODES, 2),
    "seven country codes": lambda draw: draw.quoted(COUNTRY_CODES, 7),
    "year": lambda draw: draw.rng.randint(1993, 1997),
    "day of March 1995": lambda draw: f"1995-03-{draw.rng.randint(1, 31):02d}",
    "month": lambda draw: draw.month((1993, 1), (1997, 12)),
    "month to January 1995": lambda draw: draw.month((1993, 2), (1995, 1)),
}


@dataclass(frozen=True)
class Template:
    """A query template.

    Attributes:
        columns: how many columns a query reads, filter included.
        select: the columns of the select list; the filter may read more.
        where: the filter, with a place for each parameter.
        parameters: their names, in the order in which they are drawn.
    """

    columns: int
    select: str
    where: str
    parameters: Sequence[str]

    def sql(self, draw: Draw) -> str:
        """Draw one query."""
        condition = self.where.format(*[_PARAMETERS[name](draw) for name in self.parameters])
        return f"SELECT {self.select} FROM {TABLE} WHERE {condition}"


@dataclass(frozen=True)
class Stream:
    """A workload: its templates, and the Zipf exponent of their non-date parameters (None: uniform)."""

    templates: tuple[str, ...]
    skew: float | None = None


TEMPLATES: Final = {name: Template(**template) for name, template in _DOCUMENT["templates"].items()}
STREAMS: Final = {
    name: Stream(tuple(stream["templates"]), stream.get("skew")) for name, stream in _DOCUMENT["streams"].items()
}


def chosen_streams(names: Sequence[str]) -> tuple[str, ...]:
    """Return the streams of these names; all streams where there are none.

    Raises:
        SettingError: one is not known.
    """
    for name in names:
        if name not in STREAMS:
            raise SettingError(f"--streams names {name!r}, which is not a stream: {expected_names(name, STREAMS)}")
    return tuple(names or STREAMS)


def draw_stream(stream: Stream, role: str, per_template: int, seed: int) -> tuple[LoggedQuery, ...]:
    """Draw a stream's queries, `per_template` of each, the templates taking turns.

    The same role and seed give the same queries; a template's queries don't depend on the others in the stream.
    """
    draws = [Draw(random.Random(f"{seed}/{role}/{name}"), stream.skew) for name in stream.templates]
    return tuple(
        LoggedQuery(name, TEMPLATES[name].sql(draw))
        for _ in range(per_template)
        for name, draw in zip(stream.templates, draws, strict=True)
    )
