"""Ranges of functions of texts that keep their order, and what regular expressions say of beginnings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from layoutopt.model.arrays import Keys
from layoutopt.model.predicates import Call, Const, Expr, InSet
from layoutopt.model.values import ValueSet
from layoutopt.skipping.derived.ranges import Range

_REPEATED_FROM_NONE: Final = "*?{"
_SPECIAL: Final = ".^$+()[]\\}"


def beginning(a: Range, length: int) -> Range:
    """The first characters of a text; of texts in order they are in order."""
    kept = max(length, 0)
    return _mapped(a, lambda text: text[:kept])


def preceded(text: str, a: Range) -> Range:
    """A constant text with another behind it."""
    return _mapped(a, lambda other: text + other)


def substring_length(args: tuple[Expr, ...]) -> int | None:
    """How many characters ``substring(text, start, length)`` takes from the beginning; None where it takes others."""
    places = [arg.value if isinstance(arg, Const) else None for arg in args[1:]]
    if not places or places[0] not in (0, 1) or not all(isinstance(place, int) for place in places):
        return None
    # Place 0 is the first character too.
    return int(places[1]) if len(places) > 1 and places[1] is not None else 2**31 - 1


def implied_beginning(literal: InSet) -> InSet | None:
    """What follows from ``text RLIKE '^beginning...'`` being TRUE: the text begins so; None for any other literal."""
    call = literal.subject
    if not isinstance(call, Call) or call.fn != "rlike" or len(call.args) != 2:
        return None
    if literal.null or literal.values != ValueSet.point(1):
        return None
    text, pattern = call.args
    if not isinstance(pattern, Const) or not isinstance(pattern.value, str) or text.type != "string":
        return None
    found = regex_beginning(pattern.value)
    return InSet(text, ValueSet.prefix(found)) if found else None


def regex_beginning(pattern: str) -> str:
    """The letters that every text begins with in which a regular expression of Java's is found; none where unsure.

    >>> regex_beginning("^ab+c.*"), regex_beginning("^abc?"), regex_beginning("^ab|c"), regex_beginning("ab")
    ('ab', 'ab', '', '')
    """
    if not pattern.startswith("^") or "|" in pattern:
        return ""
    found = ""
    for letter in pattern[1:]:
        if letter in _REPEATED_FROM_NONE:
            return found[:-1]
        if letter in _SPECIAL:
            return found
        found += letter
    return found


def _mapped(a: Range, function: Callable[[str], str]) -> Range:
    return Range(_each(a.low, a, function), _each(a.high, a, function), a.known, "string")


def _each(keys: Keys, a: Range, function: Callable[[str], str]) -> Keys:
    found = np.empty(len(keys), dtype=np.object_)
    found[:] = ""
    found[a.known] = [function(key) for key in keys[a.known]]
    return found
