from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.bench.rewrite import rewritten_bytes, spark_rewrite_seconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    for part in range(2):
        numbers = pa.table({"n": pa.array(range(part * 1000, part * 1000 + 1000)), "text": ["x"] * 1000})
        pq.write_table(numbers, folder / f"part-{part}.parquet")
    return folder


def test_rewriting_keeps_rows_and_order_in_row_groups_of_the_given_size(source: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.parquet"
    original = Path.unlink

    def keep(path: Path, missing_ok: bool = False) -> None:
        path.rename(kept) if path.name == "scratch.parquet" else original(path, missing_ok)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "unlink", keep)
        size = rewritten_bytes(source, tmp_path / "scratch.parquet", group_rows=300)
    file = pq.ParquetFile(kept)
    assert size == kept.stat().st_size
    assert [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)] == [300] * 6 + [200]
    assert file.read().column("n").to_pylist() == list(range(2000))


def test_small_row_groups_cost_bytes_and_nothing_is_left_behind(source: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch.parquet"
    assert rewritten_bytes(source, scratch, 50) > rewritten_bytes(source, scratch, 2000)
    assert not scratch.exists()


@pytest.mark.spark
def test_sparks_rewrite_takes_time_and_leaves_nothing(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    assert spark_rewrite_seconds(spark, source, tmp_path / "scratch") > 0
    assert not (tmp_path / "scratch").exists()
