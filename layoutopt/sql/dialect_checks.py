"""Checks of other dialects' conditions that depend on types of columns and values of constants.

A translation (:mod:`layoutopt.sql.dialect_meaning`) names each check by a call. It is made where a condition is read,
since only there types are known, and each text of a template has constants of its own.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final, TypeGuard

from sqlglot import exp

from layoutopt.sql.dialect_meaning import CHECKS, COMPARED, PATTERN, REGEXP, TRAITS, TYPED, UNPROVED, Traits
from layoutopt.sql.operands import Operand, Subject
from layoutopt.sql.problems import Unusable
from layoutopt.sql.types import TypedConstant, exact_digits, is_integer

_DATE: Final = r"\d{4}-\d\d-\d\d"
_TIME: Final = rf"{_DATE}(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d{{1,6}})?)?)?"
_ZONE: Final = r"(?: ?UTC|Z|\+00(?::00)?)"
_SHAPES: Final = MappingProxyType(
    {
        "isodate": re.compile(_DATE),
        "number": re.compile(r"-?\d{1,20}(?:\.\d{1,20})?"),
        "isotime": re.compile(_TIME),
        "isoinstant": re.compile(rf"{_TIME}{_ZONE}?"),
    }
)
_HAS_ZONE: Final = re.compile(rf".*{_ZONE}")
# The constants that a kind of operand accepts.
_CONSTANTS: Final[MappingProxyType[str, Callable[[object], bool]]] = MappingProxyType(
    {
        "positive": lambda value: isinstance(value, int) and 0 < value < 1 << 31,
        "natural": lambda value: isinstance(value, int) and 0 <= value < 1 << 31,
        "nonzero": lambda value: isinstance(value, int) and value != 0,
        "whole": lambda value: isinstance(value, int) and abs(value) < 1 << 31,
        "word": lambda value: isinstance(value, str) and value != "",
        **{
            name: lambda value, shape=shape: isinstance(value, str) and bool(shape.fullmatch(value))  # type: ignore[misc]
            for name, shape in _SHAPES.items()
        },
    }
)
_NUMBER: Final = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?")
_WHOLE: Final = re.compile(r"-?\d{1,18}")
_MOST_PATTERNS: Final = 64
_EXACT_DIGITS: Final = 15  # of a double


def is_check(node: exp.Expr) -> bool:
    """Return whether a node is a check."""
    return isinstance(node, exp.Anonymous) and node.name.casefold() in CHECKS


def read_check(node: exp.Expr, zone: str, read: Callable[[exp.Expr], Operand]) -> Operand:
    """Return the operand of a check that it passes.

    Raises:
        Unusable: it does not, or nothing is known about the expression.
    """
    name, arguments = node.name.casefold(), node.expressions
    if name == TYPED and len(arguments) == 2:
        return _check_type(read(arguments[1]), arguments[0].name.split(), zone, arguments[1])
    if name == COMPARED and len(arguments) == 2:
        operand = read(arguments[1])
        return operand if isinstance(operand, TypedConstant) else replace(operand, dialect=arguments[0].name)
    if name == UNPROVED:
        raise Unusable("dialect", f"{arguments[0].name} is not proved to mean the same in Spark")
    raise Unusable("dialect", f"{node.sql('spark')} is no value")


def _check_type(operand: Operand, kinds: Sequence[str], zone: str, node: exp.Expr) -> Operand:
    type = "decimal" if operand.type.startswith("decimal") else operand.type
    accepted = (_CONSTANTS[kind] for kind in kinds if kind in _CONSTANTS)
    if isinstance(operand, TypedConstant) and (type == "void" or any(accepts(operand.value) for accepts in accepted)):
        _check_zone(operand, zone, "isoinstant" in kinds)
        return operand
    if type not in kinds:
        known = " or ".join(kinds)
        raise Unusable("dialect", f"{node.sql('spark')} is {operand.type}; what the dialect means is known for {known}")
    if "UTC" in kinds and type == "timestamp" and zone != "UTC":
        raise Unusable("dialect", f"{plain_text(node.sql('spark'))} is in UTC, and the session in {zone}")
    if "wide" in kinds and is_integer(type):
        return (
            TypedConstant(operand.value, "bigint")
            if isinstance(operand, TypedConstant)
            else replace(operand, type="bigint")
        )
    return operand


def _check_zone(constant: TypedConstant, zone: str, is_utc: bool) -> None:
    if is_utc and zone != "UTC" and not _HAS_ZONE.fullmatch(str(constant.value)):
        raise Unusable("dialect", f"{constant.value!r} is in UTC, and the session in {zone}")


def check_comparison(operator: str, left: Operand, others: Sequence[Operand], zone: str) -> None:
    """Check that a comparison means the same in the dialect of the operands' text.

    Raises:
        Unusable: it does not, or this is unknown.
    """
    operands = [left, *others]
    subjects = [operand for operand in operands if isinstance(operand, Subject)]
    dialect = next((subject.dialect for subject in subjects if subject.dialect), "")
    if not dialect:
        return
    traits, is_order = TRAITS.get(dialect, Traits()), operator not in ("=", "<>")
    for subject, other in itertools.product(subjects, operands):
        if other is not subject and not _is_compared_alike(subject, other, traits, is_order, zone, dialect):
            compared = f"{other.value!r}" if isinstance(other, TypedConstant) else other.type
            raise Unusable("dialect", f"a {subject.type} compared with {compared}: {dialect} may treat it otherwise")


def _is_compared_alike(
    subject: Subject, other: Operand, traits: Traits, is_order: bool, zone: str, dialect: str
) -> bool:
    kinds = {subject.type, other.type}
    if isinstance(other, TypedConstant) and other.value is None:
        return True
    if subject.type == "string":
        if isinstance(other, TypedConstant) and dialect == "json" and not str(other.value)[:1].isalpha():
            return False
        return kinds == {"string"} and (traits.ordered_texts if is_order else traits.equal_texts)
    if other.type == "string":
        return isinstance(other, TypedConstant) and _is_literal_of(str(other.value), subject.type, traits, zone)
    if kinds & {"float", "double"}:
        if (is_order and traits.largest_nan is None) or (isinstance(other, Subject) and not traits.largest_nan):
            return False
        if "float" in kinds and kinds != {"float"} and not traits.single_is_double:
            return False
    is_fraction = isinstance(other, TypedConstant) and other.type.startswith("decimal")
    if is_fraction and traits.double_literals:
        return _fits_double(subject.type) and _fits_double(other.type)
    return True


def _is_literal_of(text: str, type: str, traits: Traits, zone: str) -> bool:
    """Return whether each dialect reads a text beside a column as the same value of the column's type."""
    if type == "date":
        return bool(_SHAPES["isodate"].fullmatch(text))
    if type in ("timestamp", "timestamp_ntz"):
        shape = _SHAPES["isoinstant" if traits.utc and type == "timestamp" else "isotime"]
        is_same_zone = not traits.utc or zone == "UTC" or type != "timestamp" or bool(_HAS_ZONE.fullmatch(text))
        return bool(shape.fullmatch(text)) and is_same_zone
    if is_integer(type):
        return bool(_WHOLE.fullmatch(text))
    if type == "double":
        return bool(_NUMBER.fullmatch(text))
    return type == "boolean" and text in ("true", "false")


