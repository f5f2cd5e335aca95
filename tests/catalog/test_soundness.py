"""From rows to a skipped block: whatever the data and whatever statistics are lost, no matching row is skipped."""

from __future__ import annotations

import operator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.catalog.blocks import BlockTable, encode_blocks
from layoutopt.catalog.bounds import bounds_over, merge_bounds
from layoutopt.model.predicates import And, Col, Comparison, Constant, InSet, Like, Node, Or, conjunction, disjunction
from layoutopt.model.predicates.normal import like
from layoutopt.model.predicates.patterns import matches, parse_like
from layoutopt.model.schema import Column, Schema
from layoutopt.model.values import Key, ValueSet, to_key
from layoutopt.skipping.cannot_match import BlockStatistics, cannot_match
from tests.catalog.loads import blocks_of, plan_of
from tests.catalog.typed_values import ARROW, VALUES

COMPARE = {"=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le}
Row = dict[str, Key | None]

# Few values each, so that bounds, literals and rows meet; with the ones that are known to hurt.
SPECIAL: dict[str, list[Any]] = {
    "double": [float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.5],
    "float": [float("nan"), float("inf"), 0.5],
    "string": ["", "a", "ab", "b" * 64, "b" * 65, "b" * 64 + "c", "\U0010ffff" * 65, "\ud7ff" * 65],
    "binary": [b"", b"a", b"\xff" * 65, b"a" * 65],
    "bigint": [-(2**63), 2**63 - 1, 0],
    "boolean": [True, False],
}


def values_of(type: str) -> st.SearchStrategy[Any]:
    return st.sampled_from(SPECIAL[type]) | VALUES[type] if type in SPECIAL else VALUES[type]


def key_sets(type: str, keys: st.SearchStrategy[Key]) -> st.SearchStrategy[ValueSet]:
    points = st.lists(keys, max_size=4).map(ValueSet.of)
    ranges = st.lists(keys, min_size=2, max_size=2, unique=True).map(lambda pair: ValueSet.interval(*sorted(pair)))
    half = keys.map(lambda key: ValueSet.interval(None, key))
    some = points | ranges | half | st.sampled_from([ValueSet.all(), ValueSet.empty()])
    return some.flatmap(lambda chosen: st.sampled_from([chosen, chosen.complement()])).map(
        lambda chosen: ValueSet.normalised(chosen.intervals, type)
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[Schema, pa.Table, Node]:
    """Two columns of one type, a third of any, rows, and a filter on them whose literals lie near the rows' values."""
    types = [draw(st.sampled_from(sorted(VALUES)))] * 2 + [draw(st.sampled_from(sorted(VALUES)))]
    schema = Schema(tuple(Column(name, type) for name, type in zip("abc", types, strict=True)))
    n = draw(st.integers(1, 12))
    table = pa.table(
        {
            column.name: pa.array(
                draw(st.lists(st.none() | values_of(column.type), min_size=n, max_size=n)), ARROW[column.type]
            )
            for column in schema.columns
        }
    )
    literals = st.one_of([_literals(column, table[column.name]) for column in schema.columns])
    compared = st.builds(
        Comparison, st.just(Col("a", types[0])), st.sampled_from(sorted(COMPARE)), st.just(Col("b", types[1]))
    )
    nodes = st.recursive(
        literals | compared,
        lambda children: (
            st.lists(children, min_size=1, max_size=3).map(conjunction)
            | st.lists(children, min_size=1, max_size=3).map(disjunction)
        ),
        max_leaves=5,
    )
    return schema, table, draw(nodes)


def _literals(column: Column, values: pa.ChunkedArray) -> st.SearchStrategy[Node]:
    present = [to_key(value, column.type) for value in values.to_pylist() if value is not None]
    near = st.sampled_from(present) if present else st.nothing()
    fresh = values_of(column.type).map(lambda value: to_key(_as_stored(value, column.type), column.type))
    sets: st.SearchStrategy[Node] = st.builds(
        InSet, st.just(Col(column.name, column.type)), key_sets(column.type, near | fresh), st.booleans()
    )
    if column.type != "string":
        return sets
    patterns = st.text("ab%_", max_size=5).map(parse_like)
    return sets | st.builds(like, st.just(Col(column.name, "string")), patterns, st.booleans())


def _as_stored(value: Any, type: str) -> Any:
    return pa.array([value], ARROW[type])[0].as_py()


def is_true(node: Node, row: Row) -> bool:
    """Whether the row makes the node TRUE, by a plain look."""
    match node:
        case Constant(value):
            return value
        case And(children):
            return all(is_true(child, row) for child in children)
        case Or(children):
            return any(is_true(child, row) for child in children)
        case InSet(Col(name), values, null):
            key = row[name]
            return null if key is None else values.contains(key)
        case Like(Col(name), pattern, negated):
            text = row[name]
            return isinstance(text, str) and matches(pattern, text) != negated
        case Comparison(Col(left), op, Col(right)):
            a, b = row[left], row[right]
            return a is not None and b is not None and COMPARE[op](a, b)
    raise AssertionError(node)


def rows_of(table: pa.Table, schema: Schema) -> list[Row]:
    types = {column.name: column.type for column in schema.columns}
    return [
        {name: None if value is None else to_key(value, types[name]) for name, value in row.items()}
        for row in table.to_pylist()
    ]


def forget(blocks: pa.Table, lost: set[tuple[int, int, str]]) -> pa.Table:
    """The blocks without the statistics (block, column, member) that are lost."""
    stats = blocks["stats"].to_pylist()
    for block, column, member in lost:
        if stats[block][f"c{column}"].get(member) is not None:
            stats[block][f"c{column}"][member] = None
    index = blocks.schema.get_field_index("stats")
    return blocks.set_column(index, "stats", pa.array(stats, blocks.schema.field("stats").type))


@given(cases(), st.integers(0, 12), st.data())
def test_no_matching_row_is_skipped(case: tuple[Schema, pa.Table, Node], cut: int, data: st.DataObject) -> None:
    schema, table, node = case
    cut = min(cut, table.num_rows)
    offsets = [0, cut, table.num_rows] if 0 < cut < table.num_rows else [0, table.num_rows]
    plan = plan_of(schema, partition_by=None)
    places = st.tuples(
        st.integers(0, len(offsets) - 2), st.integers(0, 2), st.sampled_from(["nulls", "nans", "min", "max"])
    )
    blocks = forget(blocks_of(table, offsets, plan), data.draw(st.sets(places, max_size=4)))
    statistics = BlockTable.from_parquet(encode_blocks(blocks), plan, "blocks").block_statistics()
    matching = [is_true(node, row) for row in rows_of(table, schema)]
    skipped = cannot_match(node, statistics, None)
    for block, (start, end) in enumerate(pairwise(offsets)):
        assert not (skipped[block] and any(matching[start:end])), table.slice(start, end - start).to_pylist()
    if cannot_match(node, partition_statistics(statistics, schema), None)[0]:
        assert not any(matching)


def partition_statistics(statistics: BlockStatistics, schema: Schema) -> BlockStatistics:
    """The statistics of all blocks as one partition, by the way through a snapshot."""
    rows = np.array([statistics.rows.sum()])
    bounds = {
        column.name: bounds_over(
            [merge_bounds(statistics.bounds[column.name], statistics.rows, np.arange(statistics.n))], rows, column.type
        )
        for column in schema.columns
    }
    return BlockStatistics(rows=rows, bounds=bounds)


NOT_THERE: dict[str, Any] = {"double": 7.5, "string": "zz", "bigint": 70, "binary": b"zz", "decimal(38,10)": 70}
ONE: dict[str, Any] = {"double": 1.5, "string": "b" * 80, "bigint": 1, "binary": b"b", "decimal(38,10)": 1}


@pytest.mark.parametrize("type", sorted(NOT_THERE))
def test_what_is_provably_not_there_is_skipped(type: str) -> None:
    schema = Schema((Column("a", type),))
    plan = plan_of(schema, partition_by=None)
    table = pa.table({"a": pa.array([ONE[type], ONE[type], None, None, NOT_THERE[type], None], ARROW[type])})
    statistics = BlockTable.from_arrow(blocks_of(table, [0, 2, 4, 6], plan), plan).block_statistics()
    column = Col("a", type)
    wanted = ValueSet.point(to_key(_as_stored(NOT_THERE[type], type), type))
    assert cannot_match(InSet(column, wanted), statistics, None).tolist() == [True, True, False]
    assert cannot_match(InSet(column, wanted.complement()), statistics, None).tolist() == [False, True, True]
    assert cannot_match(InSet(column, ValueSet.empty(), null=True), statistics, None).tolist() == [True, False, False]
    assert cannot_match(InSet(column, ValueSet.all()), statistics, None).tolist() == [False, True, False]
