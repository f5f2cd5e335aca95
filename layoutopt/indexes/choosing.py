"""Which indexes a log asks for, and which of them are worth their bytes (Ta-Shma 2020, IV-B)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from types import MappingProxyType
from typing import Final

import numpy as np

from layoutopt.catalog.keys import FLOATS
from layoutopt.errors import SettingError
from layoutopt.extensions import names
from layoutopt.indexes.expressions import is_computed_here, is_stored, is_worth_indexing, parts_of, point_of
from layoutopt.indexes.protocol import Index, JointIndex, functions_of, suits
from layoutopt.indexes.registry import BUILT_IN, check_index, find_index
from layoutopt.model.arrays import Bits, Floats
from layoutopt.model.feature import FeatureSet, Settings
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.predicates import And, Call, Const, Expr, InSet, Like, Node, Or, conjuncts, describe
from layoutopt.model.predicates.normal import array_of, elements_of
from layoutopt.model.query import Query
from layoutopt.model.schema import Schema
from layoutopt.model.types import decimal_digits, nested_parts, split_parts
from layoutopt.model.udf import NO_UDFS, Udfs
from layoutopt.skipping.implied_literals import literals_of_elements
from layoutopt.sql.scans import parse_expression

_FURTHER: Final[Mapping[str, tuple[float, ...]]] = MappingProxyType(
    {
        "bloom": (0.05, 0.2),
        "value-list": (1 << 14,),  # of keys side by side they take fewer bytes than filters, and are exact
        "prefix": (4,),
        "suffix": (4,),
        "ngrams": (0.1,),
        "geo-box": (32,),
    }
)
"""Parameters that are tried besides the types' own."""
_MOST_COORDINATES: Final = 4
"""Of one AND, that are tried in pairs."""


def candidates(filters: Iterable[Node]) -> tuple[IndexSpec, ...]:
    """The indexes, built in or installed, that could serve some literal of these filters, each once, in their order."""
    found: dict[IndexSpec, None] = {}
    nodes = dict.fromkeys(node for root in filters for node in _nodes(root))
    for node in nodes:
        for subject, kind in points_asked(node) if isinstance(node, And) else _asked(node):
            for parameter in (None, *_FURTHER.get(kind, ())):
                found[IndexSpec(subject, kind, parameter)] = None
    return tuple(found)


def _asked(node: Node) -> Iterator[tuple[Expr, str]]:
    """The indexes that could deny a literal to some block, by what they are of."""
    if not isinstance(node, InSet | Like) or (isinstance(node, InSet) and node.values.is_empty):
        return  # IS NULL: counts of NULLs say all
    for literal in forms_of(node):
        for kind in names("indexes", BUILT_IN):
            index = find_index(kind)
            if index.serves(literal):
                for subject in subjects_of(literal, index):
                    if is_worth_indexing(subject) and suits(index, subject):
                        yield subject, kind


def forms_of(literal: InSet | Like) -> tuple[InSet | Like, ...]:
    """The literals by which an index may deny a literal: itself, and what it asks of elements."""
    return (literal, *literals_of_elements(literal))


def subjects_of(literal: InSet | Like, index: Index) -> tuple[Expr, ...]:
    """The expressions whose indexes of a type are asked a literal: its own, or what that is a function of."""
    subject = literal.subject
    if not isinstance(subject, Call) or subject.fn not in functions_of(index):
        return (subject,)
    return tuple(arg for arg in subject.args if not isinstance(arg, Const))


def points_asked(conjunction: And) -> Iterator[tuple[Expr, str]]:
    """The indexes of two coordinates that ranges of both ask for: of fractions, by which most places are told."""
    ranges = [
        child.subject
        for child in conjunction.children
        if isinstance(child, InSet) and not child.null and child.values.points() is None and not child.values.is_all
    ]
    coordinates = [each for each in ranges if is_stored(each) and (each.type in FLOATS or decimal_digits(each.type))]
    for pair in combinations(coordinates[:_MOST_COORDINATES], 2):
        point = point_of(pair)
        for kind in names("indexes", BUILT_IN):
            index = find_index(kind)
            if isinstance(index, JointIndex) and suits(index, point):
                yield point, kind


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    if isinstance(node, And | Or):
        for child in node.children:
            yield from _nodes(child)


@dataclass(frozen=True, eq=False)
class Judged:
    """What an index did for some queries.

    Attributes:
        skipped: the blocks that it lets each query skip, ``bool[n_queries, n_blocks]``.
        size: its bytes.
        read: how many bytes of it the queries read, by their weights.
    """

    skipped: Bits
    size: float
    read: float


