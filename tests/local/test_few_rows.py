"""A source's few rows read without Spark: all of them, or it is left to Spark."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.errors import NeedsSparkError, SourceError
from layoutopt.local import append as few_rows
from layoutopt.local.append import read_few_rows
from layoutopt.local.parquet_files import check_columns
from layoutopt.model.schema import Column, Schema
from tests.scan.tables import ARROW, SCHEMA, some_rows


def write(path: Path, rows: pa.Table, **how: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path, **how)
    return path


def test_all_rows_are_read_with_the_partitions_that_they_lie_in(tmp_path: Path) -> None:
    first, second = some_rows(30, 1), some_rows(20, 2).slice(0, 7)
    write(tmp_path / "s" / "b.parquet", first.select(list(reversed(first.column_names))), row_group_size=4)
    write(tmp_path / "s" / "a.parquet", second)
    for hidden in ("_SUCCESS", ".b.parquet.crc"):
        (tmp_path / "s" / hidden).write_text("x")
    found = read_few_rows(str(tmp_path / "s"), SCHEMA, "year")
    assert str(found.rows.to_pylist()) == str(pa.concat_tables([second, first]).to_pylist())
    assert found.rows.num_rows == 37
    years = found.rows["year"].to_pylist()
    for partition in found.partitions:
        places = [place for place, year in enumerate(years) if year == partition.value]
        assert found.places[partition.value].tolist() == places
        assert partition.rows == len(places)
        assert {file.uri for file in partition.files} <= {f"file:{tmp_path}/s/{name}.parquet" for name in "ab"}
    by_day = read_few_rows(str(tmp_path / "s" / "a.parquet"), SCHEMA, "day").places
    assert list(by_day) == sorted(by_day, key=lambda day: -1 if day is None else int(day))
    assert read_few_rows(str(tmp_path / "s"), SCHEMA, None).places[None].tolist() == list(range(37))


def other(name: str, type: pa.DataType) -> Callable[[Path], Path]:
    """Writes rows of which a column has another type."""

    def make(folder: Path) -> Path:
        rows = some_rows(5)
        values = pa.nulls(5, type)
        return write(folder / "a.parquet", rows.set_column(rows.column_names.index(name), name, values))

    return make


def named(name: str) -> Callable[[Path], Path]:
    return lambda folder: write(folder / name, some_rows(5))


def said(key: str, value: str) -> Callable[[Path], Path]:
    """Writes rows with something of Spark's in the footer."""
    return lambda folder: write(folder / "a.parquet", some_rows(5).replace_schema_metadata({key: value}))


REFUSED: dict[str, Callable[[Path], Path]] = {
    "no rows": lambda folder: write(folder / "a.parquet", some_rows(5).slice(0, 0)),
    "has no rows": lambda folder: folder.mkdir() or folder,  # type: ignore[func-returns-value]
    "no file of Parquet": lambda folder: folder / "none",
    "by a plain name": named("a b.parquet"),
    "plain name": named("year=1994/a.parquet"),
    "no file": named("a.orc"),
    "can't be read without it": lambda folder: _text(folder / "a.parquet"),
    "other columns": lambda folder: write(folder / "a.parquet", some_rows(5).drop_columns(["kind"])),
    "columns than": other("id", pa.int64()),
    "other columns than": lambda folder: write(
        folder / "a.parquet", some_rows(5).rename_columns([name.upper() for name in ARROW.names])
    ),
    "can't be": other("seen", pa.timestamp("ns")),
    "rules": said("org.apache.spark.legacyDateTime", ""),
    "rules of its own": said("org.apache.spark.sql.parquet.row.metadata", "__CHAR_VARCHAR_TYPE_STRING"),
    "reads by rules": said("org.apache.spark.version", "2.4.8"),
}


def _text(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("PAR1, or so")
    return path


@pytest.mark.parametrize("why", REFUSED)
def test_what_spark_might_read_otherwise_is_left_to_it(why: str, tmp_path: Path) -> None:
    made = REFUSED[why](tmp_path / "s")
    with pytest.raises(NeedsSparkError, match=why):
        read_few_rows(str(made if why.startswith("no file") else tmp_path / "s"), SCHEMA, "year")


@pytest.mark.parametrize("source", ["s3://bucket/a.parquet", "delta:/data/events", "iceberg:prod/web.events"])
def test_what_is_no_path_of_this_machine_is_left_to_spark(source: str) -> None:
    with pytest.raises(NeedsSparkError, match="no path of this machine"):
        read_few_rows(source, SCHEMA, "year")


def test_with_hadoops_configuration_a_path_is_left_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    with pytest.raises(NeedsSparkError, match="is not surely a path of this machine"):
        read_few_rows(str(tmp_path), SCHEMA, None)


@pytest.mark.parametrize(
    ("bound", "value", "by"), [("MOST_ROWS", 4, "year"), ("MOST_BYTES", 50, "year"), ("MOST_PARTITIONS", 3, "id")]
)
def test_what_is_not_few_is_left_to_spark(
    bound: str, value: int, by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.parquet", some_rows(5))
    read_few_rows(str(tmp_path), SCHEMA, by)
    monkeypatch.setattr(few_rows, bound, value)
    with pytest.raises(NeedsSparkError, match=str(value)):
        read_few_rows(str(tmp_path), SCHEMA, by)


def test_a_file_that_changes_meanwhile_is_left_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.parquet", some_rows(5))
    honest = few_rows._read

    def changing(*arguments: object) -> pa.Table:
        os.utime(path, (1, 1))
        return honest(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(few_rows, "_read", changing)
    with pytest.raises(NeedsSparkError, match="being changed"):
        read_few_rows(str(tmp_path), SCHEMA, "year")


def test_a_damaged_page_is_no_row(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", some_rows(50), compression="none", write_page_checksum=True)
    data = bytearray(path.read_bytes())
    data[len(data) // 4] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(SourceError, match=f"{path} has a damaged page"):
        read_few_rows(str(tmp_path), SCHEMA, "year")


def test_columns_of_which_only_spark_has_checksums_are_left_to_it() -> None:
    check_columns(SCHEMA, "year")
    with pytest.raises(NeedsSparkError, match="'a' is array<int>"):
        check_columns(Schema((*SCHEMA.columns, Column("a", "array<int>"))), "year")
    with pytest.raises(NeedsSparkError, match="by a timestamp"):
        check_columns(SCHEMA, "seen")
