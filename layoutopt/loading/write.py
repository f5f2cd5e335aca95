"""Write the segments of a load: one function over a source and the executor that runs the tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.sources.executor import Pack, map_in_groups
from layoutopt.sources.segments import Segment, segment_ranges
from layoutopt.sources.shuffle import CutJob, assign_splits, group_splits, read_segment_rows, reads_little_twice
from layoutopt.sources.source import Source
from layoutopt.sources.vectors import evaluate_words
from layoutopt.writer.task import WriteJob, gather_and_write
from layoutopt.writer.task_result import PackedResults, StoredResult, TaskResult


def write_segments(
    source: Source, job: WriteJob, segments: Sequence[Segment], results_in: TableFiles | None = None
) -> list[TaskResult | StoredResult]:
    """Write each segment in a task, and return the tasks' results in the order of the segments.

    With ``results_in``, tasks store their results in that table, and the caller removes them.

    Where files have rows of many segments, tasks first cut each file once, and shuffle the rows to the segments.

    Raises:
        NeedsSparkError: Arrow might read a file otherwise than Spark.
        ContentMismatchError: a file was changed since it was counted.
        LayoutoptError: a task failed.
    """
    if not source.carries_words:
        job = replace(job, evaluate_rest=partial(evaluate_words, settings=job.plan.settings))
    splits = [split for split, _ in source.splits]
    ranges = segment_ranges(segments)
    overlapping = [ranges.overlapping(split, values) for split, values in source.splits]
    tasks = assign_splits(splits, overlapping, len(segments))
    own = CutJob(source.schema, source.partition_by, ranges, tasks, by_segment=True)
    executor = source.executor
    results: Sequence[TaskResult | StoredResult | None]
    pack: Pack[Any] = PackedResults if results_in is None else list
    with source.checks_changes():
        # Rows of an encrypted table may not lie open in temporary files.
        if reads_little_twice(own) or (job.lent and executor.shuffles_openly):
            results = map_in_groups(executor, len(segments), partial(_write_own_files, own, job, results_in), pack=pack)
        else:
            shared = replace(own, tasks=group_splits(splits), by_segment=False)
            results = executor.shuffle(shared, partial(_write_rows, job, results_in), pack)
    return [result for result in results if result is not None]


def _write_own_files(
    cut: CutJob, job: WriteJob, results_in: TableFiles | None, segment: int
) -> TaskResult | StoredResult | None:
    return _write_rows(job, results_in, segment, read_segment_rows(cut, [segment]))


def _write_rows(
    job: WriteJob, results_in: TableFiles | None, segment: int, batches: Iterable[pa.RecordBatch]
) -> TaskResult | StoredResult | None:
    result = gather_and_write(job, batches)
    if result is None:
        return None
    return result.split() if results_in is None else StoredResult.write(results_in, job.load_id, result)
