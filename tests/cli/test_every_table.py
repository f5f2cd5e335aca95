"""Tables as writers leave them by default go through `analyze`, `plan`, `load`, `append`, `query` and `verify`, or
`analyze` refuses them in a sentence that names the column or the file, and the remedy.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import shutil
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.cli.app import main
from layoutopt.cli.console import BAD_USAGE, DONE
from layoutopt.evaluation.arrow_types import any_arrow_type
from layoutopt.scan.table import open_table
from tests.effort import one_in
from tests.external.odd_files import write_enums

ROWS = 40
KINDS = ["buy", "view", "click", "scroll"] * (ROWS // 4)
MINUTES = [dt.datetime(2026, 1, 1) + dt.timedelta(minutes=i) for i in range(ROWS)]
NULLS = [None] * ROWS

Write = Callable[[Path], object]


def arrow(name: str = "a.parquet", values: pa.Array | None = None, **options: Any) -> Write:
    """Return a function that writes a file by Arrow, with the values as column x."""

    def write(folder: Path) -> None:
        columns = {"id": pa.array(range(ROWS), pa.int64()), "kind": KINDS}
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns if values is None else {**columns, "x": values}), folder / name, **options)

    return write


def by_arrow(type: pa.DataType, values: list[Any], **options: Any) -> Write:
    return arrow(values=pa.array(values, type), **options)


def extension(type: pa.DataType, values: list[Any]) -> Write:
    return arrow(values=pa.ExtensionArray.from_storage(type, pa.array(values, type.storage_type)))


def by_enums(values: list[Any]) -> Write:
    rows = pa.table({"id": range(ROWS), "kind": KINDS, "x": values})
    return lambda folder: write_enums(folder / "a.parquet", rows)


def by_pandas(values: Any) -> Write:
    rows = pd.DataFrame({"id": range(ROWS), "kind": KINDS, "x": values})
    return lambda folder: rows.to_parquet(folder / "a.parquet")


def by_polars(values: Any) -> Write:
    rows = pl.DataFrame({"id": range(ROWS), "kind": KINDS, "x": values})
    return lambda folder: rows.write_parquet(folder / "a.parquet")


def by_duckdb(value: str) -> Write:
    kinds = "list_element(['buy', 'view', 'click', 'scroll'], 1 + i % 4)"
    query = f"SELECT i AS id, {kinds} AS kind, {value} AS x FROM range({ROWS}) AS r(i)"

    def write(folder: Path) -> None:
        with duckdb.connect() as connection:
            connection.execute(f"COPY ({query}) TO '{folder}/a.parquet' (FORMAT parquet)")

    return write


def together(*writes: Write) -> Write:
    def write(folder: Path) -> None:
        for each in writes:
            each(folder)

    return write


def in_folders(*folders: str) -> Write:
    return together(*(arrow(f"{folder}/{place}.parquet") for place, folder in enumerate(folders)))


def by_text(name: str, text: str) -> Write:
    return together(arrow(), lambda folder: (folder / name).write_text(text))


STRUCTS = [{"at": minute, "n": 1} for minute in MINUTES]
DURATIONS = [dt.timedelta(seconds=i) for i in range(ROWS)]

# The type of column x, and its values where these are others than in the file.
TAKEN: dict[str, tuple[Write, str, list[Any] | None]] = {
    "plain": (arrow(), "", None),
    "int96": (by_arrow(pa.timestamp("us"), MINUTES, use_deprecated_int96_timestamps=True), "timestamp", None),
    "int96 in structs": (
        by_arrow(pa.struct({"at": pa.timestamp("us"), "n": pa.int32()}), STRUCTS, use_deprecated_int96_timestamps=True),
        "struct<at:timestamp,n:int>",
        None,
    ),
    "int96 in lists": (
        by_arrow(pa.list_(pa.timestamp("us")), [[m] for m in MINUTES], use_deprecated_int96_timestamps=True),
        "array<timestamp>",
        None,
    ),
    "pandas times": (by_pandas(pd.Series(MINUTES).astype("datetime64[ns]")), "timestamp_ntz", MINUTES),
    "pandas times with a zone": (by_pandas(pd.Series(MINUTES).dt.tz_localize("UTC")), "timestamp", None),
    "pandas NULLs": (by_pandas(NULLS), "int", NULLS),
    "pandas durations": (by_pandas(pd.to_timedelta(range(ROWS), unit="s")), "bigint", None),
    "pandas categories": (by_pandas(pd.Categorical(KINDS)), "string", KINDS),
    "pandas periods": (by_pandas(pd.period_range("2026-01", periods=ROWS, freq="M")), "bigint", None),
    "polars NULLs": (by_polars(NULLS), "int", NULLS),
    "polars lists of NULLs": (by_polars([[None]] * ROWS), "array<int>", [[None]] * ROWS),
    "polars times": (by_polars(MINUTES), "timestamp_ntz", MINUTES),
    "polars nanoseconds": (by_polars(pl.Series(MINUTES).cast(pl.Datetime("ns"))), "timestamp_ntz", MINUTES),
    "polars durations": (by_polars(DURATIONS), "bigint", [i * 1_000_000 for i in range(ROWS)]),
    "polars arrays": (by_polars(pl.Series([[1, 2]] * ROWS, dtype=pl.Array(pl.Int32, 2))), "array<int>", None),
    "duckdb NULLs": (by_duckdb("NULL"), "int", NULLS),
    "duckdb HUGEINT": (by_duckdb("i::HUGEINT"), "double", [float(i) for i in range(ROWS)]),
    "duckdb JSON": (by_duckdb("'{}'::JSON"), "string", ["{}"] * ROWS),
    "duckdb nanoseconds": (by_duckdb("TIMESTAMP_NS '2026-01-01'"), "timestamp_ntz", [MINUTES[0]] * ROWS),
    "duckdb enums": (by_duckdb("'a'::ENUM('a')"), "string", ["a"] * ROWS),
    "nested enums": (by_enums([{"e": kind} for kind in KINDS]), "struct<e:string>", [{"e": kind} for kind in KINDS]),
    "structs with NULLs": (by_arrow(None, [{"a": None, "b": 1}] * ROWS), "struct<a:int,b:bigint>", None),
    "nanoseconds in lists": (
        by_arrow(pa.list_(pa.timestamp("ns")), [[minute] for minute in MINUTES]),
        "array<timestamp_ntz>",
        None,
    ),
    "json type": (extension(pa.json_(), ["{}"] * ROWS), "string", ["{}"] * ROWS),
    "bool8 type": (extension(pa.bool8(), [1] * ROWS), "tinyint", [1] * ROWS),
    "decimal256 of few digits": (by_arrow(pa.decimal256(20, 2), [Decimal(7)] * ROWS), "decimal(20,2)", None),
    "brotli": (arrow(compression="brotli"), "", None),
    "hive": (arrow("000000_0"), "", None),
    "trino": (arrow("20260101_000000_00000_abcde_0"), "", None),
    "impala": (arrow("a.0.parq"), "", None),
    "pq": (arrow("a.pq"), "", None),
    "capitals": (arrow("A.PARQUET"), "", None),
    "a column added": (together(arrow(), by_arrow(pa.int32(), [1] * ROWS), arrow("b.parquet")), "int", None),
    "a column added later": (
        together(arrow(), arrow("b.parquet", pa.array([1] * ROWS, pa.int32()))),
        "int",
        [1] * ROWS + NULLS,
    ),
}  # fmt: skip

REFUSED: dict[str, tuple[Write, str]] = {
    "pandas times of day": (by_pandas([dt.time(1)] * ROWS), "column 'x': the type TIME can't be stored; cast"),
    "times of milliseconds": (
        by_arrow(pa.time32("ms"), [dt.time(1)] * ROWS),
        "column 'x': the type TIME can't be stored",
    ),
    "decimals of more digits": (
        together(
            by_arrow(pa.decimal128(10, 2), [Decimal(1)] * ROWS),
            arrow("b.parquet", pa.array([Decimal(1)] * ROWS, pa.decimal128(12, 2))),
        ),
        r"the column 'x' is decimal\(10,2\) in other files of the source, but decimal\(12,2\) in '.*b.parquet'; write",
    ),
    "polars Int128": (by_polars(pl.Series(range(ROWS), dtype=pl.Int128)), "64 bits not implemented"),
    "duckdb INTERVAL": (by_duckdb("to_days(i::INTEGER)"), "column 'x': the type INTERVAL can't be stored; cast"),
    "duckdb UUID": (by_duckdb("uuid()"), "column 'x': the type UUID can't be stored; cast"),
    "uuid type": (extension(pa.uuid(), [uuid.UUID(int=1).bytes] * ROWS), "column 'x': the type UUID can't"),
    "half floats": (by_arrow(pa.float16(), [1.0] * ROWS), "column 'x': the type FLOAT16 can't be stored; cast"),
    "decimal256": (by_arrow(pa.decimal256(50, 2), [Decimal(7)] * ROWS), "column 'x': .* more than 38 digits; cast"),
    "structs with times of day": (by_arrow(None, [{"a": dt.time(1)}] * ROWS), "column 'x.a': the type TIME"),
    "two types": (
        together(by_arrow(pa.int32(), [1] * ROWS), arrow("b.parquet", pa.array([1] * ROWS))),
        "the column 'x' is int in other files of the source, but bigint in '.*b.parquet'; write them again",
    ),
    "no value": (in_folders("p=", "p=a"), "the folder 'p=' has no value after 'p='; rename it"),
    "other names": (in_folders("p=a", "q=a"), "the folders 'p=a' and 'q=a' of the source have different columns"),
    "other order": (in_folders("p=a/q=b", "q=b/p=a"), "have their columns in different orders"),
    "other depth": (
        in_folders("p=a", "p=a/q=b"),
        "the folders 'p=a' and 'p=a/q=b' of the source have different depths",
    ),
    "beside folders": (in_folders(".", "p=a"), "the folders '.' and 'p=a' of the source have different depths"),
    "below folders": (in_folders("one", "two"), "Spark reads no file of the folder 'one'; move its files up"),
    "other files": (by_text("notes.txt", "none"), "notes.txt' is not a valid Parquet file"),
    "empty files": (by_text("b.parquet", ""), "b.parquet' is not a valid Parquet file"),
}

# Those of the refused whose folders are the problem.
FOLDERS = ("no value", "other names", "other order", "other depth", "beside folders", "below folders")


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder beside a log."""
    monkeypatch.chdir(tmp_path)
    log = "SELECT id FROM t WHERE kind = 'buy';\nSELECT id FROM t WHERE id < 9 AND kind = 'view';\n" * 3
    Path("log.sql").write_text(log)
    (tmp_path / "rows").mkdir()
    return tmp_path / "rows"


