"""The nouns of filters: expressions, literals, predicates and AND/OR trees.

A literal represents the rows for which it is TRUE. In SQL's three-valued logic a comparison with NULL is not TRUE, so
NULL is outside of every literal that does not name it. Build trees with :mod:`~layoutopt.model.predicates.normal`,
which turns equal conditions into equal trees.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar, Final

from layoutopt.model.predicates.patterns import Pattern, canonical_pattern, like_text, parse_like
from layoutopt.model.records import As, Form, HashedOnce, Record
from layoutopt.model.types import type_name
from layoutopt.model.udf import is_user_defined
from layoutopt.model.values import ValueSet
from layoutopt.model.values.keys import Key, key_kind

Columns = frozenset[str]
TypeName = Annotated[str, As(str, type_name)]
_FUNCTION_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*")
# Spark's functions that call what their arguments name: a plan with them would be a program.
RUN_CODE: Final = frozenset({"java_method", "reflect", "try_reflect"})
# The function that returns a field of a struct; its arguments are the struct and the field's name as a text.
GET_FIELD: Final = "get_field"
COMPARISONS: Final = ("=", "<>", "<", "<=")


@dataclass(frozen=True)
class Col(HashedOnce, Record):
    """A column: its name in the schema's spelling, and its Spark type."""

    name: str
    type: TypeName

    form: ClassVar = Form(names={"name": "col"})

    @cached_property
    def columns(self) -> Columns:
        """Return the column itself."""
        return frozenset((self.name,))


@dataclass(frozen=True)
class Const(HashedOnce, Record):
    """A constant argument of a function: the key of its value (None is NULL), and its Spark type."""

    value: Key | None
    type: TypeName
    columns: ClassVar[Columns] = frozenset()

    form: ClassVar = Form(names={"value": "const"})

    def __post_init__(self) -> None:
        _check_kind((self.value,), self.type)


@dataclass(frozen=True)
class Call(HashedOnce, Record):
    """A deterministic function that fails on no row, by its lower-case Spark name, with its result type.

    ``try_cast`` has one argument and casts it to ``type``; :data:`GET_FIELD` returns a field of a struct. Equal calls
    are the same function of a row.
    """

    fn: str
    args: tuple[Expr, ...]
    type: TypeName

    form: ClassVar = Form(names={"fn": "call"})

    def __post_init__(self) -> None:
        if not _FUNCTION_NAME.fullmatch(self.fn):
            raise ValueError(f"{self.fn!r} is no function name; give lower-case letters, digits and underscores")
        if self.fn in RUN_CODE:
            raise ValueError(f"{self.fn!r} runs the code that its arguments name; leave it out")
        name = self.args[1] if len(self.args) == 2 else None
        if self.fn == GET_FIELD and not (isinstance(name, Const) and isinstance(name.value, str)):
            raise ValueError(f"{GET_FIELD} has other arguments than a struct and a name")
        if self.fn == "try_cast" and len(self.args) != 1:
            raise ValueError(f"try_cast has {len(self.args)} arguments; give one")

    @cached_property
    def columns(self) -> Columns:
        """Return the columns of all arguments."""
        return _unite_columns(self.args)


