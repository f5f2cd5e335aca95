"""Sets of keys: the algebra against sets of single keys, and comparisons against Python's own."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.model.values import NAN_KEY, Interval, ValueSet, compare, domain, from_key, successor, to_key
from tests.effort import examples
from tests.model.conditions import CONSTANTS, OPERATORS, TYPES, VALUES, Compare, truth

UNIVERSE = range(-3, 8)
BOUNDS = st.none() | st.integers(-2, 7)
SETS = st.lists(st.tuples(BOUNDS, BOUNDS), max_size=4).map(lambda pairs: ValueSet.normalised(pairs, "bigint"))
ENDS = ["", "\0", "a", "a\0", "ab", "b", "\U0010ffff"]
TEXT_BOUNDS = st.none() | st.sampled_from(ENDS)
TEXT_SETS = st.lists(st.tuples(TEXT_BOUNDS, TEXT_BOUNDS), max_size=4)


def _members(values: ValueSet) -> set[int]:
    return {key for key in UNIVERSE if _is_in(key, values.intervals)}


def _is_in(key: Any, intervals: tuple[Interval, ...] | list[Interval]) -> bool:
    return any((low is None or low <= key) and (high is None or key < high) for low, high in intervals)


def _is_canonical(intervals: tuple[Any, ...]) -> bool:
    nonempty = all(low is None or high is None or low < high for low, high in intervals)
    apart = all(one[1] is not None and two[0] is not None and one[1] < two[0] for one, two in pairwise(intervals))
    return nonempty and apart


@given(SETS, SETS)
@settings(max_examples=examples(200))
def test_the_algebra_is_that_of_sets(a: ValueSet, b: ValueSet) -> None:
    every = set(UNIVERSE)
    assert _members(a.union(b)) == _members(a) | _members(b)
    assert _members(a.intersect(b)) == _members(a) & _members(b)
    assert _members(a.complement()) == every - _members(a)
    assert a.issubset(b) == (_members(a) <= _members(b))
    assert a.isdisjoint(b) == _members(a).isdisjoint(_members(b))
    assert (a == b) == (_members(a) == _members(b))
    assert all(a.contains(key) == (key in _members(a)) for key in UNIVERSE)
    for values in (a, a.union(b), a.intersect(b), a.complement()):
        assert _is_canonical(values.intervals)


@given(SETS, st.integers(-3, 7), st.integers(0, 4))
def test_overlap_with_a_range_includes_both_ends(a: ValueSet, low: int, width: int) -> None:
    assert a.overlaps(low, low + width) == any(key in _members(a) for key in range(low, low + width + 1))


@given(TEXT_SETS, TEXT_SETS)
def test_equal_sets_of_strings_are_equal_objects(a: list[Interval], b: list[Interval]) -> None:
    one, two = ValueSet.normalised(a, "string"), ValueSet.normalised(b, "string")
    probes = [*ENDS, *(end + "\0" for end in ENDS), "aa", "c", "\uffff"]
    assert [one.contains(p) for p in probes] == [_is_in(p, a) for p in probes]
    union = ValueSet.normalised([*a, *b], "string")
    assert union == one.union(two) or ValueSet.normalised(one.union(two).intervals, "string") == union


@pytest.mark.parametrize("type", ["boolean", "tinyint", "decimal(2,0)"])
def test_sets_of_small_types_are_canonical_over_the_whole_type(type: str) -> None:
    low, high = domain(type)
    assert isinstance(low, int)
    assert isinstance(high, int)
    everything = ValueSet.normalised([(low, high + 1)], type)
    assert everything == ValueSet.normalised([(low - 5, None)], type) == ValueSet.all()
    lowest = ValueSet.point(low)
    rest = ValueSet.normalised(lowest.complement().intervals, type)
    assert ValueSet.normalised(rest.complement().intervals, type) == lowest
    assert ValueSet.normalised([(None, low + 1)], type) == lowest
    assert ValueSet.normalised([(high, None)], type) == ValueSet.point(high)
    assert ValueSet.normalised([(high + 1, None), (None, low)], type).is_empty


def test_points_and_holes() -> None:
    assert ValueSet.of(["b", "a", "b"]).points() == ("a", "b")
    assert ValueSet.interval(1, 3).points() is None
    assert ValueSet.empty().points() == ()


@given(st.sampled_from(["", "a", "a\U0010ffff", "\U0010ffff", "\ud7ff", "é", "\U0001f600"]), st.text(max_size=3))
def test_a_prefix_holds_exactly_the_strings_that_start_with_it(prefix: str, text: str) -> None:
    values = ValueSet.prefix(prefix)
    for sample in (text, prefix, prefix + text, prefix[:-1] + text, prefix + "\U0010ffff" * 3):
        assert values.contains(sample) == sample.startswith(prefix)


def test_the_bound_after_a_prefix_is_text_that_can_be_encoded() -> None:
    assert ValueSet.prefix("a\ud7ff").intervals == (("a\ud7ff", "a\ue000"),)
    assert ValueSet.prefix("a\U0010ffff").intervals == (("a\U0010ffff", "b"),)


CASES = [(name, op, value) for name in CONSTANTS for op in OPERATORS for value in CONSTANTS[name]]


@pytest.mark.parametrize("name", CONSTANTS)
def test_comparisons_hold_for_exactly_the_values_that_compare_so(name: str) -> None:
    for column, op, constant in CASES:
        if column == name:
            values = compare(op, constant, TYPES[name])
            assert values == ValueSet.normalised(values.intervals, TYPES[name])
            for value in VALUES[name]:
                expected = truth(Compare(name, op, constant), {name: value})
                assert values.contains(to_key(value, TYPES[name])) == expected, (value, op, constant)


@given(st.integers(-(2**63), 2**63 - 1), st.floats(), st.sampled_from(OPERATORS))
@settings(max_examples=examples(200))
def test_whole_numbers_are_compared_with_doubles_as_doubles(value: int, constant: float, op: str) -> None:
    assert compare(op, constant, "bigint").contains(value) == truth(Compare("b", op, constant), {"b": value})


@given(st.integers(2**53 - 3, 2**53 + 9), st.integers(2**53 - 3, 2**53 + 9), st.sampled_from(OPERATORS))
def test_where_doubles_are_sparse_several_whole_numbers_are_equal_to_one(a: int, b: int, op: str) -> None:
    assert compare(op, float(b), "bigint").contains(a) == truth(Compare("b", op, float(b)), {"b": a})


@given(st.integers(-9999, 9999), st.floats(-1100, 1100) | st.integers(-9999, 9999).map(lambda n: n / 10))
@settings(max_examples=examples(200))
def test_decimals_are_compared_with_doubles_as_doubles(unscaled: int, constant: float) -> None:
    value = Decimal(unscaled).scaleb(-1)
    for op in OPERATORS:
        assert compare(op, constant, "decimal(4,1)").contains(unscaled) == truth(
            Compare("m", op, constant), {"m": value}
        )


@given(st.floats(width=32), st.floats(), st.sampled_from(OPERATORS))
@settings(max_examples=examples(200))
def test_floats_are_compared_as_doubles(value: float, constant: float, op: str) -> None:
    found = compare(op, constant, "float").contains(to_key(value, "float"))
    assert found == truth(Compare("f", op, constant), {"f": value})


def test_examples_of_comparisons() -> None:
    assert compare("=", Decimal("0.055"), "decimal(15,2)").is_empty
    assert compare("=", 0.1, "float").is_empty
    assert compare("<", 0.1, "float") == compare("<=", 0.1, "float")
    assert compare(">", float("inf"), "double") == ValueSet.point(NAN_KEY)
    assert compare("<>", float("nan"), "int").is_all
    assert compare("<", dt.date(1970, 1, 2), "date").intervals == ((None, 1),)


@pytest.mark.parametrize(
    ("op", "value", "type"),
    [
        ("==", 1, "int"),
        ("=", True, "int"),
        ("=", 1, "boolean"),
        ("=", "1", "int"),
        ("=", 5, "string"),
        ("=", dt.datetime(2020, 1, 1), "date"),
        ("=", dt.datetime(2020, 1, 1), "timestamp"),
        ("=", 2**24 + 1, "float"),
        ("=", Decimal("NaN"), "int"),
        ("=", Decimal("1e-30"), "decimal(38,0)"),
        ("=", [1], "array<int>"),
        ("=", 10**400, "double"),
    ],
)
def test_comparisons_that_are_not_exact_are_refused(op: str, value: object, type: str) -> None:
    with pytest.raises(ValueError, match=r"; (use|give|leave)"):
        compare(op, value, type)


@pytest.mark.parametrize("name", VALUES)
def test_successors_are_next(name: str) -> None:
    for value in VALUES[name]:
        key = to_key(value, TYPES[name])
        assert key < successor(key)  # type: ignore[operator]
        assert not ValueSet.interval(key, successor(key)).contains(successor(key))
        assert from_key(key, TYPES[name]) == value or value != value
