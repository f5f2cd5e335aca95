"""Find the indexes that a log can use, choose those worth their bytes, and parse indexes (Ta-Shma 2020, IV-B).

Suggestions use the log's texts alone; ``plan --index-budget`` measures the gain. They cover queries that no feature
helps: =, IN, LIKE and distances, ranges of array elements and of expressions of several columns, and ranges of two
coordinates. Block minima and maxima already serve ranges of one column.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from types import MappingProxyType
from typing import Final

import numpy as np

from layoutopt.errors import SettingError
from layoutopt.evaluation.expressions import is_computed_here, is_stored, is_worth_indexing, make_struct, struct_parts
from layoutopt.evaluation.keys import FLOATS
from layoutopt.extensions import names
from layoutopt.features.implications import find_subsumed
from layoutopt.indexes.protocol import Index, JointIndex, get_functions, suits
from layoutopt.indexes.registry import BUILT_IN, check_index, find_index
from layoutopt.model.arrays import Bits, Floats
from layoutopt.model.feature import FeatureSet, SessionSettings
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.predicates import And, Call, Const, Expr, InSet, Like, Node, Or, conjuncts, describe
from layoutopt.model.predicates.normal import array_of, elements_of
from layoutopt.model.query import Query
from layoutopt.model.schema import Schema
from layoutopt.model.types import decimal_digits, nested_parts, split_parts
from layoutopt.model.udf import NO_UDFS, Udfs
from layoutopt.skipping.implied_literals import element_literals
from layoutopt.sql.scans import parse_expression

# Parameters that are tried besides the types' defaults.
_FURTHER: Final[Mapping[str, tuple[float, ...]]] = MappingProxyType(
    {
        "bloom": (0.05, 0.2),
        "value-list": (1 << 14,),  # lists of adjacent keys are exact, and smaller than filters
        "prefix": (4,),
        "suffix": (4,),
        "ngrams": (0.1,),
        "geo-box": (32,),
    }
)
# The coordinates of one AND that are tried in pairs.
_MOST_COORDINATES: Final = 4

# The suggested types, the cheapest first, which breaks ties.
_KINDS: Final = ("formatted", "bloom", "prefix", "suffix", "ngrams", "metric-distance", "gap-list", "geo-box")
# The share of the log's weight below which no index is suggested.
LEAST_SHARE: Final = 0.01
# The scale from which decimals may be coordinates; prices have fewer digits.
_PLACES: Final = 4

_POINT: Final = re.compile(r"struct\s*\((.+)\)", re.IGNORECASE | re.DOTALL)


def find_candidates(filters: Iterable[Node]) -> tuple[IndexSpec, ...]:
    """Return the distinct built-in and installed indexes that could serve some literal of these filters."""
    specs: dict[IndexSpec, None] = {}
    nodes = dict.fromkeys(node for root in filters for node in _nodes(root))
    for node in nodes:
        for subject, kind in find_joint_indexes(node) if isinstance(node, And) else _find_indexes(node):
            for parameter in (None, *_FURTHER.get(kind, ())):
                specs[IndexSpec(subject, kind, parameter)] = None
    return tuple(specs)


def _find_indexes(node: Node) -> Iterator[tuple[Expr, str]]:
    if not isinstance(node, InSet | Like) or (isinstance(node, InSet) and node.values.is_empty):
        return  # IS NULL: the counts of NULLs suffice
    for literal in element_forms(node):
        for kind in names("indexes", BUILT_IN):
            index = find_index(kind)
            if index.serves(literal):
                for subject in find_subjects(literal, index):
                    if is_worth_indexing(subject) and suits(index, subject):
                        yield subject, kind


def element_forms(literal: InSet | Like) -> tuple[InSet | Like, ...]:
    """Return a literal and the literals that it implies for array elements; an index may rule out any of them."""
    return (literal, *element_literals(literal))


def find_subjects(literal: InSet | Like, index: Index) -> tuple[Expr, ...]:
    """Return the expressions whose indexes of a type serve a literal: its subject, or that function's arguments."""
    subject = literal.subject
    if not isinstance(subject, Call) or subject.fn not in get_functions(index):
        return (subject,)
    return tuple(arg for arg in subject.args if not isinstance(arg, Const))


