"""Indexes of Delta and Iceberg tables: deleted rows, renamed columns, partitions, and versions that come later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.table import Table as IcebergTable

from layoutopt.errors import QueryError, SettingError, SourceError
from layoutopt.external.listing import canonical_name
from layoutopt.external.refresh import RefreshReport, refresh
from layoutopt.indexes.choosing import parse_indexes
from layoutopt.scan.table import Table, open_table
from tests.external.folders import blocks_read
from tests.external.tables import by_id, delete_positions, delta_table, first_file, hinted, iceberg_rows, iceberg_table


def index(source: str, into: Path, *indexes: str) -> RefreshReport:
    choose = (lambda schema, trial: parse_indexes(indexes, schema)) if indexes else None
    return refresh(str(into), canonical_name(source), "t" if indexes else None, choose)


def rows_of(table: Table) -> list[dict[str, Any]]:
    return by_id(table.sql("SELECT * FROM t"))


def test_a_delta_table_that_grows(tmp_path: Path) -> None:
    place, into = str(tmp_path / "t"), tmp_path / "indexes"
    for first in (0, 100):
        rows = pa.table({"id": range(first, first + 50), "p": ["a b", None] * 25})
        write_deltalake(place, rows, mode="append", partition_by=["p"])
    assert index(f"delta:{place}", into, "id:bloom").files == 4
    assert blocks_read(open_table(str(into)), "SELECT * FROM t WHERE id = 120") == (4, 1)
    assert blocks_read(open_table(str(into)), "SELECT * FROM t WHERE p IS NULL") == (4, 2)
    DeltaTable(place).delete("id = 120")
    write_deltalake(place, pa.table({"id": [500], "p": ["c"]}), mode="append")
    table = open_table(str(into))
    assert table.sql("SELECT id, p FROM t WHERE id = 500 OR id = 120").to_pylist() == [{"id": 500, "p": "c"}]
    assert rows_of(table) == by_id(DeltaTable(place).to_pyarrow_table())
    report = index(f"delta:{place}", into)
    assert (report.measured, report.kept, report.gone) == (2, 3, 1)
    assert rows_of(open_table(str(into))) == by_id(DeltaTable(place).to_pyarrow_table())


def test_deletion_vectors_and_names_of_delta(tmp_path: Path) -> None:
    source = f"delta:{delta_table(tmp_path / 't', nested=False)}"
    index(source, tmp_path / "indexes", "id:bloom")
    table = open_table(str(tmp_path / "indexes"))
    assert rows_of(table) == [{"id": i, "p": "a b" if i < 6 else None} for i in (0, 2, 4, 7, 8, 9)]
    assert table.sql("SELECT count(*) AS c FROM t").to_pylist() == [{"c": 6}]
    assert table.sql("SELECT id FROM t WHERE id IN (1, 2) AND p = 'a b'").to_pylist() == [{"id": 2}]
    assert table.sql("SELECT count(*) AS c FROM t WHERE p IS NULL").to_pylist() == [{"c": 3}]
    assert blocks_read(table, "SELECT id FROM t WHERE id = 8") == (2, 1)
    with pytest.raises(QueryError, match="deleted"):
        table.files()
    dataset = table.scan("SELECT id FROM t WHERE id = 8").to_dataset()
    assert sorted(dataset.to_table()["id"].to_pylist()) == [7, 8, 9]


def test_renamed_fields_of_delta_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"'inner'.*with other names in its files"):
        index(f"delta:{delta_table(tmp_path / 't')}", tmp_path / "indexes", "id:bloom")


def test_an_iceberg_table(tmp_path: Path) -> None:
    table = iceberg_table(tmp_path / "w")
    source, into = f"iceberg:{table.metadata_location}", tmp_path / "indexes"
    index(source, into, "id:bloom", "new:value-list", "gone:bloom")
    found = open_table(str(into))
    columns = found.schema.names
    wanted = [{name: row[name] for name in columns} for row in iceberg_rows(table.metadata_location)]
    assert rows_of(found) == wanted
    assert found.sql("SELECT count(*) AS c FROM t").to_pylist() == [{"c": len(wanted)}]
    for name in columns:
        for value in {row[name] for row in wanted} - {None}:
            text = f"'{value}'" if isinstance(value, str) else str(value)
            answer = by_id(found.sql(f"SELECT * FROM t WHERE {name} = {text}"))
            assert answer == [row for row in wanted if row[name] == value]
    total, read = blocks_read(found, "SELECT id FROM t WHERE new = 'h'")
    assert (read, total > read) == (1, True)


def test_deletes_and_names_of_iceberg_that_come_later(tmp_path: Path) -> None:
    table, into = iceberg_table(tmp_path / "w"), tmp_path / "indexes"
    index(hinted(table), into, "id:bloom", "new:value-list", "gone:value-list")
    delete_positions(table, first_file(table), [1])
    source = hinted(table)
    assert rows_of(open_table(str(into))) == rows_by_library(table)
    assert blocks_read(open_table(str(into)), "SELECT id FROM t WHERE new = 'h'")[1] == 1
    assert index(source, into).measured == 0  # the files are as they were
    for before, after in (("new", "newer"), ("gone", "new"), ("newer", "gone")):
        with table.update_schema() as update:
            update.rename_column(before, after)
    table.append(pa.table({"id": pa.array([20]), "p": ["x"], "gone": ["k"], "new": ["9"]}))
    hinted(table)
    found = open_table(str(into))
    assert rows_of(found) == rows_by_library(table)
    assert found.sql("SELECT id FROM t WHERE new = '2' AND gone = 'h'").to_pylist() == [{"id": 7}]
    assert index(source, into).kept == 0


def rows_by_library(table: IcebergTable) -> list[dict[str, Any]]:
    return iceberg_rows(table.metadata_location)


def test_a_table_that_is_emptied(tmp_path: Path) -> None:
    place, into = str(tmp_path / "t"), tmp_path / "indexes"
    write_deltalake(place, pa.table({"id": range(50)}))
    DeltaTable(place).delete()
    with pytest.raises(SourceError, match="has no file; index or refresh it"):
        index(f"delta:{place}", into, "id:bloom")
    write_deltalake(place, pa.table({"id": range(50)}), mode="append")
    index(f"delta:{place}", into, "id:bloom")
    DeltaTable(place).delete()
    assert open_table(str(into)).sql("SELECT count(*) AS c FROM t").to_pylist() == [{"c": 0}]
    assert open_table(str(into)).sql("SELECT id FROM t WHERE id > 3").num_rows == 0


def test_a_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="remove @7"):
        canonical_name(f"delta:{tmp_path}@7")
