"""Advice on tables of every format: what is read now and would be, and that nothing is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog.memory import InMemoryCatalog

from layoutopt.cli.app import main
from layoutopt.cli.console import BAD_USAGE
from layoutopt.errors import PlanError
from layoutopt.external.snapshot import parquet_files
from layoutopt.model.requests import AdviseRequest
from layoutopt.planning import advise as layouts_tried
from layoutopt.spark.core.source import open_source, schema_of
from layoutopt.spark.planning.advise import advise, select_file_rows
from tests.effort import long_too

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from layoutopt.advice import Advice

ROWS = 4_000
KINDS = 8


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    """Kinds scattered over two years of rows; texts that no query reads."""
    ids = np.arange(ROWS)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "kind": pa.array(ids * 7919 % KINDS, pa.int32()),
            "price": pa.array(np.random.default_rng(0).integers(0, 1_000, ROWS), pa.int32()),
            "note": [f"note {i * 7919}" for i in ids.tolist()],
            "year": pa.array(1994 + ids * 2 // ROWS, pa.int32()),
        }
    )


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two statements in three ask for one kind, the others for a year and a price; ten days, each ran twenty times."""
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    texts = [
        f"SELECT id, price FROM events WHERE kind = {i % KINDS}"
        if i % 3
        else f"SELECT id FROM events WHERE year = 1994 AND price < {10 + i}"
        for i in range(30)
    ]
    lines = [{"count": 20, "sql": sql, "timestamp": f"2026-11-{1 + i // 3:02}T10:00:00"} for i, sql in enumerate(texts)]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return path


def parquet(rows: pa.Table, root: Path) -> str:
    pq.write_to_dataset(rows, root, partition_cols=["year"])
    return str(root)


def delta(rows: pa.Table, root: Path) -> str:
    write_deltalake(root, rows, partition_by=["year"])
    return f"delta:{root}"


def iceberg(rows: pa.Table, root: Path) -> str:
    root.mkdir()
    catalog = InMemoryCatalog("c", warehouse=str(root))
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", rows.schema)
    table.append(rows)
    return f"iceberg:{table.metadata_location}"


def content(root: Path) -> dict[Path, tuple[bytes, int]]:
    """Every file, with its bytes and when it was changed."""
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in root.rglob("*") if path.is_file()}


