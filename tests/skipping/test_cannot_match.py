"""cannot_match against brute force over rows: sound whatever is unknown, and not idle where something is known."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.indexes.protocol import BlockColumn
from layoutopt.indexes.registry import BUILT_IN, find_index
from layoutopt.indexes.stored import StoredIndex
from layoutopt.model.feature import Feature, FeatureSet
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.predicates import (
    ANY_CHAR,
    ANY_STRING,
    And,
    Call,
    Col,
    Comparison,
    Constant,
    InSet,
    Like,
    Literal,
    Node,
    Or,
    Predicate,
)
from layoutopt.model.values import ValueSet, compare, to_key
from layoutopt.model.vectors import pack
from layoutopt.skipping.cannot_match import (
    BlockStatistics,
    ColumnBounds,
    FeatureBits,
    FeatureIndex,
    cannot_match,
    cannot_match_each,
)
from tests.effort import examples

Row = dict[str, Any]
TYPES = {"a": "int", "b": "int", "x": "double", "s": "string"}
ARROW = {"a": pa.int32(), "b": pa.int32(), "x": pa.float64(), "s": pa.string()}
VALUES: dict[str, list[Any]] = {
    "a": [-(2**31), -1, 0, 1, 2, 3, 2**31 - 1],
    "b": [0, 1, 2, 3],
    "x": [float("-inf"), -1.5, -0.0, 0.0, 2.5, float("inf"), float("nan")],
    "s": ["", "a", "a\0", "ab", "abc", "b", "ba", "\U0010ffff"],
}
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


@dataclass(frozen=True)
class Condition:
    """A node, and an evaluation of what it means that knows nothing of keys or sets."""

    node: Node
    is_true: Callable[[Row], bool]


def as_spark_orders(value: Any) -> Any:
    """NaN is equal to itself and above everything; -0.0 is 0.0."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value


def column(name: str) -> Col:
    return Col(name, TYPES[name])


def compared(name: str, op: str, value: Any) -> Condition:
    return Condition(
        InSet(column(name), compare(op, value, TYPES[name])),
        lambda row: row[name] is not None and OPERATORS[op](as_spark_orders(row[name]), as_spark_orders(value)),
    )


def listed(name: str, values: Sequence[Any], or_null: bool) -> Condition:
    known = [as_spark_orders(value) for value in values]
    keys = ValueSet.of(to_key(value, TYPES[name]) for value in values)
    return Condition(
        InSet(column(name), keys, null=or_null),
        lambda row: or_null if row[name] is None else as_spark_orders(row[name]) in known,
    )


def is_null(name: str, negated: bool) -> Condition:
    node = InSet(column(name), ValueSet.all()) if negated else InSet(column(name), ValueSet.empty(), null=True)
    return Condition(node, lambda row: (row[name] is None) != negated)


def liked(start: str, negated: bool) -> Condition:
    """``start`` + ``%a_``: a pattern that is not just a prefix."""
    return Condition(
        Like(column("s"), (start, ANY_STRING, "a", ANY_CHAR) if start else (ANY_STRING, "a", ANY_CHAR), negated),
        lambda row: (
            row["s"] is not None
            and (row["s"].startswith(start) and len(row["s"]) >= len(start) + 2 and row["s"][-2] == "a") != negated
        ),
    )


def columns_compared(op: str) -> Condition:
    return Condition(
        Comparison(column("a"), op, column("b")),
        lambda row: row["a"] is not None and row["b"] is not None and OPERATORS[op](row["a"], row["b"]),
    )


def all_of(parts: Sequence[Condition]) -> Condition:
    return Condition(And(tuple(p.node for p in parts)), lambda row: all(p.is_true(row) for p in parts))


def any_of(parts: Sequence[Condition]) -> Condition:
    return Condition(Or(tuple(p.node for p in parts)), lambda row: any(p.is_true(row) for p in parts))


