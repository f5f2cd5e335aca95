"""A table's files read again by Spark's tasks: ``verify --engine spark``.

Each task opens the partitions of its files from the catalog and checks a run of files in the catalog's order. Files
that have to be judged together, those of a layout of a segment, are in one run. Only verdicts come back to the driver.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, Row, SparkSession

from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.inspect.file_runs import FileVerdict, check_files
from layoutopt.inspect.verify import FileChecker, Progress
from layoutopt.scan.table import Table
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.workers import Batches, map_in_workers

# So many that a slow one holds up nobody and a repeated one repeats little; each opens a part of the catalog.
_RUNS_A_CORE = 8
_SECONDS_BETWEEN_LOOKS = 0.5
_SCHEMA = "run bigint, verdicts string"


@dataclass(frozen=True)
class _Run:
    """Files that one task reads: their paths, in the catalog's order, and the keys of their partitions."""

    paths: tuple[str, ...]
    keys: frozenset[str]


def in_spark(spark: SparkSession) -> FileChecker:
    """What reads a table's files for :func:`layoutopt.inspect.verify.verify` in tasks of a session.

    Its progress counts tasks, as they end. Raises CatalogError where a task finds the catalog damaged, and SettingError
    where workers lack layoutopt.
    """
    return partial(_check_in_tasks, spark)


def _check_in_tasks(
    spark: SparkSession, table: Table, paths: Sequence[str], progress: Progress
) -> Iterator[FileVerdict]:
    runs = _runs(table, paths, _RUNS_A_CORE * spark.sparkContext.defaultParallelism)
    files = table.catalog.files.for_tasks()
    task = partial(_check_run, files, table.catalog.snapshot.number, runs)
    verdicts = map_in_workers(spark.range(0, len(runs), 1, max(1, len(runs))).toDF("run"), task, _SCHEMA)
    with translate_spark_errors(files.root):
        found = [row["verdicts"] for row in _collected(verdicts, len(runs), progress)]
    of_path = {verdict.path: verdict for text in found for verdict in _read(text)}
    yield from map(of_path.__getitem__, paths)


def _runs(table: Table, paths: Sequence[str], most: int) -> list[_Run]:
    """The paths in about ``most`` runs of as many rows each; the files of a layout of a segment stay together."""
    wanted, together = set(paths), dict[tuple[int, int, int], list[tuple[str, str, int]]]()
    for number, source in enumerate(table.sources):
        blocks = source.blocks
        rows = np.bincount(blocks.file, blocks.rows, len(blocks.files)).astype(int).tolist()
        for file, first in zip(*(each.tolist() for each in np.unique(blocks.file, return_index=True)), strict=True):
            if blocks.files[file] in wanted:
                place = (number, int(source.segment_of[first]), int(blocks.layout[first]))
                key = source.entries[source.entry_of[first]].key
                together.setdefault(place, []).append((blocks.files[file], key, rows[file]))
    total = sum(rows for files in together.values() for _, _, rows in files)
    runs: list[list[tuple[str, str, int]]] = []
    done = 0
    for files in together.values():
        if done * most >= total * len(runs):
            runs.append([])
        runs[-1] += files
        done += sum(rows for _, _, rows in files)
    return [_Run(tuple(path for path, _, _ in run), frozenset(key for _, key, _ in run)) for run in runs]


def _check_run(files: TableFiles, snapshot: int, runs: Sequence[_Run], batches: Batches) -> Iterator[pa.RecordBatch]:
    """The task: the verdicts of each run whose number it gets, as JSON."""
    for number in (number for batch in batches for number in batch.column(0).to_pylist()):
        run = runs[number]
        table = Table(Catalog.open_partitions(files, snapshot, run.keys))
        text = json.dumps([(v.path, v.blocks, v.rows, v.findings) for v in check_files(table, run.paths, workers=1)])
        yield pa.RecordBatch.from_arrays([pa.array([number]), pa.array([text])], names=["run", "verdicts"])


def _read(text: str) -> Iterator[FileVerdict]:
    for path, blocks, rows, findings in json.loads(text):
        yield FileVerdict(path, blocks, rows, tuple((check, message) for check, message in findings))


def _collected(verdicts: DataFrame, tasks: int, progress: Progress) -> Iterable[Row]:
    """The rows of a job, which tells how many of its tasks are done meanwhile."""
    context = verdicts.sparkSession.sparkContext
    group, tracker = f"layoutopt verify {uuid.uuid4().hex}", context.statusTracker()

    def collect() -> list[Row]:
        context.setJobGroup(group, "layoutopt verify", interruptOnCancel=True)
        return verdicts.collect()

    with ThreadPoolExecutor(1) as pool:
        rows: Future[list[Row]] = pool.submit(inheritable_thread_target(verdicts.sparkSession)(collect))
        try:
            while not wait([rows], _SECONDS_BETWEEN_LOOKS).done:
                jobs = map(tracker.getJobInfo, tracker.getJobIdsForGroup(group))
                stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
                progress(sum(stage.numCompletedTasks for stage in stages if stage is not None), tasks)
        except BaseException:
            context.cancelJobGroup(group)
            raise
        progress(tasks, tasks)
        return rows.result()
