"""Whether a filter can be TRUE for a row whose columns are all NULL: decides what may go below an outer join."""

from __future__ import annotations

from layoutopt.model.predicates import And, Call, Col, Comparison, Constant, Expr, InSet, Like, Node, Or

# Functions that turn NULL into something else; of functions not known to give NULL for NULL nothing is assumed.
_STRICT = frozenset(
    {
        "try_cast", "try_add", "try_subtract", "try_multiply", "try_divide", "try_mod", "abs", "sqrt",
        "year", "quarter", "month", "weekofyear", "day", "dayofyear", "dayofweek", "last_day", "hour", "minute",
        "second", "lower", "upper", "reverse", "length", "substring", "left", "right", "trim", "ltrim", "rtrim",
        "instr", "concat", "datediff", "trunc", "date_trunc", "rlike",
    }
)  # fmt: skip


def rejects_nulls(node: Node) -> bool:
    """Whether the node is surely not TRUE where every column is NULL; False when unsure."""
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
