"""Delta and Iceberg tables with indexes, served: deletes, renamed columns, partitions, and what is refused by name."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.exceptions import ServerError
from pyiceberg.table import Table as IcebergTable

from layoutopt.cli.app import main
from layoutopt.errors import LayoutoptError, SourceError
from layoutopt.external.listing import canonical_name
from layoutopt.external.refresh import refresh
from layoutopt.indexes.choosing import parse_indexes
from layoutopt.serve.tables import Tables, parse_tables
from tests.external.folders import write
from tests.external.tables import by_id, delete_positions, delta_table, first_file, hinted, iceberg_rows, iceberg_table
from tests.serve.expressions import ice
from tests.serve.serving import ask, files_of, ids_of, serving
from tests.serve.sources import in_order


def index(source: str, into: Path, *indexes: str) -> None:
    refresh(str(into), canonical_name(source), "t", lambda schema, trial: parse_indexes(indexes, schema))


def filters(rows: Sequence[dict[str, Any]]) -> list[tuple[str, set[int]]]:
    """Filters of one column, each with the ids of the rows that it is TRUE for."""
    found = []
    for name in rows[0]:
        for value in sorted({row[name] for row in rows} - {None}):
            text = f"'{value}'" if isinstance(value, str) else str(value)
            has = [row for row in rows if row[name] is not None]
            found.append((f"{name} = {text}", {row["id"] for row in has if row[name] == value}))
            found.append((f"{name} > {text}", {row["id"] for row in has if row[name] > value}))
        found.append((f"{name} IS NULL", {row["id"] for row in rows if row[name] is None}))
    return found


def test_a_delta_table_that_grows(tmp_path: Path) -> None:
    place, into = str(tmp_path / "t"), tmp_path / "indexes"
    days = [dt.date(2024, 1, 1), None]
    for first in (0, 100):
        rows = pa.table({"id": range(first, first + 50), "p": ["a b", None] * 25, "day": days * 25})
        write_deltalake(place, rows, mode="append", partition_by=["p", "day"])
    index(f"delta:{place}", into, "id:bloom")
    with serving([f"t={into}"]) as served:
        table = served.table()
        assert len(files_of(table)) == 4
        assert (len(files_of(table, "id = 120")), ids_of(table, "id = 120")) == (1, [120])
        assert len(files_of(table, "day = '2024-01-01'")) == 2
        assert ids_of(table, "id < 5 OR id = 120") == [*range(5), 120]
        found = table.scan(row_filter="day = '2024-01-01'").to_arrow()
        assert sorted(found["id"].to_pylist()) == [*range(0, 50, 2), *range(100, 150, 2)]
        assert len(files_of(table, "p IS NULL")) == 2
        DeltaTable(place).delete("id = 120")
        write_deltalake(place, pa.table({"id": [500], "p": ["c"], "day": days[:1]}), mode="append")
        wanted = by_id(DeltaTable(place).to_pyarrow_table())
        assert in_order(table.scan().to_arrow()) == wanted
        for p in ("a b", "c"):
            ids = [row["id"] for row in wanted if row["p"] == p]
            assert sorted(table.scan(row_filter=f"p = '{p}'").to_arrow()["id"].to_pylist()) == ids
        again = served.table()
        assert again.current_snapshot() != table.current_snapshot()
        with pytest.raises(Exception, match="load the table again"):
            table.scan(snapshot_id=table.metadata.current_snapshot_id).to_arrow()


def test_columns_that_folders_say_are_read_alone(tmp_path: Path) -> None:
    for day in ("2024-01-01", "2024-01-02", "__HIVE_DEFAULT_PARTITION__"):
        write(tmp_path / "s" / f"day={day}" / "n=7" / "f.parquet", pa.table({"id": range(3)}))
    index(str(tmp_path / "s"), tmp_path / "t", "id:bloom")
    with serving([tmp_path / "t"]) as served:
        table = served.table()
        rows = table.scan(selected_fields=("day", "n")).to_arrow().to_pylist()
        days = [dt.date(2024, 1, 1), dt.date(2024, 1, 2), None]
        assert sorted(map(repr, rows)) == sorted(repr({"day": day, "n": 7}) for day in days for _ in range(3))
        (first,) = files_of(table, "day = '2024-01-02' AND n = 7")
        assert "day=2024-01-02" in first
        assert table.scan(row_filter="day = '2024-01-02' AND id > 0").count() == 2
        with pytest.raises(Exception, match=r"'day'.*add it to selected_fields"):  # pyiceberg would find no row
            ids_of(table, "day = '2024-01-02'")


def test_folders_are_believed_where_files_say_otherwise(tmp_path: Path) -> None:
    """As Spark does, and so what was measured of the column."""
    write(tmp_path / "s" / "n=7" / "f.parquet", pa.table({"id": [1], "n": [8]}))
    index(str(tmp_path / "s"), tmp_path / "t", "id:bloom", "n:value-list")
    with serving([tmp_path / "t"]) as served:
        table = served.table()
        assert table.scan(row_filter="n = 7").to_arrow().to_pylist() == [{"id": 1, "n": 7}]
        assert table.scan(row_filter="n = 8").to_arrow().num_rows == 0


def test_dates_are_told_as_the_specification_has_them(tmp_path: Path) -> None:
    write(tmp_path / "s" / "day=2024-01-02" / "f.parquet", pa.table({"id": range(3)}))
    index(str(tmp_path / "s"), tmp_path / "t", "id:bloom")
    with serving([tmp_path / "t"]) as served:
        path = "/v1/namespaces/default/tables/t/plan"
        wanted = {"type": "and", "left": {"type": "gt", "term": "id", "value": 0},
                  "right": {"type": "eq", "term": "day", "value": "2024-01-02"}}  # fmt: skip
        for client, told in (("trino", "2024-01-02"), ("PyIceberg/0.11", 19724)):
            answer = json.loads(ask(served, "POST", path, {"filter": wanted}, **{"User-Agent": client}).body)
            (task,) = answer["file-scan-tasks"]
            assert task["data-file"]["partition"] == [told]
            left = task["residual-filter"]
            # Who takes the day for NULL there, since the file lacks it, has nothing to skip by.
            assert (left["left"], left["right"]["type"]) == (wanted["left"], "or")


def test_an_iceberg_table_with_deletes_and_renamed_columns(tmp_path: Path) -> None:
    table, into = iceberg_table(tmp_path / "w"), tmp_path / "indexes"
    index(hinted(table), into, "id:bloom", "new:value-list", "gone:value-list")
    with serving([f"t={into}"]) as served:
        check_iceberg(served.table(), table)
        assert len(files_of(served.table(), "new = 'h'")) == 1
        # Deletes that came since, in files that are as they were; then names that are exchanged.
        delete_positions(table, first_file(table), [1])
        hinted(table)
        check_iceberg(served.table(), table)
        assert len(files_of(served.table(), "new = 'h'")) == 1
        for before, after in (("new", "newer"), ("gone", "new"), ("newer", "gone")):
            with table.update_schema() as update:
                update.rename_column(before, after)
        table.append(pa.table({"id": pa.array([20]), "p": ["x"], "gone": ["k"], "new": ["9"]}))
        hinted(table)
        check_iceberg(served.table(), table)
        assert ids_of(served.table(), "new = '2' AND gone = 'h'") == [7]
        own = served.client(**{"scan-planning-mode": "client"}).load_table("default.t")
        assert by_id(own.scan().to_arrow()) == iceberg_rows(table.metadata_location)


def check_iceberg(found: IcebergTable, table: IcebergTable) -> None:
    """Compares what is read through the server with what the library reads of the table itself."""
    wanted = iceberg_rows(table.metadata_location)
    assert by_id(found.scan().to_arrow()) == wanted
    assert found.scan().count() == len(wanted)
    assert [field.field_id for field in found.schema().fields] == [f.field_id for f in table.schema().fields]
    for filter, ids in filters(wanted)[::4]:
        assert set(ids_of(found, filter)) == ids, filter


def refusal(into: Path) -> str:
    with pytest.raises(LayoutoptError) as caught:
        Tables(parse_tables([f"t={into}"])).check()
    return str(caught.value)


def test_deletion_vectors_of_delta_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index(f"delta:{delta_table(tmp_path / 't', nested=False)}", tmp_path / "indexes", "id:bloom")
    assert "are deleted by a deletion vector" in refusal(tmp_path / "indexes")
    assert main(["serve", str(tmp_path / "indexes"), "--port", "0"]) != 0
    said = capsys.readouterr().err
    assert "deletion vector" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (pa.table({"id": pa.array([1], pa.uint32())}), "'id' has type uint32"),
        (pa.table({"id": [1], "raw": pa.array([b"ab"], pa.binary(2))}), "'raw' has type fixed_size_binary"),
        (pa.table({"id": [1], "at": pa.array([1], pa.timestamp("us", "Europe/Prague"))}), "unsupported type"),
        (pa.table([[1]], pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "7"})])), "field ids"),
    ],
)
def test_files_that_would_be_read_otherwise_are_refused(tmp_path: Path, rows: pa.Table, says: str) -> None:
    write(tmp_path / "s" / "f.parquet", rows)
    index(str(tmp_path / "s"), tmp_path / "t", "id:bloom")
    said = refusal(tmp_path / "t")
    assert says in said
    assert "f.parquet" in said


def test_folders_with_different_names_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "s" / "day=1" / "f.parquet", pa.table({"id": [1]}))
    write(tmp_path / "s" / "month=1" / "f.parquet", pa.table({"id": [1]}))
    with pytest.raises(SourceError, match="the folders 'day=1' and 'month=1' of the source have different columns"):
        index(str(tmp_path / "s"), tmp_path / "t", "id:bloom")


def test_folders_that_say_something_else_later_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "s" / "n=1" / "f.parquet", pa.table({"id": [1]}))
    index(str(tmp_path / "s"), tmp_path / "t", "id:bloom")
    with serving([tmp_path / "t"]) as served:
        table = served.table()
        assert table.scan(row_filter="n = 1").to_arrow()["id"].to_pylist() == [1]
        write(tmp_path / "s" / "n=x" / "f.parquet", pa.table({"id": [2]}))
        with pytest.raises(ServerError, match="restart the server"):
            ids_of(table, "id = 1")


def test_floats_in_a_column_of_doubles_are_not_judged(tmp_path: Path) -> None:
    for n, type in enumerate((pa.float32(), pa.float64())):
        write(tmp_path / "s" / f"{n}.parquet", pa.table({"id": [n], "x": pa.array([0.1], type)}))
    index(str(tmp_path / "s"), tmp_path / "t", "x:bloom", "id:bloom")
    with serving([tmp_path / "t"]) as served:
        table = served.table()
        assert ids_of(table, ice.EqualTo("x", 0.1)) == [0, 1]  # pyiceberg compares floats with floats
        assert len(files_of(table, "id = 1")) == 1


def test_names_that_differ_in_capitals_and_columns_that_files_lack(tmp_path: Path) -> None:
    write(tmp_path / "s" / "a.parquet", pa.table({"id": [1, 2], "Name": ["x", None]}))
    write(tmp_path / "s" / "b.parquet", pa.table({"NAME": ["y"], "ID": pa.array([3], pa.int32())}))
    write(tmp_path / "s" / "c.parquet", pa.table({"id": [4], "more": [[1]]}))
    index(str(tmp_path / "s"), tmp_path / "t", "id:bloom", "name:value-list")
    with serving([tmp_path / "t"]) as served:
        table = served.table()
        assert ids_of(table, "id > 0") == [1, 2, 3, 4]
        assert ids_of(table, "Name = 'y'") == [3]
        assert len(files_of(table, "Name = 'y'")) == 1
        assert ids_of(table, "Name IS NULL") == [2, 4]


def test_all_indexes_below_a_folder_are_found(tmp_path: Path) -> None:
    write(tmp_path / "s" / "f.parquet", pa.table({"id": range(30)}))
    index(str(tmp_path / "s"), tmp_path / "lake" / "events", "id:bloom")
    write(tmp_path / "gone" / "f.parquet", pa.table({"id": [1]}))
    index(str(tmp_path / "gone"), tmp_path / "lake" / "gone", "id:bloom")
    (tmp_path / "gone" / "f.parquet").unlink()
    with serving(folder=tmp_path / "lake") as served:
        assert served.client().list_tables("default") == [("default", "events")]
        assert ids_of(served.table("events"), "id = 7") == [7]
        with pytest.raises(ServerError, match=r"has no \.parquet file"):
            served.table("gone")
        pq.write_table(pa.table({"id": [1]}), tmp_path / "gone" / "g.parquet")
        assert ids_of(served.table("gone"), "id = 1") == [1]