names = st.sampled_from(sorted(TYPES))
leaves = st.one_of(
    names.flatmap(
        lambda name: st.builds(
            compared, st.just(name), st.sampled_from(sorted(OPERATORS)), st.sampled_from(VALUES[name])
        )
    ),
    names.flatmap(
        lambda name: st.builds(
            listed, st.just(name), st.lists(st.sampled_from(VALUES[name]), min_size=1), st.booleans()
        )
    ),
    st.builds(is_null, names, st.booleans()),
    st.builds(liked, st.sampled_from(["", "a", "ab"]), st.booleans()),
    st.builds(columns_compared, st.sampled_from(["=", "<>", "<", "<="])),
)
trees = st.recursive(
    leaves,
    lambda parts: st.builds(
        lambda combine, some: combine(some), st.sampled_from([all_of, any_of]), st.lists(parts, min_size=2, max_size=3)
    ),
    max_leaves=6,
)
rows = st.fixed_dictionaries({name: st.one_of(st.none(), st.sampled_from(values)) for name, values in VALUES.items()})
blocks_of_rows = st.lists(st.lists(rows, max_size=4), min_size=1, max_size=11)


INDEXED = [(name, kind) for name in TYPES for kind, index in BUILT_IN.items() if index.storage(TYPES[name]) is not None]


def bounds_of(blocks: Sequence[Sequence[Row]], name: str) -> ColumnBounds:
    """Exact statistics of each block, in the types that the catalog has them."""
    keys = [[to_key(row[name], TYPES[name]) for row in block if row[name] is not None] for block in blocks]
    known = np.array([bool(some) for some in keys])
    low, high = np.empty(len(blocks), dtype=object), np.empty(len(blocks), dtype=object)
    for number, some in enumerate(keys):
        if some:
            low[number], high[number] = min(some), max(some)
    if TYPES[name] != "string":
        low[~known], high[~known] = 0, 0
        low, high = low.astype(np.int64), high.astype(np.int64)
    nulls = np.array([sum(row[name] is None for row in block) for block in blocks], dtype=np.int64)
    return ColumnBounds(low, high, known, nulls, TYPES[name])


def index_of(blocks: Sequence[Sequence[Row]], name: str, kind: str) -> StoredIndex:
    """An index of a column, measured from the blocks' rows."""
    values = pa.array([row[name] for block in blocks for row in block], ARROW[name])
    offsets = np.cumsum([0, *map(len, blocks)])
    index = find_index(kind)
    stored = index.measure(BlockColumn(pa.chunked_array([values]), offsets, TYPES[name]), index.parameter.default)
    return StoredIndex(IndexSpec(column(name), kind), index, len(blocks), lambda: stored)


def with_indexes(statistics: BlockStatistics, *indexes: StoredIndex) -> BlockStatistics:
    of = {
        index.spec.subject: [each for each in indexes if each.spec.subject == index.spec.subject] for index in indexes
    }
    return replace(statistics, indexes=of)


def statistics_of(blocks: Sequence[Sequence[Row]], features: Sequence[Condition] = ()) -> BlockStatistics:
    bits = np.array([[any(f.is_true(row) for row in block) for f in features] for block in blocks], dtype=bool)
    return BlockStatistics(
        rows=np.array([len(block) for block in blocks], dtype=np.int64),
        bits=FeatureBits(pack(bits.reshape(len(blocks), len(features)))),
        bounds={name: bounds_of(blocks, name) for name in TYPES},
    )


def forgetful(statistics: BlockStatistics, seed: int) -> BlockStatistics:
    """The same statistics with some unknown, some bounds too wide, and a column's bounds missing."""
    rng = np.random.default_rng(seed)
    bounds = {}
    for name, of_column in list(statistics.bounds.items())[seed % 3 :]:
        known = of_column.known & (rng.random(statistics.n) < 0.7)
        low, high = of_column.low.copy(), of_column.high.copy()
        low[~known], high[~known] = (None, None) if low.dtype == object else (7, -7)
        if low.dtype == np.int64:
            low -= rng.integers(0, 2, statistics.n)
        nulls = np.where(rng.random(statistics.n) < 0.3, -1, of_column.nulls)
        bounds[name] = ColumnBounds(low, high, known, nulls, of_column.type)
    return BlockStatistics(statistics.rows, statistics.bits, bounds)


