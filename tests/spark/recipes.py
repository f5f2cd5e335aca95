"""Recipes of hostile tables: how each is written, what is asked of it, and how it changes."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

from tests.spark import parquet_footers as footers
from tests.spark.settings import under

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 64
Write = Callable[["SparkSession", Path], object]


@dataclass(frozen=True)
class Change:
    """A verb, and the rows of table ``t`` after it as Spark's SQL; the verb's batch is the view ``batch``."""

    verb: str
    rows: str
    words: tuple[str, ...] = ()
    batch: Write | None = None


@dataclass(frozen=True)
class Recipe:
    """A source and its questions, some of which skip blocks of the table.

    Attributes:
        by: the columns that order the rows of the table.
        executor: what loads it: only Spark reads some sources.
        index: whether ``index`` takes the untouched files, and skips; else the sentence that refuses them.
        settings: of all sessions.
        words: further words of ``plan``.
        analyze: further words of ``analyze``.
    """

    write: Write
    conditions: tuple[str, ...]
    by: str = "x"
    partition_by: str | None = None
    executor: Literal["local", "spark"] = "local"
    index: Literal["skips", "reads"] | str = "skips"
    changes: tuple[Change, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    analyze: tuple[str, ...] = ()


def spread(values: Sequence[Any], rows: int = ROWS) -> list[Any]:
    """Values in runs, so that row groups differ."""
    return [values[i * len(values) // rows] for i in range(rows)]


def mixed(values: Sequence[Any], rows: int = ROWS) -> list[Any]:
    """Values in turn, so that each row group has all of them."""
    return [values[i % len(values)] for i in range(rows)]


def arrow(values: Any, type: pa.DataType | None = None, name: str = "a.parquet", first: int = 0, column: str = "x",
          **options: Any) -> Write:  # fmt: skip
    def write(spark: SparkSession, folder: Path) -> None:
        path, array = folder / name, values if isinstance(values, pa.Array) else pa.array(values, type)
        path.parent.mkdir(parents=True, exist_ok=True)
        ids = pa.array(range(first, first + len(array)), pa.int64())
        pq.write_table(pa.table({"id": ids, column: array}), path, **{"row_group_size": 8, **options})

    return write


def columns(**arrays: Any) -> Write:
    def write(spark: SparkSession, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        ids = pa.array(range(ROWS), pa.int64())
        pq.write_table(pa.table({"id": ids, **arrays}), folder / "a.parquet", row_group_size=8)

    return write


def by_spark(text: str, settings: dict[str, str] | None = None, partition_by: tuple[str, ...] = ()) -> Write:
    """Write columns of ``range(64)`` by Spark, which makes no small row groups: in four files, or by folders."""

    def write(spark: SparkSession, folder: Path) -> None:
        with under(spark, settings or {}):
            frame = spark.range(ROWS, numPartitions=1 if partition_by else 4).selectExpr("id", *text.split(" ;; "))
            frame.write.partitionBy(*partition_by).parquet(str(folder))

    return write


def by_spark_table(columns: str, values: str) -> Write:
    """Write a table of Spark with declared types."""

    def write(spark: SparkSession, folder: Path) -> None:
        spark.sql(f"CREATE TABLE of_recipe (id BIGINT, {columns}) USING parquet LOCATION '{folder}'")
        try:
            spark.sql(f"INSERT INTO of_recipe SELECT id, {values} FROM range(0, {ROWS}, 1, 4)")
        finally:
            spark.sql("DROP TABLE of_recipe")

    return write


def by_duckdb(value: str) -> Write:
    def write(spark: SparkSession, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        query = f"SELECT i AS id, {value} AS x FROM range({ROWS}) AS r(i)"
        with duckdb.connect() as connection:
            connection.execute(f"COPY ({query}) TO '{folder}/a.parquet' (FORMAT parquet, ROW_GROUP_SIZE 2048)")

    return write


def by_pandas(values: Any) -> Write:
    def write(spark: SparkSession, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        pd.DataFrame({"id": range(ROWS), "x": values}).to_parquet(folder / "a.parquet", row_group_size=8)

    return write


def by_polars(values: Any) -> Write:
    def write(spark: SparkSession, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        pl.DataFrame({"id": range(ROWS), "x": values}).write_parquet(folder / "a.parquet", row_group_size=8)

    return write


def by_delta_rs(values: Any, type: pa.DataType) -> Write:
    """Write by the writer in Rust, whose bounds of long texts are truncated and marked so."""

    def write(spark: SparkSession, folder: Path) -> None:
        ids = pa.array(range(ROWS), pa.int64())
        rows = pa.table({"id": ids, "x": pa.array(values, type)})
        for first in range(0, ROWS, 16):
            write_deltalake(str(folder.with_name("written")), rows[first : first + 16], mode="append")
        folder.mkdir(parents=True, exist_ok=True)
        for file in folder.with_name("written").glob("*.parquet"):
            file.rename(folder / file.name)

    return write


def together(*writes: Write) -> Write:
    def write(spark: SparkSession, folder: Path) -> None:
        for each in writes:
            each(spark, folder)

    return write


def edited(write: Write, change: Callable[[footers.Struct], object], column: str = "x") -> Write:
    """Write files whose statistics of a column are changed."""

    def edit(spark: SparkSession, folder: Path) -> None:
        write(spark, folder)
        for file in folder.rglob("*.parquet"):
            footers.change_statistics(file, column, change)

    return edit


def without(*numbers: int) -> Callable[[footers.Struct], object]:
    def change(statistics: footers.Struct) -> None:
        for number in numbers:
            statistics.pop(number, None)

    return change


def truncate(statistics: footers.Struct) -> None:
    """Shorten the bounds of a text to 4 bytes, as Parquet allows: the maximum is increased."""
    for number in (footers.MAX, footers.MIN, footers.OLD_MAX, footers.OLD_MIN):
        if number in statistics and len(statistics[number][1]) > 4:
            least, is_max = statistics[number][1][:4], number in (footers.MAX, footers.OLD_MAX)
            statistics[number] = footers.binary(least[:3] + bytes([least[3] + 1]) if is_max else least)
    statistics[footers.MAX_IS_EXACT] = statistics[footers.MIN_IS_EXACT] = footers.boolean(False)


def with_signed_bounds(statistics: footers.Struct) -> None:
    """Leave the bounds of writers before Parquet 2.4, which compare unsigned numbers as signed."""
    for number in (footers.MAX, footers.MIN):
        statistics.pop(number, None)
    statistics[footers.OLD_MIN] = footers.binary(struct.pack("<i", 200))
    statistics[footers.OLD_MAX] = footers.binary(struct.pack("<i", 100))


def with_doubles(low: float, high: float) -> Callable[[footers.Struct], object]:
    def change(statistics: footers.Struct) -> None:
        for numbers, value in (((footers.MIN, footers.OLD_MIN), low), ((footers.MAX, footers.OLD_MAX), high)):
            for number in numbers:
                if number in statistics:
                    statistics[number] = footers.binary(struct.pack("<d", value))

    return change


NAN, INF = float("nan"), float("inf")
UTC = dt.UTC
FLOATS = [-INF, -1.5, -0.0, 0.0, 1.5, INF, NAN, None]
LEGACY = {"spark.sql.parquet.writeLegacyFormat": "true"}
OLD_CALENDAR = {
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
}
NEW_YORK = {"spark.sql.session.timeZone": "America/New_York"}
IN_NEW_YORK = ("--time-zone", "America/New_York")
AUTUMN = [dt.datetime(2024, 11, 3, 4, tzinfo=UTC) + dt.timedelta(minutes=15 * i) for i in range(ROWS)]
LOCAL_AUTUMN = [each.replace(tzinfo=None) - dt.timedelta(hours=4) for each in AUTUMN]
TEXTS = ["", "\0", " ", "a", "a ", "Z", "é", "\U0010ffff", None]
LONG = [f"{'x' * 80}{i:03}" for i in range(ROWS)]
BYTES = [b"", b"\x00", b"\x7f", b"\x80", b"\xff", b"\xff\xff" * 40, b"\xffa", None]

FLOAT_CONDITIONS = (
    "x > 1", "x = 0", "x = double('NaN')", "x < 0 OR id = 60", "isnan(x)", "x <= -0.0D", "x >= double('NaN')",
)  # fmt: skip
OLD_DAYS = "date_add(DATE'1582-10-01', cast(id AS int)) AS x ;; timestamp_micros({} + (id - 32) * 3600000000) AS y"
MERGED = "SELECT * FROM t WHERE NOT EXISTS (SELECT 1 FROM batch AS b WHERE b.x = t.x) UNION ALL SELECT * FROM batch"
TEXT_CONDITIONS = ("x = ''", "x IS NULL", "x > 'é'", "x <= 'a'", "x = 'a '", "x LIKE 'a%'")

RECIPES: dict[str, Recipe] = {
    # floats
    "NaN beside numbers": Recipe(arrow(mixed(FLOATS)), FLOAT_CONDITIONS, index="reads"),
    "NaN in runs": Recipe(arrow(spread(FLOATS)), FLOAT_CONDITIONS),
    "NaN of pandas, which is NULL": Recipe(by_pandas(spread(FLOATS)), FLOAT_CONDITIONS),
    "NaN of Polars": Recipe(by_polars(spread(FLOATS)), FLOAT_CONDITIONS),
    "NaN of Spark": Recipe(
        by_spark("CASE WHEN id < 20 THEN id WHEN id < 40 THEN -0.0D WHEN id < 60 THEN double('NaN') END AS x"),
        ("x > 10", "isnan(x)", "x = 0", "x IS NULL", "x <> 3"),
    ),
    "NaN as a bound": Recipe(
        edited(arrow(spread([1.0, 2.0, 3.0, NAN])), with_doubles(1.0, NAN)),
        ("x > 2", "isnan(x)", "x = 1", "x < 2"),
        index="reads",
    ),
    "bounds of zeros without signs": Recipe(
        edited(arrow(spread([0.0, -0.0])), with_doubles(0.0, -0.0)),
        ("x = 0", "x < 0", "x >= -0.0D", "id < 9"),
    ),
    "zeros in folders": Recipe(
        together(
            *(
                arrow([1, 2] * 4, pa.int32(), f"f={each}/a.parquet", 8 * i)
                for i, each in enumerate(["0.0", "-0.0", "1.5"])
            )
        ),
        ("f = 0", "f > 0", "f <= -0.0D AND x = 1"),
        by="id",
        executor="spark",
    ),
    # texts and binaries
    "texts": Recipe(arrow(spread(TEXTS)), TEXT_CONDITIONS),
    "truncated bounds of texts": Recipe(
        edited(arrow(LONG), truncate),
        (f"x = '{LONG[9]}'", f"x > '{LONG[50]}'", "x <= 'xxxx'", "x > 'xxxy'", "x < 'xxx'"),
    ),
    "truncated bounds by Rust": Recipe(
        by_delta_rs(LONG, pa.string()),
        (f"x = '{LONG[9]}'", f"x >= '{LONG[63]}'", f"x > '{'x' * 64}y'", "id = 3"),
    ),
    "bounds of the greatest text": Recipe(
        by_delta_rs(["\U0010ffff" * 40 + str(i) for i in range(ROWS)], pa.string()),
        ("x > '\U0010ffff'", f"x = '{chr(0x10FFFF) * 40}7'", "x < 'z'", "id < 4"),
    ),
    "binaries": Recipe(
        arrow(spread(BYTES), pa.binary()), ("x = X'FF'", "x > X'80'", "x < X'7F'", "x = X''", "x IS NULL")
    ),
    "binaries of 0xFF by Rust": Recipe(
        by_delta_rs([b"\xff" * 100 + bytes([i]) for i in range(ROWS)], pa.binary()),
        ("x > X'FF'", "x < X'FF'", "x >= X'FFFF'", "id > 60"),
    ),
    "dictionary fallback": Recipe(
        arrow(
            [f"{i % 7} {'y' * 500}{i}" for i in range(ROWS)],
            dictionary_pagesize_limit=900,
            data_page_size=600,
            row_group_size=32,
        ),
        ("x LIKE '3%'", "x > '6'", "x < '1'", "substring(x, 1, 1) = '2'", "id < 20"),
    ),
    "dictionaries of Arrow": Recipe(
        arrow(pa.array(spread(TEXTS)).dictionary_encode()),
        TEXT_CONDITIONS,
    ),
    # numbers
    "unsigned bytes": Recipe(
        arrow(spread([0, 1, 127, 128, 200, 255, None]), pa.uint8()),
        ("x > 127", "x = 255", "x < 0", "x = 128", "x BETWEEN 1 AND 127"),
    ),
    "unsigned shorts": Recipe(
        arrow(spread([0, 1, 32767, 32768, 65535, None]), pa.uint16()),
        ("x > 32767", "x = 65535", "x < 0", "x = 1"),
    ),
    "unsigned ints": Recipe(
        arrow(spread([0, 1, 2**31 - 1, 2**31, 2**32 - 1, None]), pa.uint32()),
        ("x > 2147483647", "x = 4294967295", "x < 0", "x = 1"),
    ),
    "unsigned longs": Recipe(
        arrow(spread([0, 1, 2**63 - 1, 2**63, 2**64 - 1, None]), pa.uint64()),
        ("x > 9223372036854775807", "x = 18446744073709551615", "x < 0", "x = 1"),
    ),
    "unsigned bytes of DuckDB": Recipe(by_duckdb("(i * 4)::UTINYINT"), ("x > 200", "x = 128", "x < 4"), index="reads"),
    "unsigned bytes beside greater ones": Recipe(
        arrow([(i // 8, 255 - i // 8, 127, 128)[i % 4] for i in range(ROWS)], pa.uint8()),
        ("x > 254", "x < 1", "x = 128", "x BETWEEN 248 AND 249"),
        by="id",
    ),
    "bounds of unsigned bytes by an older writer, as signed": Recipe(
        edited(arrow([(i, 200 + i % 50)[i % 2] for i in range(ROWS)], pa.uint8()), with_signed_bounds),
        ("x > 200", "x < 4", "x = 240", "x BETWEEN 60 AND 100"),
        index="reads",
    ),
    "great decimals": Recipe(
        arrow(
            spread([Decimal("-" + "9" * 38), Decimal(-1), Decimal(0), Decimal("9" * 38), None]), pa.decimal128(38, 0)
        ),
        ("x > 0", f"x = {'9' * 38}", "x < -1", "x = 0", "x > 1e37"),
    ),
    "decimals as bytes of Spark": Recipe(
        by_spark("cast(id * 3 - 50 AS decimal(9, 2)) AS x ;; cast(id AS decimal(30, 10)) AS y", LEGACY),
        ("x > 100", "x = -50", "y < 3.5", "x < 0 AND y > 4"),
    ),
    "decimals of DuckDB": Recipe(
        by_duckdb("((i - 32) * 1.25)::DECIMAL(18, 4)"), ("x > 30", "x = -40", "x < -38.7", "x = 0"), index="reads"
    ),
    "a column added later": Recipe(
        together(
            lambda spark, folder: folder.mkdir(),
            lambda spark, folder: pq.write_table(
                pa.table({"id": range(32), "x": range(32)}), folder / "a.parquet", row_group_size=8
            ),
            lambda spark, folder: pq.write_table(
                pa.table({"id": range(32, 64), "x": range(32), "y": range(32)}), folder / "b.parquet", row_group_size=8
            ),
        ),
        ("y > 20", "y IS NULL AND x < 3", "x = 5", "coalesce(y, 100) = 100"),
    ),
    # names
    "files in another order and case": Recipe(
        together(
            arrow(spread([1, 2, 3, 4], 32)),
            lambda spark, folder: pq.write_table(
                pa.table({"X": spread([5, None, 7, 8], 32), "ID": range(32, 64)}),
                folder / "b.parquet",
                row_group_size=8,
            ),
        ),
        ("x = 2", "X > 6", "x IS NULL", "id < 9"),
        executor="spark",
    ),
    "case": Recipe(
        columns(CamelCase=spread([1, 2, 3, 4]), ÄB=mixed(["a", "b"])),
        ("camelcase = 2", "CAMELCASE > 3", "`äb` = 'a' AND CamelCase < 2"),
        by="CamelCase",
    ),
    "dots, ticks, percents and blanks": Recipe(
        columns(
            **{
                "a.b": spread([1, 2, 3, 4]),
                "`": spread([4, 3, 2, 1]),
                "50% of": mixed([1, 2]),
                "x\U0001f600": spread([1, 5]),
            }
        ),
        ("`a.b` = 1", "```` > 3", "`50% of` = 1 AND `a.b` > 3", "`x\U0001f600` = 5"),
        by="a.b",
    ),
    # partitions in folders
    "percent-encoded folders": Recipe(
        by_spark(
            "id AS x ;; array('a/b', 'a=b', ' ', 'é%', 'a:b', '', 'null', NULL)[id % 8] AS p", partition_by=("p",)
        ),
        ("p = 'a/b'", "p = 'a=b' OR p = ' '", "p IS NULL", "p > 'a:' AND x < 9", "p = 'é%'", "p = 'null'"),
        executor="spark",
        partition_by="p",
    ),
    "dates in folders": Recipe(
        by_spark("id AS x ;; date_add(DATE'2024-02-28', cast(id / 16 AS int)) AS p", partition_by=("p",)),
        ("p = DATE'2024-02-29'", "p > '2024-03-01'", "p < DATE'2024-02-29' AND x > 10"),
        executor="spark",
        partition_by="p",
    ),
    "times in folders": Recipe(
        by_spark(
            "id AS x ;; TIMESTAMP'1899-12-31 23:59:59.5' + make_interval(0, 0, 0, 0, int(id / 16) * 12) AS p",
            partition_by=("p",),
        ),
        ("p < TIMESTAMP'1900-01-01'", "p = '1900-01-01 11:59:59.5'", "hour(p) = 23 AND x < 3", "x = 9"),
        executor="spark",
        index="column 'p' in a folder name or table metadata: expected timestamp",
        by="p",
    ),
    "numbers with zeros in folders": Recipe(
        together(
            *(
                arrow([1, 2], pa.int32(), f"p={each}/a.parquet", 2 * i)
                for i, each in enumerate(["01", "1", "002", "10"])
            )
        ),
        ("p = 1", "p > 1 AND x = 2", "p = '01'", "p IN (2, 10)"),
        by="id",
        executor="spark",
        partition_by="p",
    ),
    # times
    "instants of autumn in New York": Recipe(
        arrow(AUTUMN, pa.timestamp("us", "UTC")),
        (
            "x >= TIMESTAMP'2024-11-03 01:30:00' AND x < TIMESTAMP'2024-11-03 02:00:00'",
            "hour(x) = 1",
            "x < '2024-11-03 00:30:00'",
            "cast(x AS date) = DATE'2024-11-03' AND hour(x) > 12",
            "x > TIMESTAMP_NTZ'2024-11-03 10:00:00'",
        ),
        settings=NEW_YORK,
        analyze=IN_NEW_YORK,
        executor="spark",
    ),
    "local times of autumn in New York": Recipe(
        arrow(LOCAL_AUTUMN, pa.timestamp("us")),
        (
            "x >= TIMESTAMP_NTZ'2024-11-03 01:30:00' AND x < TIMESTAMP_NTZ'2024-11-03 02:00:00'",
            "hour(x) = 1",
            "x < TIMESTAMP'2024-11-03 01:30:00'",
            "x = DATE'2024-11-03'",
            "x > '2024-11-03 14:00:00'",
        ),
        settings=NEW_YORK,
        analyze=IN_NEW_YORK,
        executor="spark",
    ),
    "INT96 of autumn in New York": Recipe(
        arrow(AUTUMN, pa.timestamp("us", "UTC"), use_deprecated_int96_timestamps=True),
        (
            "x >= TIMESTAMP'2024-11-03 01:30:00' AND x < TIMESTAMP'2024-11-03 02:00:00'",
            "hour(x) = 1",
            "x < '2024-11-03 00:30:00'",
        ),
        settings=NEW_YORK,
        analyze=IN_NEW_YORK,
        executor="spark",
        index="reads",
    ),
    "old days by the new calendar": Recipe(
        by_spark(OLD_DAYS.format(-2208988800000000)),
        ("x < DATE'1582-10-05'", "x = DATE'1582-10-14'", "y < TIMESTAMP'1900-01-01'", "y >= '1900-01-01 20:00:00'"),
    ),
    "old days by the old calendar": Recipe(
        by_spark(
            OLD_DAYS.format(-12219292800000000),
            OLD_CALENDAR,
        ),
        ("x < DATE'1582-10-05'", "x >= DATE'1582-10-15'", "x = DATE'1582-10-20'", "y < TIMESTAMP'1582-10-15'"),
        executor="spark",
        index="was written by Spark before version 3",
    ),
    "milliseconds of times": Recipe(
        arrow(AUTUMN, pa.timestamp("ms", "UTC")),
        ("x < TIMESTAMP'2024-11-03 05:00:00'", "x = '2024-11-03 10:00:00'", "minute(x) = 15 AND id > 60"),
    ),
    # files
    "blanks of CHAR": Recipe(
        by_spark_table(
            "x CHAR(5), y VARCHAR(5)",
            "rpad(substr('abcdefgh', int(id / 8) + 1, 1), 1 + id % 3, ' '), concat('a', repeat(' ', int(id % 3)))",
        ),
        ("x = 'a'", "x = 'a  '", "x > 'g'", "y = 'a '", "length(x) = 5 AND id < 9"),
        executor="spark",
    ),
    "files without rows": Recipe(
        together(arrow(spread([1, 2, 3, 4])), arrow([], pa.int64(), "b.parquet"), arrow([], pa.int64(), "0.parquet")),
        ("x = 1", "x > 3", "x IS NULL"),
    ),
    "no statistics": Recipe(
        arrow(spread([1, 2, None, 4]), write_statistics=False), ("x = 1", "x IS NULL", "x > 3", "x <> 2"), index="reads"
    ),
    "statistics of one column": Recipe(
        arrow(spread([1, 2, None, 4]), write_statistics=["id"]), ("x = 1", "id < 8", "x IS NULL", "id > 50 AND x = 4")
    ),
    "no counts of NULL": Recipe(
        edited(arrow(mixed([1, 2, None, 4])), without(footers.NULL_COUNT)),
        ("x IS NULL", "x = 1", "x > 4", "x IS NOT NULL", "id = 1"),
    ),
    "no counts of NULL, in runs": Recipe(
        edited(arrow(spread([1, 2, None, 4])), without(footers.NULL_COUNT)),
        ("x IS NULL", "x = 1", "x > 3", "NOT x <=> 4"),
    ),
    "a bound alone": Recipe(
        edited(arrow(spread([1, 2, None, 4])), without(footers.MIN, footers.OLD_MIN)), ("x = 1", "x > 3", "x IS NULL")
    ),
    "old bounds of texts": Recipe(
        edited(
            arrow(spread(TEXTS)),
            lambda s: (s.update({1: footers.binary(b"~"), 2: footers.binary(b"a")}), without(5, 6)(s)),
        ),
        TEXT_CONDITIONS,
    ),
    # nested
    "legacy lists of Spark": Recipe(
        by_spark("array(id, id + 1) AS x ;; array(cast(id AS string), NULL) AS y ;; map('a', id) AS k", LEGACY),
        (
            "array_contains(x, 5L)",
            "element_at(y, 1) = '7'",
            "size(x) = 2 AND id < 3",
            "k['a'] = 44",
            "y[1] IS NULL AND id = 4",
        ),
        by="id",
        executor="spark",
    ),
    "lists of Arrow's older names": Recipe(
        arrow([[i, None] for i in range(ROWS)], pa.list_(pa.int32()), use_compliant_nested_type=False),
        ("array_contains(x, 5)", "x[0] = 7", "id < 3 AND x IS NOT NULL"),
        by="id",
        executor="spark",
    ),
    "maps": Recipe(
        arrow([[("a", i), ("b", None)] if i % 5 else None for i in range(ROWS)], pa.map_(pa.string(), pa.int32())),
        ("x['a'] = 7", "x IS NULL", "x['b'] IS NULL AND id > 50", "map_contains_key(x, 'a') AND id < 4"),
        by="id",
        executor="spark",
    ),
    "structs with NULLs": Recipe(
        arrow(
            [None if i % 8 == 0 else {"a": None if i % 8 == 1 else i, "A b": [NAN, 1.0][i % 2]} for i in range(ROWS)]
        ),
        ("x.a = 7", "x.a IS NULL", "x IS NULL", "x.a > 60", "isnan(x.`A b`) AND id < 5"),
        by="id",
        executor="spark",
    ),
    # changes
    "NaN in the keys of a merge": Recipe(
        arrow([[NAN, -INF, None, 5.0][i] if i < 4 else float(i + 100) for i in range(ROWS)]),
        ("isnan(x)", "id >= 1000", "x IS NULL", "x < 0", "x > 150"),
        changes=(
            Change(
                "merge",
                MERGED,
                ("--on", "x"),
                arrow([NAN, 5.0, 9.0], first=1000),
            ),
        ),
    ),
    "zeros in the keys of a merge": Recipe(
        arrow([0.0, *map(float, range(1, ROWS))]),
        ("x = 0", "id >= 1000", "x <= 0", "x > 60"),
        changes=(
            Change(
                "merge",
                MERGED,
                ("--on", "x"),
                arrow([-0.0], first=1000),
            ),
        ),
    ),
    "vacuum beside append": Recipe(
        arrow(spread([1, 2, 3, None])),
        ("x = 1", "x IS NULL", "x > 3", "id > 1000"),
        changes=(
            Change("append", "SELECT * FROM t UNION ALL SELECT * FROM batch", (), arrow([1, 4, None], first=1000)),
            Change(
                "delete",
                "SELECT * FROM t WHERE NOT coalesce(x = 2, false)",
                ("--where", "x = 2", "--rewrite-share", "1"),
            ),
            Change("vacuum", "SELECT * FROM t", ("--retain-snapshots", "1", "--older-than", "0m")),
            Change("optimize", "SELECT * FROM t"),
            Change("vacuum", "SELECT * FROM t", ("--retain-snapshots", "1", "--older-than", "0m")),
        ),
    ),
    "deletes of NaN": Recipe(
        arrow(mixed(FLOATS)),
        FLOAT_CONDITIONS,
        index="reads",
        changes=(
            Change(
                "delete",
                "SELECT * FROM t WHERE NOT coalesce(x > 1.5, false)",
                ("--where", "x > 1.5", "--rewrite-share", "1"),
            ),
            Change(
                "update",
                "SELECT id, if(coalesce(x = 0, false), double('NaN'), x) AS x FROM t",
                ("--where", "x = 0", "--set", "x=double('NaN')"),
            ),
        ),
    ),
}

# By name: how it is written, the verb that refuses it, what it says, and the column of partitions.
REFUSED: dict[str, tuple[Write, str, str, str | None]] = {
    "partitions by doubles": (
        arrow(spread([0.0, -0.0, 1.5])),
        "plan",
        "the table can't be partitioned by 'x' of type double",
        "x",
    ),
    "names that differ in case": (columns(x=spread([1, 2]), X=spread([4, 3])), "analyze", "'X'", None),
    "intervals of Spark": (by_spark("make_dt_interval(0, cast(id AS int)) AS x"), "analyze", "'x'", None),
    "months of Spark": (by_spark("make_ym_interval(0, cast(id AS int)) AS x"), "analyze", "'x'", None),
}