def run(*words: object, code: int = DONE) -> None:
    assert main(list(map(str, words))) == code


def analyze(source: Path, code: int = DONE) -> None:
    run("analyze", "log.sql", "--schema", source, "--threshold", 1, "-o", "features.json", code=code)


@pytest.mark.parametrize("name", one_in(2, TAKEN.keys()))
def test_tables_are_taken(source: Path, name: str) -> None:
    write, type, values = TAKEN[name]
    write(source)
    analyze(source)
    run("plan", source, "--features", "features.json", "--method", "input-order", "--block-rows", 8, "-o", "plan.json")
    run("load", source, "table", "--plan", "plan.json", "--executor", "local")
    run("query", "table", "SELECT count(*) FROM t WHERE kind = 'buy'")
    run("verify", "table")
    table = open_table("table")
    types = {column.name: column.type for column in table.schema.columns}
    assert types == {"id": "bigint", "kind": "string"} | ({"x": type} if type else {})
    files = [pq.read_table(file, coerce_int96_timestamp_unit="us") for file in sorted(source.iterdir())]
    rows = pa.concat_tables(files, promote_options="default")
    assert table.rows == rows.num_rows
    if type:
        loaded = table.sql("SELECT x FROM t")["x"].to_pylist()
        expected = values
        if expected is None:
            stored = any_arrow_type(type)
            expected = pa.concat_arrays(rows["x"].chunks).cast(stored).to_pylist()
        assert sorted(map(str, loaded)) == sorted(map(str, expected))

    shutil.copytree(source, "more")
    run("append", "table", "more", "--executor", "local")
    assert open_table("table").rows == 2 * rows.num_rows


