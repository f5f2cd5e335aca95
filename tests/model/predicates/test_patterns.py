"""LIKE patterns: their texts, their languages, and how languages compare, against all short strings."""

from __future__ import annotations

from functools import cache
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.model.predicates.patterns import (
    ANY_CHAR,
    ANY_STRING,
    Pattern,
    Token,
    are_disjoint,
    canonical_pattern,
    includes,
    like_text,
    literal_prefix,
    matches,
    parse_like,
)
from tests.effort import examples
from tests.model.evaluator import _matches as matches_by_definition

SHORT = ["".join(letters) for length in range(7) for letters in product("ab", repeat=length)]
TOKENS: st.SearchStrategy[Token] = st.sampled_from(["a", "b", ANY_CHAR, ANY_STRING])
SPECIAL: list[Token] = ["a", "\n", "é", "\U0001f600", ".", "%", "_", "\\", ANY_CHAR, ANY_STRING]
PATTERNS = st.lists(TOKENS, max_size=3).map(canonical_pattern)


@cache
def _language(pattern: Pattern) -> set[str]:
    return {text for text in SHORT if matches_by_definition(text, list(pattern))}


@given(st.lists(st.sampled_from(SPECIAL)), st.text("a\n\U0001f600.%"))
def test_matching_is_by_code_points_and_special_characters_are_text(tokens: list[Token], text: str) -> None:
    assert matches(canonical_pattern(tokens), text) == matches_by_definition(text, tokens)


@given(st.lists(TOKENS))
def test_a_pattern_and_its_text_are_one(tokens: list[Token]) -> None:
    pattern = canonical_pattern(tokens)
    assert parse_like(like_text(pattern)) == pattern == canonical_pattern(pattern)


@given(st.text("ab%_\\"))
def test_special_characters_survive_as_text(text: str) -> None:
    pattern = canonical_pattern([text])
    assert parse_like(like_text(pattern)) == pattern


@given(PATTERNS, PATTERNS)
@settings(max_examples=examples(150))
def test_inclusion_is_never_wrong(general: Pattern, specific: Pattern) -> None:
    if includes(general, specific):
        assert _language(specific) <= _language(general)


@given(PATTERNS, PATTERNS)
@settings(max_examples=examples(150))
def test_disjointness_is_exact(first: Pattern, second: Pattern) -> None:
    # A shortest common string has no letter that only wildcards of both patterns take, so it is among the short ones.
    assert are_disjoint(first, second) == _language(first).isdisjoint(_language(second))


def test_the_escape_can_be_any_character() -> None:
    assert parse_like("a!%b%", "!") == ("a%b", ANY_STRING)
    assert parse_like("a\\b", "!") == ("a\\b",)
    assert literal_prefix(parse_like("ab_%")) == "ab"
    assert literal_prefix(parse_like("%ab")) == ""


@pytest.mark.parametrize(("text", "escape"), [("a\\", "\\"), ("a\\b", "\\"), ("a", ""), ("a", "xy")])
def test_escapes_that_spark_refuses_are_refused(text: str, escape: str) -> None:
    with pytest.raises(ValueError, match="escape"):
        parse_like(text, escape)
