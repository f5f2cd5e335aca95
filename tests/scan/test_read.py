"""Segments are read ahead by other threads, in bounded memory; of several layouts only what may match is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from layoutopt.errors import DataFileError
from layoutopt.model.schema import TID
from layoutopt.scan import read as reading
from layoutopt.scan.files import read_files
from layoutopt.scan.read import read_segments
from layoutopt.scan.segments import FileRead
from layoutopt.scan.table import Table
from layoutopt.scan.table_read import TableRead
from tests.scan.builder import build, building
from tests.scan.layouts import GROUPS, ONE_FEATURE_EACH
from tests.scan.tables import CONDITIONS, SCHEMA, expected, same, some_rows

SQL = "SELECT id, kind, price FROM t"


@pytest.fixture(params=[1, 3], ids=["one thread", "three threads"])
def _threads(request: pytest.FixtureRequest) -> Iterator[None]:
    before = pa.cpu_count()
    pa.set_cpu_count(request.param)
    yield
    pa.set_cpu_count(before)


def batches_of(read: TableRead) -> list[pa.RecordBatch]:
    return list(read_segments(read.table.catalog.data, read.segments, read.columns, 50))


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("most", [0, 10_000, 1 << 26])
def test_batches_are_those_of_each_segment_in_turn(table: Table, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_MOST_BYTES_AHEAD", most)
    (read,) = table.scan(SQL).reads
    assert len(read.segments) > 2
    alone = [read_segments(table.catalog.data, [segment], read.columns, 50) for segment in read.segments]
    assert batches_of(read) == [batch for batches in alone for batch in batches]


def test_the_first_batch_is_there_before_anything_is_read_ahead(table: Table) -> None:
    (read,) = table.scan(SQL).reads
    for segment in read.segments[1:]:
        for file in (file for layout in segment.layouts for file in layout.files):
            (Path(table.catalog.files.root) / file.path).unlink()
    found = read_segments(table.catalog.data, read.segments, read.columns, len(some_rows()))
    assert next(found).num_rows
    with pytest.raises(DataFileError, match="missing"):
        next(found)


@pytest.mark.parametrize("sql", [SQL, "SELECT id, price FROM t", "SELECT * FROM t"])
def test_no_more_than_some_bytes_are_held(table: Table, sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one layout what is begun is counted; where rows are put together they are left for their turn if many."""
    (read,) = table.scan(sql).reads
    largest = max(batch.nbytes for batch in batches_of(read))
    monkeypatch.setattr(reading, "_MOST_BYTES_AHEAD", 3_000)
    monkeypatch.setattr(reading, "_MOST_THREADS", 2)
    pulled = 0
    begin = reading._prefetch_batches

    def counted(batches: Iterator[pa.RecordBatch], most: int) -> Iterable[pa.RecordBatch]:
        def noted() -> Iterator[pa.RecordBatch]:
            nonlocal pulled
            for batch in batches:
                pulled += batch.nbytes
                yield batch

        return begin(noted(), most)

    monkeypatch.setattr(reading, "_prefetch_batches", counted)
    found = read_segments(table.catalog.data, read.segments * 10, read.columns, 5)
    given = next(found).nbytes + next(found).nbytes
    assert pulled <= given + 3_000 + 3 * largest


@pytest.mark.parametrize(("most", "begun"), [(3_000, False), (1 << 20, True)])
def test_rows_put_together_are_made_ahead_only_where_they_are_few(
    tmp_path: Path, most: int, begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = build(tmp_path / "t", some_rows(), building(SCHEMA, CONDITIONS, partition_by="year", layouts=GROUPS))
    calls: list[int] = []
    begin = reading._prefetch_batches

    def noted(batches: Iterator[pa.RecordBatch], most: int) -> Iterable[pa.RecordBatch]:
        calls.append(most)
        return begin(batches, most)

    monkeypatch.setattr(reading, "_prefetch_batches", noted)
    monkeypatch.setattr(reading, "_MOST_BYTES_AHEAD", most)
    (read,) = table.scan(SQL).reads
    assert {len(segment.layouts) > 1 for segment in read.segments} == {True}
    assert sum(batch.num_rows for batch in batches_of(read)) == len(some_rows())
    assert bool(calls) == begun


@pytest.mark.usefixtures("_threads")
def test_a_file_that_is_gone_is_named(table: Table) -> None:
    (read,) = table.scan(SQL).reads
    last = read.segments[-1].layouts[0].files[-1].path
    (Path(table.catalog.files.root) / last).unlink()
    with pytest.raises(DataFileError, match=last):
        batches_of(read)


def test_who_stops_early_reads_no_more_than_is_ahead(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    read_one = reading._read_segment

    def noted(files: object, segment: object, **how: object) -> Iterator[pa.RecordBatch]:
        begun.append(1)
        return read_one(files, segment, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(reading, "_read_segment", noted)
    (read,) = table.scan(SQL).reads
    many = read.segments * 20
    found = read_segments(table.catalog.data, many, read.columns, 50)
    next(found)
    found.close()  # type: ignore[attr-defined]
    assert 1 <= len(begun) < len(many) // 2


@pytest.fixture(scope="module")
def two_features(tmp_path_factory: pytest.TempPathFactory, rows: pa.Table) -> Table:
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

    monkeypatch.setattr(reading, "read_files", counting)
    return counted


@pytest.mark.unshadowed("counts what is read")
def test_where_one_layout_has_no_match_the_others_are_not_opened(two_features: Table, read: Counter[str]) -> None:
    assert two_features.sql("SELECT price FROM t WHERE id = 17 AND id = 18").num_rows == 0
    sql = "SELECT price, score FROM t WHERE kind LIKE 'no such%'"
    (plan,) = two_features.scan(sql).reads[0].pruned
    assert plan.rows_by_layout(plan.read)[1] > 0, "pruning leaves blocks of the layout"
    read.clear()
    assert two_features.sql(sql).num_rows == 0
    assert read["kind"] > 0
    assert set(read) == {TID, "kind"}
    assert read[TID] == read["kind"], "nor are the tids of the others read"


@pytest.mark.unshadowed("counts what is read")
def test_other_columns_are_read_from_row_groups_with_matching_rows(
    two_features: Table, rows: pa.Table, read: Counter[str]
) -> None:
    sql = "SELECT price, day FROM t WHERE id = 17"
    (plan,) = two_features.scan(sql).reads[0].pruned
    blocks = plan.source.blocks
    assert (plan.read & (blocks.layout == 1)).sum() > 1
    assert same(two_features.sql(sql).to_pylist(), expected(sql, rows))
    assert (read["price"], read["day"]) == (1, 1)


@pytest.mark.unshadowed("counts what is read")
def test_columns_of_the_filter_are_read_once(two_features: Table, read: Counter[str]) -> None:
    sql = "SELECT id, kind, price FROM t WHERE kind = 'air' AND id > 10"
    (plan,) = two_features.scan(sql).reads[0].pruned
    two_features.sql(sql)
    assert read["kind"] == read["id"] <= (plan.read & (plan.source.blocks.layout == 0)).sum()
