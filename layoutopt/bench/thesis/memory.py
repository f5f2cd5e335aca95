"""The memory that a query takes: Arrow's at its peak, counted by a pool of the query's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import mean
from typing import TYPE_CHECKING

import pyarrow as pa

from layoutopt.bench.steps import Json, Step
from layoutopt.bench.thesis.timing import texts_of
from layoutopt.bench.tpch.experiment import Bench, Variant, table_folder, table_step

if TYPE_CHECKING:
    from layoutopt.scan.table import Table


def memory_step(bench: Bench, stream: str, variant: Variant) -> Step:
    """Run the queries that are timed on a variant's table, and note how much memory each took, in bytes."""
    folder = table_folder(bench, stream, variant)

    def make() -> Json:
        from layoutopt.scan.table import open_table

        return peaks_of(open_table(str(folder / "table")), texts_of(stream))

    return Step(
        f"{stream}: measuring the memory of queries on {variant.label}",
        folder / f"memory-{len(texts_of(stream))}.json",
        make,
        (table_step(bench, stream, variant),),
    )


def peaks_of(table: Table, texts: Sequence[str]) -> Json:
    """The most bytes that each query took: ``peaks``, their ``mean`` and ``most``; how many ``rows`` all have together.

    ``assembled`` says how many of the queries read several layouts.
    """
    table.sql(texts[0])  # what is read once for all queries is no query's
    peaks, assembled, rows = [], 0, 0
    for text in texts:
        scan = table.scan(text)
        paths = [path for read in scan.explain().reads for path in read.layouts]
        assembled += any(len(path["columns"]) > 1 for path in paths)
        with counted_pool() as pool:
            answer = scan.to_arrow()
            peaks.append(pool.max_memory() or 0)
            rows += answer.num_rows
            del answer
    return {"peaks": peaks, "mean": mean(peaks), "most": max(peaks), "assembled": assembled, "rows": rows}


@contextmanager
def counted_pool() -> Iterator[pa.MemoryPool]:
    """A pool that takes all that Arrow allocates within the block, and so counts it."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        yield pool
    finally:
        pa.set_memory_pool(before)
