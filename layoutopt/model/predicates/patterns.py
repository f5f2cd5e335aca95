"""LIKE patterns as sets of strings: matching, and what one pattern's language says of another's.

A pattern is a tuple of tokens: runs of literal text, ``ANY_CHAR`` (``_``: one code point) and ``ANY_STRING`` (``%``).
In canonical form texts are not empty and not adjacent, and of neighbouring wildcards the ``ANY_CHAR`` come first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import lru_cache
from itertools import groupby
from typing import Final


class Wildcard(Enum):
    """A token that stands for text: ``_`` or ``%``."""

    ANY_CHAR = "_"
    ANY_STRING = "%"

    def __repr__(self) -> str:
        return self.name


ANY_CHAR: Final = Wildcard.ANY_CHAR
ANY_STRING: Final = Wildcard.ANY_STRING
Token = str | Wildcard
Pattern = tuple[Token, ...]


def canonical_pattern(tokens: Iterable[Token]) -> Pattern:
    """The form that patterns of the same tokens up to splitting and order of wildcards share.

    >>> canonical_pattern(["a", "", "b", ANY_STRING, ANY_CHAR, ANY_STRING])
    ('ab', ANY_CHAR, ANY_STRING)
    """
    result: list[Token] = []
    for is_text, group in groupby((token for token in tokens if token != ""), key=lambda token: isinstance(token, str)):
        run = list(group)
        if is_text:
            result.append("".join(token for token in run if isinstance(token, str)))
        else:
            result += [ANY_CHAR] * run.count(ANY_CHAR) + [ANY_STRING] * (ANY_STRING in run)
    return tuple(result)


def parse_like(text: str, escape: str = "\\") -> Pattern:
    r"""The pattern that a LIKE text stands for, as Spark reads it.

    Raises:
        ValueError: the escape is not one character, stands at the end, or before a character that needs no escape
            (Spark refuses the last two when it runs the query).

    >>> parse_like(r"100\%_%")
    ('100%', ANY_CHAR, ANY_STRING)
    """
    if len(escape) != 1:
        raise ValueError(f"the escape {escape!r} is not one character; give one")
    return canonical_pattern(_tokens(text, escape))


def _tokens(text: str, escape: str) -> Iterator[Token]:
    characters = iter(text)
    for character in characters:
        if character == escape:
            escaped = next(characters, "")
            if escaped not in ("_", "%", escape):
                raise ValueError(f"{text!r} has the escape {escape!r} before {escaped!r}; escape only _, % and itself")
            yield escaped
        elif character in ("_", "%"):
            yield Wildcard(character)
        else:
            yield character


def like_text(pattern: Pattern) -> str:
    r"""A text that :func:`parse_like` reads back with the escape ``\``.

    >>> like_text(("50%", ANY_STRING))
    '50\\%%'
    """
    return "".join(
        re.sub(r"([\\%_])", r"\\\1", token) if isinstance(token, str) else str(token.value) for token in pattern
    )


@lru_cache(maxsize=4096)
def _regex(pattern: Pattern) -> re.Pattern[str]:
    parts = {ANY_CHAR: ".", ANY_STRING: ".*"}
    return re.compile("".join(re.escape(t) if isinstance(t, str) else parts[t] for t in pattern), re.DOTALL)


def matches(pattern: Pattern, text: str) -> bool:
    """Whether a text is in the pattern's language."""
    return _regex(pattern).fullmatch(text) is not None


def literal_prefix(pattern: Pattern) -> str:
    """The text that every string of the language starts with."""
    return pattern[0] if pattern and isinstance(pattern[0], str) else ""


Symbol = str | Wildcard


@lru_cache(maxsize=4096)
def _symbols(pattern: Pattern) -> tuple[Symbol, ...]:
    """The pattern with each text split into its characters."""
    return tuple(symbol for token in pattern for symbol in (token if isinstance(token, str) else (token,)))


@lru_cache(maxsize=1 << 16)
def includes(general: Pattern, specific: Pattern) -> bool:
    """Whether every string of ``specific`` is one of ``general``: sound, FALSE when unsure.

    ``general`` is matched against the symbols of ``specific``: ``%`` takes any of them, ``_`` one character or ``_``,
    a character itself.

    >>> includes(parse_like("%b%"), parse_like("ab_%")), includes(parse_like("a_"), parse_like("a%"))
    (True, False)
    """
    wanted = _symbols(general)
    reached = _closed({0}, wanted)
    for symbol in _symbols(specific):
        stepped = set()
        for place in reached:
            if place < len(wanted) and _takes(wanted[place], symbol):
                stepped.add(place if wanted[place] is ANY_STRING else place + 1)
        reached = _closed(stepped, wanted)
    return len(wanted) in reached