@pytest.mark.parametrize("name", REFUSED)
def test_tables_are_refused_by_analyze(source: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    write, says = REFUSED[name]
    write(source)
    analyze(source, BAD_USAGE)
    said = capsys.readouterr().err
    assert re.search(says, said), said
    assert said.count("\n") == 1


@pytest.mark.parametrize("name", FOLDERS)
def test_folders_are_refused_by_index(source: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    write, says = REFUSED[name]
    write(source)
    run("index", source, "--into", "indexes", code=BAD_USAGE)
    assert re.search(says, capsys.readouterr().err)
    assert not Path("indexes").exists()


@pytest.mark.parametrize("executor", [(), ("--executor", "local")])
def test_nanoseconds_that_are_no_microseconds_are_refused(
    source: Path, capsys: pytest.CaptureFixture[str], executor: tuple[str, ...]
) -> None:
    by_arrow(pa.timestamp("ns"), [i * 1001 for i in range(ROWS)])(source)
    analyze(source)
    run("plan", source, "--features", "features.json", "--method", "input-order", "-o", "plan.json")
    run("load", source, "table", "--plan", "plan.json", *executor, code=BAD_USAGE)
    assert "column 'x' has times of nanoseconds" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["pandas times", "brotli"])
def test_what_spark_cannot_read_is_loaded_without_it(
    source: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    TAKEN[name][0](source)
    analyze(source)
    run("plan", source, "--features", "features.json", "--method", "input-order", "-o", "plan.json")
    run("load", source, "table", "--plan", "plan.json", "--executor", "spark", code=BAD_USAGE)
    assert "which Spark can't read; give --executor local" in capsys.readouterr().err
    run("load", source, "table", "--plan", "plan.json")
    run("verify", "table", "--source", source, code=BAD_USAGE)
    assert "leave out --source" in capsys.readouterr().err
    assert open_table("table").rows == ROWS


def test_date_filters_alone_make_a_plan(source: Path) -> None:
    days = pa.array([minute.date() + dt.timedelta(days=i) for i, minute in enumerate(MINUTES)], pa.date32())
    arrow(values=days)(source)
    Path("log.sql").write_text("SELECT id FROM t WHERE x >= '2026-01-05' AND x < '2026-01-09';\n" * 4)
    run("analyze", "log.sql", "--schema", source, "-o", "features.json")
    run("plan", source, "--features", "features.json", "--block-rows", 8, "-o", "plan.json")
    run("load", source, "table", "--plan", "plan.json", "--executor", "local")
    assert json.loads(Path("plan.json").read_text())["predicted"]
    assert open_table("table").sql("SELECT count(*) AS n FROM t WHERE x < '2026-01-09'")["n"].to_pylist() == [8]