def literal_of(condition: Condition) -> Literal:
    assert isinstance(condition.node, Literal)
    return condition.node


def features_of(conditions: Sequence[Condition]) -> FeatureSet:
    return FeatureSet(tuple(Feature((Predicate((literal_of(c),)),), 1.0) for c in conditions))


@given(blocks_of_rows, trees, st.lists(leaves, max_size=5), st.integers(0, 50), st.booleans())
@settings(max_examples=examples(200))
def test_a_block_with_a_matching_row_is_never_skipped(
    blocks: list[list[Row]], condition: Condition, features: list[Condition], seed: int, exact: bool
) -> None:
    statistics = statistics_of(blocks, features)
    skipped = cannot_match(condition.node, statistics if exact else forgetful(statistics, seed), features_of(features))
    for block, skip in zip(blocks, skipped, strict=True):
        assert not (skip and any(condition.is_true(row) for row in block))


@given(blocks_of_rows, trees, st.lists(leaves, max_size=3), st.sets(st.sampled_from(INDEXED)), st.integers(0, 50))
@settings(max_examples=examples(200))
def test_indexes_of_any_mix_skip_no_block_with_a_matching_row(
    blocks: list[list[Row]], condition: Condition, features: list[Condition], indexed: set[tuple[str, str]], seed: int
) -> None:
    """AND and OR over features, statistics, known or not, and indexes (Ta-Shma 2020, theorem 16)."""
    known = forgetful(statistics_of(blocks, features), seed)
    statistics = with_indexes(known, *(index_of(blocks, name, kind) for name, kind in sorted(indexed)))
    skipped = cannot_match(condition.node, statistics, features_of(features))
    for block, skip in zip(blocks, skipped, strict=True):
        assert not (skip and any(condition.is_true(row) for row in block))
    assert (skipped >= cannot_match(condition.node, known, features_of(features))).all()
    without = cannot_match(condition.node, statistics, features_of(features), by_indexes=False)
    assert without.tolist() == cannot_match(condition.node, known, features_of(features)).tolist()


@given(blocks_of_rows, st.lists(trees, max_size=4), st.integers(0, 50))
def test_filters_together_skip_what_each_skips(blocks: list[list[Row]], conditions: list[Condition], seed: int) -> None:
    statistics = forgetful(statistics_of(blocks), seed)
    nodes = [condition.node for condition in conditions]
    expected = [cannot_match(node, statistics, None).tolist() for node in nodes]
    assert cannot_match_each(nodes, statistics).tolist() == expected


@given(blocks_of_rows, trees, st.lists(leaves, max_size=5))
def test_more_mechanisms_skip_more(blocks: list[list[Row]], condition: Condition, features: list[Condition]) -> None:
    statistics, feature_set = statistics_of(blocks, features), features_of(features)
    both = cannot_match(condition.node, statistics, feature_set)
    by_features = cannot_match(condition.node, statistics, feature_set, by_statistics=False)
    by_statistics = cannot_match(condition.node, statistics, feature_set, by_features=False)
    assert (both >= (by_features | by_statistics)).all()
    np.testing.assert_array_equal(by_statistics, cannot_match(condition.node, statistics, None))
    assert not cannot_match(condition.node, statistics, feature_set, by_features=False, by_statistics=False).any()


@given(blocks_of_rows, leaves)
def test_a_feature_skips_every_block_without_it(blocks: list[list[Row]], condition: Condition) -> None:
    """A literal that is itself a feature: nothing else can be skipped, and all of that is."""
    skipped = cannot_match(
        condition.node, statistics_of(blocks, [condition]), features_of([condition]), by_statistics=False
    )
    assert skipped.tolist() == [not any(condition.is_true(row) for row in block) for block in blocks]


