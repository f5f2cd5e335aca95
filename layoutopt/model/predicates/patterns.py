"""LIKE patterns as sets of strings: matching, and relations between patterns; portable regular expressions.

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
    """A token that matches text: ``_`` or ``%``."""

    ANY_CHAR = "_"
    ANY_STRING = "%"

    def __repr__(self) -> str:
        return self.name


ANY_CHAR: Final = Wildcard.ANY_CHAR
ANY_STRING: Final = Wildcard.ANY_STRING
Token = str | Wildcard
Pattern = tuple[Token, ...]


def canonical_pattern(tokens: Iterable[Token]) -> Pattern:
    """Return the canonical form of tokens.

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
    r"""Return the pattern of a LIKE text, as Spark reads it.

    Raises:
        ValueError: the escape is not one character, is the last character, or precedes one that needs no escape
            (Spark refuses the last two when it runs the query).

    >>> parse_like(r"100\%_%")
    ('100%', ANY_CHAR, ANY_STRING)
    """
    if len(escape) != 1:
        raise ValueError(f"the escape {escape!r} is not one character; give one")
    return canonical_pattern(_tokenize(text, escape))


def _tokenize(text: str, escape: str) -> Iterator[Token]:
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
    r"""Return a text that :func:`parse_like` reads back with the escape ``\``.

    >>> like_text(("50%", ANY_STRING))
    '50\\%%'
    """
    return "".join(
        re.sub(r"([\\%_])", r"\\\1", token) if isinstance(token, str) else str(token.value) for token in pattern
    )


@lru_cache(maxsize=4096)
def _to_regex(pattern: Pattern) -> re.Pattern[str]:
    parts = {ANY_CHAR: ".", ANY_STRING: ".*"}
    return re.compile("".join(re.escape(t) if isinstance(t, str) else parts[t] for t in pattern), re.DOTALL)


def matches(pattern: Pattern, text: str) -> bool:
    """Return whether a text matches the pattern."""
    return _to_regex(pattern).fullmatch(text) is not None


def literal_prefix(pattern: Pattern) -> str:
    """Return the text that every matching string starts with."""
    return pattern[0] if pattern and isinstance(pattern[0], str) else ""


Symbol = str | Wildcard


@lru_cache(maxsize=4096)
def _split_symbols(pattern: Pattern) -> tuple[Symbol, ...]:
    """Return the pattern with each text split into its characters."""
    return tuple(symbol for token in pattern for symbol in (token if isinstance(token, str) else (token,)))


@lru_cache(maxsize=1 << 16)
def includes(general: Pattern, specific: Pattern) -> bool:
    """Return whether every string of ``specific`` matches ``general``: sound, FALSE when unsure.

    ``general`` is matched against the symbols of ``specific``: ``%`` takes any of them, ``_`` one character or ``_``, a
    character itself.

    >>> includes(parse_like("%b%"), parse_like("ab_%")), includes(parse_like("a_"), parse_like("a%"))
    (True, False)
    """
    symbols = _split_symbols(general)
    reached = _close({0}, symbols)
    for symbol in _split_symbols(specific):
        stepped = set()
        for position in reached:
            if position < len(symbols) and _accepts(symbols[position], symbol):
                stepped.add(position if symbols[position] is ANY_STRING else position + 1)
        reached = _close(stepped, symbols)
    return len(symbols) in reached


def _accepts(general: Symbol, symbol: Symbol) -> bool:
    if general is ANY_STRING:
        return True
    if symbol is ANY_STRING:
        return False
    return general is ANY_CHAR or general == symbol


def _close(positions: set[int], symbols: tuple[Symbol, ...]) -> set[int]:
    """Return positions with those reached by matching ``%`` with the empty string."""
    closed = set(positions)
    for position in positions:
        while position < len(symbols) and symbols[position] is ANY_STRING:
            position += 1
            closed.add(position)
    return closed


@lru_cache(maxsize=1 << 16)
def are_disjoint(first: Pattern, second: Pattern) -> bool:
    """Return whether no string matches both patterns: exact.

    Walks the pairs of positions that some common prefix of both languages reaches.

    >>> are_disjoint(parse_like("%a"), parse_like("%b")), are_disjoint(parse_like("a%"), parse_like("%b"))
    (True, False)
    """
    left, right = _split_symbols(first), _split_symbols(second)
    visited, queue = {(0, 0)}, [(0, 0)]
    while queue:
        i, j = queue.pop()
        if i == len(left) and j == len(right):
            return False
        for pair in _list_next_pairs(left, right, i, j):
            if pair not in visited:
                visited.add(pair)
                queue.append(pair)
    return True


