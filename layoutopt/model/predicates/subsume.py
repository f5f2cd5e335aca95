"""Subsumption (Sun 2017, 3.3.1): does one condition follow from another, for every row there could be?

Everything here is sound and incomplete: TRUE is a proof, FALSE means unsure. A condition holds where it is TRUE; NULL
is not TRUE. Rows are not looked at, so two different expressions are taken to have any values whatever.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, ClassVar, Final

from layoutopt.model.predicates.nodes import (
    FALSE,
    And,
    Columns,
    Comparison,
    Constant,
    InSet,
    Like,
    Literal,
    Node,
    Or,
    Predicate,
    order_of,
)
from layoutopt.model.predicates.normal import conjunction, conjuncts, disjunction
from layoutopt.model.predicates.patterns import ANY_STRING, Pattern, are_disjoint, includes, literal_prefix, matches
from layoutopt.model.records import As, Form, HashedOnce, Record
from layoutopt.model.values import Interval, ValueSet, successor
from layoutopt.model.values.keys import Key

_MOST_PARTS: Final = 256
"""A set of more intervals than this is compared with a disjunction of several literals only as a whole."""

_STRICTER: Final[dict[str, frozenset[str]]] = {
    "=": frozenset({"=", "<="}),
    "<>": frozenset({"<>"}),
    "<": frozenset({"<", "<=", "<>"}),
    "<=": frozenset({"<="}),
}
"""Comparison of two expressions -> the comparisons of the same two, in that order, that follow from it."""


def subsumes(general: Iterable[Predicate], specific: Node) -> bool:
    """Whether a conjunction of predicates, such as a feature, is TRUE of every row that makes the node TRUE."""
    return all(implies(specific, predicate) for predicate in general)


def implies(node: Node, predicate: Predicate) -> bool:
    """Whether every row for which the node is TRUE makes the predicate TRUE. Sound; FALSE when unsure."""
    if node.columns.isdisjoint(predicate.columns):
        return _implies_whatever(node, predicate)
    if isinstance(node, And):
        return any(implies(child, predicate) for child in node.children)
    if isinstance(node, Or):
        return all(implies(child, predicate) for child in node.children)
    return _leaf_implies(node, predicate)


def _implies_whatever(node: Node, predicate: Predicate) -> bool:
    """The cases in which the columns do not matter: a node that is never TRUE, a predicate that always is."""
    return predicate.is_always_true or (isinstance(node, Constant) and not node.value)


@lru_cache(maxsize=1 << 18)
def _leaf_implies(node: Literal | Constant, predicate: Predicate) -> bool:
    if isinstance(node, Constant):
        return _implies_whatever(node, predicate)
    if any(_literal_implies(node, literal) for literal in predicate.literals):
        return True
    return isinstance(node, InSet) and _parts_imply(node, predicate)


def _parts_imply(literal: InSet, predicate: Predicate) -> bool:
    """Whether each value (or interval, or NULL) of a set makes one of several literals TRUE."""
    subject = literal.subject
    same = [each for each in predicate.literals if not isinstance(each, Comparison) and each.subject == subject]
    if len(same) < 2:  # a set implies nothing about other subjects
        return False
    parts = [InSet(subject, ValueSet((interval,))) for interval in literal.values.intervals[:_MOST_PARTS]]
    if len(literal.values.intervals) > _MOST_PARTS:
        return False
    if literal.null:
        parts.append(InSet(subject, ValueSet.empty(), null=True))
    if len(parts) < 2:
        return False
    return all(any(_literal_implies(part, wanted) for wanted in same) for part in parts)


def _literal_implies(given: Literal, wanted: Literal) -> bool:
    if given == wanted:
        return True
    if isinstance(wanted, Comparison):
        return isinstance(given, Comparison) and _comparison_implies(given, wanted)
    if isinstance(given, Comparison):
        return wanted.subject in (given.left, given.right) and _is_not_null_test(wanted)
    if given.subject != wanted.subject:
        return False
    if isinstance(given, InSet):
        return _set_implies(given, wanted)
    return _is_not_null_test(wanted) or _like_implies(given, wanted)


def _is_not_null_test(literal: InSet | Like) -> bool:
    return isinstance(literal, InSet) and literal.values.is_all


def _comparison_implies(given: Comparison, wanted: Comparison) -> bool:
    if (given.left, given.right) == (wanted.left, wanted.right):
        return wanted.op in _STRICTER[given.op]
    if (given.left, given.right) != (wanted.right, wanted.left):
        return False
    # = and <> are symmetric, so a < b says a <> b whichever side comes first; < and <= are not.
    return (wanted.op in ("=", "<>") and wanted.op in _STRICTER[given.op]) or (given.op == "=" and wanted.op == "<=")


def _set_implies(given: InSet, wanted: InSet | Like) -> bool:
    if isinstance(wanted, InSet):
        return given.values.issubset(wanted.values) and (wanted.null or not given.null)
    if given.null:
        return False
    return all(_interval_in_language(pair, wanted.pattern, wanted.negated) for pair in given.values.intervals)


def _like_implies(given: Like, wanted: InSet | Like) -> bool:
    if isinstance(wanted, InSet):
        return _like_implies_set(given, wanted.values)
    if given.negated:
        return wanted.negated and includes(given.pattern, wanted.pattern)
    if wanted.negated:
        return are_disjoint(given.pattern, wanted.pattern)
    return includes(wanted.pattern, given.pattern)


def _like_implies_set(given: Like, values: ValueSet) -> bool:
    """Whether no string outside of ``values`` satisfies the LIKE: each interval outside lies in the other language."""
    outside = values.complement().intervals
    return all(_interval_in_language(pair, given.pattern, not given.negated) for pair in outside)


def _interval_in_language(interval: Interval, pattern: Pattern, outside: bool) -> bool:
    """Whether all strings of an interval match the pattern (or, with ``outside``, whether none does)."""
    low, high = interval
    if isinstance(low, str) and high == successor(low):
        return matches(pattern, low) != outside
    if outside and ValueSet((interval,)).isdisjoint(ValueSet.prefix(literal_prefix(pattern))):
        return True
    covering: Pattern = (_common_prefix(low, high), ANY_STRING)
    return are_disjoint(covering, pattern) if outside else includes(pattern, covering)


def _common_prefix(low: Key | None, high: Key | None) -> str:
    """A text that every string of an interval starts with.

    >>> _common_prefix("abc", "abd"), _common_prefix("a", "c")
    ('abc', '')
    """
    if not isinstance(low, str) or not isinstance(high, str):
        return ""
    interval = ValueSet.interval(low, high)
    length = len(low)
    while length and not interval.issubset(ValueSet.prefix(low[:length])):
        length -= 1
    return low[:length]


# ----------------------------------------------------------------------------------------------------
# Filters: an AND/OR tree and its conjunctive normal form, bounded (Sun 2017, 3.3.1).

MAX_CLAUSES: Final = 64
MAX_LITERALS: Final = 64
_LARGEST_BOUND: Final = 1024
"""Of clauses and literals in documents: what a normal form costs grows with its square."""


def _bound(number: int) -> int:
    if not 0 < number <= _LARGEST_BOUND:
        raise ValueError(f"the bounds of a filter are 1 to {_LARGEST_BOUND}")
    return number


_Bound = Annotated[int, As(int, _bound)]


@dataclass(frozen=True)
class Filter(HashedOnce, Record):
    """What a query asks of rows.

    Attributes:
        root: the AND/OR tree of literals, TRUE where something of the query had no exact meaning here; so it is TRUE
            for at least every row that the query's condition is TRUE for. NOT stands in no tree.
        max_clauses: the most predicates to keep.
        max_literals: the most literals of a predicate.
    """

    root: Node
    max_clauses: _Bound = MAX_CLAUSES
    max_literals: _Bound = MAX_LITERALS
    form: ClassVar = Form(names={"root": "filter"})

    __hash__ = HashedOnce.__hash__

    @classmethod
    def of(cls, root: Node, max_clauses: int = MAX_CLAUSES, max_literals: int = MAX_LITERALS) -> Filter:
        """The filter of a tree."""
        return cls(root, max_clauses, max_literals)

    @cached_property
    def predicates(self) -> tuple[Predicate, ...]:
        """The tree's conjunctive normal form (3.3.1): every predicate is TRUE wherever the tree is.

        Those about fewest columns come first, and those that follow from another are left out. Beyond the bounds
        predicates are left out too, which only makes their conjunction weaker. A tree that is never TRUE has none.
        """
        candidates = [predicate_of(clause) for clause in _clauses(self.root, self.max_clauses)]
        return tuple(_strongest(p for p in candidates if p is not None and len(p.literals) <= self.max_literals))

    @property
    def columns(self) -> Columns:
        """The columns of the tree."""
        return self.root.columns


def predicate_of(node: Node) -> Predicate | None:
    """A literal, or a disjunction of literals, as a predicate; None for other trees and constants."""
    if isinstance(node, Constant | And):
        return None
    if not isinstance(node, Or):
        return Predicate((node,))
    literals = tuple(child for child in node.children if not isinstance(child, And | Or | Constant))
    return Predicate(literals) if len(literals) == len(node.children) else None


def _clauses(node: Node, bound: int) -> list[Node]:
    """Disjunctions of literals that all hold where the node is TRUE; their conjunction is the node, up to the bound."""
    if isinstance(node, And):
        return _bounded((clause for child in node.children for clause in _clauses(child, bound)), bound)
    if not isinstance(node, Or):
        return [node] if node != Constant(True) else []
    joined: list[Node] = [FALSE]
    for child in node.children:
        options = _clauses(child, bound)
        joined = _bounded((disjunction((clause, option)) for clause in joined for option in options), bound)
    return joined


def _bounded(clauses: Iterable[Node], bound: int) -> list[Node]:
    """The distinct clauses, those about fewest columns first; sets of one subject are intersected."""
    useful = [clause for clause in conjuncts(conjunction(clauses)) if clause != Constant(True)]
    return sorted(useful, key=_usefulness)[:bound]


def _usefulness(clause: Node) -> tuple[int, int, str]:
    literals = len(clause.children) if isinstance(clause, Or) else 1
    return len(clause.columns), literals, order_of(clause)


def _strongest(predicates: Iterable[Predicate]) -> list[Predicate]:
    """The predicates without those that follow from another one; of two that are equivalent the first stays."""
    kept: list[Predicate] = []
    for predicate in predicates:
        if not any(_is_stricter(other, predicate) for other in kept):
            kept = [other for other in kept if not _is_stricter(predicate, other)]
            kept.append(predicate)
    return kept


def _is_stricter(strict: Predicate, predicate: Predicate) -> bool:
    """Whether the one implies the other. Most pairs are told apart by their columns alone, which is cheap."""
    return (strict.columns <= predicate.columns or _compares(strict)) and implies(strict.node, predicate)


def _compares(predicate: Predicate) -> bool:
    """Whether two columns are compared: what says that one of them is not NULL follows, and is about fewer columns."""
    return any(isinstance(literal, Comparison) for literal in predicate.literals)
