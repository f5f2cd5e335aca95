"""What loads are measured against: the same Parquet rewritten as it is, in time by Spark and in bytes by row group."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def spark_rewrite_seconds(spark: SparkSession, source: Path, scratch: Path, codec: str = "zstd") -> float:
    """Measure how long Spark takes to read a Parquet folder and write it again; what it wrote is deleted.

    Args:
        spark: the session to run in.
        source: the Parquet folder.
        scratch: a folder to write to, replaced.
        codec: the compression.
    """
    started = time.perf_counter()
    spark.read.parquet(str(source)).write.mode("overwrite").option("compression", codec).parquet(str(scratch))
    seconds = time.perf_counter() - started
    shutil.rmtree(scratch)
    return seconds


def rewritten_bytes(source: Path, scratch: Path, group_rows: int, codec: str = "zstd") -> int:
    """Count the bytes of a Parquet folder rewritten in its own order with row groups of `group_rows`, as pyarrow does.

    Args:
        source: the Parquet folder.
        scratch: a file to write to; deleted afterwards.
        group_rows: the rows of every row group but the last.
        codec: the compression.
    """
    dataset = ds.dataset(source, format="parquet")
    scratch.parent.mkdir(parents=True, exist_ok=True)
    waiting: pa.Table = dataset.schema.empty_table()
    with pq.ParquetWriter(scratch, dataset.schema, compression=codec) as writer:
        for batch in dataset.to_batches(batch_size=max(group_rows, 64_000)):
            waiting = pa.concat_tables([waiting, pa.Table.from_batches([batch])])
            whole = waiting.num_rows // group_rows * group_rows
            writer.write_table(waiting.slice(0, whole), row_group_size=group_rows)
            waiting = waiting.slice(whole)
        writer.write_table(waiting, row_group_size=group_rows)
    size = scratch.stat().st_size
    scratch.unlink()
    return size
