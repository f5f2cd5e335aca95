"""Names of sources, and what is found at them, without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from layoutopt.cli.app import main
from layoutopt.errors import LayoutoptError, SourceError
from layoutopt.external.external_tables import open_snapshot, pin_version
from layoutopt.external.formats import (
    DELTA,
    ICEBERG,
    ORC,
    SourceName,
    SourcePath,
    parse_source_name,
    parse_table_name,
)
from tests.external.tables import delete_positions, delta_table, first_file, iceberg_table


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("delta:/a/b", SourceName(DELTA, "/a/b", None)),
        ("delta:s3://bucket/a@12", SourceName(DELTA, "s3://bucket/a", 12)),
        ("iceberg:prod/n.m.t@7", SourceName(ICEBERG, "prod/n.m.t", 7)),
        ("delta:/user@home/t", SourceName(DELTA, "/user@home/t", None)),
        ("orc:/a/b@7", SourcePath(ORC, "/a/b@7")),
        ("/a/delta:b", None),
        ("csv:/a", None),
        ("events.parquet", None),
    ],
)
def test_names(text: str, name: SourceName | SourcePath | None) -> None:
    assert parse_source_name(text) == name
    assert not isinstance(name, SourceName) or name.text == text


def test_a_delta_table(tmp_path: Path) -> None:
    found = open_snapshot(SourceName(DELTA, delta_table(tmp_path / "t"), None))
    assert [(c.name, c.type) for c in found.schema.columns] == [
        ("id", "bigint"),
        ("p", "string"),
        ("inner", "struct<a:int>"),
    ]
    assert found.stored_types[2] == "struct<phys-4:int>"
    assert [file.stored for file in found.files] == [("phys-1", None, "phys-3")] * 2
    deleted = {file.constants["p"]: [] if file.deleted is None else file.deleted.tolist() for file in found.files}
    assert deleted == {"a b": [1, 3, 5], None: [0]}
    assert all(Path(file.path).is_file() for file in found.files)


def test_a_delta_table_is_not_taken_for_that_of_the_name_decoded(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "q r"), pa.table({"id": [1]}))
    (tmp_path / "q r").rename(tmp_path / "q%20r")
    write_deltalake(str(tmp_path / "q r"), pa.table({"id": [2]}))
    with pytest.raises(SourceError, match=r"q%20r' has a %-code in its name"):
        open_snapshot(SourceName(DELTA, str(tmp_path / "q%20r"), None))
    assert len(open_snapshot(SourceName(DELTA, str(tmp_path / "q r"), None)).files) == 1


def test_the_newest_version_is_pinned(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, pa.table({"id": [1]}))
    assert pin_version(f"delta:{path}") == f"delta:{path}@0"
    write_deltalake(path, pa.table({"id": [2]}), mode="append")
    assert pin_version(f"delta:{path}") == f"delta:{path}@1"
    assert len(open_snapshot(SourceName(DELTA, path, 0)).files) == 1
    assert pin_version("rows.parquet") == "rows.parquet"


def test_an_iceberg_table(tmp_path: Path) -> None:
    table = iceberg_table(tmp_path)
    found = open_snapshot(SourceName(ICEBERG, table.metadata_location, None))
    assert [(c.name, c.type) for c in found.schema.columns] == [
        ("id", "bigint"), ("p", "string"), ("new", "string"), ("gone", "string"),
    ]  # fmt: skip
    stored = {file.stored for file in found.files}
    assert stored == {("id", "p", "old", None), ("id", "p", "new", "gone")}
    assert [file.deleted.tolist() for file in found.files if file.deleted is not None] == [[0, 4]]


def test_an_iceberg_column_renamed_with_no_data_written(tmp_path: Path) -> None:
    table = iceberg_table(tmp_path)
    with table.update_schema() as update:
        update.rename_column("new", "newest")
    for version in (None, table.history()[-1].snapshot_id):
        found = open_snapshot(SourceName(ICEBERG, table.metadata_location, version))
        assert [column.name for column in found.schema.columns] == ["id", "p", "newest", "gone"]
        assert {file.stored[2] for file in found.files} == {"old", "new"}
    first = table.history()[0].snapshot_id
    then = open_snapshot(SourceName(ICEBERG, table.metadata_location, first))
    assert [column.name for column in then.schema.columns] == ["id", "p", "old", "gone"]


def test_equality_deletes_are_refused(tmp_path: Path) -> None:
    table = iceberg_table(tmp_path)
    delete_positions(table, first_file(table), [1, 2, 3], equality=True)
    with pytest.raises(SourceError, match="equality"):
        open_snapshot(SourceName(ICEBERG, table.metadata_location, None))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("delta:/no/such/table", "'/no/such/table' can't be read"),
        ("iceberg:/no/such/table", "'/no/such/table' can't be opened"),
        ("iceberg:nowhere/a.b", "'nowhere/a.b' can't be opened"),
    ],
)
def test_what_is_not_there_is_one_sentence(name: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = parse_table_name(name)
    assert found is not None
    with pytest.raises(LayoutoptError, match=says):
        open_snapshot(found)


def test_analyze_takes_the_schema_of_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_deltalake("t", pa.table({"kind": ["a"], "n": [1]}))
    Path("log.sql").write_text("SELECT n FROM t WHERE kind = 'a';\n" * 5)
    assert main(["analyze", "log.sql", "--schema", "delta:t"]) == 0
    assert '"name":"kind"' in Path("features.json").read_text().replace(" ", "")
