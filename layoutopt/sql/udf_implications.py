"""What conditions with a user's function imply about plain columns, by the function's own word (Tashma 2020, V-C).

``distance(lat, lon, 52.5, 13.4) < 1`` may imply that ``lat`` and ``lon`` lie in a box: minima, maxima and indexes of
the two columns then skip, where nothing is known of distances.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from sqlglot import exp

from layoutopt.errors import QueryError, SettingError
from layoutopt.model.udf import WHERE_TRUE, Udf, Udfs
from layoutopt.sql.dialect import Spark4, parse_statement

_WEAKER: Final = {"=": ("=", "<=", ">="), "<": ("<", "<="), "<=": ("<=",), ">": (">", ">="), ">=": (">=",)}
"""What also holds where a value compares so."""


def implied_conditions(
    condition: exp.Expr, operator: str | None, mirrored: str | None, truth: bool, udfs: Udfs
) -> Iterator[exp.Expr]:
    """The conditions that hold wherever this one is TRUE (or, with ``truth=False``, FALSE).

    Args:
        condition: a call, a comparison, or BETWEEN; anything else implies nothing.
        operator: of a comparison, already turned round where ``truth`` is False: ``<``.
        mirrored: the operator with the sides exchanged.
        truth: which outcome is asked for.
        udfs: the functions that are known.

    Raises:
        SettingError: what a function implies is no condition, or the call has another number of arguments.
    """
    if not any(udf.implies for udf in udfs.values()):
        return
    if isinstance(condition, exp.Anonymous):
        if truth:
            yield from _of_call(condition, (WHERE_TRUE,), None, udfs)
    elif isinstance(condition, exp.Between):
        if truth:
            yield from _of_call(condition.this, _WEAKER[">="], condition.args["low"], udfs)
            yield from _of_call(condition.this, _WEAKER["<="], condition.args["high"], udfs)
    elif operator is not None and mirrored is not None:
        yield from _of_call(condition.this, _WEAKER.get(operator, ()), condition.expression, udfs)
        yield from _of_call(condition.expression, _WEAKER.get(mirrored, ()), condition.this, udfs)


def implied_texts(udf: Udf, operator: str | None, arguments: Sequence[str], value: str | None) -> Iterator[str]:
    """Yield the conditions that hold wherever a call compares so with a value, in Spark's SQL.

    Args:
        udf: the function.
        operator: of the comparison, the call on its left side; None where the call itself is the condition.
        arguments: of the call, in Spark's SQL.
        value: what it is compared with; None where it is not compared.

    Raises:
        SettingError: as :func:`implied_conditions`.
    """
    call = exp.Anonymous(this=udf.name, expressions=[parse_expression(text) for text in arguments])
    keys = (WHERE_TRUE,) if operator is None else _WEAKER.get(operator, ())
    compared = None if value is None else parse_expression(value)
    for found in _of_call(call, keys, compared, {udf.name.casefold(): udf}):
        yield found.sql(dialect=Spark4)


def _of_call(call: exp.Expr, keys: tuple[str, ...], value: exp.Expr | None, udfs: Udfs) -> Iterator[exp.Expr]:
    call = call.unnest()
    udf = udfs.get(call.name.casefold()) if isinstance(call, exp.Anonymous) else None
    if udf is None:
        return
    for key in keys:
        text = udf.implies.get(key)
        if text is not None:
            yield _filled_in(text, udf, call, value)


def _filled_in(text: str, udf: Udf, call: exp.Expr, value: exp.Expr | None) -> exp.Expr:
    if len(call.expressions) != len(udf.parameters):
        raise SettingError(
            f"{call.sql('spark')} has {len(call.expressions)} arguments; {udf.name} takes {', '.join(udf.parameters)}"
        )
    arguments = dict(zip(udf.parameters, call.expressions, strict=True))
    if value is not None:
        arguments.setdefault("value", value)

    def argument(node: exp.Expr) -> exp.Expr:
        return exp.Paren(this=arguments[node.name].copy()) if isinstance(node, exp.Placeholder) else node

    return _template(text, udf.name).copy().transform(argument)


def parse_expression(text: str) -> exp.Expr:
    """Return the tree of an expression in Spark's SQL.

    Raises:
        StatementError: it is none.
    """
    found: exp.Expr = parse_statement(f"SELECT 1 FROM t WHERE {text}").args["where"].this
    return found


@lru_cache(maxsize=256)
def _template(text: str, name: str) -> exp.Expr:
    try:
        return parse_expression(text)
    except QueryError as error:
        raise SettingError(f"what {name} implies, {text!r}, is no condition in Spark's SQL ({error})") from error
