"""Write the segments of a load: one function over a source and the executor that runs the tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pyarrow as pa

from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.sources.executor import Pack
from layoutopt.sources.segments import Segment
from layoutopt.sources.source import Source
from layoutopt.sources.vectors import evaluate_words
from layoutopt.writer.task import WriteJob, gather_and_write
from layoutopt.writer.task_result import PackedResults, StoredResult, TaskResult

# Stored results are read by so many threads.
_READERS: Final = 8


def write_segments(
    source: Source, job: WriteJob, segments: Sequence[Segment], results_in: TableFiles | None = None
) -> list[TaskResult | StoredResult]:
    """Write each segment in a task, and return the tasks' results in the order of the segments.

    With ``results_in``, tasks store their results in that table, and the caller removes them.

    Raises:
        NeedsSparkError: Arrow might read a file otherwise than Spark.
        LayoutoptError: as :meth:`~layoutopt.sources.source.Source.map_segments`.
    """
    if not source.carries_words:
        job = replace(job, evaluate_rest=partial(evaluate_words, settings=job.plan.settings))
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

    def read(result: TaskResult | StoredResult) -> TaskResult:
        return result.read(files) if isinstance(result, StoredResult) else result

    if not any(isinstance(result, StoredResult) for result in results):
        return list(map(read, results))
    with ThreadPoolExecutor(_READERS) as pool:
        return list(pool.map(read, results))
