"""The nouns of filters: expressions, literals, predicates and the AND/OR trees made of them.

A literal stands for the rows for which it is TRUE. Under SQL's three-valued logic a comparison with NULL is not TRUE,
so NULL is outside of every literal that does not name it. Build trees with
:mod:`~layoutopt.model.predicates.normal`, which brings equal conditions to equal trees.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final

from layoutopt.model.hashing import HashedOnce
from layoutopt.model.predicates.like import Pattern, canonical_pattern
from layoutopt.model.values import ValueSet
from layoutopt.model.values.keys import Key, key_kind

Columns = frozenset[str]
_FUNCTION_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*")
RUN_CODE: Final = frozenset({"java_method", "reflect", "try_reflect"})
"""Spark's functions that call what their arguments name: a plan with them would be a program."""
COMPARISONS: Final = ("=", "<>", "<", "<=")


@dataclass(frozen=True)
class Col(HashedOnce):
    """A column: its name as the schema spells it, and its Spark type."""

    name: str
    type: str

    __hash__ = HashedOnce.__hash__

    @cached_property
    def columns(self) -> Columns:
        """The column itself."""
        return frozenset((self.name,))


@dataclass(frozen=True)
class Const(HashedOnce):
    """A constant argument of a function: the key of its value (None is NULL), and its Spark type."""

    value: Key | None
    type: str
    columns: ClassVar[Columns] = frozenset()

    __hash__ = HashedOnce.__hash__


@dataclass(frozen=True)
class Call(HashedOnce):
    """A deterministic function that fails on no row, by its lower-case Spark name, with the type of its result.

    ``try_cast`` has one argument and casts it to ``type``. Two calls are the same function of a row if they are equal.

    Raises:
        ValueError: the name is no plain identifier or in RUN_CODE, or a cast has not one argument.
    """

    fn: str
    args: tuple[Expr, ...]
    type: str

    __hash__ = HashedOnce.__hash__

    def __post_init__(self) -> None:
        if not _FUNCTION_NAME.fullmatch(self.fn):
            raise ValueError(f"{self.fn!r} is no function name; give lower-case letters, digits and underscores")
        if self.fn in RUN_CODE:
            raise ValueError(f"{self.fn!r} runs whatever code its arguments name; leave it out")
        if self.fn == "try_cast" and len(self.args) != 1:
            raise ValueError(f"try_cast has {len(self.args)} arguments; give one")

    @cached_property
    def columns(self) -> Columns:
        """The columns of all arguments."""
        return _columns(self.args)


Expr = Col | Const | Call


@dataclass(frozen=True)
class InSet(HashedOnce):
    """The subject's value is one of these, or, where ``null``, the subject is NULL.

    This is =, <>, <, BETWEEN, IN, <=>, IS NULL (no values, ``null``), IS NOT NULL (all values), LIKE with a prefix or
    without wildcards, and a boolean function (its value is in {1}). ``values`` is brought to the one form that equal
    sets of the subject's type share.
    """

    subject: Expr
    values: ValueSet
    null: bool = False

    __hash__ = HashedOnce.__hash__

    def __post_init__(self) -> None:
        # Values of a type without order are only all or none, for IS [NOT] NULL.
        object.__setattr__(self, "values", ValueSet.normalised(self.values.intervals, self.subject.type))
        if key_kind(self.subject.type) is None and not (self.values.is_all or self.values.is_empty):
            raise ValueError(f"values of type {self.subject.type!r} have no order here; test only IS [NOT] NULL")

    @property
    def columns(self) -> Columns:
        """The subject's columns."""
        return self.subject.columns


@dataclass(frozen=True)
class Like(HashedOnce):
    """The subject matches a pattern (or, ``negated``, it is not NULL and does not).

    Patterns without wildcards or with a trailing ``%`` alone are :class:`InSet`;
    :func:`layoutopt.model.predicates.normal.like` makes the right one.

    Raises:
        ValueError: the subject is no string.
    """

    subject: Expr
    pattern: Pattern
    negated: bool = False

    __hash__ = HashedOnce.__hash__

    def __post_init__(self) -> None:
        if key_kind(self.subject.type) != "str":
            raise ValueError(f"LIKE is about strings, not {self.subject.type!r}; cast the subject")
        object.__setattr__(self, "pattern", canonical_pattern(self.pattern))

    @property
    def columns(self) -> Columns:
        """The subject's columns."""
        return self.subject.columns