def _list_next_pairs(left: tuple[Symbol, ...], right: tuple[Symbol, ...], i: int, j: int) -> Iterator[tuple[int, int]]:
    first, second = left[i : i + 1], right[j : j + 1]
    if first == (ANY_STRING,):
        yield i + 1, j
    if second == (ANY_STRING,):
        yield i, j + 1
    if first and second and (isinstance(first[0], Wildcard) or isinstance(second[0], Wildcard) or first == second):
        yield i + (first[0] is not ANY_STRING), j + (second[0] is not ANY_STRING)


_CLASS: Final = r"\[\^?(?:\\[dws]|[a-z]-[a-z]|[A-Z]-[A-Z]|\d-\d|[\w ./:;,@#%=+*?!$()|])+-?\]"
_TIMES: Final = r"(?:[*+?]|\{\d{1,3}(?:,\d{1,3})?\})?"
_ATOM: Final = rf"(?:[\w /:;,@#%=<>!~\"'-]|\\[dws]|\\[.\-+*?^$|(){{}}\[\]/\\]|\.|{_CLASS}){_TIMES}"
_TEMPLATE: Final = re.compile(rf"\^?(?:{_ATOM}|\((?:{_ATOM})+\))+\$?", re.ASCII)
# What Java and Python read otherwise in texts of several lines, beside parts in which it is a character.
_LINED: Final = re.compile(r"\\.|\[[^\]]*\]|\.|\$")
_IN_PYTHON: Final = {
    ".": "[^\n\r\u0085\u2028\u2029]",
    "$": r"(?=(?:\r\n|(?<!\r)\n|[\r\u0085\u2028\u2029])?\Z)",
}
_LONGEST: Final = 200


@lru_cache(maxsize=256)
def template_groups(pattern: str) -> int | None:
    r"""Return the number of groups of a template; None where the pattern is no template.

    Templates are regular expressions that Java and Python interpret alike: letters, digits and signs, plain or escaped,
    ``.``, ``\d``, ``\w``, ``\s``, ``[A-Z0-9_-]`` or ``[^/]``, each with at most one of ``*``, ``+``, ``?``, ``{2}``,
    ``{2,4}``; groups of these, neither nested nor repeated; ``^`` at the beginning and ``$`` at the end.

    >>> [template_groups(pattern) for pattern in ("^([A-Z]{2})-(\\d+)$", "a", "(a|b)", "(a*)*")]
    [2, 0, None, None]
    """
    if len(pattern) > _LONGEST or not _TEMPLATE.fullmatch(pattern):
        return None
    try:
        return re.compile(pattern, re.ASCII).groups
    except re.error:  # a class whose range runs backwards, or {4,2}
        return None


@lru_cache(maxsize=256)
def _to_python(pattern: str) -> re.Pattern[str]:
    """Return a template of Java's as Python's regular expression."""
    return re.compile(_LINED.sub(lambda part: _IN_PYTHON.get(part[0], part[0]), pattern), re.ASCII)


def extract_group(text: str, pattern: str, group: int) -> str | None:
    """Return the result of Spark's ``regexp_extract``; None where unknown.

    >>> extract_group("AB-1234", "^([A-Z]+)-", 1), extract_group("1234", "^([A-Z]+)-", 1)
    ('AB', '')
    """
    groups = template_groups(pattern)
    if groups is None or not 0 <= group <= groups:
        return None
    match = _to_python(pattern).search(text)
    return "" if match is None else match[group] or ""


def find_template(text: str, pattern: str) -> bool | None:
    """Return the result of Spark's ``RLIKE`` with templates, or alternatives of them; None where unknown.

    >>> find_template("cab", "^a|b$"), find_template("abc", "^a|b$"), find_template("cba", "^a|b$")
    (True, True, False)
    """
    alternatives = [pattern] if re.search(r"[\[(\\]", pattern) else pattern.split("|")
    if any(template_groups(part) is None for part in alternatives):
        return None
    return _to_python(pattern).search(text) is not None
