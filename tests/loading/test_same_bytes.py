"""The blocks of a load are the same bytes, however many tasks read its source, in whatever splits."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.external.external_tables import read_schema
from layoutopt.loading import local_source
from layoutopt.loading.load import run_load
from layoutopt.loading.local_source import open_door
from layoutopt.model.requests import LoadRequest
from layoutopt.sources import listing, shuffle, split
from layoutopt.sources.executor import Processes
from tests.effort import examples
from tests.same_blocks import digest_data, numbered_loads
from tests.scan.builder import building


def write(root: Path, rows: pa.Table, ends: list[int], format: str, group_rows: int) -> str:
    """Write rows to files that end at some rows, and return the source."""
    root.mkdir()
    for number, (start, stop) in enumerate(zip([0, *ends], [*ends, rows.num_rows], strict=True)):
        if format == "delta":
            write_deltalake(str(root), rows.slice(start, stop - start), mode="append")
        else:
            pq.write_table(rows.slice(start, stop - start), root / f"{number}.parquet", row_group_size=group_rows)
    return str(root) if format == "parquet" else f"delta:{root}"


@settings(max_examples=examples(20), deadline=None)
@given(
    n=st.integers(1, 300),
    ends=st.sets(st.integers(1, 299), max_size=3),
    format=st.sampled_from(["parquet", "delta"]),
    group_rows=st.integers(5, 100),
    by=st.sampled_from([None, "kind"]),
    segment_rows=st.sampled_from([40, 1000]),
)
def test_blocks_are_the_same_for_any_number_of_tasks_and_size_of_splits(
    n: int, ends: set[int], format: str, group_rows: int, by: str | None, segment_rows: int
) -> None:
    generator = np.random.default_rng(n)
    kinds = pa.array(generator.integers(0, 4, n), pa.int32())
    rows = pa.table({"id": pa.array(range(n), pa.int64()), "kind": kinds, "text": [str(i % 7) for i in range(n)]})
    with TemporaryDirectory() as folder:
        source = write(Path(folder, "rows"), rows, sorted(end for end in ends if end < n), format, group_rows)
        plan = building(read_schema(source), ("id < 30", "kind = 2"), partition_by=by, segment_rows=segment_rows).plan
        Path(folder, "plan.json").write_bytes(plan.dumps())
        digests = set()
        for cores, split_bytes, most_read, rows_at_once in ((1, 1 << 27, 1.25, 1 << 13), (2, 1, 0, 3), (2, 1, 99, 64)):
            with pytest.MonkeyPatch.context() as patch, numbered_loads():
                patch.setattr(local_source, "_choose_processes", lambda _, cores=cores: Processes(cores))
                patch.setattr(listing, "_SPLIT_BYTES", split_bytes)
                patch.setattr(shuffle, "_MOST_READ", most_read)
                patch.setattr(split, "_ROWS_AT_ONCE", rows_at_once)
                table = Path(folder, f"{cores}-{most_read}")
                plan_file = Path(folder, "plan.json")
                run_load(open_door, LoadRequest(source=source, table_path=str(table), plan=plan_file))
            digests.add(digest_data(table))
    assert len(digests) == 1
