"""Deleted rows are in no answer of any reader, whatever the layouts; damaged vectors are found, and read by nobody."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.catalog.deletion_vectors import DELETE_POINTS, encode_deletes, pack_positions, vectors_of
from layoutopt.catalog.paths import FileDigest
from layoutopt.catalog.snapshot import dumps, loads
from layoutopt.catalog.table import Catalog
from layoutopt.errors import CatalogError, QueryError
from layoutopt.inspect.audit import audit
from layoutopt.inspect.evaluate import evaluate
from layoutopt.inspect.status import verify_path
from layoutopt.inspect.verify import verify
from layoutopt.model.layout import Layout
from layoutopt.model.predicates import TRUE
from layoutopt.scan.prune import PruneOutcome
from layoutopt.scan.read import read_segments
from layoutopt.scan.segments import segments_to_read
from layoutopt.scan.table import Table, open_table
from tests.effort import examples
from tests.inspect.logs import LOG, logged
from tests.scan.builder import Building, build, building
from tests.scan.deleting import delete_ids, kept, vectors_file
from tests.scan.generated import buildings, conditions
from tests.scan.layouts import EACH_SCHEME
from tests.scan.tables import CONDITIONS, SCHEMA, expected, same, some_rows

pytestmark = pytest.mark.checks_texts

ids = st.sets(st.integers(0, 59), max_size=60)


@settings(max_examples=examples(60))
@given(buildings(), conditions, ids, ids, st.sampled_from(["id", "id, price, kind", "count(*) AS n", "price", "*"]))
def test_no_answer_has_a_deleted_row(plan: Building, condition: str, some: set[int], more: set[int], what: str) -> None:
    rows = some_rows(60, 3)
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder), rows, plan)
        delete_ids(folder, some)
        table = delete_ids(folder, more)  # of the rows that are left, beside those that are gone
        left = kept(rows, some | more)
        assert table.rows == left.num_rows
        for sql in (f"SELECT {what} FROM t WHERE {condition}", f"SELECT {what} FROM t"):
            assert same(table.sql(sql).to_pylist(), expected(sql, left))
        assert verify(table).ok
        assert same(open_table(folder, snapshot=0).sql("SELECT * FROM t").to_pylist(), rows.to_pylist())


@pytest.fixture
def rows() -> pa.Table:
    return some_rows(120)


def made(root: Path, rows: pa.Table, layouts: list[Layout] | None = None, gone: int = 40) -> Table:
    build(root, rows, building(SCHEMA, CONDITIONS, layouts=layouts, partition_by="year", segment_rows=30))
    return delete_ids(str(root), range(0, 3 * gone, 3))


@EACH_SCHEME
def test_every_reader_leaves_them_out(tmp_path: Path, rows: pa.Table, layouts: list[Layout] | None) -> None:
    table = made(tmp_path, rows, layouts, 12)
    left = kept(rows, range(0, 36, 3))
    scan = table.scan("SELECT id, kind, score FROM t WHERE kind = 'air' OR price > 10")
    everything = table.scan("SELECT id, kind FROM t")
    assert sorted(everything.to_dataset().to_table()["id"].to_pylist()) == sorted(left["id"].to_pylist())
    assert everything.to_dataset().count_rows() == left.num_rows
    assert same(scan.to_arrow().to_pylist(), expected(scan.sql, left))
    columns = SCHEMA.select(["id", "price"]).columns
    segments = [each for plan in table.prune(TRUE, ["id", "price"]) for each in segments_to_read(plan)]
    read = pa.Table.from_batches(read_segments(table.catalog.files, segments, columns, batch_rows=7))
    assert same(read.to_pylist(), left.select(["id", "price"]).to_pylist())
    with pytest.raises(QueryError, match="optimize --deleted-share 0"):
        table.files()


@EACH_SCHEME
def test_inspections_know_of_them(tmp_path: Path, rows: pa.Table, layouts: list[Layout] | None) -> None:
    table = made(tmp_path, rows, layouts, 12)
    left = kept(rows, range(0, 36, 3))
    report = audit(table, logged())
    assert report.ok, report.losses
    assert report.rows == left.num_rows
    found = evaluate(table, logged(), actual=True)
    for number in (0, 1, 2, 4, 5):
        assert found.queries[number].rows_matching == len(expected(LOG[number], left))


def test_a_block_that_is_deleted_whole_is_skipped(tmp_path: Path, rows: pa.Table) -> None:
    table = made(tmp_path, rows)  # all of one year
    (plan,) = table.scan("SELECT id FROM t").reads[0].pruned
    blocks = plan.source.blocks
    assert (plan.read == (blocks.live_rows > 0)).all()
    assert (plan.outcome[blocks.live_rows == 0] == PruneOutcome.STATISTICS).all()
    assert not plan.read.all()
    assert table.sql("SELECT count(*) AS n FROM t").to_pylist() == [{"n": 80}]


@EACH_SCHEME
def test_damage_to_vectors_is_found_and_nobody_reads_past_it(
    tmp_path: Path, rows: pa.Table, layouts: list[Layout] | None
) -> None:
    table = made(tmp_path, rows, layouts, 5)
    assert verify_path(str(tmp_path)).ok
    path = Path(vectors_file(table))
    whole = path.read_bytes()
    for damaged in (whole[:-3], bytes([*whole[:60], whole[60] ^ 1, *whole[61:]]), None):
        path.unlink() if damaged is None else path.write_bytes(damaged)
        found = verify_path(str(tmp_path))
        assert {problem.check for problem in found.problems} == {"catalog"}
        assert {problem.file for problem in found.problems} == {str(path.relative_to(tmp_path))}
        with pytest.raises(CatalogError, match="deletes/"):
            open_table(str(tmp_path)).sql("SELECT id FROM t")
        path.write_bytes(whole)
    assert open_table(str(tmp_path), snapshot=0).sql("SELECT count(*) AS n FROM t").to_pylist() == [{"n": 120}]


def change_vectors(table: Table, vectors: dict[int, bytes]) -> Table:
    """The table as if its newest commit had written other vectors."""
    return change_vectors_file(table, encode_deletes(vectors))


def change_vectors_file(table: Table, data: bytes) -> Table:
    """The table as if its newest commit had written another file of vectors."""
    root, number = table.catalog.files.root, table.catalog.snapshot.number
    path = Path(vectors_file(table))
    path.write_bytes(data)
    place = Path(root) / "_layoutopt" / "snapshots" / f"{number}.json"
    snapshot = loads(place.read_bytes(), str(place))
    files = {**snapshot.files, str(path.relative_to(root)): FileDigest.of(data)}
    place.write_bytes(dumps(replace(snapshot, files=files)))
    return open_table(root)


def test_vectors_may_stand_in_any_order_but_each_has_a_block(tmp_path: Path, rows: pa.Table) -> None:
    table = made(tmp_path, rows)
    alive = table.sql("SELECT id FROM t").sort_by("id")
    stored = pq.read_table(vectors_file(table))
    assert stored.num_rows > 2

    def written(vectors: pa.Table) -> bytes:
        sink = pa.BufferOutputStream()
        pq.write_table(vectors, sink)
        return bytes(sink.getvalue())

    order = np.random.default_rng(1).permutation(stored.num_rows)
    assert order.tolist() != sorted(order.tolist())
    changed = change_vectors_file(table, written(stored.take(order)))
    assert changed.sql("SELECT id FROM t").sort_by("id") == alive
    blocks = pa.array([None, *stored["block"].to_pylist()[1:]], pa.int64())
    with pytest.raises(CatalogError, match="a vector of no block"):
        change_vectors_file(table, written(stored.set_column(0, "block", blocks))).sql("SELECT id FROM t")


@EACH_SCHEME
def test_vectors_of_other_rows_are_found(tmp_path: Path, rows: pa.Table, layouts: list[Layout] | None) -> None:
    """As many rows, but others: only the rows themselves tell."""
    build(tmp_path, rows, building(SCHEMA, CONDITIONS, layouts=layouts, segment_rows=30))
    table = delete_ids(str(tmp_path), [1, 50, 77])
    assert verify(table).ok
    (source,) = table.sources
    vectors = vectors_of(source.blocks)
    sizes = dict(zip(source.blocks.block_id.tolist(), source.blocks.rows.tolist(), strict=True))
    block = next(block for block in vectors if sizes[block] > 1)
    other = pack_positions(np.array([int(vectors[block] == pack_positions(np.array([0])))]))
    changed = change_vectors(table, {**vectors, block: other})
    assert {problem.check for problem in verify(changed).problems} == {"deletes"}


def test_checksums_of_other_rows_are_found(tmp_path: Path, rows: pa.Table) -> None:
    build(tmp_path, rows, building(SCHEMA, CONDITIONS))
    problems = verify(delete_ids(str(tmp_path), [1, 50], wrong_sums=True)).problems
    assert [problem.check for problem in problems] == ["deletes"]
    assert "the wrong rows are deleted: checksums of day, id, kind" in problems[0].message
    assert verify(open_table(str(tmp_path)), sample=0.5).unchecked[-1].startswith("the deletion vectors")


def test_points_of_the_commit_leave_the_table_as_it_was_or_done(tmp_path: Path, rows: pa.Table) -> None:
    build(tmp_path, rows, building(SCHEMA, CONDITIONS, partition_by="year"))

    class KilledError(BaseException):
        pass

    for number, point in enumerate(DELETE_POINTS):

        def die(reached: str, point: str = point) -> None:
            if reached == point:
                raise KilledError

        before = open_table(str(tmp_path)).rows
        with pytest.raises(KilledError):
            delete_ids(str(tmp_path), [number], at=die)
        assert open_table(str(tmp_path)).rows == before - (point == "snapshot-created")
        table = delete_ids(str(tmp_path), [number])
        assert table.rows == 119 - number
    assert verify(table).ok
    assert sorted(table.sql("SELECT id FROM t")["id"].to_pylist()) == list(range(4, 120))


def test_an_older_program_refuses_the_table(tmp_path: Path, rows: pa.Table) -> None:
    """It would bring deleted rows back: it reads versions up to 2, and this one says 3."""
    made(tmp_path, rows)
    snapshots = tmp_path / "_layoutopt" / "snapshots"
    assert [json.loads((snapshots / f"{n}.json").read_text())["version"] for n in (0, 1)] == [1, 3]
    newest = Catalog.open(str(tmp_path)).snapshot
    content = newest.to_json() | {"version": 2}
    with pytest.raises(CatalogError, match="damaged"):
        loads(json.dumps(content).encode(), "it")
