"""Read a table again and compare its files with the catalog.

Checked are row groups and rows, ``_block`` values, tids, column statistics, union vectors, content checksums and
deletion vectors. With several layouts, every cell of the source must be in its master layout.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from layoutopt.catalog.entries import GroupedBlocks
from layoutopt.catalog.table_root import not_a_table
from layoutopt.errors import SettingError
from layoutopt.evaluation.arrow_types import empty_table
from layoutopt.evaluation.predicates import KeyedRows, matching_rows
from layoutopt.inspect.file_check import (
    CheckedFile,
    Expected,
    FileToCheck,
    Finding,
    TidsRead,
    check_file,
    check_index_files,
    check_master_columns,
    check_rest_blocks,
    check_source_lists,
    find_unchecked_reason,
)
from layoutopt.model.arrays import draw_share
from layoutopt.model.predicates import describe
from layoutopt.scan.check_deletes import find_wrong_deletes
from layoutopt.scan.prune import PlanBlocks
from layoutopt.scan.table import Table

# Files that are read in parallel; each holds some row groups in memory.
_MOST_WORKERS = 4
# Blocks whose expected content is loaded at once.
_EXPECTED_AT_ONCE = 4096


@dataclass(frozen=True)
class FileVerdict:
    """The result for a data file: its path, the blocks and rows that were read, and the findings."""

    path: str
    blocks: int
    rows: int
    findings: tuple[Finding, ...]


Progress = Callable[[int, int], None]
# Checks files of a table by path: yields a verdict of each in their order, and reports (done, total) as progress.
FileChecker = Callable[[Table, Sequence[str], Progress], Iterable[FileVerdict]]
MOST_PROBLEMS = 1000


@dataclass(frozen=True)
class Difference:
    """A difference from the catalog or the source; ``check`` is a stable code, ``file`` the place."""

    check: str
    file: str
    message: str


@dataclass(frozen=True)
class SourceCheck:
    """The result of comparing a table with its source; ``problems`` has the first of the differences."""

    source: str
    rows: int
    partitions: int
    table_rows: int
    differences: int
    problems: tuple[Difference, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as JSON; its problems are in the report."""
        return {name: value for name, value in vars(self).items() if name != "problems"}


@dataclass(frozen=True)
class VerifyReport:
    """The result of a verification; ``unchecked`` says what could not be checked, and why."""

    table: str
    snapshot: int
    files: int
    blocks: int
    rows: int
    problems: tuple[Difference, ...]
    unchecked: tuple[str, ...]
    source: SourceCheck | None = None

    @property
    def ok(self) -> bool:
        """Whether there are no problems."""
        return not self.problems

    def against(self, check: SourceCheck) -> VerifyReport:
        """Return the report with a comparison with the source added."""
        return replace(self, problems=(*self.problems, *check.problems), source=check)

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return {
            "table": self.table,
            "snapshot": self.snapshot,
            "files": self.files,
            "blocks": self.blocks,
            "rows": self.rows,
            "ok": self.ok,
            "problems": [vars(problem) for problem in self.problems],
            "unchecked": list(self.unchecked),
            "source": None if self.source is None else self.source.to_json(),
        }


def verify(
    table: Table,
    sample: float = 1.0,
    seed: int = 0,
    progress: Progress | None = None,
    checker: FileChecker | None = None,
) -> VerifyReport:
    """Read a table's data files again and compare them with the catalog.

    Args:
        sample: the share of the data files to read, in (0, 1]; at least one file.
        progress: called with (done, total) files, unless the checker counts otherwise.
        checker: checks the files; by default some threads of this process.

    Raises:
        SettingError: the share is not in (0, 1].
        SourceIndexError: the files are external; a refresh measures changed ones.
    """
    if table.catalog.others is not None:
        raise not_a_table(table.catalog.files.root, table.catalog.others.root)
    if not 0 < sample <= 1:
        raise SettingError(f"invalid --sample {sample}: expected a number above 0 and up to 1")
    paths = [path for source in table.sources for path in source.blocks.files]
    # In order: the files of a segment are read one after the other, so only its tids are in memory.
    sampled = draw_share(paths, sample, seed)
    problems = [problem for source in table.sources for problem in _verify_partitions(source)]
    problems += [Difference("index", *pair) for pair in check_index_files(table.catalog)]
    problems += [Difference("sources", *pair) for pair in check_source_lists(table.catalog)]
    if sample == 1:
        for source in table.sources:
            problems += [Difference("deletes", *pair) for pair in find_wrong_deletes(table.catalog.files, source)]
    blocks = rows = 0
    for verdict in (checker or _check_locally)(table, sampled, progress or (lambda done, total: None)):
        problems += [Difference(check, verdict.path, message) for check, message in verdict.findings]
        blocks, rows = blocks + verdict.blocks, rows + verdict.rows
    return VerifyReport(
        table.name, table.catalog.snapshot.number, len(sampled), blocks, rows,
        tuple(problems[:MOST_PROBLEMS]), _list_unchecked(table, sample),
    )  # fmt: skip


def _check_locally(table: Table, paths: Sequence[str], progress: Progress) -> Iterator[FileVerdict]:
    for done, verdict in enumerate(check_files(table, paths), 1):
        yield verdict
        progress(done, len(paths))


