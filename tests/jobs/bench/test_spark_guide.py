"""The Spark session of the guide does what it says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from jobs.bench.tpch import TpchData
from jobs.bench.tpch_queries import TABLE
from layoutopt.spark import disable, enable, last_scans, unregister
from layoutopt.sql.schema import schema_from
from tests.scan.builder import build, building
from tests.spark.settings import compared_here

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

PAGE = Path(__file__).parents[3] / "docs" / "guides" / "spark.md"
SESSION = re.compile(r"<!-- spark session -->\s*```python\n(.*?)```", re.DOTALL)
# What the queries of a log like this session's filter by; the builder cuts blocks by them.
FEATURES = ("sr_name = 'ASIA'", "l_shipmode = 'AIR'", "l_returnflag = 'R'")


@pytest.fixture
def table(tpch: TpchData, tmp_path: Path) -> Path:
    """TPC-H by year, in blocks by some features."""
    made = building(schema_from(str(tpch.denormalised)), FEATURES, partition_by="o_year", segment_rows=5_000)
    rows = pq.read_table(tpch.denormalised)
    build(tmp_path / "table", rows, replace(made, plan=replace(made.plan, table=TABLE)))
    return tmp_path / "table"


@pytest.fixture
def cleaned(spark: SparkSession) -> Iterator[None]:
    before = {view.tableName for view in spark.sql("SHOW TABLES").collect()}
    yield
    disable(spark)
    unregister(spark, TABLE)
    for view in spark.sql("SHOW TABLES").collect():
        if view.isTemporary and view.tableName not in before:
            spark.catalog.dropTempView(view.tableName)


def answer(session: SparkSession, sql: str) -> list[Row]:
    return sorted(session.sql(sql).collect())


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.usefixtures("cleaned")
def test_the_session_of_the_guide(spark: SparkSession, tpch: TpchData, table: Path) -> None:
    (code,) = SESSION.findall(PAGE.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"TABLE": str(table), "RAW": str(tpch.raw)}
    with redirect_stdout(StringIO()) as printed:
        exec(compile(code, str(PAGE), "exec"), names)
    assert names["spark"] is spark
    assert printed.getvalue().count("blocks skipped by partition") == len(names["queries"]) > 1
    source = spark.newSession()
    for path in tpch.raw.glob("*.parquet"):
        source.read.parquet(str(path)).createOrReplaceTempView(path.stem)
    source.read.parquet(str(tpch.denormalised)).createOrReplaceTempView(TABLE)
    for sql in names["queries"].values():
        truth = answer(source, sql)
        assert answer(spark, sql) == truth, "disabled, as the session leaves it"
        assert not last_scans(spark)
        enable(spark)
        with compared_here():
            assert answer(spark, sql) == truth
        (scan,) = last_scans(spark)
        assert min(scan.skipped_by[name].blocks for name in ("partition", "features")) > 0
        disable(spark)
