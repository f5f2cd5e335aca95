"""Conditions on texts as filters: LIKE, regular expressions, and what a text starts with, ends with or contains.

Each function takes the condition, whether the rows for which it is TRUE are asked for (else FALSE), and its context.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import exp

from layoutopt.model.predicates import (
    ANY_STRING,
    FALSE,
    Call,
    Expr,
    Node,
    canonical_pattern,
    conjunction,
    disjunction,
    like,
    parse_like,
    simplified,
)
from layoutopt.model.values import ValueSet
from layoutopt.sql.calls.subjects import Context, cast_subject, const, explicit_cast
from layoutopt.sql.expressions import operand
from layoutopt.sql.problems import Unusable
from layoutopt.sql.types.coerce import TypedConstant, cast_constant
from layoutopt.sql.types.preimage import in_set

_SAFE_REGEX = re.compile(r"[\w\s.,:;@#%&=<>!~\"'/^$|*+?-]*")


def like_condition(node: exp.Expr, truth: bool, context: Context, escape: str = "\\") -> Node:
    """``x LIKE 'a%'`` and ILIKE, of one pattern or ANY or ALL of several."""
    if isinstance(node.expression, exp.Any | exp.All):
        return _like_several(node, truth, context, escape)
    text, pattern = _text_and_pattern(node, context)
    if pattern is None:
        return FALSE
    if "\ufffd" in pattern:
        raise Unusable("inexact", f"{node.sql('spark')} also finds bytes that are no UTF-8, which bounds are not of")
    if isinstance(node, exp.ILike):
        if not pattern.isascii():
            raise Unusable("inexact", f"{node.sql('spark')} depends on Unicode's case tables")
        pattern, text = pattern.lower(), Call("lower", (text,), "string")
    return simplified(like(text, parse_like(pattern, escape), not truth))


def _like_several(node: exp.Expr, truth: bool, context: Context, escape: str) -> Node:
    quantifier = node.expression
    patterns = quantifier.this.unnest()
    if not isinstance(patterns, exp.Tuple):
        raise Unusable("subquery", f"{node.sql('spark')[:80]} needs the result of a subquery")
    # x NOT LIKE ALL (...) is NOT LIKE for each pattern, not the opposite of LIKE ALL
    wanted = truth != bool(node.args.get("negate"))
    singles = [type(node)(this=node.this.copy(), expression=pattern.copy()) for pattern in patterns.expressions]
    each = [like_condition(single, wanted, context, escape) for single in singles]
    return disjunction(each) if isinstance(quantifier, exp.Any) == truth else conjunction(each)


def escaped_like(node: exp.Expr, truth: bool, context: Context) -> Node:
    """``x LIKE 'a!%' ESCAPE '!'``."""
    if not isinstance(node.this, exp.Like | exp.ILike):
        raise Unusable("unsupported-expression", f"{node.sql('spark')} has no exact meaning here")
    return like_condition(node.this, truth != bool(node.this.args.get("negate")), context, node.expression.name)


def containing(before: bool, after: bool) -> Callable[[exp.Expr, bool, Context], Node]:
    """The function for conditions that a text has another in it, with anything before or after it."""

    def read(node: exp.Expr, truth: bool, context: Context) -> Node:
        text, part = _text_and_pattern(node, context)
        if part is None:
            return FALSE
        pattern = canonical_pattern([*[ANY_STRING] * before, part, *[ANY_STRING] * after])
        return simplified(like(text, pattern, not truth))

    return read


def regex(node: exp.Expr, truth: bool, context: Context) -> Node:
    """``x RLIKE 'a.*b'``."""
    text, pattern = _text_and_pattern(node, context)
    if pattern is None:
        return FALSE
    if not safe_regex(pattern):
        raise Unusable("can-fail", f"the pattern {pattern!r} may not be one that Java takes")
    call = Call("rlike", (text, const(TypedConstant(pattern, "string"))), "boolean")
    return in_set(call, ValueSet.point(int(truth)), False, context.settings.time_zone)


def safe_regex(pattern: str) -> bool:
    """Whether a pattern is surely one that Java takes, and takes in bounded time and stack.

    >>> safe_regex("^a.*b$"), safe_regex("(a|b)*"), safe_regex("[")
    (True, False, False)
    """
    return bool(_SAFE_REGEX.fullmatch(pattern)) and not re.search(r"[*+?]{2}|^[*+?]|[|^][*+?]", pattern)


def _text_and_pattern(node: exp.Expr, context: Context) -> tuple[Expr, str | None]:
    """The text that is tested, as Spark casts it, and the constant that it is tested with; None for NULL."""
    tested, pattern = operand(node.this, context), operand(node.expression, context)
    if isinstance(tested, TypedConstant):
        raise Unusable("unsupported-expression", f"{node.this.sql('spark')} is a constant")
    if tested.type == "binary":
        raise Unusable("unordered-type", f"{node.this.sql('spark')} is binary, which is not matched as text here")
    text = explicit_cast(cast_subject(tested, "string", context))
    if not isinstance(pattern, TypedConstant):
        raise Unusable("unsupported-expression", f"{node.expression.sql('spark')} is no constant pattern")
    value = cast_constant(pattern, "string", context.settings.time_zone).value
    return text, value if isinstance(value, str) else None
