"""Subsumption (Sun 2017, 3.3.1): whether one condition follows from another for all possible rows; filters.

Everything here is sound and incomplete: TRUE is a proof, FALSE means unsure. A condition holds where it is TRUE; NULL
is not TRUE. Two different expressions may have any values.
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

# A set of more intervals is compared with a disjunction of several literals only as a whole.
_MOST_PARTS: Final = 256

# Comparison of two expressions -> the comparisons of the same two, in that order, that follow from it.
_STRICTER: Final[dict[str, frozenset[str]]] = {
    "=": frozenset({"=", "<="}),
    "<>": frozenset({"<>"}),
    "<": frozenset({"<", "<=", "<>"}),
    "<=": frozenset({"<="}),
}


def subsumes(general: Iterable[Predicate], specific: Node) -> bool:
    """Return whether a conjunction of predicates, such as a feature, is TRUE of every row that makes the node TRUE."""
    return all(implies(specific, predicate) for predicate in general)


def implies(node: Node, predicate: Predicate) -> bool:
    """Return whether every row for which the node is TRUE makes the predicate TRUE. Sound; FALSE when unsure."""
    if node.columns.isdisjoint(predicate.columns):
        return _implies_trivially(node, predicate)
    if isinstance(node, And):
        return any(implies(child, predicate) for child in node.children)
    if isinstance(node, Or):
        return all(implies(child, predicate) for child in node.children)
    return _literal_implies_predicate(node, predicate)


def _implies_trivially(node: Node, predicate: Predicate) -> bool:
    """Return whether an implication holds for any columns: the node is never TRUE, or the predicate always is."""
    return predicate.is_always_true or (isinstance(node, Constant) and not node.value)


@lru_cache(maxsize=1 << 18)
def _literal_implies_predicate(node: Literal | Constant, predicate: Predicate) -> bool:
    if isinstance(node, Constant):
        return _implies_trivially(node, predicate)
    if any(_literal_implies(node, literal) for literal in predicate.literals):
        return True
    return isinstance(node, InSet) and _parts_imply(node, predicate)


def _parts_imply(literal: InSet, predicate: Predicate) -> bool:
    """Return whether each value (or interval, or NULL) of a set makes one of several literals TRUE."""
    subject = literal.subject
    literals = [item for item in predicate.literals if not isinstance(item, Comparison) and item.subject == subject]
    if len(literals) < 2:  # a set implies nothing about other subjects
        return False
    parts = [InSet(subject, ValueSet((interval,))) for interval in literal.values.intervals[:_MOST_PARTS]]
    if len(literal.values.intervals) > _MOST_PARTS:
        return False
    if literal.null:
        parts.append(InSet(subject, ValueSet.empty(), null=True))
    if len(parts) < 2:
        return False
    return all(any(_literal_implies(part, general) for general in literals) for part in parts)


def _literal_implies(literal: Literal, general: Literal) -> bool:
    if literal == general:
        return True
    if isinstance(general, Comparison):
        return isinstance(literal, Comparison) and _comparison_implies(literal, general)
    if isinstance(literal, Comparison):
        return general.subject in (literal.left, literal.right) and _is_not_null_test(general)
    if literal.subject != general.subject:
        return False
    if isinstance(literal, InSet):
        return _set_implies(literal, general)
    return _is_not_null_test(general) or _like_implies(literal, general)


def _is_not_null_test(literal: InSet | Like) -> bool:
    return isinstance(literal, InSet) and literal.values.is_all


def _comparison_implies(literal: Comparison, general: Comparison) -> bool:
    if (literal.left, literal.right) == (general.left, general.right):
        return general.op in _STRICTER[literal.op]
    if (literal.left, literal.right) != (general.right, general.left):
        return False
    # = and <> are symmetric, so a < b says a <> b whichever side comes first; < and <= are not.
    if general.op in ("=", "<>"):
        return general.op in _STRICTER[literal.op]
    return literal.op == "=" and general.op == "<="


def _set_implies(literal: InSet, general: InSet | Like) -> bool:
    if isinstance(general, InSet):
        return literal.values.issubset(general.values) and (general.null or not literal.null)
    if literal.null:
        return False
    return all(_interval_matches(pair, general.pattern, general.negated) for pair in literal.values.intervals)


def _like_implies(literal: Like, general: InSet | Like) -> bool:
    if isinstance(general, InSet):
        # No string outside of the set satisfies the LIKE.
        outside = general.values.complement().intervals
        return all(_interval_matches(pair, literal.pattern, not literal.negated) for pair in outside)
    if literal.negated:
        return general.negated and includes(literal.pattern, general.pattern)
    if general.negated:
        return are_disjoint(literal.pattern, general.pattern)
    return includes(general.pattern, literal.pattern)


def _interval_matches(interval: Interval, pattern: Pattern, outside: bool) -> bool:
    """Return whether all strings of an interval match the pattern (or, with ``outside``, none does)."""
    low, high = interval
    if isinstance(low, str) and high == successor(low):
        return matches(pattern, low) != outside
    if outside and ValueSet((interval,)).isdisjoint(ValueSet.prefix(literal_prefix(pattern))):
        return True
    covering: Pattern = (_common_prefix(low, high), ANY_STRING)
    return are_disjoint(covering, pattern) if outside else includes(pattern, covering)


def _common_prefix(low: Key | None, high: Key | None) -> str:
    """Return a text that every string of an interval starts with.

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


