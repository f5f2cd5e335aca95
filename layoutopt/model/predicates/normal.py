"""Canonical trees: equal conditions become equal nodes wherever that is cheap; elements of arrays.

Expressions of elements are only subjects of indexes: a row has many of them, or none. ``elements(xs)`` is no Spark
function, and never the subject of a filter's literal: ``exists(xs, x -> x = 1)`` and ``exists(xs, x -> x = 2)`` may
both be TRUE of a row, where no single value is 1 and 2. Filters contain calls that are TRUE or not of an array:
``array_contains``, and those of :func:`make_exists_call`, in Spark ``exists`` with a lambda.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Final

from layoutopt.model.predicates.nodes import (
    FALSE,
    TRUE,
    And,
    Call,
    Comparison,
    Const,
    Constant,
    Expr,
    InSet,
    Like,
    Literal,
    Node,
    Or,
    order_of,
)
from layoutopt.model.predicates.patterns import ANY_STRING, Pattern, canonical_pattern, like_text, parse_like
from layoutopt.model.types import nested_parts
from layoutopt.model.values import ValueSet, key_kind

_OPPOSITE: Final = {"=": "<>", "<>": "="}


def like(subject: Expr, pattern: Pattern, negated: bool = False) -> Literal:
    """Return the literal of ``subject [NOT] LIKE pattern``: a set if the pattern is a text, a prefix or ``%``."""
    literal = Like(subject, canonical_pattern(pattern))
    values = _to_values(literal.pattern)
    if values is None:
        return Like(subject, literal.pattern, negated)
    return InSet(subject, values.complement() if negated else values)


def _to_values(pattern: Pattern) -> ValueSet | None:
    """Return the strings of a pattern if these are one string or all with one prefix."""
    match pattern:
        case ():
            return ValueSet.point("")
        case (str() as text,):
            return ValueSet.point(text)
        case (str() as text, last) if last is ANY_STRING:
            return ValueSet.prefix(text)
        case (last,) if last is ANY_STRING:
            return ValueSet.all()
    return None


def negate(literal: Literal) -> Literal:
    """Return the literal for the rows where this one is FALSE; where it is NULL, neither holds.

    Sets that name NULL, and IS [NOT] NULL, are never NULL, so the negation of all values (IS NOT NULL) is IS NULL.

    >>> from layoutopt.model.predicates.nodes import Col
    >>> negate(InSet(Col("a", "int"), ValueSet.interval(1, 5))).values.intervals
    ((None, 1), (5, None))
    """
    if isinstance(literal, Like):
        return Like(literal.subject, literal.pattern, not literal.negated)
    if isinstance(literal, Comparison):
        if literal.op in _OPPOSITE:
            return Comparison(literal.left, _OPPOSITE[literal.op], literal.right)
        return Comparison(literal.right, "<=" if literal.op == "<" else "<", literal.left)
    return InSet(literal.subject, literal.values.complement(), literal.values.is_all and not literal.null)


def untrue(node: Node) -> Node:
    """Return the node for the rows where this one is FALSE or NULL.

    >>> from layoutopt.model.predicates.nodes import Col
    >>> opposite = untrue(InSet(Col("a", "int"), ValueSet.interval(1, 5)))
    >>> opposite.values.intervals, opposite.null
    (((None, 1), (5, None)), True)
    >>> untrue(Like(Const(None, "string"), parse_like("a_b")))
    Constant(value=True)
    """
    if isinstance(node, And):
        return disjunction(map(untrue, node.children))
    if isinstance(node, Or):
        return conjunction(map(untrue, node.children))
    if isinstance(node, Constant):
        return Constant(not node.value)
    if isinstance(node, InSet):
        return simplified(InSet(node.subject, node.values.complement(), not node.null))
    sides = (node.left, node.right) if isinstance(node, Comparison) else (node.subject,)
    if any(isinstance(side, Const) and side.value is None for side in sides):
        return TRUE
    nulls = [InSet(side, ValueSet.empty(), null=True) for side in sides if not isinstance(side, Const)]
    return disjunction([negate(node), *nulls])


def conjunction(nodes: Iterable[Node]) -> Node:
    """Return the AND of nodes: flattened, sets of one subject intersected, sorted.

    >>> from layoutopt.model.predicates.nodes import Col
    >>> a = Col("a", "int")
    >>> both = [InSet(a, ValueSet.interval(1, None)), InSet(a, ValueSet.interval(None, 3))]
    >>> conjunction(both) == InSet(a, ValueSet.interval(1, 3))
    True
    """
    return _combine(nodes, And, absorbing=FALSE, neutral=TRUE, merge=_intersect)


def conjuncts(node: Node) -> tuple[Node, ...]:
    """Return the children of a conjunction, or the node itself."""
    return node.children if isinstance(node, And) else (node,)


def disjunction(nodes: Iterable[Node]) -> Node:
    """Return the OR of nodes: flattened, sets of one subject united, sorted.

    >>> from layoutopt.model.predicates.nodes import Col
    >>> a = Col("a", "boolean")
    >>> disjunction([InSet(a, ValueSet.point(1)), InSet(a, ValueSet.point(0), null=True)])
    Constant(value=True)
    """
    return _combine(nodes, Or, absorbing=TRUE, neutral=FALSE, merge=_unite)


def _combine(
    nodes: Iterable[Node],
    kind: type[And] | type[Or],
    *,
    absorbing: Constant,
    neutral: Constant,
    merge: Callable[[InSet, InSet], InSet],
) -> Node:
    parts = list(_flatten(nodes, kind))
    if len(parts) == 1:  # it is canonical
        return parts[0]
    sets: dict[Expr, list[InSet]] = {}
    rest: set[Node] = set()
    for part in parts:
        if part == absorbing:
            return absorbing
        if isinstance(part, InSet):
            sets.setdefault(part.subject, []).append(part)
        elif part != neutral:
            rest.add(part)
    merged = {simplified(reduce(merge, group)) for group in sets.values()} | rest
    if absorbing in merged:
        return absorbing
    children = sorted(_drop_absorbed(merged - {neutral}, kind), key=order_of)
    if not children:
        return neutral
    return children[0] if len(children) == 1 else kind(tuple(children))


def _flatten(nodes: Iterable[Node], kind: type[And] | type[Or]) -> Iterable[Node]:
    for node in nodes:
        if isinstance(node, kind):
            yield from node.children  # children are canonical: none of them is of the same kind
        elif isinstance(node, And | Or):
            yield node
        else:
            yield simplified(node)


def _drop_absorbed(parts: set[Node], kind: type[And] | type[Or]) -> set[Node]:
    """Return parts without absorbed ones: ``a AND (a OR b)`` is a, and ``a OR (a AND b)`` is a."""
    dual = Or if kind is And else And
    return {part for part in parts if not (isinstance(part, dual) and not parts.isdisjoint(part.children))}


def simplified(literal: Literal | Constant) -> Literal | Constant:
    """Return a literal in canonical form: a constant if it is TRUE of every row or of none, a set if it is one."""
    if isinstance(literal, Like):
        literal = like(literal.subject, literal.pattern, literal.negated)
    elif isinstance(literal, Comparison) and literal.left == literal.right:
        always = ValueSet.all() if literal.op in ("=", "<=") else ValueSet.empty()
        literal = InSet(literal.left, always)
    if isinstance(literal, InSet):
        if literal.values.is_all and literal.null:
            return TRUE
        if literal.values.is_empty and not literal.null:
            return FALSE
    return literal


def _intersect(a: InSet, b: InSet) -> InSet:
    return InSet(a.subject, a.values.intersect(b.values), a.null and b.null)


def _unite(a: InSet, b: InSet) -> InSet:
    return InSet(a.subject, a.values.union(b.values), a.null or b.null)


ELEMENTS: Final = "elements"
MAP_KEYS: Final = "map_keys"
MAP_VALUES: Final = "map_values"
EXISTS_LIKE: Final = "exists_like"
EXISTS_WITHIN: Final = "exists_within"


def elements_of(array: Expr) -> Call | None:
    """Return all elements of an array, of their own type; None for another type, or elements without order.

    >>> from layoutopt.model.predicates.nodes import Col
    >>> elements_of(Col("tags", "array<string>"))
    Call(fn='elements', args=(Col(name='tags', type='array<string>'),), type='string')
    """
    kind, parts = nested_parts(array.type)
    if kind != "array" or len(parts) != 1 or key_kind(parts[0]) is None:
        return None
    return Call(ELEMENTS, (array,), parts[0])


def array_of(expr: Expr) -> Expr | None:
    """Return the array of an expression of its elements; None for any other expression."""
    return expr.args[0] if isinstance(expr, Call) and expr.fn == ELEMENTS and len(expr.args) == 1 else None


def keys_of(expr: Expr) -> Call | None:
    """Return the array of a map's keys; None for another type."""
    return _make_map_part(expr, MAP_KEYS, 0)


