"""Tables changed behind their catalog, and what `verify` finds of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from layoutopt.catalog import snapshot as snapshot_json
from layoutopt.catalog.paths import FileDigest
from layoutopt.inspect.verify import verify
from layoutopt.scan.table import open_table
from layoutopt.spark.loading.verify import spark_file_checker

Change = Callable[[pa.Table, list[int]], pa.Table]


def found(table: Path) -> set[tuple[str, str]]:
    """The problems: each check, and the file in which it failed. Spark's tasks find the same, to the last word."""
    opened = open_table(str(table))
    report = verify(opened)
    assert verify(opened, checker=spark_file_checker(SparkSession.active())) == report
    return {(problem.check, Path(problem.file).name) for problem in report.problems}


def recommit(table: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Change the newest load's blocks as if a loader had committed them so, digests and all."""
    before = open_table(str(table)).catalog.snapshot
    (file,) = (table / "_layoutopt/blocks").iterdir()
    pq.write_table(change(pq.read_table(file)), file)
    data = file.read_bytes()
    files = {p: FileDigest.of(data) if p.startswith("_layoutopt/blocks/") else d for p, d in before.files.items()}
    snapshot = table / "_layoutopt/snapshots" / f"{before.number}.json"
    snapshot.write_bytes(snapshot_json.dumps(replace(before, files=files)))


def rewrite(file: Path, change: Change) -> None:
    """Write a file's changed content with row groups of the sizes that it had; the catalog knows no footers then."""
    recommit(file.parents[4], lambda blocks: blocks.drop_columns(["footer"]))
    metadata = pq.read_metadata(file)
    sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    content, start = change(pq.read_table(file), sizes), 0
    with pq.ParquetWriter(file, content.schema) as writer:
        for size in sizes:
            writer.write_table(content.slice(start, size), row_group_size=size)
            start += size