MAX_CLAUSES: Final = 64
MAX_LITERALS: Final = 64
# The largest bound in documents: the cost of a normal form grows with its square.
_LARGEST_BOUND: Final = 1024


def _check_bound(number: int) -> int:
    if not 0 < number <= _LARGEST_BOUND:
        raise ValueError(f"the bounds of a filter are 1 to {_LARGEST_BOUND}")
    return number


_Bound = Annotated[int, As(int, _check_bound)]


@dataclass(frozen=True)
class Filter(HashedOnce, Record):
    """A query's condition on rows, and its conjunctive normal form, bounded (Sun 2017, 3.3.1).

    Attributes:
        root: the AND/OR tree of literals, with TRUE for parts without an exact meaning here; so it is TRUE for at least
            every row that the query's condition is TRUE for. No tree contains NOT.
        max_clauses: the most predicates to keep.
        max_literals: the most literals of a predicate.
    """

    root: Node
    max_clauses: _Bound = MAX_CLAUSES
    max_literals: _Bound = MAX_LITERALS
    form: ClassVar = Form(names={"root": "filter"})

    @classmethod
    def of(cls, root: Node, max_clauses: int = MAX_CLAUSES, max_literals: int = MAX_LITERALS) -> Filter:
        """Return the filter of a tree."""
        return cls(root, max_clauses, max_literals)

    @cached_property
    def predicates(self) -> tuple[Predicate, ...]:
        """Return the tree's conjunctive normal form (3.3.1): every predicate is TRUE wherever the tree is.

        Those about fewest columns come first, and those that follow from another are left out. Predicates beyond the
        bounds are left out too, which only weakens the conjunction. A tree that is never TRUE has none.
        """
        candidates = [predicate_of(clause) for clause in _list_clauses(self.root, self.max_clauses)]
        return tuple(_drop_implied(p for p in candidates if p is not None and len(p.literals) <= self.max_literals))

    @property
    def columns(self) -> Columns:
        """Return the columns of the tree."""
        return self.root.columns


def predicate_of(node: Node) -> Predicate | None:
    """Return a literal, or a disjunction of literals, as a predicate; None for other trees and constants."""
    if isinstance(node, Constant | And):
        return None
    if not isinstance(node, Or):
        return Predicate((node,))
    literals = tuple(child for child in node.children if not isinstance(child, And | Or | Constant))
    return Predicate(literals) if len(literals) == len(node.children) else None


def _list_clauses(node: Node, bound: int) -> list[Node]:
    """Return clauses that all hold where the node is TRUE; their conjunction is the node, up to the bound."""
    if isinstance(node, And):
        return _limit_clauses((clause for child in node.children for clause in _list_clauses(child, bound)), bound)
    if not isinstance(node, Or):
        return [node] if node != Constant(True) else []
    joined: list[Node] = [FALSE]
    for child in node.children:
        options = _list_clauses(child, bound)
        joined = _limit_clauses((disjunction((clause, option)) for clause in joined for option in options), bound)
    return joined


def _limit_clauses(clauses: Iterable[Node], bound: int) -> list[Node]:
    """Return the distinct clauses, those about fewest columns first; sets of one subject are intersected."""
    useful = [clause for clause in conjuncts(conjunction(clauses)) if clause != Constant(True)]
    return sorted(useful, key=_rank_clause)[:bound]


def _rank_clause(clause: Node) -> tuple[int, int, str]:
    literals = len(clause.children) if isinstance(clause, Or) else 1
    return len(clause.columns), literals, order_of(clause)


def _drop_implied(predicates: Iterable[Predicate]) -> list[Predicate]:
    """Return the predicates without those that follow from another; of equivalent ones the first stays."""
    # Of each with its columns and whether it compares any: most pairs are refuted cheaply by these.
    kept: list[tuple[Predicate, Columns, bool]] = []
    for predicate in predicates:
        columns, compares = predicate.columns, any(isinstance(literal, Comparison) for literal in predicate.literals)
        # A comparison implies that each of its columns is not NULL, a predicate of fewer columns.
        if not any((named <= columns or each) and implies(other.node, predicate) for other, named, each in kept):
            node = predicate.node
            kept = [
                (other, named, each)
                for other, named, each in kept
                if not ((columns <= named or compares) and implies(node, other))
            ]
            kept.append((predicate, columns, compares))
    return [predicate for predicate, _, _ in kept]
