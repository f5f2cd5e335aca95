from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from jobs.bench.tpch import TpchData, prepare
from jobs.bench.tpch_queries import NATIONS, REGION_OF_NATION, STREAMS, TEMPLATES, draw_stream
from layoutopt.cli.demo import generate
from layoutopt.errors import SettingError, SourceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCALE = 0.01
needs_generator = pytest.mark.skipif(
    shutil.which("tpchgen-cli", path=str(Path(sys.executable).parent)) is None, reason="tpchgen-cli is not installed"
)


@pytest.fixture
def data(spark: SparkSession, tpch: TpchData) -> TpchData:
    said: list[str] = []
    prepare(spark, tpch, said.append)
    assert said == []  # what is there is not made again
    return tpch


@pytest.mark.parametrize("scale", [0.0, -1.0, 0.009, 1001.0, float("nan")])
def test_a_scale_factor_out_of_range_is_refused(scale: float) -> None:
    with pytest.raises(SettingError, match="scale factor"):
        TpchData(scale)


def test_a_failing_generator_leaves_no_raw_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("layoutopt.cli.demo.find_generator", lambda: shutil.which("false"))
    with pytest.raises(SourceError, match=r"tpchgen-cli failed at scale factor 0\.01"):
        generate(SCALE, TpchData(SCALE, tmp_path).raw)
    assert not TpchData(SCALE, tmp_path).raw.exists()


@needs_generator
@pytest.mark.spark
def test_the_denormalised_table_has_every_line_item_once_in_order(data: TpchData) -> None:
    wide = pq.read_table(data.denormalised)
    lines = pq.read_table(data.raw / "lineitem.parquet")
    assert wide.num_columns == 60
    for name in ("l_orderkey", "l_linenumber", "l_comment"):
        assert wide.column(name).to_pylist() == lines.column(name).to_pylist()
    assert wide.column("o_orderkey").to_pylist() == wide.column("l_orderkey").to_pylist()
    assert wide.column("ps_suppkey").to_pylist() == wide.column("l_suppkey").to_pylist()
    dates = wide.column("o_orderdate").to_pylist()
    assert wide.column("o_month").to_pylist() == [date.year * 100 + date.month for date in dates]
    assert wide.column("o_year").to_pylist() == [date.year for date in dates]


@pytest.mark.long
@needs_generator
@pytest.mark.spark
def test_runs_of_orders_make_the_same_table(
    spark: SparkSession, data: TpchData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.bench.tpch._KEYS_A_RUN", 35_000)  # of 60,000
    made, said = TpchData(SCALE, tmp_path), list[str]()
    shutil.copytree(data.raw, made.raw)
    (made.folder / "denorm.unfinished").mkdir()
    (made.folder / "denorm.unfinished" / "of-a-run-that-died.parquet").touch()
    prepare(spark, made, said.append)
    assert said == ["denormalising onto lineitem with Spark"]
    assert {path.name for path in made.folder.iterdir()} == {"raw", "denorm"}
    assert pq.read_table(made.denormalised).equals(pq.read_table(data.denormalised)), "as DuckDB has it"
    assert {path.name[:9] for path in made.denormalised.iterdir()} == {"run-00000", "run-00001"}


@needs_generator
@pytest.mark.spark
def test_nations_and_regions_are_those_of_customer_and_supplier(data: TpchData) -> None:
    wide = pq.read_table(data.denormalised).select(
        ["c_nationkey", "cn_name", "cr_name", "s_nationkey", "sn_name", "sr_name"]
    )
    for row in wide.slice(0, 5000).to_pylist():
        assert (row["cn_name"], row["sn_name"]) == (NATIONS[row["c_nationkey"]], NATIONS[row["s_nationkey"]])
        assert (row["cr_name"], row["sr_name"]) == (REGION_OF_NATION[row["cn_name"]], REGION_OF_NATION[row["sn_name"]])


@needs_generator
@pytest.mark.spark
def test_every_template_is_valid_spark_sql_on_the_table(spark: SparkSession, data: TpchData) -> None:
    spark.read.parquet(str(data.denormalised)).createOrReplaceTempView("tpch")
    every = {name for stream in STREAMS.values() for name in stream.templates}
    assert every == set(TEMPLATES)
    for stream in (STREAMS["chapter3"], STREAMS["chapter5"]):
        for query in draw_stream(stream, "test", 1, seed=1):
            assert spark.sql(query.sql).schema is not None  # analysed: columns and types resolve
