"""A table whose newer partitions have more columns, under another plan: queries span both, older rows read NULL."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.inspect.evaluate import evaluate
from layoutopt.inspect.verify import verify
from layoutopt.model.layout import ByVectors, Layout
from layoutopt.model.predicates import TRUE
from layoutopt.model.schema import Column, Schema
from layoutopt.scan.prune import PruneOutcome, prune
from layoutopt.scan.segments import segments_to_read
from layoutopt.scan.table import Table
from layoutopt.workload.analyze import analyze
from layoutopt.workload.log import LogEntry
from tests.effort import examples
from tests.scan.builder import build, building
from tests.scan.deleting import delete_ids
from tests.scan.generated import conditions
from tests.scan.tables import SCHEMA, expected, same, some_rows

pytestmark = pytest.mark.checks_texts

ADDED = ("kind", "score")
OLD = SCHEMA.select([name for name in SCHEMA.names if name not in ADDED])
NEW = Schema((*OLD.columns, *SCHEMA.select(ADDED).columns))
OLD_GROUPS = [
    Layout(("id", "year"), (0,), ("id", "year"), ByVectors()),
    Layout(("day", "price", "seen"), (1,), ("day", "price", "seen"), ByVectors()),
]
NEW_GROUPS = [
    Layout(("id", "kind"), (0,), ("id", "kind"), ByVectors()),
    Layout(("day", "price", "seen", "year", "score"), (1,), ("day", "price", "seen", "year", "score"), ByVectors()),
]
WHAT = ["id", "kind", "score, kind", "id, score, price", "count(*) AS n", "count(kind) AS n", "*"]


def grown_table(root: Path, rows: pa.Table, old: Sequence[Layout] | None, new: Sequence[Layout] | None) -> Table:
    """1994 and 1995 without the added columns, then 1996 with them."""
    recent = pc.equal(rows["year"], 1996)
    before = rows.filter(pc.invert(recent)).select(list(OLD.names))
    build(root, before, building(OLD, ["price > 50", "id < 15"], layouts=old, partition_by="year"), "load-1")
    plan = building(NEW, ["kind = 'air'", "price > 50", "score > 1"], layouts=new, partition_by="year")
    return build(root, rows.filter(recent).select(list(NEW.names)), plan, "load-2", first=1000)


def as_read(rows: pa.Table) -> pa.Table:
    """The rows as the table gives them: in its order of columns, NULL where the older partitions have no column."""
    recent = pc.equal(rows["year"], 1996)
    for name in ADDED:
        column = pc.if_else(recent, rows[name], pa.scalar(None, rows.schema.field(name).type))
        rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), column)
    return rows.select(list(NEW.names))


LAYOUTS = st.sampled_from([(None, None), (OLD_GROUPS, None), (None, NEW_GROUPS), (OLD_GROUPS, NEW_GROUPS)])


@settings(max_examples=examples(20))
@given(LAYOUTS, conditions, st.integers(0, 3), st.sampled_from(WHAT))
def test_a_scan_over_both_plans_returns_exactly_the_rows_that_match(
    layouts: tuple[list[Layout] | None, list[Layout] | None], condition: str, seed: int, what: str
) -> None:
    rows = some_rows(60, seed)
    sql = f"SELECT {what} FROM t WHERE {condition}"
    with tempfile.TemporaryDirectory() as folder:
        table = grown_table(Path(folder), rows, *layouts)
        wanted = sql.replace("*", ", ".join(NEW.names)) if what == "*" else sql
        assert same(table.sql(sql).to_pylist(), expected(wanted, as_read(rows)))


@pytest.fixture(scope="module", params=[None, NEW_GROUPS], ids=["one-layout", "groups"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Table:
    return grown_table(tmp_path_factory.mktemp("grown"), some_rows(), None, request.param)


def test_older_partitions_are_skipped_by_a_filter_on_a_newer_column(table: Table) -> None:
    for condition, read_old in (("kind = 'air'", False), ("kind IS NULL", True), ("score > 1 OR price > 50", True)):
        (read,) = table.scan(where=condition, columns=["id"]).reads
        outcomes = {pruned.source.plan.digest: pruned for pruned in read.pruned}
        (old,) = [pruned for pruned in outcomes.values() if pruned.source.absent]
        assert bool(old.read.any()) == read_old, condition
        assert read_old or set(old.outcome.tolist()) == {PruneOutcome.PARTITION}


@settings(max_examples=examples(30))
@given(
    st.sampled_from([None, NEW_GROUPS]),
    st.sets(st.integers(0, 299), max_size=40),
    st.sets(st.sampled_from(["1994", "1995", "1996"])),
    st.booleans(),
)
def test_all_rows_of_some_entries_are_those_that_all_blocks_have(
    layouts: list[Layout] | None, gone: set[int], keys: set[str], is_open: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        grown_table(Path(folder), some_rows(), None, layouts)
        table = delete_ids(folder, gone)
        if is_open:
            assert table.sources
        entries = [entry for entry in table.catalog.partitions if entry.key in keys]
        columns = ["id", "price"]
        others = np.array([entry not in entries for entry in table.catalog.partitions])
        whole = [prune(source, others, TRUE, columns, table.settings) for source in table.sources]
        found = [read for pruned in table.all_rows_of(entries, columns) for read in segments_to_read(pruned)]
        assert found == [read for pruned in whole for read in segments_to_read(pruned)]
        assert {read.partition for read in found} == keys


@pytest.mark.parametrize("layouts", [None, NEW_GROUPS])
def test_blocks_of_a_segment_are_found_by_each_of_its_files(tmp_path: Path, layouts: list[Layout] | None) -> None:
    table = grown_table(tmp_path, some_rows(), OLD_GROUPS, layouts)
    for source in table.sources:
        order = np.random.default_rng(0).permutation(source.blocks.n)
        shuffled = replace(source, blocks=source.blocks.take(order), entry_of=source.entry_of[order])
        for number, path in enumerate(shuffled.blocks.files):
            assert shuffled.file_numbers[path] == number
            (segment,) = set(shuffled.segment_of[shuffled.blocks.file == number].tolist())
            expected_blocks = np.flatnonzero(shuffled.segment_of == segment).tolist()
            assert shuffled.blocks_of_segment(path).tolist() == expected_blocks
        entries, group = shuffled.by_entry
        assert (entries[group] == shuffled.entry_of).all()


def test_both_plans_are_verified_evaluated_and_explained(table: Table) -> None:
    report = verify(table)
    assert report.ok, report.problems
    found = table.scan("SELECT kind FROM t WHERE kind = 'air' AND price > 50").reads[0]
    assert {pruned.source.plan.schema for pruned in found.pruned} == {OLD, NEW}
    explanation = table.explain("SELECT kind FROM t WHERE kind = 'air'")
    assert explanation.reads[0].skipped_by["partition"].rows == 200
    queries = analyze(
        [LogEntry(0, "SELECT kind FROM t WHERE kind = 'air'")], table.schema, "t", "spark", table.settings
    )
    (result,) = evaluate(table, queries.queries, actual=True).queries
    assert result.rows_total == 300
    assert result.rows_matching is not None
    assert result.rows_matching <= result.rows_scanned <= 100


def test_a_nested_column_that_came_later_is_null_before(tmp_path: Path) -> None:
    first = pa.table({"day": pa.array([1, 1], pa.int32())})
    tags = pa.list_(pa.field("element", pa.struct([("a", pa.int32()), ("b", pa.string())])))
    second = pa.table({"day": pa.array([2], pa.int32()), "tags": pa.array([[{"a": 1, "b": None}]], tags)})
    one = Schema((Column("day", "int"),))
    two = Schema((Column("day", "int"), Column("tags", "array<struct<a:int,b:string>>")))
    build(tmp_path, first, building(one, partition_by="day"), "load-1")
    table = build(tmp_path, second, building(two, partition_by="day"), "load-2")
    rows = table.sql("SELECT day, tags FROM t").sort_by("day")
    assert rows["tags"].to_pylist() == [None, None, [{"a": 1, "b": None}]]
    assert table.sql("SELECT tags FROM t WHERE day = 1")["tags"].to_pylist() == [None, None]
