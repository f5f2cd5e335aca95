"""`bench cluster`: executors of their own make the same blocks, and other blocks are an error."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from layoutopt.bench.cluster import SHAPES, OtherBlocksError, cluster_report, compared, submit
from layoutopt.bench.cluster_job import content_of
from layoutopt.errors import LayoutoptError
from layoutopt.spark.loading.load import load
from tests.scan.builder import build, building, by_position
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows
from tests.spark.tables import plan_of, simple_document, simple_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def found(seconds: float, content: str = "a") -> list[dict[str, object]]:
    return [{"content": content, "rounds": [{"load": seconds * n, "verify": 1.0}]} for n in (1, 2, 9)]


def test_medians_are_compared() -> None:
    result = compared(dict(zip(SHAPES, (found(1.0), found(1.5)), strict=True)))
    assert result["ratio"] == {"load": 1.5, "verify": 1.0}
    assert cluster_report(result, 1).row_count == 3


def test_other_blocks_are_an_error() -> None:
    with pytest.raises(OtherBlocksError, match="other blocks"):
        compared(dict(zip(SHAPES, (found(1.0), found(1.0, "b")), strict=True)))


def test_contents_differ_by_blocks_and_values_not_by_loads(tmp_path: Path) -> None:
    rows = some_rows(120)
    plans = {
        "same": (rows, building(SCHEMA, CONDITIONS, blocking=by_position(10)), "load-1"),
        "again": (rows, building(SCHEMA, CONDITIONS, blocking=by_position(10)), "load-2"),
        "blocks": (rows, building(SCHEMA, CONDITIONS, blocking=by_position(11)), "load-1"),
        "rows": (some_rows(121).slice(1), building(SCHEMA, CONDITIONS, blocking=by_position(10)), "load-1"),
    }
    contents = {name: content_of(build(tmp_path / name, *made)) for name, made in plans.items()}
    assert contents["same"] == contents["again"]
    assert len(set(contents.values())) == 3


@pytest.mark.long
@pytest.mark.spark
def test_a_load_has_the_same_content_again(spark: SparkSession, tmp_path: Path) -> None:
    source = simple_rows(spark)
    plan = plan_of(simple_document(source), partition_by="day")
    tables = [load(spark, source, tmp_path / str(number), plan) and tmp_path / str(number) for number in range(2)]
    from layoutopt.scan.table import open_table

    assert len({content_of(open_table(str(table))) for table in tables}) == 1


@pytest.mark.long
@pytest.mark.spark
def test_two_executors_make_the_blocks_of_one(spark: SparkSession, tmp_path: Path) -> None:
    source = simple_rows(spark)
    source.write.parquet(str(tmp_path / "source"))
    (tmp_path / "plan.json").write_bytes(plan_of(simple_document(source), partition_by="day").dumps())
    made = {
        shape: [submit(master, *map(str, (tmp_path / "source", tmp_path / "plan.json", tmp_path / f"t{number}", 1)))]
        for number, (shape, master) in enumerate(SHAPES.items())
    }
    assert set(compared(made)["ratio"]) == {"load", "verify"}
    with pytest.raises(LayoutoptError, match="failed"):
        submit("local[1]", str(tmp_path / "nowhere"), str(tmp_path / "plan.json"), str(tmp_path / "t"), "1")