def worth_their_bytes(indexes: Sequence[Judged], read: Floats, budget: float) -> tuple[int, ...]:
    """Which indexes to take: again and again the one that saves the most bytes for each of its own, then exchanges.

    Taking by bytes for bytes ends where nothing more fits, often with a small index of much that a larger one does
    better. So at the end an index is added, dropped or exchanged for another as long as more is saved by that.

    Args:
        indexes: those that there could be.
        read: the bytes that each query reads of each block without them, times its weight,
            ``float64[n_queries, n_blocks]``.
        budget: the most bytes of those taken.

    Returns:
        Their places. Each saves more bytes of blocks than queries read of it, the others given.

    >>> few, all = Judged(np.array([[True, False]]), 10.0, 10.0), Judged(np.array([[True, True]]), 30.0, 30.0)
    >>> worth_their_bytes([few, all], np.array([[50.0, 50.0]]), 100.0)
    (1,)
    >>> worth_their_bytes([few, all], np.array([[50.0, 50.0]]), 20.0)
    (0,)
    """
    search = _Search(indexes, read, budget)
    search.take_greedily()
    search.exchange()
    return tuple(search.taken)


class _Search:
    """A choice that grows and changes: ``taken``, and how many of these let each query skip each block."""

    def __init__(self, indexes: Sequence[Judged], read: Floats, budget: float) -> None:
        self.indexes, self.read, self.budget = indexes, read, budget
        self.taken: list[int] = []
        self._covered = np.zeros(read.shape, np.int32)

    def take_greedily(self) -> None:
        """Take what fits and gains, the most bytes for each of its own first."""
        while True:
            gains = {i: self._gain(i) for i in self._others() if self._fits(None, i)}
            gains = {i: gain for i, gain in gains.items() if gain > 0}
            if not gains:
                return
            self._change(None, max(gains, key=lambda i: (gains[i] / max(self.indexes[i].size, 1.0), -i)))

    def exchange(self) -> None:
        """Make the change that saves the most, as long as there is one."""
        while True:
            changes = {
                (out, to): self._saves(out, to)
                for out in (None, *self.taken)
                for to in (None, *self._others())
                if (out, to) != (None, None) and self._fits(out, to)
            }
            best = max(changes, key=lambda change: changes[change], default=None)
            if best is None or changes[best] < 0 or (changes[best] == 0 and best[1] is not None):
                return
            self._change(*best)

    def _others(self) -> list[int]:
        return [i for i in range(len(self.indexes)) if i not in self.taken]

    def _fits(self, out: int | None, to: int | None) -> bool:
        kept = [i for i in self.taken if i != out] + ([] if to is None else [to])
        return sum(self.indexes[i].size for i in kept) <= self.budget

    def _saves(self, out: int | None, to: int | None) -> float:
        """The bytes that a change saves beyond what it costs."""
        lost = 0.0 if out is None else self._worth(out)
        if out is not None:
            self._covered -= self.indexes[out].skipped
        gained = 0.0 if to is None else self._gain(to)
        if out is not None:
            self._covered += self.indexes[out].skipped
        return gained - lost

    def _gain(self, place: int) -> float:
        """What an index that is not taken would save beyond what queries read of it."""
        return float(self.read[self.indexes[place].skipped & (self._covered == 0)].sum()) - self.indexes[place].read

    def _worth(self, place: int) -> float:
        """What one that is taken saves, the others given, beyond what queries read of it."""
        alone = self.indexes[place].skipped & (self._covered == 1)
        return float(self.read[alone].sum()) - self.indexes[place].read

    def _change(self, out: int | None, to: int | None) -> None:
        if out is not None:
            self.taken.remove(out)
            self._covered -= self.indexes[out].skipped
        if to is not None:
            self.taken.append(to)
            self._covered += self.indexes[to].skipped


# ----------------------------------------------------------------------------------------------------
# Which indexes a log asks for, from its texts alone: for the queries that no feature helps (Ta-Shma 2020, IV-B).
#
# How much an index saves depends on the rows; ``plan --index-budget`` measures that. This only says where to look: =,
# IN,
# LIKE and distances, which minima and maxima of blocks seldom deny, ranges of elements and of what is computed of
# several
# columns, and places within two ranges. Ranges of one column they do deny, and these get no index here.

_KINDS: Final = ("formatted", "bloom", "prefix", "suffix", "ngrams", "metric-distance", "gap-list", "geo-box")
"""In the order of what they cost: of equals the first is named."""
LEAST_SHARE: Final = 0.01
"""Of the log's weight: an index for less is not worth a line."""
_PLACES: Final = 4
"""Digits after the point of decimals that may be coordinates; prices have fewer."""


@dataclass(frozen=True)
class Suggestion:
    """An index, the weight of the queries that it could serve and no feature helps, and what one of them asks."""

    spec: IndexSpec
    weight: float
    asked: str = ""


def suggested_indexes(queries: Sequence[Query], features: FeatureSet) -> tuple[Suggestion, ...]:
    """The indexes that could help queries which no feature subsumes, one for each expression, the heaviest first."""
    helped = np.any(features.matrix(queries), axis=1)
    weights: dict[IndexSpec, float] = defaultdict(float)
    asked: dict[IndexSpec, str] = {}
    for query, by_feature in zip(queries, helped, strict=True):
        if not by_feature:
            for spec, condition in dict(_specs(query.filter.root)).items():
                weights[spec] += query.weight
                asked.setdefault(spec, describe(condition))
    least = LEAST_SHARE * sum(query.weight for query in queries)
    ranked = sorted(weights, key=lambda spec: (-weights[spec], _KINDS.index(spec.kind), str(spec)))
    best = {spec.subject: spec for spec in reversed(ranked)}
    return tuple(
        Suggestion(spec, weights[spec], asked[spec])
        for spec in ranked
        if best[spec.subject] == spec and weights[spec] >= least
    )


