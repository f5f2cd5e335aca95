"""Functions of texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow.compute as pc

from layoutopt.functions.function import Function, always, unbounded
from layoutopt.functions.ranges import Range, limits
from layoutopt.model.arrays import Keys
from layoutopt.model.predicates import Call, Const
from layoutopt.model.predicates.patterns import extract_group, find_template

_MAX_INT: Final = limits("int")[1]


def _take_prefix(a: Range, length: int) -> Range:
    """Bound the first characters of a text, which keep order."""
    return _map_texts(a, lambda text: text[: max(length, 0)])


def _map_texts(a: Range, function: Callable[[str], str]) -> Range:
    return Range(_map_keys(a.low, a, function), _map_keys(a.high, a, function), a.known, "string")


def _map_keys(keys: Keys, a: Range, function: Callable[[str], str]) -> Keys:
    mapped = np.empty(len(keys), dtype=np.object_)
    mapped[:] = ""
    mapped[a.known] = [function(key) for key in keys[a.known]]
    return mapped


def _left(call: Call, args: Sequence[Range]) -> Range | None:
    length = call.args[1]
    if not isinstance(length, Const) or not isinstance(length.value, int):
        return None
    return _take_prefix(args[0], length.value)


def _substring(call: Call, args: Sequence[Range]) -> Range | None:
    """Bound ``substring(text, start, length)`` from the beginning; position 0 is the first character too."""
    places = [arg.value if isinstance(arg, Const) else None for arg in call.args[1:]]
    if not places or places[0] not in (0, 1) or not all(isinstance(place, int) for place in places):
        return None
    return _take_prefix(args[0], int(places[1]) if len(places) > 1 and places[1] is not None else 2**31 - 1)


def _is_portable_substring(call: Call) -> bool:
    """Return whether the positions are constants, from 1: the engines count differently from 0 and from the end."""
    start, *lengths = [arg.value if isinstance(arg, Const) else None for arg in call.args[1:]]
    return isinstance(start, int) and start > 0 and all(isinstance(length, int) and length >= 0 for length in lengths)


def _concat(call: Call, args: Sequence[Range]) -> Range | None:
    """Bound a constant text followed by another text."""
    first = call.args[0]
    if len(args) != 2 or args[1].type != "string" or not isinstance(first, Const) or not isinstance(first.value, str):
        return None
    text = first.value
    return _map_texts(args[1], lambda suffix: text + suffix)


def _bound_distance(call: Call, args: Sequence[Range]) -> Range:
    n = len(args[0].low)
    return Range(np.zeros(n, np.int64), np.full(n, _MAX_INT), np.ones_like(args[0].known), "int")


# Characters whose cases differ in Java's and Python's tables; the case of a sigma depends on what follows it.
# tests/functions/test_functions.py compares all others of the first 65,536. Of later ones, emoji have no case.
_OTHER_CASES: Final = frozenset("\u019b\u0264\u03a3\u1c89\u1c8a") | frozenset(map(chr, range(0xA7CB, 0xA7DE)))


def has_one_case(text: str) -> bool:
    """Return whether Java and Python fold the case of a text alike."""
    return text.isascii() or all(
        (letter < "\U00010000" or "\U0001f300" <= letter < "\U0001fb00") and letter not in _OTHER_CASES
        for letter in text
    )


def _change_case(change: Callable[[str], str]) -> Callable[[str], str | None]:
    return lambda text: change(text) if has_one_case(text) else None


def _substring_value(text: str, start: int, length: int = _MAX_INT) -> str:
    first = start - 1 if start > 0 else len(text) + start if start else 0
    return text[max(first, 0) : max(first + length, 0)] if length > 0 else ""


def _substring_index(text: str, separator: str, count: int) -> str:
    """Return what precedes the n-th separator, or from the end what follows it; separators may overlap."""
    if not separator or not count:
        return ""
    place = -1 if count > 0 else len(text) - len(separator) + 1
    for _ in range(abs(count)):
        place = text.find(separator, place + 1) if count > 0 else text.rfind(separator, 0, place - 1 + len(separator))
        if place < 0:
            return text
    return text[:place] if count > 0 else text[place + len(separator) :]


def _levenshtein(first: str, second: str) -> int:
    previous = list(range(len(second) + 1))
    for place, letter in enumerate(first, 1):
        current = [place]
        for other, cost in zip(second, pairwise(previous), strict=True):
            current.append(min(current[-1] + 1, cost[1] + 1, cost[0] + (letter != other)))
        previous = current
    return previous[-1]


def _split_part(text: str, separator: str, position: int) -> str | None:
    if not position:
        return None
    parts = text.split(separator) if separator else [text]
    is_inside = -len(parts) <= position <= len(parts)
    return parts[position - 1 if position > 0 else position] if is_inside else ""


# Of each letter: 0 for vowels, which separate equal codes, and 7 for H and W, which don't.
_SOUNDEX_CODES: Final = "01230127022455012623017202"


def _soundex(text: str) -> str:
    """Return the code of a text's sound: its first letter and three digits.

    As in Spark (``UTF8String.soundex``), a text that begins with no letter of ASCII stays as it is, and characters that
    are no letters separate equal codes.

    >>> _soundex("Robert"), _soundex("Ashcraft"), _soundex("1a"), _soundex("")
    ('R163', 'A261', '1a', '')
    """
    letters = text.encode().upper()
    if not letters[:1].isalpha():
        return text
    code, last = chr(letters[0]), _soundex_code(letters[0])
    for letter in letters[1:]:
        digit = _soundex_code(letter)
        if digit != "7":
            code += digit if digit not in ("0", last) else ""
            last = digit
    return f"{code}000"[:4]


def _soundex_code(letter: int) -> str:
    return _SOUNDEX_CODES[letter - 65] if 65 <= letter <= 90 else "0"


def _make_trim(name: str, catalyst: str, trim: Callable[[str], str]) -> Function:
    return Function(name, ("string",), "string", catalyst=(catalyst,), bounds=unbounded, total=True, compute=trim)


# Those bounded by `unbounded` don't keep the order of texts.
FUNCTIONS: Final = (
    Function(
        "lower",
        ("string",),
        "string",
        parsed=("Lower",),
        catalyst=("Lower",),
        bounds=unbounded,
        total=True,
        compute=_change_case(str.lower),
        on_ascii=pc.ascii_lower,
    ),
    Function(
        "upper",
        ("string",),
        "string",
        parsed=("Upper",),
        catalyst=("Upper",),
        bounds=unbounded,
        total=True,
        compute=_change_case(str.upper),
        on_ascii=pc.ascii_upper,
    ),
    Function(
        "reverse",
        ("string",),
        "string",
        parsed=("Reverse",),
        catalyst=("Reverse",),
        bounds=unbounded,
        total=True,
        compute=lambda text: text[::-1],
    ),
    _make_trim("trim", "StringTrim", lambda text: text.strip(" ")),
    _make_trim("ltrim", "StringTrimLeft", lambda text: text.lstrip(" ")),
    _make_trim("rtrim", "StringTrimRight", lambda text: text.rstrip(" ")),
    Function(
        "length",
        ("string",),
        "int",
        parsed=("Length",),
        catalyst=("Length",),
        bounds=unbounded,
        total=True,
        compute=len,
        is_portable=always,
    ),
    Function(
        "substring",
        ("string", "int", "int"),
        "string",
        optional=1,
        parsed=("Substring",),
        keys=("this", "start", "length"),
        bounds=_substring,
        total=True,
        compute=_substring_value,
        is_portable=_is_portable_substring,
    ),
    Function("left", ("string", "int"), bounds=_left, total=True, compute=lambda text, length: text[: max(length, 0)]),
    Function(
        "right",
        ("string", "int"),
        bounds=unbounded,
        total=True,
        compute=lambda text, length: text[-length:] if length > 0 else "",
    ),
    Function(
        "concat",
        ("string",),
        "string",
        variadic=True,
        parsed=("DPipe", "Concat"),
        keys=("this", "expression", "expressions"),
        catalyst=("Concat",),
        bounds=_concat,
        total=True,
        compute=lambda *texts: "".join(texts),
        is_portable=lambda call: len(call.args) > 1,
    ),
    Function(
        "instr",
        ("string", "string"),
        "int",
        parsed=("StrPosition",),
        keys=("this", "substr"),
        refused=("position", "occurrence"),
        catalyst=("StringInstr",),
        bounds=unbounded,
        total=True,
        compute=lambda text, part: text.find(part) + 1,
        is_portable=always,
    ),
    Function(
        "levenshtein",
        ("string", "string"),
        "int",
        parsed=("Levenshtein",),
        keys=("this", "expression"),
        refused=("ins_cost", "del_cost", "sub_cost", "max_dist"),
        catalyst=("Levenshtein",),
        bounds=_bound_distance,
        total=True,
        compute=_levenshtein,
    ),
    Function("rlike", ("string", "string"), bounds=unbounded, total=True, compute=find_template),
    Function(
        "split_part",
        ("string", "string", "int"),
        parsed=("SplitPart",),
        keys=("this", "delimiter", "part_index"),
        bounds=unbounded,
        total=True,
        compute=_split_part,
        is_piece=True,
    ),
    Function(
        "substring_index",
        ("string", "string", "int"),
        parsed=("SubstringIndex",),
        keys=("this", "delimiter", "count"),
        catalyst=("SubstringIndex",),
        bounds=unbounded,
        total=True,
        compute=_substring_index,
        is_piece=True,
    ),
    Function(
        "regexp_extract",
        ("string", "string", "int"),
        optional=1,
        parsed=("RegexpExtract",),
        keys=("this", "expression", "group"),
        refused=("position", "occurrence", "parameters"),
        catalyst=("RegExpExtract",),
        bounds=unbounded,
        total=True,
        compute=lambda text, pattern, group=1: extract_group(text, pattern, group),
        is_piece=True,
    ),
    Function(
        "soundex",
        ("string",),
        "string",
        parsed=("Soundex",),
        catalyst=("SoundEx",),
        bounds=unbounded,
        total=True,
        compute=_soundex,
    ),
    Function("get_json_object", ("string", "string"), bounds=unbounded, is_piece=True),
)