def advised(spark: SparkSession, source: str, log: Path, **asked: object) -> Advice:
    values: dict[str, Any] = {"source": source, "log": str(log), "block_rows": 200, **asked}
    return advise(spark, AdviseRequest(**values))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("make", "partition_by", "asked", "engines"),
    [
        (delta, "year", (), {"spark-delta", "databricks"}),
        *long_too(
            (parquet, "year", ("redshift", "ducklake"), {"redshift", "ducklake"}), (iceberg, None, (), {"iceberg"})
        ),
    ],
)
def test_a_table_of_any_format_is_advised_on_and_left_alone(
    make: Callable[[pa.Table, Path], str],
    partition_by: str | None,
    asked: tuple[str, ...],
    engines: set[str],
    rows: pa.Table,
    log: Path,
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(layouts_tried, "LOAD_METHODS", ("cuts", "sop"))
    source = make(rows, tmp_path / "table")
    before = content(tmp_path)
    found = advised(spark, source, log, engine=asked)
    assert content(tmp_path) == before
    assert (found.table, found.rows, found.queries, found.skipped) == ("events", ROWS, 600, 0)
    assert (found.partition_by, found.files) == (partition_by, 1 if partition_by is None else 2)
    assert found.stored <= sum(len(data) for path, (data, _) in before.items() if path.suffix == ".parquet")
    assert (found.now.share < 1) == (partition_by is not None)  # a third of the queries read one of two years
    assert found.recommended is not None
    assert found.recommended.reads.share < 0.6 * found.now.share
    assert found.period.name == "month"
    assert found.period.runs == pytest.approx(600 / 9 * 365.25 / 12)
    assert {said.engine for said in found.statements} == engines
    assert all(
        said.gives_away >= 0 for said in found.statements if found.recommended.method in layouts_tried.LOAD_METHODS
    )


@pytest.mark.spark
def test_what_folders_stand_for_may_be_all_that_queries_filter_by(
    rows: pa.Table, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layouts_tried, "LOAD_METHODS", ("cuts",))
    (tmp_path / "log.sql").write_text("SELECT id FROM events WHERE year = 1994;" * 4, encoding="utf-8")
    found = advised(spark, parquet(rows, tmp_path / "table"), tmp_path / "log.sql")
    assert found.now.share == pytest.approx(0.5, rel=0.02)
    assert found.statements == ()  # there is nothing to order by within a partition


@pytest.mark.spark
def test_a_source_without_rows_is_refused(tmp_path: Path, log: Path, rows: pa.Table, spark: SparkSession) -> None:
    pq.write_table(rows.slice(0, 0), tmp_path / "none.parquet")
    with pytest.raises(PlanError, match="no rows to advise on"):
        advised(spark, str(tmp_path / "none.parquet"), log)


@pytest.mark.spark
def test_arrow_and_spark_advise_alike(
    rows: pa.Table, log: Path, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layouts_tried, "LOAD_METHODS", ("cuts", "sop"))
    source = parquet(rows, tmp_path / "table")
    by_spark = advised(spark, source, log)
    settings = AdviseRequest(source=source, log=str(log), block_rows=200)
    by_arrow = advise(lambda: pytest.fail("Spark is started"), settings)
    known = [replace(of, layouts=(), recommended=None, statements=()) for of in (by_arrow, by_spark)]
    assert known[0] == known[1]
    # They draw other rows to try layouts on.
    shares = [{layout.method: layout.reads.share for layout in of.layouts} for of in (by_arrow, by_spark)]
    assert shares[0] == pytest.approx(shares[1], rel=0.15)
    assert [said.engine for said in by_arrow.statements] == [said.engine for said in by_spark.statements]


@pytest.mark.spark
def test_some_files_are_read_as_they_are_named(rows: pa.Table, tmp_path: Path, spark: SparkSession) -> None:
    source = parquet(rows, tmp_path / "a table=1")
    opened = open_source(spark, source)
    files = parquet_files(opened.inputFiles(), schema_of(opened))
    assert [file.constants["year"] for file in files] == ["1994", "1995"]
    for file in files:
        (year,) = select_file_rows(opened, source, [file]).select("year").distinct().collect()
        assert str(year["year"]) == file.constants["year"]


@pytest.mark.parametrize(
    ("text", "flags", "said"),
    [
        ("", [], "holds no query"),
        ("SELECT id FROM events WHERE nothing = 1;", [], "can be used on the table 'events'"),
        ("SELECT id FROM events WHERE kind = 1;", [], "the 1 usable queries"),
        ("SELECT id FROM events WHERE kind = 1;", ["--price-per-tb", "-5"], "price-per-tb = '-5'"),
        ("SELECT id FROM events WHERE kind = 1;", ["--queries-per-month", "0"], "queries-per-month = '0'"),
        ("SELECT id FROM events WHERE kind = 1;", ["--engine", "oracle"], "unknown engine 'oracle'"),
    ],
)
def test_bad_input_is_told_in_one_sentence_before_spark_is_waited_for(
    text: str,
    flags: list[str],
    said: str,
    rows: pa.Table,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("layoutopt.cli.layouts.start_spark", lambda session: pytest.fail("Spark is started"))
    (tmp_path / "log.sql").write_text(text, encoding="utf-8")
    pq.write_table(rows, tmp_path / "rows.parquet")
    assert main(["advise", str(tmp_path / "rows.parquet"), str(tmp_path / "log.sql"), *flags]) == BAD_USAGE
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1