def _fits_double(type: str) -> bool:
    digits = exact_digits(type)
    return digits is None or digits[0] <= _EXACT_DIGITS


def has_ordinary_nan(operand: Operand) -> TypeGuard[Subject]:
    """Return whether NaN is not larger than numbers to the dialect of an operand's text."""
    if not isinstance(operand, Subject) or not operand.dialect:
        return False
    return operand.type in ("float", "double") and TRAITS.get(operand.dialect, Traits()).largest_nan is False


# --- patterns


def read_patterns(node: exp.Expr) -> list[str] | None:
    r"""Return the patterns, escaped by ``\``, of which one must match where a dialect's pattern does; None for others.

    Raises:
        Unusable: what the pattern matches is unknown.
    """
    if not is_check(node) or node.name.casefold() != PATTERN:
        return None
    dialect, pattern, *escapes = [argument.name for argument in node.expressions]
    escape = TRAITS[dialect].escape or ""
    if escape == "[":
        return _expand_sets(pattern, escapes[0] if escapes else "", dialect == "binary")
    escape = escapes[0] if escapes else escape
    parts: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, None)
            if following is None:
                raise Unusable("dialect", f"the pattern {pattern!r} ends with its escape")
            if following not in ("%", "_", escape):
                if dialect not in ("postgres", "redshift", "clickhouse"):
                    raise Unusable("dialect", f"the pattern {pattern!r} escapes no wildcard")
                if dialect == "clickhouse":  # there the backslash stays
                    parts.append(_quote(escape))
            parts.append(_quote(following))
        else:
            parts.append(character if character in "%_" else _quote(character))
    return ["".join(parts)]


