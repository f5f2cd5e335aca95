"""Tables with indexes: queries skip by them, in doubt they read, `verify` finds what is wrong, vacuums keep them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.catalog.commit import restore
from layoutopt.catalog.paths import FileDigest
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.vacuum import vacuum
from layoutopt.errors import PlanError, SchemaError, SettingError
from layoutopt.indexes.bloom import Bloom
from layoutopt.indexes.measuring import measure_indexes
from layoutopt.indexes.protocol import BlockColumn
from layoutopt.inspect.verify import verify
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.layout import Plan
from layoutopt.model.predicates import Call, Col, Expr
from layoutopt.scan.table import Table, open_table
from tests.scan.builder import Building, build, building, by_position
from tests.scan.tables import SCHEMA, expected, same, some_rows

INDEXES = (
    IndexSpec(Col("id", "int"), "bloom", 0.001),
    IndexSpec(Col("id", "int"), "gap-list"),
    IndexSpec(Col("kind", "string"), "value-list"),
    IndexSpec(Col("kind", "string"), "ngrams"),
    IndexSpec(Col("score", "double"), "hybrid"),
)
UNSEEN = "SELECT id, kind FROM t WHERE id = 150"


def indexed(**changes: object) -> Building:
    return building(SCHEMA, ["price > 50"], blocking=by_position(20), indexes=INDEXES, **changes)  # type: ignore[arg-type]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return build(tmp_path / "t", some_rows(), indexed(partition_by="year"))


def index_files(root: Path) -> list[Path]:
    return sorted((root / "_layoutopt" / "indexes").iterdir())


@pytest.mark.parametrize(
    "condition",
    [
        "id = 150",
        "id IN (3, 150, 9999)",
        "id = 150 OR kind = 'plane'",
        "NOT (id <> 150 OR kind LIKE '%x%')",
        "kind = 'plane' OR kind IS NULL",
        "kind LIKE '%uck%' AND price > 50",
        "score = 0.0",
        "score > 0.9",
        "id BETWEEN 40 AND 41",
    ],
)
def test_answers_are_the_same_and_blocks_are_skipped(table: Table, condition: str) -> None:
    sql = f"SELECT id, kind FROM t WHERE {condition}"
    answer = table.sql(sql).to_pylist()
    assert same(answer, expected(sql, some_rows()))


def test_equality_on_a_value_that_no_feature_foresaw_reads_one_block(table: Table) -> None:
    explained = table.scan(UNSEEN).explain().to_json()["reads"][0]
    assert explained["read"]["blocks"] == 1
    assert explained["skipped_by"]["index"]["blocks"] > 5
    (conjunct,) = explained["conjuncts"]
    assert conjunct["reason"] == "skips"
    assert conjunct["blocks_skipped_alone"]["index"] >= explained["skipped_by"]["index"]["blocks"]


def test_an_index_is_read_only_when_a_filter_asks_for_it(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    read = TableFiles.read_bytes

    def noted(files: TableFiles, path: str) -> bytes:
        asked.append(path)
        return read(files, path)

    monkeypatch.setattr(TableFiles, "read_bytes", noted)
    opened = open_table(table.catalog.files.root)
    opened.scan("SELECT id FROM t WHERE price = 3 AND day IS NOT NULL").explain()
    assert not [path for path in asked if "/indexes/" in path]
    opened.scan("SELECT id FROM t WHERE score = 3").explain()
    assert len([path for path in asked if "/indexes/" in path]) == 1


@pytest.mark.parametrize("damage", ["missing", "cut", "changed"])
def test_an_index_that_is_not_what_was_written_proves_nothing_and_is_found(table: Table, damage: str) -> None:
    root = Path(table.catalog.files.root)
    for path in index_files(root):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.unlink()
        if damage != "missing":
            path.write_bytes(data if damage == "changed" else data[:-9])
    opened = open_table(str(root))
    assert same(opened.sql(UNSEEN).to_pylist(), expected(UNSEEN, some_rows()))
    explained = opened.scan(UNSEEN).explain().to_json()["reads"][0]
    assert explained["skipped_by"]["index"]["blocks"] == 0
    report = verify(opened)
    assert {problem.check for problem in report.problems} == {"index"}
    assert len(report.problems) == len(INDEXES)


def test_an_index_that_denies_what_is_there_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Well-formed, with its own digest, but of other rows."""
    measure = Bloom.measure

    def backwards(self: Bloom, column: BlockColumn, parameter: float) -> pa.Array:
        return measure(self, column, parameter).take(pa.array(np.arange(column.n)[::-1]))

    with monkeypatch.context() as patched:
        patched.setattr(Bloom, "measure", backwards)
        build(tmp_path / "t", some_rows(), indexed())
    report = verify(open_table(str(tmp_path / "t")))
    assert {problem.check for problem in report.problems} == {"index"}
    assert "the index id:bloom:0.001 is wrong in" in report.problems[0].message


