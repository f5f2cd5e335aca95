"""Tables of blocks: read lazily, checked, and where a statistic is missing or contradicts another, unknown."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.catalog.blocks import BlockTable, block_schema, concat_blocks, encode_blocks
from layoutopt.catalog.bounds import bounds_over, column_bounds, merge_bounds
from layoutopt.catalog.entries import partition_entries, written_content
from layoutopt.catalog.partition_entry import Bounds
from layoutopt.catalog.statistics import column_statistics_type
from layoutopt.errors import CatalogError
from layoutopt.model.layout import ByOrder, Layout, Scheme
from layoutopt.model.schema import Column, Schema
from layoutopt.model.values import NAN_KEY, to_key
from layoutopt.skipping.cannot_match import ColumnBounds
from tests.catalog.loads import FOOTER, ROWS, SCHEMA, SmallLoad, blocks_of, plan_of

PLAN = plan_of()
BLOCKS = blocks_of(ROWS, [0, 2, 4], PLAN)


def from_file(blocks: pa.Table) -> BlockTable:
    return BlockTable.from_parquet(encode_blocks(blocks), PLAN, "l1.parquet")


def from_arrow(blocks: pa.Table) -> BlockTable:
    return BlockTable.from_arrow(blocks, PLAN)


def with_column(name: str, values: pa.Array) -> pa.Table:
    return BLOCKS.set_column(BLOCKS.schema.get_field_index(name), name, values)


Reader = Callable[[pa.Table], BlockTable]
both_readers = pytest.mark.parametrize("read", [from_file, from_arrow])


@both_readers
def test_every_column_is_there(read: Reader) -> None:
    table = read(BLOCKS)
    assert (table.n, len(table)) == (2, 2)
    assert table.files == ("data/1994/l1/layout-0/0-a.parquet",)
    assert table.partitions == ("1994",)
    zeros = {name: [0, 0] for name in ("file", "partition", "segment", "layout", "part", "tid_bytes")}
    expected = zeros | {"row_group": [0, 1], "block_id": [0, 1], "rows": [2, 2], "bytes": [100, 100]}
    columns = {name: getattr(table, name) for name in expected}
    assert {name: values.tolist() for name, values in columns.items()} == expected
    assert {values.dtype for values in columns.values()} == {np.dtype(np.int64)}
    assert table.words.tolist() == [[5], [5]]
    assert table.column_bytes("x").tolist() == [10, 11]
    assert table.column_sums("s").tolist() == [10, 11]


@both_readers
def test_bounds_are_those_of_the_rows(read: Reader) -> None:
    bounds = read(BLOCKS).block_statistics().bounds
    assert list(bounds) == ["year", "x", "s"]
    assert described(bounds["year"]) == [(1994, 1994, 0), (1994, 1994, 1)]
    assert described(bounds["x"]) == [(to_key(1.5, "double"),) * 2 + (1,), (*keys(-1.0, 2.5), 0)]
    assert described(bounds["s"]) == [("a", "b", 0), ("c", "c", 1)]
    assert bounds["s"].type == "string"
    with pytest.raises(KeyError):
        bounds["X"]


def keys(*values: float) -> tuple[Any, ...]:
    return tuple(to_key(value, "double") for value in values)


def described(bounds: ColumnBounds) -> list[Any]:
    """Per block (low, high, nulls), or only nulls where the range is unknown."""
    rows = zip(bounds.low.tolist(), bounds.high.tolist(), bounds.nulls.tolist(), bounds.known.tolist(), strict=True)
    return [(low, high, nulls) if known else nulls for low, high, nulls, known in rows]


def test_taking_and_joining_keep_statistics_with_their_blocks() -> None:
    table = from_file(BLOCKS)
    both = concat_blocks([table.take(np.array([1])), table.take(np.array([True, False]))])
    assert both.block_id.tolist() == [1, 0]
    assert described(both.block_statistics().bounds["s"]) == [("c", "c", 1), ("a", "b", 0)]
    assert both.column_sums("x").tolist() == [11, 10]
    assert table.take(np.zeros(2, dtype=np.bool_)).block_statistics().bounds["s"].known.tolist() == []


def test_threads_may_ask_for_statistics_at_once() -> None:
    schema = Schema(tuple(Column(f"x{i}", "bigint") for i in range(40)))
    rows = pa.table({name: pa.array(range(2000), pa.int64()) for name in schema.names})
    plan = plan_of(schema, partition_by=None)
    content = encode_blocks(blocks_of(rows, range(0, 2001, 2), plan))
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            table = BlockTable.from_parquet(content, plan, "l1.parquet")
            found = list(pool.map(table.column_sums, schema.names))
            assert all(sums.tolist() == found[0].tolist() for sums in found)


def stats_of(type: str, *blocks: dict[str, Any]) -> pa.StructArray:
    return pa.array(list(blocks), column_statistics_type(type))


@pytest.mark.parametrize(
    ("stats", "expected"),
    [
        ({"nulls": 1, "min": 3, "max": 5}, (3, 5, 1)),
        ({"nulls": 4}, 4),
        ({"nulls": None, "min": 3, "max": 5}, (3, 5, -1)),
        ({"nulls": 0, "min": None, "max": 5}, 0),
        ({"nulls": 0, "min": 3, "max": None}, 0),
        ({"nulls": 0, "min": 5, "max": 3}, -1),
        ({"nulls": 4, "min": 3, "max": 5}, -1),
        ({"nulls": 5, "min": 3, "max": 5}, (3, 5, -1)),
        ({"nulls": -2, "min": 3, "max": 5}, (3, 5, -1)),
        (None, -1),
    ],
)
def test_missing_or_contradictory_statistics_are_unknown(stats: dict[str, Any], expected: object) -> None:
    assert described(column_bounds(stats_of("int", stats), np.array([4]), "int")) == [expected]


LOW, HIGH = keys(-1.0, 2.0)


@pytest.mark.parametrize(
    ("stats", "expected"),
    [
        ({"nulls": 0, "nans": 0, "min": LOW, "max": HIGH}, (LOW, HIGH, 0)),
        ({"nulls": 0, "nans": 1, "min": LOW, "max": HIGH}, (LOW, NAN_KEY, 0)),
        ({"nulls": 0, "nans": None, "min": LOW, "max": HIGH}, (LOW, NAN_KEY, 0)),
        ({"nulls": 0, "nans": 9, "min": LOW, "max": HIGH}, (LOW, NAN_KEY, 0)),
        ({"nulls": 0, "nans": -1, "min": LOW, "max": HIGH}, (LOW, NAN_KEY, 0)),
        ({"nulls": 1, "nans": 3}, (NAN_KEY, NAN_KEY, 1)),
        ({"nulls": None, "nans": 4}, -1),
        ({"nulls": 1, "nans": 2}, 1),
        ({"nulls": 4, "nans": 0}, 4),
    ],
)
def test_a_block_that_may_have_a_nan_reaches_up_to_it(stats: dict[str, Any], expected: object) -> None:
    assert described(column_bounds(stats_of("double", stats), np.array([4]), "double")) == [expected]


def test_the_nan_rule_holds_from_rows_to_bounds() -> None:
    rows = ROWS.set_column(1, "x", pa.array([math.nan, 1.0, math.nan, None]))
    bounds = from_file(blocks_of(rows, [0, 2, 4], PLAN)).block_statistics().bounds["x"]
    assert described(bounds) == [(to_key(1.0, "double"), NAN_KEY, 0), (NAN_KEY, NAN_KEY, 1)]


@both_readers
def test_statistics_that_are_missing_or_of_another_type_are_unknown(read: Reader) -> None:
    bare = pa.StructArray.from_arrays([pa.array([{"nulls": 0}] * 2)], names=["c1"])
    table = read(with_column("stats", bare))
    bounds = table.block_statistics().bounds
    assert (described(bounds["x"]), described(bounds["s"])) == ([0, 0], [-1, -1])
    assert table.column_sums("x").tolist() == [-1, -1]
    assert written_content(table).sums == {}
    wrong = pa.StructArray.from_arrays([pa.array([{"nulls": "0", "min": "a", "max": "z"}] * 2)], names=["c0"])
    assert described(read(with_column("stats", wrong)).block_statistics().bounds["year"]) == [-1, -1]


@pytest.mark.parametrize(
    ("stored", "words"),
    [([None, [0]], [[2**64 - 1], [0]]), ([[-(2**63)], [-1]], [[2**63], [2**64 - 1]])],
    ids=["an unknown vector has all bits", "the sign bit is a bit"],
)
def test_union_vectors_are_bit_patterns(stored: list[Any], words: list[list[int]]) -> None:
    assert from_file(with_column("words", pa.array(stored, pa.list_(pa.int64())))).words.tolist() == words


@both_readers
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("file", ["../x", "y"]),
        ("file", ["s3://b/x", "y"]),
        ("file", ["", "y"]),
        ("partition", ["..", "y"]),
        ("rows", [0, 2]),
        ("rows", [-1, 2]),
        ("rows", [None, 2]),
        ("row_group", [-1, 0]),
        ("layout", [-1, 0]),
        ("layout", [0, 1]),
        ("bytes", [-1, 0]),
        ("block", [3, 3]),
        ("words", [[1, 2], [1]]),
        ("words", [[None], [1]]),
    ],
)
def test_impossible_values_are_refused(read: Reader, name: str, values: list[Any]) -> None:
    type = pa.list_(pa.int64()) if name == "words" else BLOCKS.schema.field(name).type
    with pytest.raises(CatalogError, match="damaged"):
        read(with_column(name, pa.array(values, type)))


@both_readers
@pytest.mark.parametrize(
    "name", [field.name for field in block_schema(SCHEMA, 1) if field.name not in ("stats", "footer", "start")]
)
def test_a_missing_or_foreign_column_is_refused(read: Reader, name: str) -> None:
    with pytest.raises(CatalogError, match=name):
        read(BLOCKS.drop_columns([name]))
    with pytest.raises(CatalogError, match=name):
        read(with_column(name, pa.array([1.5, 2.5])))


@both_readers
def test_footers_of_older_tables_are_unknown(read: Reader) -> None:
    assert read(BLOCKS.drop_columns(["footer"])).footers == (None,)
    assert read(BLOCKS).footers == (FOOTER,)
    with pytest.raises(CatalogError, match="footer"):
        read(with_column("footer", pa.array([1.5, 2.5])))


def test_other_bytes_are_no_blocks_file() -> None:
    with pytest.raises(CatalogError, match=r"l1\.parquet is damaged"):
        BlockTable.from_parquet(b"PAR1 no", PLAN, "l1.parquet")


def test_entries_are_measured_from_the_blocks() -> None:
    first, null = SmallLoad(years=(1994, None)).entries
    assert (first.key, first.value, null.key, null.value) == ("1994", 1994, "__null__", None)
    assert (first.rows, first.bytes, first.checksums) == (4, 200, {"year": 21, "x": 21, "s": 21})
    assert first.bounds == {
        "year": Bounds(1994, 1994, 1),
        "x": Bounds(to_key(-1.0, "double"), to_key(2.5, "double"), 1),
        "s": Bounds("a", "c", 1),
    }


def test_a_block_without_a_place_is_refused() -> None:
    with pytest.raises(ValueError, match="1994"):
        partition_entries(BLOCKS, PLAN, "l1", {"1995": 1995})


def test_with_several_layouts_rows_count_once_and_each_column_where_it_is_complete() -> None:
    whole = blocks_of(ROWS, [0, 2, 4], PLAN)
    part = blocks_of(ROWS.select(["s"]), [0, 1, 4], PLAN, block=[7, 8], layout=[1, 1])
    layouts = (*PLAN.scheme.layouts, Layout(("s",), (), (), ByOrder("input")))
    both = replace(PLAN, scheme=Scheme(layouts))
    content = written_content(BlockTable.from_arrow(pa.concat_tables([whole.slice(0, 1), part]), both))
    assert content.rows == 4
    assert content.sums == {"s": 21}


@pytest.mark.parametrize(
    ("second", "merged"),
    [
        ({"nulls": 4}, Bounds(3, 5, 4)),  # only NULLs
        ({"nulls": 3}, Bounds(None, None, 3)),
        ({"nulls": None, "min": 9, "max": 9}, Bounds(3, 9, None)),
    ],
)
def test_one_unknown_block_makes_the_partition_unknown(second: dict[str, Any], merged: Bounds) -> None:
    rows, stats = np.array([4, 4]), stats_of("int", {"nulls": 0, "min": 3, "max": 5}, second)
    assert merge_bounds(column_bounds(stats, rows, "int"), rows, np.arange(2)) == merged


@given(
    cuts=st.lists(st.integers(1, 3), min_size=1, max_size=12),
    keys=st.integers(1, 4),
    seed=st.integers(0, 1000),
)
def test_partitions_are_measured_together_as_each_alone(cuts: list[int], keys: int, seed: int) -> None:
    plan = replace(PLAN, scheme=Scheme((*PLAN.scheme.layouts, Layout(PLAN.schema.names, (), (), ByOrder("input")))))
    rng, rows = np.random.default_rng(seed), sum(cuts)
    table = pa.table(
        {
            "year": pa.array([None if v == 0 else v for v in rng.integers(0, 4, rows).tolist()], pa.int32()),
            "x": pa.array([None if v == 0 else (math.nan if v == 1 else v) for v in rng.integers(0, 5, rows).tolist()]),
            "s": pa.array([None if v == 0 else "abc"[v - 1] for v in rng.integers(0, 4, rows).tolist()]),
        },
        schema=pa.schema([("year", pa.int32()), ("x", pa.float64()), ("s", pa.string())]),
    )
    names = [f"{key}" for key in rng.integers(0, keys, len(cuts))]
    layouts = rng.integers(0, 2, len(cuts)).tolist()
    blocks = blocks_of(table, np.cumsum([0, *cuts]).tolist(), PLAN, layout=layouts).set_column(
        BLOCKS.schema.get_field_index("partition"), "partition", pa.array(names)
    )
    if seed % 3 == 0:  # some blocks hold no text, as in schemes of several layouts
        held = pa.array(rng.integers(0, 2, len(cuts)).astype(bool))
        stats = blocks["stats"].combine_chunks()
        kept = pc.if_else(held, stats.field("c2"), pa.nulls(len(cuts), stats.field("c2").type))
        children = [stats.field("c0"), stats.field("c1"), kept]
        blocks = blocks.set_column(
            blocks.schema.get_field_index("stats"), "stats", pa.StructArray.from_arrays(children, ["c0", "c1", "c2"])
        )
    values = {f"{key}": key for key in range(keys + 1)}  # the last has no blocks
    together = partition_entries(blocks, plan, "l1", values)
    for entry in together:
        own = blocks.filter(pc.equal(blocks["partition"], entry.key))
        assert partition_entries(own, plan, "l1", {entry.key: entry.value}) == (entry,)
        measured = BlockTable.from_arrow(own, plan)
        in_layout = [own.filter(pc.equal(own["layout"], layout)) for layout in (0, 1)]
        assert entry.rows == max(sum(part["rows"].to_pylist()) for part in in_layout)
        complete = [
            np.flatnonzero((measured.layout == layout) & measured.has_column("s"))
            for layout in (0, 1)
            if measured.rows[(measured.layout == layout) & measured.has_column("s")].sum() == entry.rows
        ]
        assert ("s" in entry.checksums) == bool(complete)
        if complete:
            bounds = measured.block_statistics().bounds["s"]
            known, held_nulls = bounds.known[complete[0]], bounds.nulls[complete[0]]
            texts = bounds.low[complete[0]][known].tolist(), bounds.high[complete[0]][known].tolist()
            expected = (min(texts[0]), max(texts[1])) if known.any() else (None, None)
            assert (entry.bounds["s"].low, entry.bounds["s"].high) == expected
            assert entry.bounds["s"].nulls == held_nulls.sum()
            assert entry.checksums["s"] == measured.column_sums("s")[complete[0]].sum()


@pytest.mark.parametrize(
    ("type", "low", "high"), [("int", 1, 2), ("string", "a", "b"), ("binary", b"a", b"b"), ("decimal(38,0)", 1, 10**37)]
)
def test_bounds_of_partitions_become_bounds_over_them(type: str, low: Any, high: Any) -> None:
    bounds = bounds_over([Bounds(low, high, 1), Bounds(), Bounds(None, None, 9)], np.array([4, 4, 4]), type)
    assert described(bounds) == [(low, high, 1), -1, -1]


class TestFilesMadeToFillTheMemory:
    """Small files that become large are refused before they do."""

    @staticmethod
    def written(blocks: pa.Table, **options: Any) -> bytes:
        sink = pa.BufferOutputStream()
        pq.write_table(blocks, sink, compression="zstd", write_statistics=False, **options)
        return bytes(sink.getvalue().to_pybytes())

    @pytest.mark.parametrize("dictionaries", [False, True])
    def test_rows_that_say_nothing(self, dictionaries: bool) -> None:
        data = self.written(pa.table({"rows": np.zeros(10_000_000, np.int64)}), use_dictionary=dictionaries)
        assert len(data) < 50_000
        with pytest.raises(CatalogError, match="expand to"):
            BlockTable.from_parquet(data, PLAN, "l1.parquet")

    def test_a_long_text_repeated_by_a_dictionary(self) -> None:
        rows = 1_000
        longer = BLOCKS.take(pa.array(np.zeros(rows, np.int64)))
        texts = pa.array(["data/" + "x" * 1_000_000]).dictionary_encode().take(pa.array(np.zeros(rows, np.int64)))
        place = longer.schema.get_field_index("file")
        data = self.written(
            longer.set_column(place, "file", texts.cast(pa.dictionary(pa.int32(), pa.string()))),
            use_dictionary=["file"],
        )
        assert len(data) < 1_000_000
        with pytest.raises(CatalogError, match="1000005 bytes"):
            BlockTable.from_parquet(data, PLAN, "l1.parquet")

    def test_honest_blocks_are_far_from_the_bound(self) -> None:
        like = BLOCKS.slice(0, 1).take(pa.array(np.zeros(20_000, np.int64)))
        assert from_file(like.set_column(2, "block", pa.array(range(20_000), pa.int64()))).n == 20_000


def test_columns_of_wide_tables_are_read_in_few_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = Schema(tuple(Column(f"x{i}", "int") for i in range(400)))
    plan = plan_of(schema, partition_by=None)
    rows = pa.table({f"x{i}": pa.array([i, i + 1, i + 2, None], pa.int32()) for i in range(400)})
    data = encode_blocks(blocks_of(rows, [0, 2, 4], plan))
    reads: list[int] = []
    read = pq.ParquetFile.read

    def counted(self: pq.ParquetFile, columns: Any = None, **options: Any) -> pa.Table:
        reads.append(len(columns))
        return read(self, columns=columns, **options)

    monkeypatch.setattr(pq.ParquetFile, "read", counted)
    single = BlockTable.from_parquet(data, plan, "l1.parquet")
    reads.clear()
    assert single.block_statistics().bounds["x7"].high.tolist() == [8, 9]
    assert reads == [1]  # a question about a column decodes that column alone
    table = BlockTable.from_parquet(data, plan, "l1.parquet")
    reads.clear()
    for i in [*range(399, 200, -7), *range(400)]:
        bounds = table.block_statistics().bounds[f"x{i}"]
        assert (bounds.low.tolist(), bounds.high.tolist(), bounds.nulls.tolist()) == (
            [i, i + 2],
            [i + 1, i + 2],
            [0, 1],
        )
    assert sum(reads) == 400
    assert len(reads) < 60