def _list_unchecked(table: Table, sample: float) -> tuple[str, ...]:
    unchecked = [] if sample == 1 else [f"files outside the sample of {sample:.0%}"]
    if sample != 1 and any(entry.deletes is not None for entry in table.catalog.partitions):
        unchecked.append("the deletion vectors: checking them needs every file")
    for source in table.sources:
        reasons = ((spec, find_unchecked_reason(spec)) for spec in source.plan.indexes)
        unchecked += [f"the index {spec}: {reason}" for spec, reason in reasons if reason is not None]
        no_rows = KeyedRows(empty_table(source.plan.schema.columns))
        for feature in source.plan.features:
            if matching_rows(feature.node, no_rows) is None:
                unchecked.append(f"the union vectors' bit of {describe(feature.node)}: only Spark can evaluate it")
    return tuple(dict.fromkeys(unchecked))


def _verify_partitions(source: PlanBlocks) -> Iterator[Difference]:
    """Compare the sums over a plan's blocks with those in the snapshot."""
    entries, group = source.by_entry
    grouped = GroupedBlocks(source.blocks, group, len(entries))
    sums = {name: grouped.checksums(name) for name in source.blocks.schema.names}
    for place, index in enumerate(entries.tolist()):
        entry = source.entries[index]
        known = {name: total for name, of_column in sums.items() if (total := of_column[place]) is not None}
        if grouped.rows[place] != entry.rows or known != dict(entry.checksums):
            yield Difference(
                "partition", entry.blocks_file, f"the blocks of partition {entry.key!r} don't add up to its totals"
            )
    yield from (Difference("master", *pair) for pair in check_master_columns(source))
    yield from (Difference("rest", *pair) for pair in check_rest_blocks(source))


def check_files(table: Table, paths: Sequence[str], workers: int | None = None) -> Iterator[FileVerdict]:
    """Yield the results of comparing data files of a table with the catalog.

    If all files of a segment's layout are among them, the last one's verdict also says whether they have each row of
    the segment once.

    Args:
        paths: files of the table by their paths in it, in the catalog's order.
        workers: how many files are read in parallel; by default the number of processors, up to four.
    """
    places = {path: (source, i) for source in table.sources for i, path in enumerate(source.blocks.files)}
    tids_read = {id(source): TidsRead(source) for source in table.sources}
    # A single file is decoded by several threads, unless the caller chose the number of workers.
    use_threads = workers is None and len(paths) == 1
    if workers is None:
        workers = 1 if use_threads else min(pa.cpu_count(), _MOST_WORKERS)
    for source, file, checked in _check_in_parallel(table, [places[path] for path in paths], workers, use_threads):
        wrong = None if checked.tids is None else tids_read[id(source)].add(file.path, checked.tids)
        findings = checked.findings if wrong is None else (*checked.findings, ("master", wrong))
        yield FileVerdict(file.path, len(file.blocks), int(file.expected.rows[file.blocks].sum()), findings)


def _check_in_parallel(
    table: Table, places: Sequence[tuple[PlanBlocks, int]], workers: int, use_threads: bool
) -> Iterator[tuple[PlanBlocks, FileToCheck, CheckedFile]]:
    """Yield the checked files in their order; with several workers, some are read ahead."""
    files = table.catalog.data
    if workers == 1:
        for source, file in _load_expected(places):
            yield source, file, check_file(files, file, use_threads)
        return
    queue: deque[tuple[PlanBlocks, FileToCheck, Future[CheckedFile]]] = deque()
    pool = ThreadPoolExecutor(workers)
    try:
        for source, file in _load_expected(places):
            queue.append((source, file, pool.submit(check_file, files, file)))
            if len(queue) > 2 * workers:
                source, file, future = queue.popleft()
                yield source, file, future.result()
        for source, file, future in queue:
            yield source, file, future.result()
    finally:
        pool.shutdown(cancel_futures=True)  # a caller that stops early doesn't wait for files in the queue


def _load_expected(places: Sequence[tuple[PlanBlocks, int]]) -> Iterator[tuple[PlanBlocks, FileToCheck]]:
    """Yield the files with their expected content, loaded for some thousand blocks at once."""
    for source, files in _split_runs(places):
        blocks = source.blocks.take(np.flatnonzero(np.isin(source.blocks.file, files)))
        expected = Expected.from_blocks(source.plan, blocks)
        order = np.lexsort((blocks.row_group, blocks.file))
        ends = np.searchsorted(blocks.file[order], np.arange(len(blocks.files) + 1))
        blocks_by_path = {path: order[ends[i] : ends[i + 1]] for i, path in enumerate(blocks.files)}
        footers = dict(zip(blocks.files, blocks.footers, strict=True))
        for index in files:
            path = source.blocks.files[index]
            yield source, FileToCheck(path, footers[path], expected, blocks_by_path[path])


def _split_runs(places: Sequence[tuple[PlanBlocks, int]]) -> Iterator[tuple[PlanBlocks, list[int]]]:
    """Yield runs of files of one plan with some thousand blocks together."""
    for _, group in groupby(places, key=lambda place: id(place[0])):
        items = list(group)
        source = items[0][0]
        n_blocks = np.bincount(source.blocks.file, minlength=len(source.blocks.files))
        run_numbers = np.cumsum(n_blocks[[index for _, index in items]]) // _EXPECTED_AT_ONCE
        for _, run in groupby(zip(run_numbers.tolist(), items, strict=True), key=lambda pair: pair[0]):
            yield source, [index for _, (_, index) in run]