def find_joint_indexes(conjunction: And) -> Iterator[tuple[Expr, str]]:
    """Yield the indexes of two coordinates (floats or decimals) that serve ranges of both."""
    ranges = [
        child.subject
        for child in conjunction.children
        if isinstance(child, InSet) and not child.null and child.values.points() is None and not child.values.is_all
    ]
    coordinates = [expr for expr in ranges if is_stored(expr) and (expr.type in FLOATS or decimal_digits(expr.type))]
    for pair in combinations(coordinates[:_MOST_COORDINATES], 2):
        point = make_struct(pair)
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
class IndexEffect:
    """The effect of an index on some queries.

    Attributes:
        skipped: the blocks that it lets each query skip, ``bool[n_queries, n_blocks]``.
        size: its bytes.
        read: the bytes of it that the queries read, by their weights.
    """

    skipped: Bits
    size: float
    read: float


def choose_indexes(indexes: Sequence[IndexEffect], read: Floats, budget: float) -> tuple[int, ...]:
    """Return the places of the indexes to take: greedily by bytes saved per byte of index, then by exchanges.

    The greedy choice often contains a small index that a larger one outdoes. So an index is then added, dropped or
    exchanged as long as more bytes are saved. Each result saves more bytes of blocks than queries read of it, given the
    others.

    Args:
        indexes: the candidates.
        read: the weighted bytes that each query reads of each block without indexes, ``float64[n_queries, n_blocks]``.
        budget: the most bytes of the chosen indexes.

    >>> few, all = IndexEffect(np.array([[True, False]]), 10.0, 10.0), IndexEffect(np.array([[True, True]]), 30.0, 30.0)
    >>> choose_indexes([few, all], np.array([[50.0, 50.0]]), 100.0)
    (1,)
    >>> choose_indexes([few, all], np.array([[50.0, 50.0]]), 20.0)
    (0,)
    """
    search = _Search(indexes, read, budget)
    search.take_greedily()
    search.exchange()
    return tuple(search.taken)


class _Search:
    """The chosen indexes, and how many of them let each query skip each block."""

    def __init__(self, indexes: Sequence[IndexEffect], read: Floats, budget: float) -> None:
        self.indexes, self.read, self.budget = indexes, read, budget
        self.taken: list[int] = []
        self._covered = np.zeros(read.shape, np.int32)

    def take_greedily(self) -> None:
        while True:
            gains = {i: self._gain(i) for i in self._remaining() if self._fits(None, i)}
            gains = {i: gain for i, gain in gains.items() if gain > 0}
            if not gains:
                return
            self._change(None, max(gains, key=lambda i: (gains[i] / max(self.indexes[i].size, 1.0), -i)))

    def exchange(self) -> None:
        while True:
            changes = {
                (out, to): self._count_saved(out, to)
                for out in (None, *self.taken)
                for to in (None, *self._remaining())
                if (out, to) != (None, None) and self._fits(out, to)
            }
            best = max(changes, key=lambda change: changes[change], default=None)
            if best is None or changes[best] < 0 or (changes[best] == 0 and best[1] is not None):
                return
            self._change(*best)

    def _remaining(self) -> list[int]:
        return [i for i in range(len(self.indexes)) if i not in self.taken]

    def _fits(self, out: int | None, to: int | None) -> bool:
        kept = [i for i in self.taken if i != out] + ([] if to is None else [to])
        return sum(self.indexes[i].size for i in kept) <= self.budget

    def _count_saved(self, out: int | None, to: int | None) -> float:
        """Return the bytes that a change saves beyond its cost."""
        lost = 0.0
        if out is not None:
            self._covered -= self.indexes[out].skipped
            lost = self._gain(out)
        gained = 0.0 if to is None else self._gain(to)
        if out is not None:
            self._covered += self.indexes[out].skipped
        return gained - lost

    def _gain(self, place: int) -> float:
        return float(self.read[self.indexes[place].skipped & (self._covered == 0)].sum()) - self.indexes[place].read

    def _change(self, out: int | None, to: int | None) -> None:
        if out is not None:
            self.taken.remove(out)
            self._covered -= self.indexes[out].skipped
        if to is not None:
            self.taken.append(to)
            self._covered += self.indexes[to].skipped


@dataclass(frozen=True)
class Suggestion:
    """An index, the weight of the unhelped queries that it could serve, and the condition of one of them."""

    spec: IndexSpec
    weight: float
    asked: str = ""