@pytest.mark.parametrize("name", ["b", "s"])
@given(data=st.data())
def test_bounds_skip_exactly_what_they_prove(name: str, data: st.DataObject) -> None:
    """Over a small ordered domain: skipped if and only if no value between the bounds is in the set."""
    domain = sorted(VALUES[name])
    values = data.draw(st.lists(st.sampled_from(domain), unique=True))
    spans = [(low, high) for low, high in product(domain, domain) if low <= high]
    blocks = [[{**dict.fromkeys(TYPES), name: low}, {**dict.fromkeys(TYPES), name: high}] for low, high in spans]
    node = InSet(column(name), ValueSet.of(to_key(value, TYPES[name]) for value in values))
    expected = [not any(low <= value <= high for value in values) for low, high in spans]
    assert cannot_match(node, statistics_of(blocks), None).tolist() == expected


@given(st.lists(st.integers(-60, 60), min_size=9, max_size=80, unique=True), st.integers(0, 9), st.booleans())
def test_long_lists_skip_exactly_what_they_prove(values: list[int], seed: int, unbounded: bool) -> None:
    """More intervals than are compared one by one: the binary search."""
    kept = ValueSet.of(2 * value for value in values)
    kept = kept.complement() if unbounded else kept
    rng = np.random.default_rng(seed)
    low = rng.integers(-130, 130, 200)
    high = low + rng.integers(0, 4, 200)
    bounds = ColumnBounds(low, high, np.ones(200, dtype=bool), np.zeros(200, dtype=np.int64), "int")
    expected = [not any(kept.contains(int(k)) for k in range(a, b + 1)) for a, b in zip(low, high, strict=True)]
    statistics = BlockStatistics(np.full(200, 5), None, {"a": bounds})
    assert cannot_match(InSet(column("a"), kept), statistics, None).tolist() == expected
    objects = ColumnBounds(low.astype(object), high.astype(object), bounds.known, bounds.nulls, "int")
    assert (
        cannot_match(InSet(column("a"), kept), BlockStatistics(statistics.rows, None, {"a": objects}), None).tolist()
        == expected
    )


def one_block(**values: list[Any]) -> list[list[Row]]:
    filled = {name: values.get(name, [None] * len(next(iter(values.values())))) for name in TYPES}
    return [[dict(zip(filled, row, strict=True)) for row in zip(*filled.values(), strict=True)]]


@pytest.mark.parametrize(
    ("condition", "block", "expected"),
    [
        (compared("x", ">", 5.0), one_block(x=[1.0, 2.0]), True),
        (compared("x", ">", 5.0), one_block(x=[1.0, float("nan")]), False),
        (compared("x", "=", 0.0), one_block(x=[-0.0]), False),
        (compared("x", "<>", float("nan")), one_block(x=[float("nan")]), True),
        (compared("s", "=", "a"), one_block(s=["a"]), False),
        (compared("s", ">", "a"), one_block(s=["a"]), True),
        (compared("s", ">", "a"), one_block(s=["a\0"]), False),
        (compared("s", "<>", "a"), one_block(s=["a", None]), True),
        (is_null("a", negated=False), one_block(a=[1, 2]), True),
        (is_null("a", negated=False), one_block(a=[1, None]), False),
        (is_null("a", negated=True), one_block(a=[None]), True),
        (listed("a", [1], or_null=True), one_block(a=[5, None]), False),
        (listed("a", [1], or_null=True), one_block(a=[5]), True),
        (liked("b", negated=False), one_block(s=["a", "abc"]), True),
        (liked("b", negated=True), one_block(s=["a", "abc"]), False),
        (columns_compared("<"), one_block(a=[3, 3], b=[0, 3]), True),
        (columns_compared("<="), one_block(a=[3, 3], b=[0, 3]), False),
        (columns_compared("="), one_block(a=[2, 3], b=[0, 1]), True),
        (columns_compared("="), one_block(a=[0, 1], b=[2, 3]), True),
        (columns_compared("="), one_block(a=[0, 2], b=[2, 3]), False),
        (columns_compared("<>"), one_block(a=[2, 2], b=[2, 2]), True),
        (columns_compared("<>"), one_block(a=[2, 2], b=[2, None]), True),
        (columns_compared("<>"), one_block(a=[2, 2], b=[2, 1]), False),
        (columns_compared("<>"), one_block(a=[2, 2], b=[3, 3]), False),
        (columns_compared("="), one_block(a=[None], b=[1]), True),
    ],
)
def test_statistics_skip_what_they_should(condition: Condition, block: list[list[Row]], expected: bool) -> None:
    assert cannot_match(condition.node, statistics_of(block), None).tolist() == [expected]


