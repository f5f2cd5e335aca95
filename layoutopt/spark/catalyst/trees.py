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
    """A Catalyst expression.

    Attributes:
        name: the simple name of its class.
        type: Spark's type of its value.
        children: its operands, in Catalyst's order.
        details: its other properties, by the names of the constructor's arguments.
    """

    name: str
    type: str
    children: tuple[Tree, ...]
    details: dict[str, Any]

    def detail(self, name: str) -> Any:
        """Return a detail, or None."""
        return self.details.get(name)

    @property
    def only(self) -> Tree:
        """Return the only operand.

        Raises:
            Unusable: there is not exactly one operand.
        """
        if len(self.children) != 1:
            raise unknown(self)
        return self.children[0]

    @property
    def pair(self) -> tuple[Tree, Tree]:
        """Return the two operands.

        Raises:
            Unusable: there are not exactly two operands.
        """
        if len(self.children) != 2:
            raise unknown(self)
        return self.children[0], self.children[1]


def parse_tree(value: Any) -> Tree:
    """Return an expression as ``ReadBlocks.java`` writes it; a damaged one gets the name ``Damaged``.

    >>> parse_tree(["Literal", "int", [], {"value": 5}]).detail("value")
    5
    """
    if not isinstance(value, list) or len(value) != 4:
        return Tree("Damaged", "", (), {})
    name, kind, children, details = value
    is_whole = isinstance(name, str) and isinstance(kind, str) and isinstance(children, list)
    if not is_whole or not isinstance(details, dict):
        return Tree("Damaged", "", (), {})
    return Tree(name, kind, tuple(map(parse_tree, children)), details)


def iterate_tree(tree: Tree) -> Iterator[Tree]:
    """Yield an expression and all expressions within it, level by level."""
    level = [tree]
    while level:
        yield from level
        level = [child for part in level for child in part.children]


def describe(tree: Tree) -> str:
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
    """Return the exception for an expression without an exact meaning here."""
    return Unusable("unsupported-expression", f"{describe(tree)} has no exact meaning here")


def literal_key(value: Any, kind: str, text: str) -> Key | None:
    """Return the key of a literal's value; None for NULL.

    Raises:
        Unusable: the type has no keys, or a text is not UTF-8.

    >>> literal_key({"text": "YQ=="}, "string", ""), literal_key({"bits": 0}, "double", "")
    ('a', 0)
    >>> literal_key(150, "decimal(5,2)", "")
    150
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
                raise Unusable("inexact", f"{text} has a text that is not UTF-8") from error
        if kind == "binary" and isinstance(value.get("binary"), str):
            return base64.b64decode(value["binary"])
    raise Unusable("unordered-type", f"{text} has a constant of type {kind}, whose values are not comparable here")


def get_constant(tree: Tree) -> Const | None:
    """Return a literal as the model's constant; None for other expressions.

    Raises:
        Unusable: its type has no keys.
    """
    if tree.name == "Coalesce" and tree.children:  # left by a choice whose branches were taken apart
        values = [get_constant(child) for child in tree.children]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return None
        return next((value for value in known if value.value is not None), known[0])
    if tree.name != "Literal":
        return None
    if "value" not in tree.details:
        raise unknown(tree)
    try:
        return Const(literal_key(tree.details["value"], tree.type, describe(tree)), tree.type)
    except ValueError as error:
        raise Unusable("inexact", f"{describe(tree)} is not a valid {tree.type} ({error})") from error


def text_constant(tree: Tree, parent: Tree) -> str:
    """Return the value of an operand that must be a constant text.

    Raises:
        Unusable: it is not.
    """
    constant = get_constant(tree)
    if constant is None or not isinstance(constant.value, str) or constant.type != "string":
        raise Unusable("unsupported-expression", f"{describe(parent)} is supported for constants only")
    return constant.value


def int_constant(tree: Tree, parent: Tree) -> int:
    """Return the value of an operand that must be a constant integer.

    Raises:
        Unusable: it is not.
    """
    constant = get_constant(tree)
    if constant is None or not isinstance(constant.value, int) or constant.type not in INTEGER_BITS:
        raise Unusable("unsupported-expression", f"{describe(parent)} is supported for constants only")
    return constant.value


class OperandReader(Protocol):
    """Reads the operands of expressions."""

    @property
    def schema(self) -> Schema:
        """Return the table's columns."""

    @property
    def udfs(self) -> Udfs:
        """Return the declared functions."""

    @property
    def context(self) -> Context:
        """Return the settings for casts: as in ANSI mode, a cast has one value or NULL."""

    @property
    def zone(self) -> str:
        """Return the time zone of all parts that depend on one."""

    @property
    def element(self) -> Subject | None:
        """Return the variable of the lambda being read; None outside of lambdas."""

    def node(self, tree: Tree, truth: bool = True) -> Node:
        """Return the rows for which a condition is TRUE (or, with ``truth=False``, FALSE), or more."""

    def exact(self, tree: Tree, truth: bool = True) -> Node:
        """Return exactly the rows for which a condition is TRUE (or FALSE).

        Raises:
            Unusable: a part is not supported.
        """

    def subject(self, tree: Tree) -> Subject:
        """Return an expression over columns.

        Raises:
            Unusable: it has no exact, error-free meaning here, or is a constant.
        """

    def of_element(self, element: Subject) -> OperandReader:
        """Return the reader of a lambda's body."""


def passes_null(tree: Tree, target: Tree, strict: frozenset[str]) -> bool:
    """Return whether an expression is NULL if another within it is.

    Args:
        tree: the outer expression.
        target: the inner expression.
        strict: the classes whose values are NULL if an operand is.
    """
    if tree == target:
        return True
    if tree.name not in strict:
        return False
    operands = tree.children[:1] if tree.name in ("In", "ArrayExists") else tree.children
    return any(passes_null(child, target, strict) for child in operands)


def find_zones(tree: Tree) -> set[str]:
    """Return the time zones that the value of an expression depends on."""
    return {get_zone(part) for part in iterate_tree(tree) if depends_on_zone(part)}


def get_zone(tree: Tree) -> str:
    """Return the normalised time zone of one expression."""
    return normal_zone(str(tree.detail("timeZoneId")))


_CLOCK_TYPES: Final = frozenset({"date", "timestamp_ntz", "string"})


def depends_on_zone(tree: Tree) -> bool:
    """Return whether the expression itself, apart from its operands, depends on its time zone."""
    if tree.name == "Cast":
        pair = {child.type for child in tree.children} | {tree.type}
        return "timestamp" in pair and bool(pair & _CLOCK_TYPES)
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


def cast_operand(tree: Tree, operand: Subject, context: Context) -> Subject:
    """Return an operand as a Cast expression casts it.

    Raises:
        Unusable: the cast has no exact form that never fails.
    """
    mode = tree.detail("evalMode")
    if mode not in ("ANSI", "TRY") and not is_alike_in_both_modes(operand.type, tree.type):
        lossless = cast_subject(operand, tree.type, context)
        if lossless.expr == operand.expr:
            return lossless
        raise Unusable("coercion", f"{describe(tree)} has another meaning without ANSI mode")
    if "collate" in tree.type or tree.type.startswith(("char", "varchar")):
        raise Unusable("unordered-type", f"{describe(tree)} is {tree.type}, which is not compared byte by byte")
    return cast_subject(operand, tree.type, context)


def is_cast_from_binary(expr: Expr) -> bool:
    """Return whether a text is cast from binary, for which text functions differ."""
    return isinstance(expr, Call) and expr.fn == "try_cast" and expr.args[0].type == "binary"
