"""Late materialisation: of several layouts, only what may still match is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from layoutopt.model.schema import TID
from layoutopt.scan import read as reconstruct
from layoutopt.scan.files import read_files
from layoutopt.scan.segments import FileRead
from layoutopt.scan.table import Table
from tests.scan.builder import build, building
from tests.scan.layouts import ONE_FEATURE_EACH
from tests.scan.tables import SCHEMA, expected, same


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory, rows: pa.Table) -> Table:
    plan = building(SCHEMA, ["kind = 'air'", "price > 50"], layouts=ONE_FEATURE_EACH)
    return build(tmp_path_factory.mktemp("late"), rows, plan)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many row groups of each column are read."""
    counted: Counter[str] = Counter()

    def counting(files: Any, some: Sequence[FileRead], names: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        for one in some:
            counted.update({name: len(one.row_groups) for name in names if one.row_groups})
        return read_files(files, some, names, rows)

    monkeypatch.setattr(reconstruct, "read_files", counting)
    return counted


@pytest.mark.unshadowed("counts what is read")
def test_where_one_layout_has_no_match_the_others_are_not_opened(table: Table, read: Counter[str]) -> None:
    assert table.sql("SELECT price FROM t WHERE id = 17 AND id = 18").num_rows == 0
    sql = "SELECT price, score FROM t WHERE kind LIKE 'no such%'"
    (plan,) = table.scan(sql).reads[0].pruned
    assert plan.rows_by_layout(plan.read)[1] > 0, "pruning leaves blocks of the layout"
    read.clear()
    assert table.sql(sql).num_rows == 0
    assert read["kind"] > 0
    assert set(read) == {TID, "kind"}
    assert read[TID] == read["kind"], "nor are the tids of the others read"


@pytest.mark.unshadowed("counts what is read")
def test_other_columns_are_read_from_row_groups_with_matching_rows(
    table: Table, rows: pa.Table, read: Counter[str]
) -> None:
    sql = "SELECT price, day FROM t WHERE id = 17"
    (plan,) = table.scan(sql).reads[0].pruned
    blocks = plan.source.blocks
    assert (plan.read & (blocks.layout == 1)).sum() > 1
    assert same(table.sql(sql).to_pylist(), expected(sql, rows))
    assert (read["price"], read["day"]) == (1, 1)


@pytest.mark.unshadowed("counts what is read")
def test_columns_of_the_filter_are_read_once(table: Table, read: Counter[str]) -> None:
    sql = "SELECT id, kind, price FROM t WHERE kind = 'air' AND id > 10"
    (plan,) = table.scan(sql).reads[0].pruned
    table.sql(sql)
    assert read["kind"] == read["id"] <= (plan.read & (plan.source.blocks.layout == 0)).sum()
