"""Conditions on plain columns that follow from a user's function, as its declaration says (Ta-Shma 2020, V-C).

``distance(lat, lon, 52.5, 13.4) < 1`` may imply that ``lat`` and ``lon`` lie in a box. Then minima, maxima and indexes
of the two columns can skip, although nothing is known about distances.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from sqlglot import exp

from layoutopt.errors import QueryError, SettingError
from layoutopt.model.udf import WHERE_TRUE, Udf, Udfs
from layoutopt.sql.dialect import Spark4, parse_statement

# The operators that hold wherever an operator holds.
_WEAKER: Final = {"=": ("=", "<=", ">="), "<": ("<", "<="), "<=": ("<=",), ">": (">", ">="), ">=": (">=",)}


def implied_conditions(
    condition: exp.Expr, operator: str | None, mirrored: str | None, truth: bool, udfs: Udfs
) -> Iterator[exp.Expr]:
    """Yield the conditions that hold wherever this one is TRUE (or, with ``truth=False``, FALSE).

    Calls, comparisons and BETWEEN have implications. A comparison's ``operator`` is already negated if ``truth`` is
    False; ``mirrored`` is the operator with the sides exchanged.

    Raises:
        SettingError: a function's implication is no condition, or the call has the wrong number of arguments.
    """
    if not any(udf.implies for udf in udfs.values()):
        return
    if isinstance(condition, exp.Anonymous):
        if truth:
            yield from _call_implications(condition, (WHERE_TRUE,), None, udfs)
    elif isinstance(condition, exp.Between):
        if truth:
            yield from _call_implications(condition.this, _WEAKER[">="], condition.args["low"], udfs)
            yield from _call_implications(condition.this, _WEAKER["<="], condition.args["high"], udfs)
    elif operator is not None and mirrored is not None:
        yield from _call_implications(condition.this, _WEAKER.get(operator, ()), condition.expression, udfs)
        yield from _call_implications(condition.expression, _WEAKER.get(mirrored, ()), condition.this, udfs)


def implied_texts(udf: Udf, operator: str | None, arguments: Sequence[str], value: str | None) -> Iterator[str]:
    """Yield the conditions that hold wherever a call's comparison with a value holds, in Spark's SQL.

    The call is on the comparison's left side; without operator and value it is the condition itself.

    Raises:
        SettingError: as :func:`implied_conditions`.
    """
    call = exp.Anonymous(this=udf.name, expressions=[_parse_expression(text) for text in arguments])
    keys = (WHERE_TRUE,) if operator is None else _WEAKER.get(operator, ())
    compared = None if value is None else _parse_expression(value)
    for condition in _call_implications(call, keys, compared, {udf.name.casefold(): udf}):
        yield condition.sql(dialect=Spark4)


def _call_implications(call: exp.Expr, keys: tuple[str, ...], value: exp.Expr | None, udfs: Udfs) -> Iterator[exp.Expr]:
    call = call.unnest()
    udf = udfs.get(call.name.casefold()) if isinstance(call, exp.Anonymous) else None
    if udf is None:
        return
    for key in keys:
        text = udf.implies.get(key)
        if text is not None:
            yield _fill_template(text, udf, call, value)


def _fill_template(text: str, udf: Udf, call: exp.Expr, value: exp.Expr | None) -> exp.Expr:
    if len(call.expressions) != len(udf.parameters):
        raise SettingError(
            f"{call.sql('spark')} has {len(call.expressions)} arguments; {udf.name} takes {', '.join(udf.parameters)}"
        )
    arguments = dict(zip(udf.parameters, call.expressions, strict=True))
    if value is not None:
        arguments.setdefault("value", value)

    def to_argument(node: exp.Expr) -> exp.Expr:
        return exp.Paren(this=arguments[node.name].copy()) if isinstance(node, exp.Placeholder) else node

    return _parse_template(text, udf.name).copy().transform(to_argument)


def _parse_expression(text: str) -> exp.Expr:
    expression: exp.Expr = parse_statement(f"SELECT 1 FROM t WHERE {text}").args["where"].this
    return expression


@lru_cache(maxsize=256)
def _parse_template(text: str, name: str) -> exp.Expr:
    try:
        return _parse_expression(text)
    except QueryError as error:
        raise SettingError(f"the implication {text!r} of {name} is not a condition in Spark's SQL ({error})") from error
