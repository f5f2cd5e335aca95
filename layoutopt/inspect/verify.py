"""Re-reading a table: are its files what the catalog says, and does the catalog say the truth?

Every check compares what is in the data files with what the catalog claims of them: row groups and rows, ``_block``
values, tids, column statistics, union vectors, content checksums. With several layouts it proves that every cell of the
source is in its master layout.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from layoutopt.catalog.entries import written_content
from layoutopt.errors import SettingError
from layoutopt.inspect.file_check import CheckedFile, Expected, FileToCheck, check_file
from layoutopt.inspect.index_check import is_installed, unreadable
from layoutopt.inspect.masters import TidsRead, master_columns, misplaced_rests
from layoutopt.model.predicates import describe
from layoutopt.scan.arrow_types import empty_table
from layoutopt.scan.matching import KeyedRows, matching_rows
from layoutopt.scan.prune import PlanBlocks
from layoutopt.scan.table import Table

Progress = Callable[[int, int], None]
MOST_PROBLEMS = 1000
# Files read side by side; each holds some row groups in memory.
_MOST_WORKERS = 4
_EXPECTED_AT_ONCE = 4096


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


def verify(table: Table, sample: float = 1.0, seed: int = 0, progress: Progress | None = None) -> VerifyReport:
    """Re-reads a table's data files and compares them with the catalog.

    Args:
        table: the table at one snapshot.
        sample: the share of the data files to read, in (0, 1]; at least one.
        seed: which ones.
        progress: called with (files done, files to read).

    Raises:
        SettingError: the share is not in (0, 1].
        CatalogError: a catalog file is damaged.
    """
    if not 0 < sample <= 1:
        raise SettingError(f"--sample is {sample}, which is no share; give a number above 0 and up to 1")
    work = [(source, index) for source in table.sources for index in range(len(source.blocks.files))]
    count = max(1, round(len(work) * sample))
    # In order: the files of a segment are read one after the other, and only its tids are held meanwhile.
    chosen = [work[i] for i in sorted(random.Random(seed).sample(range(len(work)), count))] if work else []
    problems = [problem for source in table.sources for problem in _verify_partitions(source)]
    problems += [Problem("index", *found) for found in unreadable(table.catalog)]
    positions = {id(source): TidsRead(source) for source in table.sources}
    blocks = rows = 0
    for done, (source, file, checked) in enumerate(_checked_files(table, chosen)):
        problems += [Problem(check, file.path, message) for check, message in checked.findings]
        wrong = None if checked.tids is None else positions[id(source)].add(file.path, checked.tids)
        if wrong is not None:
            problems.append(Problem("master", file.path, wrong))
        blocks, rows = blocks + len(file.blocks), rows + int(file.expected.rows[file.blocks].sum())
        if progress is not None:
            progress(done + 1, len(chosen))
    return VerifyReport(
        table.name, table.catalog.snapshot.number, len(chosen), blocks, rows,
        tuple(problems[:MOST_PROBLEMS]), _unchecked(table, sample),
    )  # fmt: skip


def _unchecked(table: Table, sample: float) -> tuple[str, ...]:
    found = [] if sample == 1 else [f"files outside the sample of {sample:.0%}"]
    for source in table.sources:
        found += [
            f"the index {spec}: its type is not installed" for spec in source.plan.indexes if not is_installed(spec)
        ]
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


def _checked_files(
    table: Table, chosen: Sequence[tuple[PlanBlocks, int]]
) -> Iterator[tuple[PlanBlocks, FileToCheck, CheckedFile]]:
    """The files with what came of them, in their order; some are read ahead, side by side."""
    workers = min(pa.cpu_count(), _MOST_WORKERS, max(len(chosen), 1))
    waiting: deque[tuple[PlanBlocks, FileToCheck, Future[CheckedFile]]] = deque()
    pool = ThreadPoolExecutor(workers)
    try:
        for source, file in _to_check(chosen):
            waiting.append((source, file, pool.submit(check_file, table.catalog.files, file, workers == 1)))
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