def _quote(character: str) -> str:
    return f"\\{character}" if character in "%_\\" else character


def _expand_sets(pattern: str, escape: str, is_binary: bool) -> list[str]:
    """Return the patterns of a T-SQL pattern: one for each choice of its sets' characters.

    Unless the collation is binary, it may ignore case: then a set must have both cases of each of its letters.
    """
    choices: list[list[str]] = []
    for match in re.finditer(r"\[([^\]]*)\]|(.)", pattern, re.DOTALL):
        characters, character = match.groups()
        if character is not None:
            if character == escape or (character == "[") or not (is_binary or character.lower() == character.upper()):
                raise Unusable("dialect", f"whether {pattern!r} ignores case is decided by a collation")
            choices.append([character if character in "%_" else _quote(character)])
            continue
        members = set(
            re.sub(r"([0-9])-([0-9])", lambda m: "".join(map(str, range(int(m[1]), int(m[2]) + 1))), characters)
        )
        is_closed = is_binary or all({c.lower(), c.upper()} <= members for c in members)
        if not members or characters[:1] == "^" or "-" in members or not is_closed or not characters.isascii():
            raise Unusable("dialect", f"the set [{characters}] of {pattern!r} depends on a collation")
        choices.append(sorted(map(_quote, members)))
    patterns = ["".join(choice) for choice in itertools.islice(itertools.product(*choices), _MOST_PATTERNS + 1)]
    if len(patterns) > _MOST_PATTERNS or not pattern.isascii():
        raise Unusable("dialect", f"the pattern {pattern!r} stands for too many")
    return patterns


def to_java_regexp(pattern: str, dialect: str, is_whole: bool, ignores_case: bool) -> str:
    r"""Return the regular expression by which Java matches what a dialect's does.

    To Java ``$`` stands before a last line break too, and ``.`` for no character that breaks lines.

    >>> to_java_regexp("^a.$", "postgres", False, False), to_java_regexp("AB.*", "snowflake", True, True)
    ('^a[\\s\\S]\\z', '^(?i:AB[^\\n]*)\\z')
    """
    kind = TRAITS[dialect].regexp
    if kind == "plain" and re.search(r"[.$]", pattern):
        raise Unusable("dialect", f"what . and $ match in {pattern!r} is unknown")
    if ignores_case and (re.search(r"[kKsS]", pattern) or not pattern.isascii()):
        raise Unusable("dialect", f"{pattern!r} may match letters outside ASCII if case is ignored")
    java = pattern.replace(".", r"[\s\S]" if kind == "any" else r"[^\n]").replace("$", r"\z")
    if is_whole:
        return rf"^(?{'i' * ignores_case}:{java})\z" if ignores_case or "|" in java else rf"^{java}\z"
    return f"(?i){java}" if ignores_case else java


_CALL: Final = re.compile(
    rf"""\b(?:{TYPED}|{COMPARED}|{PATTERN}|{REGEXP}|{UNPROVED})\('((?:[^'\\]|\\.|'')*)'(?:, )?""", re.IGNORECASE
)


def plain_text(text: str) -> str:
    """Return a condition's text without its checks.

    >>> plain_text("DIALECT_COMPARED('trino', lower(s)) = 'x' AND DIALECT_PATTERN('trino', '(') = 1")
    "lower(s) = 'x' AND '(' = 1"
    """
    match = _CALL.search(text)
    while match is not None:
        depth, end = 1, len(text)
        for part in re.finditer(r"'(?:[^'\\]|\\.|'')*'|[()]", text[match.end() :]):
            depth += {"(": 1, ")": -1}.get(part[0], 0)
            if not depth:
                end = match.end() + part.start()
                break
        inner = text[match.end() : end]
        if match[0].casefold().startswith(UNPROVED):
            inner = re.sub(r"\\(.)|''", lambda quoted: quoted[1] or "'", match[1]).rpartition(" of ")[0]
        elif match[0].casefold().startswith(REGEXP):
            inner = f"regexp_like({inner})"
        text = text[: match.start()] + inner + text[end + 1 :]
        match = _CALL.search(text, match.start())
    return text
