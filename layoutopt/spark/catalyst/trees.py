"""Catalyst's expressions as ``ReadBlocks.java`` writes them: ``[class, type, [children], {details}]``."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol

from layoutopt.model.predicates import Call, Const, Expr, Node
from layoutopt.model.schema import Schema
from layoutopt.model.types import INTEGER_BITS, decimal_digits
from layoutopt.model.udf import Udfs
from layoutopt.model.values.keys import Key, float_key
from layoutopt.sql.operands import Context, Subject, cast_subject
from layoutopt.sql.problems import Unusable
from layoutopt.sql.types import is_number, normal_zone

_WHOLE: Final = frozenset({"boolean", "date", "timestamp", "timestamp_ntz", *INTEGER_BITS})
_LONGEST_TEXT: Final = 160


class Tree(NamedTuple):
    """One expression.

    Attributes:
        name: the simple name of Catalyst's class.
        type: Spark's type of the value.
        children: the operands, in Catalyst's order.
        details: what else the expression is made of, by the names of the constructor's arguments.
    """

    name: str
    type: str
    children: tuple[Tree, ...]
    details: dict[str, Any]

    def detail(self, name: str) -> Any:
        """Return a detail; None where the expression has none of that name."""
        return self.details.get(name)

    @property
    def only(self) -> Tree:
        """The only operand.

        Raises:
            Unusable: there are more, or none.
        """
        if len(self.children) != 1:
            raise unknown(self)
        return self.children[0]

    @property
    def pair(self) -> tuple[Tree, Tree]:
        """The two operands.

        Raises:
            Unusable: there are more, or fewer.
        """
        if len(self.children) != 2:
            raise unknown(self)
        return self.children[0], self.children[1]


def tree_of(written: Any) -> Tree:
    """Return an expression as it was written; one that is damaged has the name ``Damaged``.

    >>> tree_of(["Literal", "int", [], {"value": 5}]).detail("value")
    5
    """
    if not isinstance(written, list) or len(written) != 4:
        return Tree("Damaged", "", (), {})
    name, kind, children, details = written
    is_whole = isinstance(name, str) and isinstance(kind, str) and isinstance(children, list)
    if not is_whole or not isinstance(details, dict):
        return Tree("Damaged", "", (), {})
    return Tree(name, kind, tuple(map(tree_of, children)), details)


def parts_of(tree: Tree) -> Iterator[Tree]:
    """Yield an expression and all expressions within it, outer ones first, level by level."""
    level = [tree]
    while level:
        yield from level
        level = [child for part in level for child in part.children]


def text_of(tree: Tree) -> str:
    """Return an expression as a short text for messages."""
    return _text(tree, 4)[:_LONGEST_TEXT]


def _text(tree: Tree, depth: int) -> str:
    if tree.name == "Literal":
        return str(tree.detail("value"))[:40]
    if tree.name == "AttributeReference":
        return str(tree.detail("name") or "a column of another table")
    inner = ", ".join(_text(child, depth - 1) for child in tree.children) if depth else "..."
    return f"{tree.name}({inner})"


def unknown(tree: Tree) -> Unusable:
    """Return the signal that an expression has no exact meaning here."""
    return Unusable("unsupported-expression", f"{text_of(tree)} has no exact meaning here")


def key_of(value: Any, kind: str, text: str) -> Key | None:
    """Return the key of a literal's value; None for NULL.

    Raises:
        Unusable: the type has no keys, or a text is no UTF-8.

    >>> key_of({"text": "YQ=="}, "string", ""), key_of({"bits": 0}, "double", ""), key_of(150, "decimal(5,2)", "")
    ('a', 0, 150)
    """
    if value is None:
        return None
    if isinstance(value, bool | int) and (kind in _WHOLE or decimal_digits(kind)):
        return int(value)
    if isinstance(value, dict):
        if kind in ("float", "double") and isinstance(value.get("bits"), int):
            return float_key(struct.unpack("<d", struct.pack("<q", value["bits"]))[0])
        if kind == "string" and isinstance(value.get("text"), str):
            try:
                return base64.b64decode(value["text"]).decode()
            except UnicodeDecodeError as error:
                raise Unusable("inexact", f"{text} has a text that is no UTF-8") from error
        if kind == "binary" and isinstance(value.get("binary"), str):
            return base64.b64decode(value["binary"])
    raise Unusable("unordered-type", f"{text} has a constant of type {kind}, which is not compared here")


def constant_of(tree: Tree) -> Const | None:
    """Return a literal as the model's constant; None of any other expression.

    Raises:
        Unusable: its type has no keys.
    """
    if tree.name == "Coalesce" and tree.children:  # as a choice leaves it
        values = [constant_of(child) for child in tree.children]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return None
        return next((value for value in known if value.value is not None), known[0])
    if tree.name != "Literal":
        return None
    if "value" not in tree.details:
        raise unknown(tree)
    try:
        return Const(key_of(tree.details["value"], tree.type, text_of(tree)), tree.type)
    except ValueError as error:
        raise Unusable("inexact", f"{text_of(tree)} is no {tree.type} ({error})") from error


def text_constant(tree: Tree, parent: Tree) -> str:
    """Return the value of an operand that has to be a constant text.

    Raises:
        Unusable: it is none.
    """
    constant = constant_of(tree)
    if constant is None or not isinstance(constant.value, str) or constant.type != "string":
        raise Unusable("unsupported-expression", f"{text_of(parent)} is followed for constants only")
    return constant.value


def whole_constant(tree: Tree, parent: Tree) -> int:
    """Return the value of an operand that has to be a constant int.

    Raises:
        Unusable: it is none.
    """
    constant = constant_of(tree)
    if constant is None or not isinstance(constant.value, int) or constant.type not in INTEGER_BITS:
        raise Unusable("unsupported-expression", f"{text_of(parent)} is followed for constants only")
    return constant.value


class Reader(Protocol):
    """Reads the operands of expressions."""

    @property
    def schema(self) -> Schema:
        """The table's columns."""

    @property
    def udfs(self) -> Udfs:
        """The functions that users declared."""

    @property
    def context(self) -> Context:
        """The settings under which values are cast: those of ANSI mode, where a cast gives NULL or the one value."""

    @property
    def zone(self) -> str:
        """The time zone of all parts that depend on one."""

    @property
    def element(self) -> Subject | None:
        """The variable of the lambda that is read; None outside of lambdas."""

    def node(self, tree: Tree, truth: bool = True) -> Node:
        """Return the rows for which a condition is TRUE (or, with ``truth=False``, FALSE), or more."""

    def exact(self, tree: Tree, truth: bool = True) -> Node:
        """Return just the rows for which a condition is TRUE (or FALSE).

        Raises:
            Unusable: a part is not understood.
        """

    def subject(self, tree: Tree) -> Subject:
        """Return an expression of columns.

        Raises:
            Unusable: it has no exact, error-free meaning here, or is a constant.
        """

    def of_element(self, element: Subject) -> Reader:
        """Return the reader of a lambda's body."""


