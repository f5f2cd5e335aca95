"""Texts as trees of pieces, so that a text that fails can be made smaller without knowing SQL's grammar."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto


class Kind(Enum):
    """What may stand in the place of a piece, which is how texts get smaller."""

    TEXT = auto()  # nothing else
    CONDITION = auto()  # a condition in it, or TRUE
    CLAUSE = auto()  # nothing at all
    RELATION = auto()  # a relation in it
    QUERY = auto()  # a query in it
    ITEMS = auto()  # what a query selects: a part of it, never none
    PARAMETER = auto()  # a literal, or the parameter that stands for it


@dataclass(frozen=True)
class Piece:
    """A part of a text.

    Attributes:
        parts: texts and pieces, in their order.
        kind: what may stand in its place.
        types: of a query, the Spark types of what it selects.
        name: of a parameter, its name.
        value: of a parameter, what Python passes for it.
    """

    parts: tuple[str | Piece, ...]
    kind: Kind = Kind.TEXT
    types: tuple[str, ...] = ()
    name: str = ""
    value: object = None

    def __str__(self) -> str:
        """The text with literals in it."""
        return "".join(map(str, self.parts))

    @property
    def with_parameters(self) -> str:
        """The text with ``:name`` where a parameter may stand."""
        if self.kind is Kind.PARAMETER:
            return f":{self.name}"
        return "".join(part if isinstance(part, str) else part.with_parameters for part in self.parts)

    @property
    def arguments(self) -> Mapping[str, object]:
        """The values of its parameters by name."""
        if self.kind is Kind.PARAMETER:
            return {self.name: self.value}
        found: dict[str, object] = {}
        for part in self.pieces:
            found |= part.arguments
        return found

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """Those of its parts that are pieces."""
        return tuple(part for part in self.parts if isinstance(part, Piece))

    def inner(self, kind: Kind) -> Iterator[Piece]:
        """The pieces of a kind within this one, the outermost first."""
        for part in self.pieces:
            if part.kind is kind:
                yield part
            yield from part.inner(kind)


def piece(*parts: str | Piece, kind: Kind = Kind.TEXT, types: tuple[str, ...] = ()) -> Piece:
    """A piece of these parts."""
    return Piece(parts, kind, types)


def condition(*parts: str | Piece) -> Piece:
    """A condition of these parts."""
    return Piece(parts, Kind.CONDITION)


def clause(*parts: str | Piece) -> Piece:
    """A clause that a text means something without."""
    return Piece(parts, Kind.CLAUSE)


def smaller(whole: Piece) -> Iterator[Piece]:
    """Texts with one piece less, the smallest first as far as that is easily known; some of them mean nothing."""
    if whole.kind is Kind.CONDITION:
        if str(whole) != "TRUE":
            yield replace(whole, parts=("TRUE",))
        yield from whole.inner(Kind.CONDITION)
    elif whole.kind is Kind.CLAUSE and whole.parts:
        yield replace(whole, parts=())
    elif whole.kind in (Kind.RELATION, Kind.QUERY):
        yield from whole.inner(whole.kind)
    for place, part in enumerate(whole.parts):
        if isinstance(part, Piece):
            for other in smaller(part):
                yield replace(whole, parts=(*whole.parts[:place], other, *whole.parts[place + 1 :]))