def suggest_indexes(queries: Sequence[Query], features: FeatureSet) -> tuple[Suggestion, ...]:
    """Return the index for each expression that could help queries without a feature, by descending weight."""
    helped = np.any(find_subsumed(features, queries), axis=1)
    weights: dict[IndexSpec, float] = defaultdict(float)
    conditions: dict[IndexSpec, str] = {}
    for query, by_feature in zip(queries, helped, strict=True):
        if not by_feature:
            for spec, condition in dict(_find_specs(query.filter.root)).items():
                weights[spec] += query.weight
                conditions.setdefault(spec, describe(condition))
    least = LEAST_SHARE * sum(query.weight for query in queries)
    ranked = sorted(weights, key=lambda spec: (-weights[spec], _KINDS.index(spec.kind), str(spec)))
    best = {spec.subject: spec for spec in reversed(ranked)}
    return tuple(
        Suggestion(spec, weights[spec], conditions[spec])
        for spec in ranked
        if best[spec.subject] == spec and weights[spec] >= least
    )


def _find_specs(root: Node) -> Iterator[tuple[IndexSpec, Node]]:
    """Yield indexes that could rule out the filter for a block, each with the condition that it rules out."""
    for condition in conjuncts(root):
        parts = condition.children if isinstance(condition, Or) else (condition,)
        literals = [part for part in parts if isinstance(part, InSet | Like)]
        if len(literals) < len(parts):
            continue
        for alike in _group_by_subject([element_forms(literal) for literal in literals]):
            specs = [
                IndexSpec(subject, kind)
                for kind in _KINDS
                for subject in find_subjects(alike[0], find_index(kind))
                if is_worth_indexing(subject) and all(_serves(kind, subject, literal) for literal in alike)
            ]
            yield from ((spec, condition) for spec in specs)
            if any(is_computed_here(spec.subject) for spec in specs):
                break  # an index of the elements would be larger
    if isinstance(root, And):
        for point, kind in find_joint_indexes(root):
            if kind in _KINDS and all(_is_coordinate(part) for part in struct_parts(point)):
                ranges = [
                    part for part in root.children if isinstance(part, InSet) and part.subject in struct_parts(point)
                ]
                yield IndexSpec(point, kind), And(tuple(ranges))


def _group_by_subject(forms: Sequence[tuple[InSet | Like, ...]]) -> Iterator[list[InSet | Like]]:
    for first in forms[0]:
        same = [[form for form in forms_of_literal if form.subject == first.subject] for forms_of_literal in forms]
        if all(same):
            yield [forms_of_literal[0] for forms_of_literal in same]


def _serves(kind: str, subject: Expr, literal: InSet | Like) -> bool:
    index = find_index(kind)
    if not suits(index, subject) or not index.serves(literal):
        return False
    if get_functions(index):
        return subject != literal.subject  # other types serve equality better
    is_range = isinstance(literal, InSet) and literal.values.points() is None
    if kind == "gap-list":
        return is_range and isinstance(subject, Call) and (len(subject.columns) > 1 or array_of(subject) is not None)
    return not is_range or kind == "prefix"


def _is_coordinate(part: Expr) -> bool:
    digits = decimal_digits(part.type)
    return part.type in FLOATS or (digits is not None and digits[1] >= _PLACES)


def parse_indexes(
    texts: Sequence[str], schema: Schema, settings: SessionSettings | None = None, udfs: Udfs = NO_UDFS
) -> tuple[IndexSpec, ...]:
    """Return the indexes of texts like ``user:bloom``, ``user:bloom:0.05`` or ``struct(lat, lon):geo-box``.

    The index of an array is of its elements.

    Raises:
        SettingError: a text has another form, or no load could build its index.
    """
    specs = [_parse_index(text, schema, settings, udfs) for text in texts]
    for spec in specs:
        check_index(spec)
    return tuple(dict.fromkeys(specs))


def _parse_index(text: str, schema: Schema, settings: SessionSettings | None, udfs: Udfs) -> IndexSpec:
    subject, _, kind = text.rpartition(":")
    parameter = _number(kind)
    if parameter is not None:
        subject, _, kind = subject.rpartition(":")
    if not subject:
        raise SettingError(f"--index {text!r} names no type; write COLUMN:TYPE, as in user:bloom")
    find_index(kind)  # an unknown type is told before an expression with a colon
    point = _POINT.fullmatch(subject)
    if point is None:
        expression = _to_elements(parse_expression(subject, schema, settings, udfs), text)
    else:
        parts = [parse_expression(part, schema, settings, udfs) for part in split_parts(point[1])]
        unstored = [describe(part) for part in parts if not is_stored(part)]
        if unstored:
            raise SettingError(f"--index {text!r}: {unstored[0]} is no column; name columns within struct(...)")
        expression = make_struct(parts)
    try:
        return IndexSpec(expression, kind, parameter)
    except ValueError as error:
        raise SettingError(f"--index {text!r}: {error}") from error


def _to_elements(expression: Expr, text: str) -> Expr:
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
            "here; index an array of strings, numbers or times"
        )
    return elements


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
