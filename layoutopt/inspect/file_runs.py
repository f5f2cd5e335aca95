"""Checking many data files of a table, some side by side, and what only all files of a segment's layout can tell."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pyarrow as pa

from layoutopt.inspect.file_check import CheckedFile, Expected, FileToCheck, Finding, check_file
from layoutopt.inspect.masters import TidsRead
from layoutopt.scan.prune import PlanBlocks
from layoutopt.scan.table import Table

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