@dataclass(frozen=True)
class Comparison(HashedOnce):
    """Two expressions of a row compared; neither is NULL. The sides of = and <> are brought to one order.

    Raises:
        ValueError: another operator than = <> < <=, or sides whose keys don't compare.
    """

    left: Expr
    op: str
    right: Expr

    __hash__ = HashedOnce.__hash__

    def __post_init__(self) -> None:
        if self.op not in COMPARISONS:
            raise ValueError(f"{self.op!r} is no comparison of two columns; use one of {' '.join(COMPARISONS)}")
        kind = key_kind(self.left.type)
        if kind is None or kind != key_kind(self.right.type):
            raise ValueError(f"{self.left.type!r} and {self.right.type!r} don't compare; cast one of them")
        if self.op in ("=", "<>") and order_of(self.left) > order_of(self.right):
            left, right = self.right, self.left
            object.__setattr__(self, "left", left)
            object.__setattr__(self, "right", right)

    @cached_property
    def columns(self) -> Columns:
        """The columns of both sides."""
        return self.left.columns | self.right.columns


Literal = InSet | Like | Comparison


@dataclass(frozen=True)
class Constant(HashedOnce):
    """TRUE for every row, or for none."""

    value: bool
    columns: ClassVar[Columns] = frozenset()

    __hash__ = HashedOnce.__hash__


@dataclass(frozen=True)
class And(HashedOnce):
    """Rows for which every child is TRUE. Build it with :func:`layoutopt.model.predicates.normal.conjunction`."""

    children: tuple[Node, ...]

    __hash__ = HashedOnce.__hash__

    @cached_property
    def columns(self) -> Columns:
        """The columns of all children."""
        return _columns(self.children)


@dataclass(frozen=True)
class Or(HashedOnce):
    """Rows for which some child is TRUE. Build it with :func:`layoutopt.model.predicates.normal.disjunction`."""

    children: tuple[Node, ...]

    __hash__ = HashedOnce.__hash__

    @cached_property
    def columns(self) -> Columns:
        """The columns of all children."""
        return _columns(self.children)


Node = And | Or | InSet | Like | Comparison | Constant

TRUE: Final = Constant(True)
FALSE: Final = Constant(False)


@dataclass(frozen=True)
class Predicate(HashedOnce):
    """A disjunction of literals (Sun 2017, 3.3.1), in canonical order; build it with :func:`predicate_of`.

    Raises:
        ValueError: there is no literal.
    """

    literals: tuple[Literal, ...]

    __hash__ = HashedOnce.__hash__

    def __post_init__(self) -> None:
        if not self.literals:
            raise ValueError("a predicate without literals is never TRUE; use Constant(False)")
        object.__setattr__(self, "literals", tuple(sorted(set(self.literals), key=order_of)))

    @cached_property
    def columns(self) -> Columns:
        """The columns of all literals."""
        return _columns(self.literals)

    @cached_property
    def node(self) -> Node:
        """The predicate as a tree."""
        return self.literals[0] if len(self.literals) == 1 else Or(self.literals)

    @cached_property
    def is_always_true(self) -> bool:
        """Whether one literal is TRUE of every row; only a set of all values and NULL is."""
        return any(isinstance(x, InSet) and x.null and x.values.is_all for x in self.literals)


def columns_of(x: Expr | Node | Predicate) -> Columns:
    """The names of all columns that an expression, literal, tree, predicate or filter reads."""
    return x.columns


def order_of(x: Expr | Node) -> str:
    """A text by which expressions and nodes are put in one order, the same in every process."""
    cached = x.__dict__.get("_order")
    if cached is None:
        cached = x.__dict__["_order"] = repr(x)
    return str(cached)


def _columns(parts: Iterable[Expr | Node]) -> Columns:
    return frozenset().union(*(part.columns for part in parts))
