"""Rows put together from several layouts: disjoint column groups (GSOP) and overlapping ones (GSOP-R)."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.errors import DataFileError
from layoutopt.model.layout import ByVectors, Layout
from layoutopt.model.vectors import pack
from layoutopt.scan.prune import PruneOutcome
from layoutopt.scan.read import gather_positions, intersect_tids
from layoutopt.scan.table import Table
from tests.effort import long_too, one_in
from tests.scan import builder
from tests.scan.builder import build, building
from tests.scan.layouts import GROUPS, NAMES, OVERLAPPING
from tests.scan.queries import QUERIES
from tests.scan.tables import CONDITIONS, SCHEMA, expected, same

pytestmark = pytest.mark.checks_texts


@pytest.fixture(
    scope="module",
    params=[(GROUPS, False), (OVERLAPPING, True), *long_too(((OVERLAPPING, False),), ((GROUPS, True),))],
    ids=["gsop", "gsop-r, mixed", "gsop-r", "gsop, mixed"],
)
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, rows: pa.Table) -> Table:
    layouts, mixed = request.param
    plan = building(SCHEMA, CONDITIONS, layouts=layouts, partition_by="year", segment_rows=40, mixed=mixed)
    return build(tmp_path_factory.mktemp("layouts"), rows, plan)


@pytest.mark.parametrize("sql", one_in(2, QUERIES))
def test_answers_equal_those_over_the_source(sql: str, table: Table, rows: pa.Table) -> None:
    assert same(table.sql(sql).to_pylist(), expected(sql, rows))


def layout_table(tmp_path: Path, rows: pa.Table, layouts: list[Layout]) -> Table:
    return build(tmp_path, rows, building(SCHEMA, CONDITIONS, layouts=layouts))


def test_each_layout_skips_by_itself(tmp_path: Path, rows: pa.Table) -> None:
    table = layout_table(tmp_path, rows, GROUPS)
    (read,) = table.scan("SELECT id, price FROM t WHERE kind = 'air' AND price > 60").reads
    (plan,) = read.pruned
    assert [(c.layout, c.columns) for c in plan.choice] == [(0, ("id", "kind")), (1, ("price",))]
    by_layout = plan.rows_by_layout(plan.read)
    assert 0 < by_layout[0] < rows.num_rows
    assert 0 < by_layout[1] < rows.num_rows
    survivors = pa.Table.from_batches(read.batches()).num_rows
    assert survivors < min(by_layout.values())


@pytest.mark.parametrize(
    ("condition", "mechanism"),
    [("price = 50", PruneOutcome.STATISTICS), ("kind LIKE '%zeppelin%'", PruneOutcome.FEATURES)],
)
def test_what_empties_one_layout_is_credited_with_the_others(
    tmp_path: Path, rows: pa.Table, condition: str, mechanism: PruneOutcome
) -> None:
    conditions = ["kind = 'air'", "price > 60", "kind LIKE '%zeppelin%'"]
    layouts = [replace(GROUPS[0], features=(0, 2)), replace(GROUPS[1], features=(1,)), replace(GROUPS[2], features=())]
    place = rows.schema.get_field_index("price")
    prices = pa.array([Decimal(100 * (i % 2)) for i in range(rows.num_rows)], rows.schema.field(place).type)
    two_prices = rows.set_column(place, rows.schema.field(place), prices)
    table = build(tmp_path, two_prices, building(SCHEMA, conditions, layouts=layouts))
    (plan,) = table.scan(f"SELECT id, price FROM t WHERE {condition}").reads[0].pruned
    assert not plan.read.any()
    assert len(plan.choice) == 2
    offered = plan.outcome != PruneOutcome.OTHER_LAYOUT
    assert set(plan.outcome[offered]) == {mechanism}
    assert plan.needed_without_features.any() == (mechanism is PruneOutcome.FEATURES)


def test_one_layout_needs_no_tids(tmp_path: Path, rows: pa.Table) -> None:
    table = layout_table(tmp_path, rows, GROUPS)
    (one,) = table.scan("SELECT price FROM t WHERE price > 60").reads[0].pruned
    (two,) = table.scan("SELECT price, id FROM t WHERE price > 60").reads[0].pruned
    tids = one.source.blocks.tid_bytes
    assert one.bytes[one.read].sum() == one.source.blocks.column_bytes("price")[one.read].sum()
    assert two.bytes[two.read].sum() > 0
    assert (tids > 0).all()


def test_a_layout_of_some_rows_serves_only_queries_that_its_features_subsume(tmp_path: Path, rows: pa.Table) -> None:
    table = layout_table(tmp_path, rows, OVERLAPPING)
    (served,) = table.scan("SELECT id, price FROM t WHERE kind = 'air'").reads[0].pruned
    assert [c.layout for c in served.choice] == [1]
    assert not served.read[served.source.blocks.part == 1].any()
    (not_served,) = table.scan("SELECT id, price FROM t WHERE kind = 'mail'").reads[0].pruned
    assert [c.layout for c in not_served.choice] == [0, 1]
    assert not_served.read[(not_served.source.blocks.part == 1)].any()


def test_rows_without_local_features_are_left_out_if_their_vectors_are_unknown(
    tmp_path: Path, rows: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "pack", lambda bits: pack(np.ones_like(bits)))
    table = layout_table(tmp_path, rows, OVERLAPPING)
    sql = "SELECT id, price FROM t WHERE kind = 'air'"
    (plan,) = table.scan(sql).reads[0].pruned
    assert [c.layout for c in plan.choice] == [1]
    assert plan.read.tolist() == (plan.on_path & (plan.source.blocks.part == 0)).tolist()
    assert same(table.sql(sql).to_pylist(), expected(sql, rows))


def test_explain_shows_the_path_and_what_the_next_best_would_read(tmp_path: Path, rows: pa.Table) -> None:
    table = layout_table(tmp_path, rows, OVERLAPPING)
    explanation = table.explain("SELECT id, price FROM t WHERE kind = 'air'")
    (path,) = explanation.to_json()["reads"][0]["layouts"]
    assert list(path["columns"]) == ["1"]
    (pruned,) = table.scan("SELECT id, price FROM t WHERE kind = 'air'").reads[0].pruned
    assert path["cells_and_tids"] == pruned.rows_by_layout(pruned.read)[1] * 3
    assert path["next_best"]["cells_and_tids"] > path["cells_and_tids"]
    assert "path: layout 1 for id, kind, price" in str(explanation)
    assert "next best: layout 0" in str(explanation)
    (only,) = table.explain("SELECT price FROM t WHERE price > 1").to_json()["reads"][0]["layouts"]
    assert only["next_best"] is None


def test_a_list_is_served_where_each_of_its_values_is(tmp_path: Path, rows: pa.Table) -> None:
    layouts = [
        Layout(NAMES, (), NAMES, ByVectors()),
        Layout(("id", "kind"), (0, 1), (), ByVectors()),
    ]
    table = build(tmp_path, rows, building(SCHEMA, ["kind = 'air'", "kind = 'rail'", "kind = 'mail'"], layouts=layouts))
    for condition, layout in (("kind IN ('air', 'rail')", 1), ("kind IN ('air', 'rail', 'mail')", 0)):
        (plan,) = table.scan(f"SELECT id FROM t WHERE {condition}").reads[0].pruned
        assert [c.layout for c in plan.choice] == [layout]
        sql = f"SELECT id FROM t WHERE {condition}"
        assert same(table.sql(sql).to_pylist(), expected(sql, rows))


def test_counting_reads_a_layout_with_every_row(tmp_path: Path, rows: pa.Table) -> None:
    table = layout_table(tmp_path, rows, OVERLAPPING)
    (plan,) = table.scan("SELECT count(*) FROM t").reads[0].pruned
    assert sum(plan.rows_by_layout(plan.read).values()) == rows.num_rows
    assert plan.size(plan.read).bytes == 0


@pytest.mark.unshadowed("a data file is forged")
def test_repeated_positions_are_refused(tmp_path: Path, rows: pa.Table) -> None:
    table = layout_table(tmp_path, rows, GROUPS)
    path = Path(table.files(layout=1)[0])
    content = pq.read_table(path)
    sizes = [pq.read_metadata(path).row_group(i).num_rows for i in range(pq.read_metadata(path).num_row_groups)]
    broken = content.set_column(content.schema.get_field_index("_tid"), "_tid", pa.array([0] * content.num_rows))
    with pq.ParquetWriter(path, broken.schema) as writer:
        for start, size in zip(np.r_[0, np.cumsum(sizes)[:-1]].tolist(), sizes, strict=True):
            writer.write_table(broken.slice(start, size))
    with pytest.raises(DataFileError, match="repeats a row's position"):
        table.sql("SELECT id, price FROM t")


def test_positions() -> None:
    assert intersect_tids([]).tolist() == []
    assert intersect_tids([np.array([1, 0]), np.array([], dtype=np.int64)]).tolist() == []
    assert gather_positions(np.array([], dtype=np.int64), np.array([], dtype=np.int64)).tolist() == []
