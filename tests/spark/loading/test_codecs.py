"""Every codec that plans and the command line name is one that tables are loaded with and read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import pyarrow.parquet as pq
import pytest

from layoutopt.config.settings import PlanSettings
from layoutopt.inspect.verify import verify
from layoutopt.model.layout import CODECS
from layoutopt.scan.table import open_table
from layoutopt.spark.loading.load import load
from tests.effort import long_too
from tests.spark.tables import plan_of, simple_document, simple_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SOME = ("none", "lz4")  # the two that Parquet has other names for


def test_the_command_line_offers_those_that_plans_take() -> None:
    assert get_args(PlanSettings.model_fields["codec"].annotation) == CODECS


@pytest.mark.spark
@pytest.mark.parametrize("codec", [*SOME, *long_too(*(codec for codec in CODECS if codec not in SOME))])
def test_it_loads(spark: SparkSession, tmp_path: Path, codec: str) -> None:
    source = simple_rows(spark)
    plan = replace(plan_of(simple_document(source)), codec=codec)
    assert load(spark, source, tmp_path / "t", plan).rows == 400
    table = open_table(str(tmp_path / "t"))
    assert verify(table).ok
    assert table.scan(columns=table.schema.names).to_spark(spark).count() == 400
    (file, *_) = table.files()
    used = pq.read_metadata(tmp_path / "t" / file).row_group(0).column(0).compression
    assert used == {"none": "UNCOMPRESSED"}.get(codec, codec.upper())
