"""Changes of query families, and confidence intervals of shares and ratios."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.maintenance.query_families import GONE, GROWN, NEW, SAME, SHRUNK, compare_families
from layoutopt.maintenance.sampling_error import CONFIDENCE, ratio_interval, share_interval
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


@given(st.integers(1, 400), st.floats(0, 1))
def test_an_interval_holds_the_share_that_was_seen(whole: int, share: float) -> None:
    part = round(share * whole)
    low, high = share_interval(part, whole)
    assert 0 <= low <= part / whole <= high <= 1
    wider = share_interval(part, whole, 0.999)
    assert wider.low <= low
    assert high <= wider.high


@pytest.mark.parametrize("share", [0.002, 0.05, 0.5, 0.97])
def test_the_true_share_is_in_as_many_intervals_as_said(share: float) -> None:
    seen = np.random.default_rng(0).binomial(200, share, size=1000).tolist()
    held = sum(low <= share <= high for low, high in (share_interval(part, 200) for part in seen))
    assert held >= 1000 * CONFIDENCE - 15


def test_the_true_ratio_is_in_most_intervals() -> None:
    rng = np.random.default_rng(0)
    read, full = rng.uniform(0, 5, 40), rng.uniform(5, 20, 40)
    chances = rng.dirichlet(np.ones(40))
    truth = float(chances @ read) / float(chances @ full)
    held = 0
    for seed in range(200):
        counts = rng.multinomial(300, chances).astype(float)
        seen = counts > 0
        low, high = ratio_interval(read[seen], full[seen], counts[seen], seed)
        held += low <= truth <= high
    assert held >= 180


def test_a_ratio_of_nothing_is_nothing() -> None:
    assert ratio_interval(np.zeros(2), np.zeros(2), np.ones(2)) == (0.0, 0.0)