def _specs(root: Node) -> Iterator[tuple[IndexSpec, Node]]:
    """The indexes that could deny the filter to a block, each with the condition that it would deny.

    They serve every part of one of the filter's conditions, or two that are joined by AND.
    """
    for condition in conjuncts(root):
        parts = condition.children if isinstance(condition, Or) else (condition,)
        literals = [part for part in parts if isinstance(part, InSet | Like)]
        if len(literals) < len(parts):
            continue
        for alike in _of_one_subject([forms_of(literal) for literal in literals]):
            found = [
                IndexSpec(subject, kind)
                for kind in _KINDS
                for subject in subjects_of(alike[0], find_index(kind))
                if is_worth_indexing(subject) and all(_serves(kind, subject, literal) for literal in alike)
            ]
            yield from ((spec, condition) for spec in found)
            if any(is_computed_here(spec.subject) for spec in found):
                break  # its elements are more values than its own
    if isinstance(root, And):
        for point, kind in points_asked(root):
            if kind in _KINDS and all(_is_place(part) for part in parts_of(point)):
                ranges = [part for part in root.children if isinstance(part, InSet) and part.subject in parts_of(point)]
                yield IndexSpec(point, kind), And(tuple(ranges))


def _of_one_subject(forms: Sequence[tuple[InSet | Like, ...]]) -> Iterator[list[InSet | Like]]:
    """A form of each literal, of which all have the same subject; for every subject that there is."""
    for first in forms[0]:
        found = [[form for form in each if form.subject == first.subject] for each in forms]
        if all(found):
            yield [of_one[0] for of_one in found]


def _serves(kind: str, subject: Expr, literal: InSet | Like) -> bool:
    index = find_index(kind)
    if not suits(index, subject) or not index.serves(literal):
        return False
    if functions_of(index):
        return subject != literal.subject  # what is equal to a text others serve better
    is_range = isinstance(literal, InSet) and literal.values.points() is None
    if kind == "gap-list":
        return is_range and isinstance(subject, Call) and (len(subject.columns) > 1 or array_of(subject) is not None)
    return not is_range or kind == "prefix"


def _is_place(part: Expr) -> bool:
    digits = decimal_digits(part.type)
    return part.type in FLOATS or (digits is not None and digits[1] >= _PLACES)


# ----------------------------------------------------------------------------------------------------
# Indexes as users ask for them: ``COLUMN:TYPE`` or ``COLUMN:TYPE:NUMBER``; of an array they are of its elements.

_POINT: Final = re.compile(r"struct\s*\((.+)\)", re.IGNORECASE | re.DOTALL)


def indexes_asked(
    texts: Sequence[str], schema: Schema, settings: Settings | None = None, udfs: Udfs = NO_UDFS
) -> tuple[IndexSpec, ...]:
    """The indexes that texts like ``user:bloom``, ``user:bloom:0.05`` or ``struct(lat, lon):geo-box`` ask for.

    Raises:
        SettingError: a text is of another form, or no load could build its index.
    """
    found = [_parsed(text, schema, settings, udfs) for text in texts]
    for spec in found:
        check_index(spec)
    return tuple(dict.fromkeys(found))


def _parsed(text: str, schema: Schema, settings: Settings | None, udfs: Udfs) -> IndexSpec:
    subject, _, kind = text.rpartition(":")
    parameter = _number(kind)
    if parameter is not None:
        subject, _, kind = subject.rpartition(":")
    if not subject:
        raise SettingError(f"--index {text!r} names no type; write COLUMN:TYPE, as in user:bloom")
    point = _POINT.fullmatch(subject)
    if point is None:
        expression = _of_elements(parse_expression(subject, schema, settings, udfs), text)
    else:
        parts = [parse_expression(part, schema, settings, udfs) for part in split_parts(point[1])]
        unstored = [describe(part) for part in parts if not is_stored(part)]
        if unstored:
            raise SettingError(f"--index {text!r}: {unstored[0]} is no column; name columns within struct(...)")
        expression = point_of(parts)
    try:
        return IndexSpec(expression, kind, parameter)
    except ValueError as error:
        raise SettingError(f"--index {text!r}: {error}") from error


def _of_elements(expression: Expr, text: str) -> Expr:
    """What an index of an expression is of: of an array its elements."""
    kind, parts = nested_parts(expression.type)
    if kind == "map":
        name = describe(expression)
        raise SettingError(f"--index {text!r}: {name} is a map; index map_keys({name}) or map_values({name})")
    if kind != "array":
        return expression
    elements = elements_of(expression)
    if elements is None:
        raise SettingError(
            f"--index {text!r}: the elements of {describe(expression)} are {', '.join(parts)}, which have no order "
            "here; index an array of texts, numbers or times"
        )
    return elements


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
