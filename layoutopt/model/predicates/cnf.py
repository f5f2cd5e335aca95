"""Filters: an AND/OR tree and its conjunctive normal form, bounded (Sun 2017, 3.3.1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, Final

from layoutopt.model.hashing import HashedOnce
from layoutopt.model.predicates.nodes import FALSE, And, Columns, Comparison, Constant, Node, Or, Predicate, order_of
from layoutopt.model.predicates.normal import conjunction, conjuncts, disjunction
from layoutopt.model.predicates.subsume import implies
from layoutopt.model.records import As, Form, Record

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