def passes_null(tree: Tree, target: Tree, strict: frozenset[str]) -> bool:
    """Return whether an expression is NULL wherever another within it is.

    Args:
        tree: the outer expression.
        target: the inner one.
        strict: the names of the classes whose values are NULL where an operand is.
    """
    if tree == target:
        return True
    if tree.name not in strict:
        return False
    operands = tree.children[:1] if tree.name in ("In", "ArrayExists") else tree.children
    return any(passes_null(child, target, strict) for child in operands)


def zones_of(tree: Tree) -> set[str]:
    """Return the time zones that the value of an expression depends on."""
    return {zone_of(part) for part in parts_of(tree) if depends_on_zone(part)}


def zone_of(tree: Tree) -> str:
    """Return the zone of one expression by its normal name."""
    return normal_zone(str(tree.detail("timeZoneId")))


_OF_CLOCKS: Final = frozenset({"date", "timestamp_ntz", "string"})


def depends_on_zone(tree: Tree) -> bool:
    """Return whether the expression itself, its operands given, depends on its time zone."""
    if tree.name == "Cast":
        pair = {child.type for child in tree.children} | {tree.type}
        return "timestamp" in pair and bool(pair & _OF_CLOCKS)
    if tree.name == "VariantGet":
        return tree.type in ("string", "date", "timestamp", "timestamp_ntz")
    types = {child.type for child in tree.children} | {tree.type}
    return "timeZoneId" in tree.details and "timestamp" in types


_ALIKE: Final = frozenset(
    {("date", "timestamp"), ("date", "timestamp_ntz"), ("timestamp", "date"), ("timestamp_ntz", "date"),
     ("timestamp", "timestamp_ntz"), ("timestamp_ntz", "timestamp"), ("date", "string"), ("boolean", "string")}
)  # fmt: skip


def is_alike_in_both_modes(source: str, to: str) -> bool:
    """Return whether a cast means the same with and without ANSI mode."""
    return (
        (source, to) in _ALIKE or (is_number(source) and to == "double") or (source in INTEGER_BITS and to == "string")
    )


def read_cast(tree: Tree, given: Subject, context: Context) -> Subject:
    """Return a subject as a Cast casts it.

    Raises:
        Unusable: there is no exact form that fails on no row.
    """
    mode = tree.detail("evalMode")
    if mode not in ("ANSI", "TRY") and not is_alike_in_both_modes(given.type, tree.type):
        lossless = cast_subject(given, tree.type, context)
        if lossless.expr == given.expr:
            return lossless
        raise Unusable("coercion", f"{text_of(tree)} has another meaning without ANSI mode")
    if "collate" in tree.type or tree.type.startswith(("char", "varchar")):
        raise Unusable("unordered-type", f"{text_of(tree)} is {tree.type}, which is not compared byte by byte")
    return cast_subject(given, tree.type, context)


def is_of_binary(expr: Expr) -> bool:
    """Return whether a text is cast from binary, where functions of texts mean something else."""
    return isinstance(expr, Call) and expr.fn == "try_cast" and expr.args[0].type == "binary"