def _takes(wanted: Symbol, symbol: Symbol) -> bool:
    if wanted is ANY_STRING:
        return True
    if symbol is ANY_STRING:
        return False
    return wanted is ANY_CHAR or wanted == symbol


def _closed(places: set[int], symbols: tuple[Symbol, ...]) -> set[int]:
    """The places with those that are reached by letting ``%`` stand for nothing."""
    closed = set(places)
    for place in places:
        while place < len(symbols) and symbols[place] is ANY_STRING:
            place += 1
            closed.add(place)
    return closed


@lru_cache(maxsize=1 << 16)
def are_disjoint(first: Pattern, second: Pattern) -> bool:
    """Whether no string is in both languages: exact.

    Walks the pairs of places that some common beginning of both languages reaches.

    >>> are_disjoint(parse_like("%a"), parse_like("%b")), are_disjoint(parse_like("a%"), parse_like("%b"))
    (True, False)
    """
    left, right = _symbols(first), _symbols(second)
    seen, waiting = {(0, 0)}, [(0, 0)]
    while waiting:
        i, j = waiting.pop()
        if i == len(left) and j == len(right):
            return False
        for pair in _next_pairs(left, right, i, j):
            if pair not in seen:
                seen.add(pair)
                waiting.append(pair)
    return True


def _next_pairs(left: tuple[Symbol, ...], right: tuple[Symbol, ...], i: int, j: int) -> Iterator[tuple[int, int]]:
    ours, theirs = left[i : i + 1], right[j : j + 1]
    if ours == (ANY_STRING,):
        yield i + 1, j
    if theirs == (ANY_STRING,):
        yield i, j + 1
    if ours and theirs and (isinstance(ours[0], Wildcard) or isinstance(theirs[0], Wildcard) or ours == theirs):
        yield i + (ours[0] is not ANY_STRING), j + (theirs[0] is not ANY_STRING)


# ----------------------------------------------------------------------------------------------------
# Templates: regular expressions of a few plain forms, which Java and Python take alike.
#
# One character after the other: letters, digits and signs as they are or behind a backslash, ``.``, ``\d``, ``\w``,
# ``\s``, ``[A-Z0-9_-]`` or ``[^/]``, each with at most one of ``*``, ``+``, ``?``, ``{2}``, ``{2,4}``; groups of these,
# neither nested nor repeated; ``^`` at the beginning and ``$`` at the end.

_CLASS: Final = r"\[\^?(?:\\[dws]|[a-z]-[a-z]|[A-Z]-[A-Z]|\d-\d|[\w ./:;,@#%=+*?!$()|])+-?\]"
_TIMES: Final = r"(?:[*+?]|\{\d{1,3}(?:,\d{1,3})?\})?"
_ATOM: Final = rf"(?:[\w /:;,@#%=<>!~\"'-]|\\[dws]|\\[.\-+*?^$|(){{}}\[\]/\\]|\.|{_CLASS}){_TIMES}"
_TEMPLATE: Final = re.compile(rf"\^?(?:{_ATOM}|\((?:{_ATOM})+\))+\$?", re.ASCII)
_LINE_ENDS: Final = re.compile("[\n\r\u0085\u2028\u2029]")
_LONGEST: Final = 200


@lru_cache(maxsize=256)
def template_groups(pattern: str) -> int | None:
    """How many groups a template has; None where the pattern is no template.

    >>> [template_groups(each) for each in ("^([A-Z]{2})-(\\\\d+)$", "a", "(a|b)", "(a*)*")]
    [2, 0, None, None]
    """
    if len(pattern) > _LONGEST or not _TEMPLATE.fullmatch(pattern):
        return None
    try:
        return re.compile(pattern, re.ASCII).groups
    except re.error:  # a class whose range runs backwards, or {4,2}
        return None


def extracted(text: str, pattern: str, group: int) -> str | None:
    """What Spark's ``regexp_extract`` gives; None where that is not known: by Java, lines end otherwise than by Python.

    >>> extracted("AB-1234", "^([A-Z]+)-", 1), extracted("1234", "^([A-Z]+)-", 1)
    ('AB', '')
    """
    groups = template_groups(pattern)
    if groups is None or not 0 <= group <= groups or _LINE_ENDS.search(text):
        return None
    found = re.search(pattern, text, re.ASCII)
    return "" if found is None else found[group] or ""
