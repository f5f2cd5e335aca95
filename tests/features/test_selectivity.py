"""Guessed selectivities rank as the constants of the workload say."""

from __future__ import annotations

import pytest

from layoutopt.features.weights import assumed_selectivity, predicate_share
from layoutopt.model.predicates import Comparison, Like, Literal, parse_like
from tests.features.workloads import OVER_21, PRODUCT, REGION, REVENUE, SHOES, comparison, is_in, predicate


def guessed(*literals: Literal) -> list[float]:
    shares = assumed_selectivity([predicate(literal) for literal in literals])
    return [shares[literal] for literal in literals]


def test_one_of_many_values_is_selective_and_its_complement_is_not() -> None:
    values = [is_in(PRODUCT, v) for v in "abcdefghi"]
    *ones, all_but_one, three = guessed(*values, comparison(PRODUCT, "<>", "a"), is_in(PRODUCT, *"abc"))
    assert ones == pytest.approx([0.09] * 9)
    assert all_but_one > 0.8
    assert three == pytest.approx(3 * ones[0])


def test_wider_ranges_match_more() -> None:
    narrow, wide = guessed(*(comparison(REVENUE, ">", bound) for bound in (30, 10)))
    assert 0 < narrow < wide < 1


def test_patterns_share_the_rows() -> None:
    likes = [Like(PRODUCT, parse_like(f"%{v}"), False) for v in "abcde"]
    assert guessed(*likes, Like(PRODUCT, parse_like("%a"), True)) == pytest.approx([0.2] * 5 + [0.8])


def test_comparisons_of_columns() -> None:
    equal, less = guessed(*(Comparison(PRODUCT, op, REGION) for op in ("=", "<")))
    assert equal < less < 1


def test_a_disjunction_matches_what_its_literals_match() -> None:
    shares = assumed_selectivity([predicate(SHOES), predicate(OVER_21)])
    assert predicate_share(predicate(SHOES, OVER_21), shares) == pytest.approx(shares[SHOES] + shares[OVER_21])
    assert predicate_share(predicate(SHOES, OVER_21), {SHOES: 0.7, OVER_21: 0.8}) == 1.0
