"""Which conditions may be applied to a from-item's rows before the rest of the query is computed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from sqlglot import exp

from layoutopt.model.predicates import And, Call, Col, Comparison, Constant, Expr, InSet, Like, Node, Or
from layoutopt.sql.scopes.from_items import UNKNOWN, ColumnNames, FromItem, JoinNode, Source
from layoutopt.sql.scopes.scope import Scope, excepted_from
from layoutopt.sql.scopes.shown import Attribute


class Mode(IntEnum):
    """When rows of a from-item for which a condition is not TRUE may be dropped; of two limits the larger holds."""

    FREE = 0
    """At once."""
    NULL_REJECTING = 1
    """Only if the condition can't be TRUE for a row of NULLs."""
    BLOCKED = 2
    """Never before the rest of the query."""


_BOUNDARIES = ("limit", "offset", "qualify", "having")
# Of a condition above a join: its mode on the left and on the right side, by the kind of join.
_ABOVE = {
    "inner": (Mode.FREE, Mode.FREE),
    "left": (Mode.FREE, Mode.NULL_REJECTING),
    "right": (Mode.NULL_REJECTING, Mode.FREE),
    "full": (Mode.NULL_REJECTING, Mode.NULL_REJECTING),
    "semi": (Mode.FREE, Mode.BLOCKED),
    "anti": (Mode.FREE, Mode.BLOCKED),
}
# The same of a condition in the ON of the join itself.
_IN_ON = {
    "inner": (Mode.FREE, Mode.FREE),
    "left": (Mode.BLOCKED, Mode.FREE),
    "right": (Mode.FREE, Mode.BLOCKED),
    "full": (Mode.BLOCKED, Mode.BLOCKED),
    "semi": (Mode.FREE, Mode.FREE),
    "anti": (Mode.BLOCKED, Mode.FREE),
}
# Functions that are NULL for NULL; of others nothing is assumed, since some turn NULL into something else.
_STRICT = frozenset(
    {
        "try_cast", "try_add", "try_subtract", "try_multiply", "try_divide", "try_mod", "abs", "sqrt",
        "year", "quarter", "month", "weekofyear", "day", "dayofyear", "dayofweek", "last_day", "hour", "minute",
        "second", "lower", "upper", "reverse", "length", "substring", "left", "right", "trim", "ltrim", "rtrim",
        "instr", "concat", "datediff", "trunc", "date_trunc", "rlike",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Placed:
    """A condition that holds above a from-item and is about it.

    Attributes:
        condition: what must hold.
        scope: what its columns are looked up in.
        mode: when rows of the from-item for which it is not TRUE may be dropped.
    """

    condition: exp.Expr
    scope: Scope
    mode: Mode


def place(source: Source | None, condition: exp.Expr, scope: Scope) -> Iterator[tuple[FromItem, Placed]]:
    """A condition that holds above a source, for each from-item that it is about, with its mode there.

    Below the preserved side of an outer join a condition may be applied first. Below the side that the join fills
    with NULLs it may only if it is never TRUE for NULLs: such rows would be dropped above the join anyway.
    """
    return _place(source, condition, scope, scope.about(condition), Mode.FREE)


def place_on(join: JoinNode, condition: exp.Expr, scope: Scope) -> Iterator[tuple[FromItem, Placed]]:
    """One conjunct of a join's ON condition, for each from-item that it is about, with its mode there."""
    about = scope.about(condition)
    for side, mode in zip((join.left, join.right), _IN_ON[join.kind], strict=True):
        yield from _place(side, condition, scope, about, mode)


def _place(
    source: Source | None, condition: exp.Expr, scope: Scope, about: set[FromItem], mode: Mode
) -> Iterator[tuple[FromItem, Placed]]:
    if isinstance(source, FromItem):
        if source in about:
            yield source, Placed(condition, scope, Mode.BLOCKED if source.frozen else mode)
    elif isinstance(source, JoinNode):
        for side, limit in zip((source.left, source.right), _ABOVE[source.kind], strict=True):
            yield from _place(side, condition, scope, about, max(mode, limit))


def rejects_nulls(node: Node) -> bool:
    """Whether a filter is surely not TRUE for a row whose columns are all NULL; False when unsure."""
    if isinstance(node, Constant):
        return not node.value
    if isinstance(node, And):
        return any(rejects_nulls(child) for child in node.children)
    if isinstance(node, Or):
        return all(rejects_nulls(child) for child in node.children)
    if isinstance(node, InSet):
        return not node.null and _is_null(node.subject)
    if isinstance(node, Like):
        return _is_null(node.subject)
    assert isinstance(node, Comparison)
    return _is_null(node.left) or _is_null(node.right)


def _is_null(expr: Expr) -> bool:
    """Whether the expression is surely NULL where every column is."""
    if isinstance(expr, Call):
        return expr.fn in _STRICT and any(_is_null(argument) for argument in expr.args)
    return isinstance(expr, Col)


def pushed_condition(condition: exp.Expr, select: exp.Select, scope: Scope, called: ColumnNames) -> exp.Expr | None:
    """A condition on a SELECT's result in terms of its sources, where filtering its rows first gives the same result.

    Args:
        condition: names columns of the result and nothing else.
        select: what computes the result.
        scope: the names in ``select``.
        called: what the condition calls the result's columns, in order.

    Returns:
        None where the result would change: below LIMIT, windows, or an aggregate that the condition is not a key of.
    """
    if any(select.args.get(key) for key in _BOUNDARIES) or any(p.find(exp.Window) for p in select.expressions):
        return None
    outputs = _outputs(select, scope, called)
    if outputs is None:
        return None
    grouped = select.args.get("group") or any(p.find(exp.AggFunc) for p in select.expressions)
    rewritten = exp.Paren(this=condition.copy())
    for column in list(rewritten.find_all(exp.Column)):
        output = outputs.get(column.name.lower())  # whole columns of the result: no field of a struct
        if output is None or (grouped and not _is_group_key(select, output)):
            return None
        column.replace(exp.Paren(this=output.copy()))
    return rewritten


def _outputs(select: exp.Select, scope: Scope, called: ColumnNames) -> dict[str, exp.Expr | None] | None:
    """Folded output name -> its expression, None if no name surely means it; None where they can't be told apart."""
    if called is UNKNOWN or scope.outputs() is UNKNOWN or any(excepted_from(each) for each in select.expressions):
        return None
    expressions: list[exp.Expr | None] = []
    for projection in select.expressions:
        if projection.is_star:
            expressions += [_spelled(each, scope) for each in scope.starred(projection)]
        else:
            expressions.append(projection.unalias())
    folded = [name.lower() for name in called]
    if len(expressions) != len(folded) or len(set(folded)) != len(folded):
        return None
    return dict(zip(folded, expressions, strict=True))


def _spelled(attribute: Attribute, scope: Scope) -> exp.Expr | None:
    """A name that surely means a column that a star stands for."""
    if not attribute.name or not attribute.whole:
        return None
    spelled = exp.column(attribute.name, table=(attribute.qualifier or (None,))[-1], quoted=True)
    return spelled if scope.resolve(spelled).exact in attribute.columns else None


def _is_group_key(select: exp.Select, output: exp.Expr) -> bool:
    group = select.args.get("group")
    if group is None or any(value for key, value in group.args.items() if key != "expressions"):
        return False  # no key, or GROUPING SETS, ROLLUP, CUBE: those add rows of NULLs
    return isinstance(output, exp.Column) and output in group.expressions
