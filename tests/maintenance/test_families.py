"""What became of families of queries."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.maintenance.query_families import GONE, GROWN, NEW, SAME, SHRUNK, compare_families
from layoutopt.model.predicates import Col, Filter, InSet
from layoutopt.model.query import Query
from layoutopt.model.values import compare


def log(counts: Mapping[str, float]) -> list[Query]:
    """So many queries of each family, which is a column's name; constants don't matter."""
    filters = {name: Filter.of(InSet(Col(name, "int"), compare("=", len(name), "int"))) for name in counts}
    return [
        Query(i, "t", (name,), filters[name], count, sql=f"SELECT {name}")
        for i, (name, count) in enumerate(counts.items())
        if count
    ]


def test_families_come_go_grow_and_shrink() -> None:
    then = log({"stays": 400, "grows": 50, "shrinks": 500, "goes": 50})
    now = log({"stays": 410, "grows": 390, "shrinks": 100, "comes": 100})
    found = compare_families(then, now)
    assert {one.columns[0]: one.change for one in found.families} == {
        "stays": SAME, "grows": GROWN, "shrinks": SHRUNK, "goes": GONE, "comes": NEW,
    }  # fmt: skip
    assert [one.columns[0] for one in found.families][:2] == ["shrinks", "grows"]
    grown = next(one for one in found.families if one.change == GROWN)
    assert [grown.then, grown.now] == pytest.approx([0.05, 0.39])
    assert (grown.filtered, grown.example) == (("grows",), "SELECT grows")
    assert grown.interval.low < 0.39 < grown.interval.high
    assert found.unknown == pytest.approx(0.1)
    assert found.unknown_interval.low > 0.08


def test_what_chance_explains_is_no_change() -> None:
    found = compare_families(log({"a": 100, "b": 1}), log({"a": 90, "c": 1}))
    assert {one.change for one in found.families} == {SAME}
    assert found.unknown > 0


def test_a_small_sample_says_that_it_knows_little() -> None:
    few, many = (compare_families(log({"a": 1000}), log({"a": n})) for n in (10, 1000))
    assert few.unknown == many.unknown == 0
    assert few.unknown_interval.high > 0.3 > 0.004 > many.unknown_interval.high


@given(st.dictionaries(st.sampled_from("abcde"), st.integers(1, 1000), min_size=1), st.integers(1, 5))
def test_a_log_is_no_change_to_itself_however_long(counts: dict[str, int], times: int) -> None:
    found = compare_families(log(counts), log({name: times * count for name, count in counts.items()}))
    assert {one.change for one in found.families} == {SAME}
    assert sum(one.now for one in found.families) == pytest.approx(1)
    assert (found.unknown, found.unknown_interval.low) == (0, 0)