@dataclass(frozen=True)
class Opaque(Call):
    """A boolean expression without a meaning here, which another engine computes for given values of its columns.

    In other processes it is the call of an unknown function.

    Attributes:
        text: describes it to people.
        compute: returns its value for each row of keys of the arguments: True, False, None for NULL, or ... if unknown.
    """

    text: str
    compute: Callable[[Sequence[tuple[Key | None, ...]]], Sequence[Any]] = field(compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return Call, (self.fn, self.args, self.type)


Expr = Col | Const | Call


@dataclass(frozen=True)
class InSet(HashedOnce, Record):
    """The subject's value is one of these, or, where ``null``, the subject is NULL.

    This is =, <>, <, BETWEEN, IN, <=>, IS NULL (no values, ``null``), IS NOT NULL (all values), LIKE with a prefix or
    without wildcards, and a boolean function (its value is in {1}). ``values`` is normalised for the subject's type.
    """

    subject: Expr
    values: ValueSet
    null: bool = False

    form: ClassVar = Form(names={"subject": "in"})

    def __post_init__(self) -> None:
        _check_kind((bound for interval in self.values.intervals for bound in interval), self.subject.type)
        # Values of a type without order are only all or none, for IS [NOT] NULL.
        object.__setattr__(self, "values", ValueSet.normalised(self.values.intervals, self.subject.type))
        if key_kind(self.subject.type) is None and not (self.values.is_all or self.values.is_empty):
            raise ValueError(f"values of type {self.subject.type!r} have no order here; test only IS [NOT] NULL")

    @property
    def columns(self) -> Columns:
        """Return the subject's columns."""
        return self.subject.columns


@dataclass(frozen=True)
class Like(HashedOnce, Record):
    """The subject, a string, matches a pattern (or, ``negated``, it is not NULL and does not).

    Patterns without wildcards or with only a trailing ``%`` are :class:`InSet`;
    :func:`layoutopt.model.predicates.normal.like` builds the right one.
    """

    subject: Expr
    pattern: Annotated[Pattern, As(str, parse_like, like_text)]
    negated: bool = False

    form: ClassVar = Form(names={"subject": "like"})

    def __post_init__(self) -> None:
        if key_kind(self.subject.type) != "str":
            raise ValueError(f"LIKE is about strings, not {self.subject.type!r}; cast the subject")
        object.__setattr__(self, "pattern", canonical_pattern(self.pattern))

    @property
    def columns(self) -> Columns:
        """Return the subject's columns."""
        return self.subject.columns


@dataclass(frozen=True)
class Comparison(HashedOnce, Record):
    """A comparison = <> < or <= of two expressions of a row, neither NULL; = and <> have sides in canonical order."""

    left: Expr
    op: str
    right: Expr

    form: ClassVar = Form(names={"op": "compare"})

    def __post_init__(self) -> None:
        if self.op not in COMPARISONS:
            raise ValueError(f"unknown comparison {self.op!r}: expected one of {' '.join(COMPARISONS)}")
        kind = key_kind(self.left.type)
        if kind is None or kind != key_kind(self.right.type):
            raise ValueError(f"{self.left.type!r} and {self.right.type!r} don't compare; cast one of them")
        if self.op in ("=", "<>") and order_of(self.left) > order_of(self.right):
            left, right = self.right, self.left
            object.__setattr__(self, "left", left)
            object.__setattr__(self, "right", right)

    @cached_property
    def columns(self) -> Columns:
        """Return the columns of both sides."""
        return self.left.columns | self.right.columns


Literal = InSet | Like | Comparison


@dataclass(frozen=True)
class Constant(HashedOnce, Record):
    """TRUE for every row, or for none."""

    value: bool
    columns: ClassVar[Columns] = frozenset()

    form: ClassVar = Form(names={"value": "constant"})


@dataclass(frozen=True)
class And(HashedOnce, Record):
    """Rows for which every child is TRUE. Build it with :func:`layoutopt.model.predicates.normal.conjunction`."""

    children: tuple[Node, ...]

    form: ClassVar = Form(names={"children": "and"})

    @cached_property
    def columns(self) -> Columns:
        """Return the columns of all children."""
        return _unite_columns(self.children)


@dataclass(frozen=True)
class Or(HashedOnce, Record):
    """Rows for which some child is TRUE. Build it with :func:`layoutopt.model.predicates.normal.disjunction`."""

    children: tuple[Node, ...]

    form: ClassVar = Form(names={"children": "or"})

    @cached_property
    def columns(self) -> Columns:
        """Return the columns of all children."""
        return _unite_columns(self.children)


Node = And | Or | InSet | Like | Comparison | Constant

TRUE: Final = Constant(True)
FALSE: Final = Constant(False)


@dataclass(frozen=True)
class Predicate(HashedOnce, Record):
    """A disjunction of literals, at least one (Sun 2017, 3.3.1), in canonical order; see :func:`predicate_of`."""

    literals: tuple[Literal, ...]

    form: ClassVar = Form(names={"literals": "predicate"})

    def __post_init__(self) -> None:
        if not self.literals:
            raise ValueError("a predicate without literals is never TRUE; use Constant(False)")
        object.__setattr__(self, "literals", tuple(sorted(set(self.literals), key=order_of)))

    @cached_property
    def columns(self) -> Columns:
        """Return the columns of all literals."""
        return _unite_columns(self.literals)

    @cached_property
    def node(self) -> Node:
        """Return the predicate as a tree."""
        return self.literals[0] if len(self.literals) == 1 else Or(self.literals)

    @cached_property
    def is_always_true(self) -> bool:
        """Return whether one literal is TRUE of every row; only a set of all values and NULL is."""
        return any(isinstance(x, InSet) and x.null and x.values.is_all for x in self.literals)


def _check_kind(keys: Iterable[Key | None], type: str) -> None:
    kind = key_kind(type)
    for key in keys:
        if key is not None and key.__class__.__name__ != kind:
            raise ValueError(f"{key!r:.80} is no key of type {type!r}")


def columns_of(x: Expr | Node | Predicate) -> Columns:
    """Return the names of all columns that an expression, literal, tree, predicate or filter reads."""
    return x.columns


def literals_of(node: Node) -> Iterator[Literal]:
    """Yield all literals of a tree, from left to right."""
    if isinstance(node, And | Or):
        for child in node.children:
            yield from literals_of(child)
    elif not isinstance(node, Constant):
        yield node


def order_of(x: Expr | Node) -> str:
    """Return a sort key of expressions and nodes, the same in every process."""
    cached = x.__dict__.get("_order")
    if cached is None:
        cached = x.__dict__["_order"] = repr(x)
    return str(cached)


def _unite_columns(parts: Iterable[Expr | Node]) -> Columns:
    return frozenset().union(*(part.columns for part in parts))


def user_calls(x: Node | Expr) -> Iterator[Call]:
    """Yield the calls of user-defined functions, in the order of the text.

    >>> from layoutopt.model.predicates import Col
    >>> from layoutopt.model.values import ValueSet
    >>> mine = Call("_layoutopt_agent_0123456789abcdef", (Call("lower", (Col("a", "string"),), "string"),), "string")
    >>> [call.fn for call in user_calls(InSet(mine, ValueSet.point("x")))]
    ['_layoutopt_agent_0123456789abcdef']
    """
    return (call for call in all_calls(x) if is_user_defined(call.fn))


def all_calls(x: Node | Expr) -> Iterator[Call]:
    """Yield the calls of all functions, in the order of the text."""
    match x:
        case Call():
            yield x
            for argument in x.args:
                yield from all_calls(argument)
        case And() | Or():
            for child in x.children:
                yield from all_calls(child)
        case Comparison():
            yield from all_calls(x.left)
            yield from all_calls(x.right)
        case InSet() | Like():
            yield from all_calls(x.subject)
        case _:
            return
