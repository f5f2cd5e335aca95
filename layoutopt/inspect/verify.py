"""Re-reading a table: are its files what the catalog says, and does the catalog say the truth?

Every check compares what is in the data files with what the catalog claims of them: row groups and rows, ``_block``
values, tids, column statistics, union vectors, content checksums, deletion vectors. With several layouts it proves that
every cell of the source is in its master layout.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from layoutopt.catalog.entries import written_content
from layoutopt.catalog.snapshot import not_a_table
from layoutopt.errors import SettingError
from layoutopt.inspect.file_check import (
    CheckedFile,
    Expected,
    FileToCheck,
    Finding,
    TidsRead,
    check_file,
    master_columns,
    misplaced_rests,
    unreadable,
    why_unchecked,
)
from layoutopt.model.predicates import describe
from layoutopt.scan.arrow_types import empty_table
from layoutopt.scan.check_deletes import find_wrong_deletes
from layoutopt.scan.prune import PlanBlocks
from layoutopt.scan.table import Table
from layoutopt.writer.evaluation import KeyedRows, matching_rows

# ----------------------------------------------------------------------------------------------------
# Checking many data files of a table, some side by side, and what only all files of a segment's layout can tell.

# Files read side by side; each holds some row groups in memory.
_MOST_WORKERS = 4
_EXPECTED_AT_ONCE = 4096


@dataclass(frozen=True)
class FileVerdict:
    """What came of a data file: its path, how many blocks and rows of it were read, and what is wrong."""

    path: str
    blocks: int
    rows: int
    findings: tuple[Finding, ...]


def check_files(table: Table, paths: Sequence[str], workers: int | None = None) -> Iterator[FileVerdict]:
    """Reads data files of a table again and compares them with the catalog.

    Where all files of a segment's layout are among them, the last one's verdict also says whether they have each row
    of the segment once.

    Args:
        table: the table at one snapshot.
        paths: which of its files, by their paths in the table, in the catalog's order.
        workers: how many files are read side by side; by default as many as there are processors, up to four.

    Raises:
        CatalogError: a catalog file is damaged.
    """
    where = {path: (source, i) for source in table.sources for i, path in enumerate(source.blocks.files)}
    positions = {id(source): TidsRead(source) for source in table.sources}
    most = min(pa.cpu_count(), _MOST_WORKERS) if workers is None else workers
    # A single file can be read by several threads too; where the caller chose one, that is one in all.
    alone = workers is None and len(paths) == 1
    for source, file, checked in _checked(table, [where[path] for path in paths], 1 if alone else most, alone):
        wrong = None if checked.tids is None else positions[id(source)].add(file.path, checked.tids)
        findings = checked.findings if wrong is None else (*checked.findings, ("master", wrong))
        yield FileVerdict(file.path, len(file.blocks), int(file.expected.rows[file.blocks].sum()), findings)


def _checked(
    table: Table, chosen: Sequence[tuple[PlanBlocks, int]], workers: int, use_threads: bool
) -> Iterator[tuple[PlanBlocks, FileToCheck, CheckedFile]]:
    """The files with what came of them, in their order; with several workers some are read ahead, side by side."""
    files = table.catalog.data
    if workers == 1:
        for source, file in _to_check(chosen):
            yield source, file, check_file(files, file, use_threads)
        return
    waiting: deque[tuple[PlanBlocks, FileToCheck, Future[CheckedFile]]] = deque()
    pool = ThreadPoolExecutor(workers)
    try:
        for source, file in _to_check(chosen):
            waiting.append((source, file, pool.submit(check_file, files, file)))
            if len(waiting) > 2 * workers:
                source, file, checked = waiting.popleft()
                yield source, file, checked.result()
        for source, file, checked in waiting:
            yield source, file, checked.result()
    finally:
        pool.shutdown(cancel_futures=True)  # whoever stops waits for no file that nobody has begun with


def _to_check(chosen: Sequence[tuple[PlanBlocks, int]]) -> Iterator[tuple[PlanBlocks, FileToCheck]]:
    """The files with what the catalog says of them, gathered for some thousand blocks at once."""
    for source, files in _runs(chosen):
        blocks = source.blocks.take(np.flatnonzero(np.isin(source.blocks.file, files)))
        expected = Expected.of(source.plan, blocks)
        in_order = np.lexsort((blocks.row_group, blocks.file))
        ends = np.searchsorted(blocks.file[in_order], np.arange(len(blocks.files) + 1))
        of_path = {path: in_order[ends[i] : ends[i + 1]] for i, path in enumerate(blocks.files)}
        footers = dict(zip(blocks.files, blocks.footers, strict=True))
        for index in files:
            path = source.blocks.files[index]
            yield source, FileToCheck(path, footers[path], expected, of_path[path])


def _runs(chosen: Sequence[tuple[PlanBlocks, int]]) -> Iterator[tuple[PlanBlocks, list[int]]]:
    """Runs of files of one plan with some thousand blocks together."""
    for _, of_source in groupby(chosen, key=lambda item: id(item[0])):
        items = list(of_source)
        source = items[0][0]
        n_blocks = np.bincount(source.blocks.file, minlength=len(source.blocks.files))
        held = np.cumsum(n_blocks[[index for _, index in items]]) // _EXPECTED_AT_ONCE
        for _, run in groupby(zip(held.tolist(), items, strict=True), key=lambda pair: pair[0]):
            yield source, [index for _, (_, index) in run]


Progress = Callable[[int, int], None]
FileChecker = Callable[[Table, Sequence[str], Progress], Iterable[FileVerdict]]
"""Reads files of a table, by path, again: a verdict of each in their order, and (done, of how many) as it goes on."""
MOST_PROBLEMS = 1000


@dataclass(frozen=True)
class Problem:
    """One thing that is not as the catalog or the source says. ``check`` is a stable code, ``file`` the place."""

    check: str
    file: str
    message: str


@dataclass(frozen=True)
class SourceCheck:
    """What came of comparing a table with its source.

    Attributes:
        source: its path.
        rows, partitions: how many the source has.
        table_rows: how many the table has.
        differences: how many problems there are; ``problems`` has the first of them.
    """

    source: str
    rows: int
    partitions: int
    table_rows: int
    differences: int
    problems: tuple[Problem, ...]

    def to_json(self) -> dict[str, Any]:
        """The comparison as JSON; its problems stand in the report."""
        return {name: value for name, value in vars(self).items() if name != "problems"}


@dataclass(frozen=True)
class VerifyReport:
    """What was looked at and what is wrong; ``unchecked`` names what could not be looked at, and why.

    ``source`` is there where the table was compared with its source; its problems are among ``problems``.
    """

    table: str
    snapshot: int
    files: int
    blocks: int
    rows: int
    problems: tuple[Problem, ...]
    unchecked: tuple[str, ...]
    source: SourceCheck | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def against(self, check: SourceCheck) -> VerifyReport:
        """The report with what came of the comparison with the source."""
        return replace(self, problems=(*self.problems, *check.problems), source=check)

    def to_json(self) -> dict[str, Any]:
        """The report as JSON."""
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
    """Re-reads a table's data files and compares them with the catalog.

    Args:
        table: the table at one snapshot.
        sample: the share of the data files to read, in (0, 1]; at least one.
        seed: which ones.
        progress: called with how much is done, and of how much: files, unless the checker counts otherwise.
        checker: what reads the files; by default some threads of this process.

    Raises:
        SettingError: the share is not in (0, 1].
        SourceIndexError: the files are others'; a refresh measures those that changed.
        CatalogError: a catalog file is damaged.
    """
    if table.catalog.others is not None:
        raise not_a_table(table.catalog.files.root, table.catalog.others.root)
    if not 0 < sample <= 1:
        raise SettingError(f"--sample is {sample}, which is no share; give a number above 0 and up to 1")
    paths = [path for source in table.sources for path in source.blocks.files]
    count = max(1, round(len(paths) * sample))
    # In order: the files of a segment are read one after the other, and only its tids are held meanwhile.
    chosen = [paths[i] for i in sorted(random.Random(seed).sample(range(len(paths)), count))] if paths else []
    problems = [problem for source in table.sources for problem in _verify_partitions(source)]
    problems += [Problem("index", *found) for found in unreadable(table.catalog)]
    if sample == 1:
        wrong = (found for source in table.sources for found in find_wrong_deletes(table.catalog.files, source))
        problems += [Problem("deletes", *found) for found in wrong]
    blocks = rows = 0
    for verdict in (checker or _check_here)(table, chosen, progress or _silent):
        problems += [Problem(check, verdict.path, message) for check, message in verdict.findings]
        blocks, rows = blocks + verdict.blocks, rows + verdict.rows
    return VerifyReport(
        table.name, table.catalog.snapshot.number, len(chosen), blocks, rows,
        tuple(problems[:MOST_PROBLEMS]), _unchecked(table, sample),
    )  # fmt: skip


def _check_here(table: Table, paths: Sequence[str], progress: Progress) -> Iterator[FileVerdict]:
    for done, verdict in enumerate(check_files(table, paths), 1):
        yield verdict
        progress(done, len(paths))


def _silent(done: int, total: int) -> None:
    """Progress that nobody wants to see."""


def _unchecked(table: Table, sample: float) -> tuple[str, ...]:
    found = [] if sample == 1 else [f"files outside the sample of {sample:.0%}"]
    if sample != 1 and any(entry.deletes is not None for entry in table.catalog.partitions):
        found.append("the deletion vectors: that needs every file")
    for source in table.sources:
        reasons = ((spec, why_unchecked(spec)) for spec in source.plan.indexes)
        found += [f"the index {spec}: {reason}" for spec, reason in reasons if reason is not None]
        no_rows = KeyedRows(empty_table(source.plan.schema.columns))
        for feature in source.plan.features:
            if matching_rows(feature.node, no_rows) is None:
                found.append(f"the union vectors' bit of {describe(feature.node)}: only Spark can evaluate it")
    return tuple(dict.fromkeys(found))


def _verify_partitions(source: PlanBlocks) -> Iterator[Problem]:
    """Compares the sums in a plan's blocks with those in the snapshot."""
    for index in np.unique(source.entry_of):
        entry = source.entries[index]
        content = written_content(source.blocks.take(source.entry_of == index))
        if content.rows != entry.rows or dict(content.sums) != dict(entry.checksums):
            yield Problem("partition", entry.blocks_file, f"the blocks of partition {entry.key!r} don't add up to it")
    yield from (Problem("master", *found) for found in master_columns(source))
    yield from (Problem("rest", *found) for found in misplaced_rests(source))
