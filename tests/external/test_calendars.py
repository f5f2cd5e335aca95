"""Files of a Spark before version 3: what it moves when it reads them is refused, everything else indexed."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from layoutopt.errors import SourceError
from tests.external.folders import blocks_read, index, opened, write

OLD: dict[str, str] = {"org.apache.spark.version": "2.4.8"}
MARKED = {"org.apache.spark.version": "4.0.0", "org.apache.spark.legacyDateTime": ""}
DAYS = pa.array([dt.date(1582, 10, 15), dt.date(2024, 1, 1), None], pa.date32())
EARLIER = pa.array([dt.date(1582, 10, 14), dt.date(2024, 1, 1), None], pa.date32())
ZONED = pa.timestamp("us", "UTC")
# By the stored columns that are named.
DATES: dict[str, pa.Array] = {
    "c": EARLIER,
    "c.day": pa.array([{"day": dt.date(1, 1, 1)}, None], pa.struct([("day", pa.date32())])),
    "c.list.element": pa.array([[dt.date(1500, 1, 1)], []], pa.list_(pa.date32())),
}
TIMES = {
    "milliseconds": pa.array([dt.datetime(1899, 12, 31, 23, 59, 59)], pa.timestamp("ms", "UTC")),
    "microseconds": pa.array([dt.datetime(1899, 12, 31, 23, 59, 59, 999999), None], ZONED),
}
TAKEN: dict[str, pa.Array] = {
    "days": DAYS,
    "times": pa.array([dt.datetime(1900, 1, 1), None], ZONED),
    "nothing": pa.array([None, None], pa.date32()),
    "no rows": pa.array([], pa.date32()),
    "texts": pa.array(["1500-01-01"]),
}


def said(values: pa.Array, what: dict[str, str]) -> pa.Table:
    return pa.table({"id": pa.array(range(len(values)), pa.int64()), "c": values}).replace_schema_metadata(what)


@pytest.mark.parametrize("what", [OLD, MARKED], ids=["version", "mark"])
@pytest.mark.parametrize("case", [*DATES, *TIMES])
def test_values_that_spark_moves_are_refused(case: str, what: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path / "rows" / "a.parquet", said({**DATES, **TIMES}[case], what))
    with pytest.raises(SourceError, match=r"a\.parquet.*before version 3.*rewrite the file") as refused:
        index(tmp_path / "rows", tmp_path / "indexes", ["id:bloom"])
    assert repr("c" if case in TIMES else case) in str(refused.value)


@pytest.mark.parametrize("how", [{"write_statistics": False}, {"write_statistics": ["id"]}])
def test_values_that_it_may_move_are_refused(how: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path / "rows" / "a.parquet", said(DAYS, OLD), **how)
    with pytest.raises(SourceError, match="may have dates before 1582"):
        index(tmp_path / "rows", tmp_path / "indexes", ["id:bloom"])


@pytest.mark.parametrize("case", TAKEN)
def test_values_that_mean_the_same_to_all_are_indexed(case: str, tmp_path: Path) -> None:
    write(tmp_path / "rows" / "a.parquet", said(TAKEN[case], OLD), row_group_size=1)
    index(tmp_path / "rows", tmp_path / "indexes", ["id:bloom"])
    table, values = opened(tmp_path / "indexes"), TAKEN[case]
    assert table.sql("SELECT c FROM t").num_rows == len(values)
    if len(values):
        assert blocks_read(table, "SELECT c FROM t WHERE id = 0") == (len(values), 1)


def test_old_days_of_other_writers_are_those_that_are_written(tmp_path: Path) -> None:
    write(tmp_path / "rows" / "a.parquet", said(EARLIER, {"org.apache.spark.version": "3.0.0"}), row_group_size=1)
    index(tmp_path / "rows", tmp_path / "indexes", ["c:bloom"])
    assert opened(tmp_path / "indexes").sql("SELECT id FROM t WHERE c = date'1582-10-14'").to_pylist() == [{"id": 0}]


def test_a_file_that_comes_later_is_refused_too(tmp_path: Path) -> None:
    write(tmp_path / "rows" / "a.parquet", said(DAYS, OLD))
    index(tmp_path / "rows", tmp_path / "indexes", ["c:bloom"])
    write(tmp_path / "rows" / "b.parquet", said(EARLIER, OLD))
    with pytest.raises(SourceError, match=r"b\.parquet"):
        opened(tmp_path / "indexes")


class TestTimesStoredAsInt96:
    """So Spark stores them by default; the footer has no bounds of them."""

    MOMENTS = (dt.datetime(1901, 1, 1), dt.datetime(2024, 1, 1, 12, 0, 0, 1), dt.datetime(2500, 1, 1), None)

    def rows(self, what: dict[str, str]) -> pa.Table:
        return said(pa.array(self.MOMENTS, pa.timestamp("us")), what)

    def test_they_are_indexed_and_read(self, tmp_path: Path) -> None:
        source = tmp_path / "rows" / "a.parquet"
        write(source, self.rows({}), row_group_size=1, use_deprecated_int96_timestamps=True)
        index(tmp_path / "rows", tmp_path / "indexes", ["c:bloom"])
        table = opened(tmp_path / "indexes")
        assert table.schema.find("c").type == "timestamp"
        assert table.sql("SELECT c FROM t")["c"].cast(pa.timestamp("us")).to_pylist() == list(self.MOMENTS)
        for number, moment in enumerate(self.MOMENTS[:3]):
            sql = f"SELECT id FROM t WHERE c = TIMESTAMP '{moment}'"
            assert table.sql(sql).to_pylist() == [{"id": number}]
            assert blocks_read(table, sql) == (4, 1)

    def test_of_an_older_spark_they_are_refused(self, tmp_path: Path) -> None:
        before = self.rows({"org.apache.spark.version": "3.0.1"})
        write(tmp_path / "rows" / "a.parquet", before, use_deprecated_int96_timestamps=True)
        with pytest.raises(SourceError, match=r"a\.parquet.*times before 1900"):
            index(tmp_path / "rows", tmp_path / "indexes", ["id:bloom"])
