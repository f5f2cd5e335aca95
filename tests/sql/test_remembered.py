"""Texts that come again are not looked at again, long ones as long as few others do."""

from __future__ import annotations

import pytest

from layoutopt.sql.text_cache import MOST_TEXTS, cache_by_text


def length_of(seen: list[str], text: str) -> int:
    seen.append(text)
    return len(text)


def test_hundreds_of_texts_in_turns_are_all_remembered() -> None:
    seen: list[str] = []
    length = cache_by_text(lambda text: length_of(seen, text))
    texts = [f"SELECT {i}" for i in range(MOST_TEXTS)]
    for _ in range(2):
        assert [length(text) for text in texts] == list(map(len, texts))
    assert seen == texts


def test_of_long_texts_few_are_remembered() -> None:
    seen: list[str] = []
    length = cache_by_text(lambda text: length_of(seen, text))
    texts = [f"{i:06}" * 1000 for i in range(200)]
    for _ in range(2):
        for text in texts:
            assert length(text) == length(text) == 6000
    assert len(seen) == 2 * len(texts)


def test_other_arguments_count_and_errors_are_raised_again() -> None:
    asked = []

    def cut(text: str, end: int = 1) -> str:
        asked.append((text, end))
        if end > len(text):
            raise ValueError(f"{text!r} is too short")
        return text[:end]

    some = cache_by_text(cut)
    assert [some("abc"), some("abc", 2), some("abc", end=2), some("abc", 2)] == ["a", "ab", "ab", "ab"]
    for _ in range(2):
        with pytest.raises(ValueError, match="too short"):
            some("abc", 4)
    assert asked == [("abc", 1), ("abc", 2), ("abc", 2), ("abc", 4), ("abc", 4)]