def test_two_columns_are_apart_only_where_both_are_known() -> None:
    """Whatever stands in place of unknown bounds is not looked at."""
    ones, zeros, known = np.ones(3, dtype=np.int64), np.zeros(3, dtype=np.int64), np.array([True, True, False])
    a = ColumnBounds(5 * ones, 5 * ones, known, zeros, "int")
    b = ColumnBounds(zeros, zeros, known[::-1], zeros, "int")
    statistics = BlockStatistics(ones, None, {"a": a, "b": b})
    assert cannot_match(columns_compared("<").node, statistics, None).tolist() == [False, True, False]


def test_constants_and_unknown_columns() -> None:
    statistics = statistics_of(one_block(a=[1]))
    assert cannot_match(Constant(False), statistics, None).tolist() == [True]
    assert cannot_match(Constant(True), statistics, None).tolist() == [False]
    assert cannot_match(InSet(Col("z", "int"), ValueSet.point(9)), statistics, None).tolist() == [False]
    assert cannot_match(InSet(Col("a", "bigint"), ValueSet.point(9)), statistics, None).tolist() == [
        False
    ]  # another type
    of_a = Call("crc32", (column("a"),), "int")
    assert cannot_match(InSet(of_a, ValueSet.point(9)), statistics, None).tolist() == [False]


def test_decimals_beyond_int64_compare() -> None:
    wide = "decimal(38,0)"
    ones, zeros = np.ones(2, dtype=bool), np.zeros(2, dtype=np.int64)
    objects = np.array([10**30, 5], dtype=object)
    statistics = BlockStatistics(
        np.full(2, 1),
        None,
        {
            "w": ColumnBounds(objects, objects, ones, zeros, wide),
        },
    )
    assert cannot_match(InSet(Col("w", wide), ValueSet.point(10**30)), statistics, None).tolist() == [False, True]
    beyond = InSet(Col("n", wide), ValueSet.of([3, *(10**18 * k for k in range(10, 20))]))
    as_wide = ColumnBounds(np.array([1, 3]), np.array([1, 3]), ones, zeros, wide)
    assert cannot_match(beyond, BlockStatistics(statistics.rows, None, {"n": as_wide}), None).tolist() == [True, False]


def in_list(*values: str) -> InSet:
    return InSet(column("s"), ValueSet.of(values))


def test_a_list_is_skipped_by_features_of_its_values() -> None:
    """``x IN ('a','b')`` skips by features for its literals."""
    features = features_of([listed("s", ["a"], False), listed("s", ["b"], False)])
    bits = FeatureBits(pack(np.array([[0, 0], [1, 0], [0, 1]], dtype=bool)))
    statistics = BlockStatistics(np.full(3, 1), bits)
    assert cannot_match(in_list("a", "b"), statistics, features).tolist() == [True, False, False]
    assert cannot_match(in_list("a", "b", "c"), statistics, features).tolist() == [False, False, False]


def test_whole_numbers_side_by_side_are_a_list_too() -> None:
    features = features_of([listed("a", [1], False), listed("a", [2], False)])
    bits = FeatureBits(pack(np.array([[0, 0], [1, 0]], dtype=bool)))
    node = InSet(column("a"), ValueSet.of([1, 2]))
    assert cannot_match(node, BlockStatistics(np.full(2, 1), bits), features).tolist() == [True, False]


def test_a_feature_and_a_statistic_skip_an_or_together() -> None:
    """``x = 'a' OR y > 10`` by a feature and a statistic together; neither alone."""
    node = any_of([compared("s", "=", "a"), compared("a", ">", 10)]).node
    features = features_of([compared("s", "=", "a")])
    bits = FeatureBits(pack(np.array([[0], [0], [1]], dtype=bool)))
    high = np.array([10, 11, 10])
    bounds = ColumnBounds(np.zeros(3, dtype=np.int64), high, np.ones(3, dtype=bool), np.zeros(3, dtype=np.int64), "int")
    statistics = BlockStatistics(np.full(3, 1), bits, {"a": bounds})
    assert cannot_match(node, statistics, features).tolist() == [True, False, False]
    assert not cannot_match(node, statistics, features, by_statistics=False).any()
    assert not cannot_match(node, statistics, features, by_features=False).any()