def values_of(expr: Expr) -> Call | None:
    """Return the array of a map's values, including NULL; None for another type."""
    return _make_map_part(expr, MAP_VALUES, 1)


def _make_map_part(expr: Expr, function: str, index: int) -> Call | None:
    kind, parts = nested_parts(expr.type)
    return Call(function, (expr,), f"array<{parts[index]}>") if kind == "map" and len(parts) == 2 else None


def make_exists_call(array: Expr, literal: InSet | Like) -> Call | None:
    """Return the call that is TRUE where some element meets a literal: a pattern, or a bounded range; else None.

    >>> from layoutopt.model.predicates.nodes import Col
    >>> xs, x = Col("xs", "array<int>"), Col("x", "int")
    >>> call = make_exists_call(xs, InSet(x, ValueSet.interval(3, 6)))
    >>> call.fn, get_element_literal(call, x) == InSet(x, ValueSet.interval(3, 6))
    ('exists_within', True)
    """
    if isinstance(literal, Like):
        pattern = Const(like_text(literal.pattern), "string")
        return None if literal.negated else Call(EXISTS_LIKE, (array, pattern), "boolean")
    ((low, high), *rest) = literal.values.intervals or ((None, None),)
    if low is None or high is None or rest or literal.null:
        return None
    # The end that is left out is a key too: of whole numbers one more than the last.
    ends = (Const(low, literal.subject.type), Const(high, literal.subject.type))
    return Call(EXISTS_WITHIN, (array, *ends), "boolean")


def get_element_literal(call: Call, element: Expr) -> InSet | Like | None:
    """Return the literal of an element in a call of :func:`make_exists_call`; None for another call."""
    keys = [arg.value for arg in call.args[1:] if isinstance(arg, Const) and arg.type == element.type]
    match call.fn, keys:
        case "exists_like", [str() as text] if element.type == "string":
            literal = like(element, parse_like(text))
            return literal if isinstance(literal, InSet | Like) else None
        case "exists_within", [low, high] if low is not None and high is not None:
            return InSet(element, ValueSet.interval(low, high))
    return None
