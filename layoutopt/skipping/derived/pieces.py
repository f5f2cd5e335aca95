"""What follows for functions of a text from the text's being one of a few: their values, exactly as Spark has them.

So an index of a piece of a text, or of the text in lower case, is asked where a filter names whole texts (Ta-Shma 2020,
IV-D, formatted).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from layoutopt.model.predicates import Call, Const, Expr, InSet
from layoutopt.model.predicates.templates import extracted
from layoutopt.model.values import Key, ValueSet

_MOST: Final = 64


def follows_for(function: Expr, literal: InSet) -> InSet | None:
    """What a literal of a few texts says of a function of the text; None where that is not known.

    >>> from layoutopt.model.predicates import Col
    >>> text = Col("s", "string")
    >>> part = Call("split_part", (text, Const("-", "string"), Const(2, "int")), "string")
    >>> follows_for(part, InSet(text, ValueSet.of(["a-b", "c"]))).values.points()
    ('', 'b')
    """
    if not isinstance(function, Call) or function.type != "string" or literal.null:
        return None
    texts = literal.values.points()
    if texts is None or not 0 < len(texts) <= _MOST or literal.subject.type != "string":
        return None
    values = [_value(function, literal.subject, text) for text in texts]
    known = [value for value in values if value is not None]
    return InSet(function, ValueSet.of(known)) if len(known) == len(values) else None


def _value(expr: Expr, of: Expr, text: Key) -> str | None:
    """An expression's value where another has this text; None where that is not known."""
    if expr == of:
        return text if isinstance(text, str) else None
    if not isinstance(expr, Call) or expr.type != "string" or not expr.args or not expr.columns:
        return None
    given, rest = _value(expr.args[0], of, text), [arg.value for arg in expr.args[1:] if isinstance(arg, Const)]
    compute = _FUNCTIONS.get(expr.fn)
    if compute is None or given is None or len(rest) < len(expr.args) - 1:
        return None
    return compute(given, rest)


def _in_case(change: Callable[[str], str]) -> Callable[[str, list[Key | None]], str | None]:
    return lambda text, rest: change(text) if text.isascii() and not rest else None


def _split_part(text: str, rest: list[Key | None]) -> str | None:
    separator, place = rest if len(rest) == 2 else (None, None)
    if not isinstance(separator, str) or not isinstance(place, int) or not place:
        return None
    parts = text.split(separator) if separator else [text]
    inside = -len(parts) <= place <= len(parts)
    return parts[place - 1 if place > 0 else place] if inside else ""


def _regexp_extract(text: str, rest: list[Key | None]) -> str | None:
    pattern, group = rest if len(rest) == 2 else (None, None)
    known = isinstance(pattern, str) and isinstance(group, int)
    return extracted(text, str(pattern), int(group)) if known and isinstance(group, int) else None


def _left(text: str, rest: list[Key | None]) -> str | None:
    return text[: max(rest[0], 0)] if len(rest) == 1 and isinstance(rest[0], int) else None


_FUNCTIONS: Final[Mapping[str, Callable[[str, list[Key | None]], str | None]]] = MappingProxyType(
    {
        "lower": _in_case(str.lower),
        "upper": _in_case(str.upper),
        "left": _left,
        "split_part": _split_part,
        "regexp_extract": _regexp_extract,
    }
)