def test_a_conjunctive_feature_skips_its_and() -> None:
    parts = [compared("s", "=", "a"), compared("a", ">", 10)]
    both = FeatureSet((Feature(tuple(Predicate((literal_of(p),)) for p in parts), 1.0),))
    statistics = BlockStatistics(np.full(2, 1), FeatureBits(pack(np.array([[0], [1]], dtype=bool))))
    stricter = all_of([*parts, compared("b", "=", 1)]).node
    assert cannot_match(stricter, statistics, both).tolist() == [True, False]
    assert not cannot_match(parts[0].node, statistics, both).any()


def test_an_index_and_a_statistic_skip_an_or_together() -> None:
    """``s = 'b' OR a > 10``: the index denies 'b' between 'a' and 'c', the maximum denies the rest; neither alone."""
    blocks = [[{"a": 3, "b": 0, "x": 0.0, "s": text} for text in texts] for texts in (["a", "c"], ["a", "b", "c"])]
    node = any_of([compared("s", "=", "b"), compared("a", ">", 10)]).node
    statistics = with_indexes(statistics_of(blocks), index_of(blocks, "s", "bloom"))
    assert cannot_match(node, statistics, None).tolist() == [True, False]
    assert not cannot_match(node, statistics, None, by_indexes=False).any()
    assert not cannot_match(node, statistics, None, by_statistics=False).any()


def test_an_index_says_nothing_of_null() -> None:
    blocks = [[{"a": 1, "b": None, "x": 0.0, "s": "a"}], [{"a": None, "b": None, "x": 0.0, "s": "a"}]]
    node = listed("a", [2], or_null=True).node
    statistics = statistics_of(blocks)
    unknown = {"a": replace(statistics.bounds["a"], nulls=np.array([-1, -1]), known=np.array([False, False]))}
    index = index_of(blocks, "a", "value-list")
    assert cannot_match(node, with_indexes(statistics, index), None).tolist() == [True, False]
    assert not cannot_match(node, with_indexes(replace(statistics, bounds=unknown), index), None).any()


def test_an_index_remembers_what_it_found() -> None:
    index = FeatureIndex(features_of([compared("a", ">", 1), compared("a", ">", 5)]))
    node = compared("a", ">", 3).node
    assert index.subsuming(node) == (0,)
    assert index.subsuming(node) is index.subsuming(node)


def test_feature_bits_are_those_of_the_words() -> None:
    bits = np.random.default_rng(0).random((77, 130)) < 0.5
    of_features = FeatureBits(pack(bits))
    for feature in (0, 63, 64, 129):
        np.testing.assert_array_equal(np.unpackbits(of_features.bitmap(feature), count=77).view(bool), bits[:, feature])
    with pytest.raises(ValueError, match="features"):
        of_features.bitmap(192)


@given(blocks_of_rows, st.lists(trees, min_size=2, max_size=6), st.lists(leaves, max_size=4))
@settings(max_examples=examples(60))
def test_what_is_remembered_of_other_filters_changes_nothing(
    blocks: list[list[Row]], conditions: list[Condition], features: list[Condition]
) -> None:
    shared, index = statistics_of(blocks, features), FeatureIndex(features_of(features))
    for condition in conditions * 2:
        alone = cannot_match(condition.node, statistics_of(blocks, features), features_of(features))
        assert cannot_match(condition.node, shared, index).tolist() == alone.tolist()


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("layoutopt.skipping.zone_maps._MAX_CACHED_BYTES", 3)
    statistics = statistics_of(one_block(a=[1, 2]))
    for value in range(20):
        node = compared("a", "=", value).node
        assert cannot_match(node, statistics, None).tolist() == [value not in (1, 2)]
        assert len(statistics.proved) <= 3