def test_a_sound_table_has_no_problems(table: Table) -> None:
    assert verify(table).problems == ()


def test_an_index_of_a_type_that_is_not_installed_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = build(tmp_path / "t", some_rows(), indexed())
    monkeypatch.setattr("layoutopt.indexes.registry.BUILT_IN", {})
    opened = open_table(built.catalog.files.root)
    assert same(opened.sql(UNSEEN).to_pylist(), expected(UNSEEN, some_rows()))
    assert opened.scan(UNSEEN).explain().to_json()["reads"][0]["skipped_by"]["index"]["blocks"] == 0
    assert "the index id:bloom:0.001: its type is not installed" in verify(opened).unchecked


def test_an_answer_for_another_number_of_blocks_is_refused(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """One bool would be taken for all blocks, and all rows be lost."""
    monkeypatch.setattr(Bloom, "cannot_match", lambda self, literal, stored, parameter: np.array([True]))
    with pytest.raises(SettingError, match=r"id:bloom:0\.001 answered bool\(1,\) for \d+ blocks"):
        table.scan(UNSEEN).explain()


def test_a_blocks_file_without_its_index_names_is_read(table: Table) -> None:
    """As older versions wrote it: the plan has indexes, the load none."""
    files, snapshot = table.catalog.files, table.catalog.snapshot
    (path,) = {entry.blocks_file for entry in snapshot.partitions}
    stripped = pa.BufferOutputStream()
    pq.write_table(pq.read_table(pa.BufferReader(files.read_bytes(path))).replace_schema_metadata(None), stripped)
    data = stripped.getvalue().to_pybytes()
    (Path(files.root) / path).write_bytes(data)
    renamed = replace(snapshot, files={**snapshot.files, path: FileDigest.of(data)})
    opened = Table(replace(table.catalog, snapshot=renamed))
    assert opened.scan(UNSEEN).explain().to_json()["reads"][0]["skipped_by"]["index"]["blocks"] == 0
    assert verify(opened).problems == ()


def test_vacuums_keep_the_indexes_of_kept_snapshots_and_remove_others(tmp_path: Path) -> None:
    root, files = tmp_path / "t", TableFiles(str(tmp_path / "t"))
    build(root, some_rows(seed=1), indexed(), "load-1")
    old = set(index_files(root))
    build(root, some_rows(seed=2), indexed(), "load-2")
    new = set(index_files(root)) - old
    assert len(new) == len(old) == len(INDEXES)
    vacuum(files, 1, timedelta(0))
    assert set(index_files(root)) == new
    assert verify(open_table(str(root))).problems == ()


def test_a_restore_brings_indexes_back(tmp_path: Path) -> None:
    root = tmp_path / "t"
    build(root, some_rows(seed=1), indexed(), "load-1")
    build(root, some_rows(seed=2), indexed(), "load-2")
    restore(TableFiles(str(root)), 0)
    opened = open_table(str(root))
    assert opened.scan(UNSEEN).explain().to_json()["reads"][0]["skipped_by"]["index"]["blocks"] > 5
    vacuum(TableFiles(str(root)), 1, timedelta(0))
    assert verify(open_table(str(root))).problems == ()


def test_plans_say_what_is_indexed_and_older_ones_are_as_before() -> None:
    plan = indexed().plan
    assert Plan.loads(plan.dumps()) == plan
    written = json.loads(plan.dumps())["indexes"]
    assert written[0] == {"kind": "bloom", "of": {"col": "id", "type": "int"}, "parameter": 0.001}
    assert "indexes" not in json.loads(replace(plan, indexes=()).dumps())
    with pytest.raises(SchemaError, match="nothing"):
        replace(plan, indexes=(IndexSpec(Col("nothing", "int"), "bloom"),))
    with pytest.raises(ValueError, match="has an index twice: id:bloom, id:bloom"):
        replace(plan, indexes=(IndexSpec(Col("id", "int"), "bloom"),) * 2)
    damaged = plan.dumps().replace(b'"kind":"bloom"', b'"kind":"../bloom"')
    with pytest.raises(PlanError, match="is no type of index"):
        Plan.loads(damaged)


def test_values_that_spark_computed_are_indexed_where_their_columns_are() -> None:
    """And nothing is stored of rows without the columns, or where nobody computed the values."""
    subject: Expr = Call("length", (Col("kind", "string"),), "int")
    specs, offsets = (IndexSpec(subject, "value-list"),), np.array([0, 2, 3])
    rows, lengths = pa.table({"kind": ["a", "bb", "cc"]}), pa.chunked_array([pa.array([1, 2, 2], pa.int32())])
    measured = measure_indexes(specs, rows, offsets, {subject: lengths})
    assert measured.field(0).to_pylist() == [[1, 2], [2]]
    for others, computed in ((rows.rename_columns(["other"]), {subject: lengths}), (rows, {})):
        assert measure_indexes(specs, others, offsets, computed).field(0).to_pylist() == [None, None]
