"""The blocks of a load are the same bytes by any executor, of files that Arrow reads and of rows that are spooled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from layoutopt.errors import NeedsSparkError
from layoutopt.external.external_tables import read_schema
from layoutopt.loading import load as loading
from layoutopt.loading.load import run_load
from layoutopt.loading.local_source import open_door
from layoutopt.model.requests import LoadRequest
from layoutopt.sources import listing, shuffle
from layoutopt.spark.core import workers
from layoutopt.spark.loading import load as spark_load
from layoutopt.spark.loading import spool
from tests.effort import examples
from tests.same_blocks import digest_data, numbered_loads
from tests.scan.builder import building
from tests.spark.settings import under

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("uncompiled")]

SETTINGS: tuple[dict[str, str], ...] = (
    {},
    {"spark.sql.execution.arrow.maxRecordsPerBatch": "7", "spark.sql.shuffle.partitions": "3"},
    {"spark.sql.session.timeZone": "UTC", "spark.sql.adaptive.enabled": "false"},
)


def refuse(*_: object, **__: object) -> Any:
    raise NeedsSparkError("a test lets Spark read everything")


@settings(max_examples=examples(10), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    n=st.integers(1, 200),
    group_rows=st.integers(5, 100),
    by=st.sampled_from([None, "kind"]),
    segment_rows=st.sampled_from([40, 1000]),
    number=st.sampled_from(range(len(SETTINGS))),
    group_bytes=st.sampled_from([1, 1 << 25]),
    most_read=st.sampled_from([0, 99]),
    cores=st.sampled_from([1, 3, 16]),
    most_held=st.sampled_from([1, 1 << 20]),
)
def test_blocks_are_the_same_by_any_executor(
    spark: SparkSession,
    n: int,
    group_rows: int,
    by: str | None,
    segment_rows: int,
    number: int,
    group_bytes: int,
    most_read: float,
    cores: int,
    most_held: int,
) -> None:
    kinds = pa.array(np.random.default_rng(n).integers(0, 4, n), pa.int32())
    rows = pa.table({"id": pa.array(range(n), pa.int64()), "kind": kinds, "text": [str(i % 7) for i in range(n)]})
    rows = rows.append_column("list", pa.array([[i, None] if i % 3 else None for i in range(n)], pa.list_(pa.int32())))
    with TemporaryDirectory() as folder, under(spark, SETTINGS[number]), pytest.MonkeyPatch.context() as patch:
        source = str(Path(folder, "rows.parquet"))
        pq.write_table(rows, source, row_group_size=group_rows)
        plan = building(read_schema(source), ("id < 30", "kind = 2"), partition_by=by, segment_rows=segment_rows).plan
        Path(folder, "plan.json").write_bytes(plan.dumps())

        def load_by(name: str, load: Callable[[LoadRequest], object]) -> str:
            table = Path(folder, name)
            with numbered_loads():
                load(LoadRequest(source=source, table_path=str(table), plan=Path(folder, "plan.json")))
            return digest_data(table)

        digests = {load_by("local", lambda request: run_load(open_door, request))}
        patch.setattr(listing, "_SPLIT_BYTES", 1)
        patch.setattr(shuffle, "_MOST_READ", most_read)
        patch.setattr(workers.SparkTasks, "cores", property(lambda _: cores))
        patch.setattr(loading, "_MOST_HELD", most_held)
        digests.add(load_by("tasks", lambda request: spark_load.run_load(spark, request)))
        patch.setattr(spool, "_GROUP_BYTES", group_bytes)
        patch.setattr(spark_load, "open_in_tasks", refuse)
        digests.add(load_by("spooled", lambda request: spark_load.run_load(spark, request)))
        assert len(digests) == 1
        assert not list(Path(folder).glob("*/_layoutopt/spool-*"))
