"""The work that ``bench cluster`` times, submitted to Spark with each shape of cluster: loads, and one reading of all.

``spark-submit cluster_job.py SOURCE PLAN FOLDER ROUNDS`` prints one JSON object: of each round the seconds of ``load``
and ``verify``, and ``content``, a digest of the blocks that were written.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
from pathlib import Path

from layoutopt.config.documents import read_plan
from layoutopt.inspect.verify import verify
from layoutopt.scan.table import Table, open_table
from layoutopt.spark.core.sessions import spark_session
from layoutopt.spark.loading.load import load
from layoutopt.spark.loading.verify import in_spark

MARK = "CLUSTER "
"""What the line with the result begins with: Spark's own lines are beside it."""


def content_of(table: Table) -> str:
    """A digest of what the blocks hold, and how many bytes each column takes in each; not of their numbers and paths.

    Numbers and paths have the load's random id in them.
    """
    found = hashlib.sha256()
    for source in table.sources:
        blocks = source.blocks
        for values in (source.entry_of, blocks.segment, blocks.layout, blocks.part, blocks.rows, blocks.words):
            found.update(values.tobytes())
        for name in source.plan.schema.names:
            for values in (blocks.column_bytes(name), blocks.column_sums(name), blocks.column_tid_sums(name)):
                found.update(values.tobytes())
    return found.hexdigest()


def run(source: str, plan: Path, folder: Path, rounds: int) -> dict[str, object]:
    """Load a table and read it again, several times; the first warms everything up and does not count."""
    spark = spark_session("layoutopt-cluster")
    planned, seconds, contents = read_plan(plan), [], set()
    for number in range(rounds + 1):
        table = folder / str(number)
        started = time.perf_counter()
        load(spark, source, table, planned)
        loaded = time.perf_counter()
        opened = open_table(str(table))
        report = verify(opened, checker=in_spark(spark))
        assert report.ok, report.problems
        seconds.append({"load": loaded - started, "verify": time.perf_counter() - loaded})
        contents.add(content_of(opened))
        shutil.rmtree(table)
    assert len(contents) == 1, "the same load made other blocks"
    spark.stop()
    return {"rounds": seconds[1:], "content": contents.pop()}


if __name__ == "__main__":
    source, plan, folder, rounds = sys.argv[1:]
    sys.stdout.write(f"\n{MARK}{json.dumps(run(source, Path(plan), Path(folder), int(rounds)))}\n")
