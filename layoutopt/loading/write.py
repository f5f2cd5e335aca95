"""Write the segments of a load: one function over a source and the executor that runs the tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from layoutopt.sources.segments import Segment
from layoutopt.sources.source import Source
from layoutopt.sources.vectors import evaluate_words
from layoutopt.writer.task import WriteJob, gather_and_write
from layoutopt.writer.task_result import PackedResults, TaskResult


def write_segments(source: Source, job: WriteJob, segments: Sequence[Segment]) -> list[TaskResult]:
    """Write each segment in a task, and return the tasks' results in the order of the segments.

    Raises:
        NeedsSparkError: Arrow might read a file otherwise than Spark.
        LayoutoptError: as :meth:`~layoutopt.sources.source.Source.map_segments`.
    """
    if not source.carries_words:
        job = replace(job, evaluate_rest=partial(evaluate_words, settings=job.plan.settings))
    results = source.map_segments(segments, partial(_write_rows, job), PackedResults, is_secret=bool(job.lent))
    return [result for result in results if result is not None]


def _write_rows(job: WriteJob, segment: int, batches: Iterable[pa.RecordBatch]) -> TaskResult | None:
    result = gather_and_write(job, batches)
    return None if result is None else result.split()
