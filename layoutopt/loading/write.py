"""Write the segments of a load: one function over a source and the executor that runs the tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pyarrow as pa

from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.features.weights import feature_shares
from layoutopt.model.layout import Plan
from layoutopt.sources.executor import Pack
from layoutopt.sources.segments import Segment
from layoutopt.sources.source import Source
from layoutopt.writer.load_ids import check_block_numbers, first_block
from layoutopt.writer.task import WriteJob, gather_and_write
from layoutopt.writer.task_result import PackedResults, StoredResult, TaskResult

# Stored results are read by so many threads.
_READERS: Final = 8


def make_job(files: TableFiles, plan: Plan, load_id: str, keys: Sequence[str], numbers: Sequence[int]) -> WriteJob:
    """Return the job of a load's tasks.

    Args:
        files: the table's.
        keys: each segment's partition key.
        numbers: each segment's number in its partition.

    Raises:
        BoundError: the blocks of so many segments could take the numbers of another load's.
    """
    check_block_numbers(plan, len(keys))
    shares, there = feature_shares(plan.features, plan.queries), files.for_tasks()
    return WriteJob(
        plan, shares, there.root, load_id, first_block(load_id), tuple(keys), tuple(numbers), lent=there.lent
    )


def write_segments(
    source: Source, job: WriteJob, segments: Sequence[Segment], results_in: TableFiles | None = None
) -> list[TaskResult | StoredResult]:
    """Write each segment in a task, and return the tasks' results in the order of the segments.

    With ``results_in``, tasks store their results in that table, and the caller removes them.

    Raises:
        NeedsSparkError: Arrow might read a file otherwise than Spark.
        LayoutoptError: as :meth:`~layoutopt.sources.source.Source.map_segments`.
    """
    job = replace(job, evaluate_rest=source.make_rest_evaluator(job.plan.settings))
    pack: Pack[Any] = PackedResults if results_in is None else list
    write = partial(_write_rows, job, results_in)
    results: Sequence[TaskResult | StoredResult | None]
    results = source.map_segments(segments, write, pack, is_secret=bool(job.lent))
    return [result for result in results if result is not None]


def _write_rows(
    job: WriteJob, results_in: TableFiles | None, segment: int, batches: Iterable[pa.RecordBatch]
) -> TaskResult | StoredResult | None:
    result = gather_and_write(job, batches)
    if result is None:
        return None
    return result.split() if results_in is None else StoredResult.write(results_in, job.load_id, result)


def read_results(files: TableFiles, results: Sequence[TaskResult | StoredResult]) -> list[TaskResult]:
    """Return results of tasks, and read those that they have stored."""
    with ThreadPoolExecutor(_READERS) as pool:
        return list(pool.map(lambda result: result.read(files), results))
