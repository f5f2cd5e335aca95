"""Conditions on the result of a SELECT as conditions on the rows that it reads."""

from __future__ import annotations

from sqlglot import exp

from layoutopt.sql.scopes.names import Names, excepted_from
from layoutopt.sql.scopes.shown import Attribute

_BOUNDARIES = ("limit", "offset", "qualify", "having")


def pushed_condition(
    condition: exp.Expr, select: exp.Select, names: Names, called: tuple[str, ...] | None
) -> exp.Expr | None:
    """The condition in terms of the SELECT's sources, where filtering its rows first gives the same result.

    Args:
        condition: names columns of the result and nothing else.
        select: what computes the result.
        names: the names in ``select``.
        called: what the condition calls the result's columns, in order; None where that is unknown.

    Returns:
        None where the result would change: below LIMIT, windows, or an aggregate that the condition is not a key of.
    """
    if any(select.args.get(key) for key in _BOUNDARIES) or any(p.find(exp.Window) for p in select.expressions):
        return None
    outputs = _outputs(select, names, called)
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


def _outputs(select: exp.Select, names: Names, called: tuple[str, ...] | None) -> dict[str, exp.Expr | None] | None:
    """Folded output name -> its expression, None if no name surely means it; None where they can't be told apart."""
    if called is None or names.outputs() is None or any(excepted_from(each) for each in select.expressions):
        return None
    expressions: list[exp.Expr | None] = []
    for projection in select.expressions:
        if projection.is_star:
            expressions += [_spelled(each, names) for each in names.starred(projection)]
        else:
            expressions.append(projection.unalias())
    folded = [name.lower() for name in called]
    if len(expressions) != len(folded) or len(set(folded)) != len(folded):
        return None
    return dict(zip(folded, expressions, strict=True))


def _spelled(attribute: Attribute, names: Names) -> exp.Expr | None:
    """A name that surely means a column that a star stands for."""
    if not attribute.name or not attribute.whole:
        return None
    spelled = exp.column(attribute.name, table=(attribute.qualifier or (None,))[-1], quoted=True)
    return spelled if names.resolve(spelled).exact in attribute.columns else None


def _is_group_key(select: exp.Select, output: exp.Expr) -> bool:
    group = select.args.get("group")
    if group is None or any(value for key, value in group.args.items() if key != "expressions"):
        return False  # no key, or GROUPING SETS, ROLLUP, CUBE: those add rows of NULLs
    return isinstance(output, exp.Column) and output in group.expressions
