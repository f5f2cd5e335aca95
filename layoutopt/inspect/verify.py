"""Re-reading a table: are its files what the catalog says, and does the catalog say the truth?

Every check compares what is in the data files with what the catalog claims of them: row groups and rows, ``_block``
values, tids, column statistics, union vectors, content checksums. With several layouts it proves that every cell of the
source is in its master layout.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.entries import written_content
from layoutopt.catalog.statistics import measure
from layoutopt.errors import DataFileError, SchemaError, SettingError
from layoutopt.inspect.masters import TidsRead, master_columns, misplaced_rests
from layoutopt.model.arrays import Ints
from layoutopt.model.columns import BLOCK, TID
from layoutopt.model.predicates import describe
from layoutopt.model.schema import Column
from layoutopt.model.values import NAN_KEY
from layoutopt.model.vectors import feature_bit
from layoutopt.scan.arrow_types import empty_table
from layoutopt.scan.files import damaged, open_parquet
from layoutopt.scan.matching import matching_rows
from layoutopt.scan.prune import PlanBlocks
from layoutopt.scan.table import Table
from layoutopt.skipping.cannot_match import UNKNOWN_NULLS
from layoutopt.writer.checksum import is_hashable, sums_by_block
from layoutopt.writer.positions import position_sums, value_hashes

Finding = tuple[str, str]
Progress = Callable[[int, int], None]
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
    positions = {id(source): TidsRead(source) for source in table.sources}
    blocks = rows = 0
    for done, (source, index) in enumerate(chosen):
        mine = source.blocks.take(source.blocks.file == index)
        problems += _verify_file(table, source, mine, positions[id(source)])
        blocks, rows = blocks + mine.n, rows + int(mine.rows.sum())
        if progress is not None:
            progress(done + 1, len(chosen))
    return VerifyReport(
        table.name, table.catalog.snapshot.number, len(chosen), blocks, rows,
        tuple(problems[:MOST_PROBLEMS]), _unchecked(table, sample),
    )  # fmt: skip


def _unchecked(table: Table, sample: float) -> tuple[str, ...]:
    found = [] if sample == 1 else [f"files outside the sample of {sample:.0%}"]
    for source in table.sources:
        for feature in source.plan.features:
            if matching_rows(feature.node, _no_rows(source)) is None:
                found.append(f"the union vectors' bit of {describe(feature.node)}: only Spark can evaluate it")
    return tuple(dict.fromkeys(found))


def _no_rows(source: PlanBlocks) -> pa.Table:
    return empty_table(source.plan.schema.columns)


def _verify_partitions(source: PlanBlocks) -> Iterator[Problem]:
    """Compares the sums in a plan's blocks with those in the snapshot."""
    for index in np.unique(source.entry_of):
        entry = source.entries[index]
        content = written_content(source.blocks.take(source.entry_of == index))
        if content.rows != entry.rows or dict(content.sums) != dict(entry.checksums):
            yield Problem("partition", entry.blocks_file, f"the blocks of partition {entry.key!r} don't add up to it")
    yield from (Problem("master", *found) for found in master_columns(source))
    yield from (Problem("rest", *found) for found in misplaced_rests(source))


def _verify_file(table: Table, source: PlanBlocks, blocks: BlockTable, positions: TidsRead) -> Iterator[Problem]:
    """The checks of one data file; ``blocks`` are those in it."""
    blocks = blocks.take(np.argsort(blocks.row_group, kind="stable"))
    path = blocks.files[int(blocks.file[0])]
    try:
        # A changed footer says nothing that is worth a look, and reading by it may take any memory.
        with open_parquet(table.catalog.files, path, blocks.footers[0]) as parquet:
            found = [parquet.metadata.row_group(i).num_rows for i in range(parquet.metadata.num_row_groups)]
            if found != blocks.rows.tolist() or blocks.row_group.tolist() != list(range(len(found))):
                yield Problem("row-groups", path, f"it has row groups of {found[:5]}… rows, the catalog others")
                return
            rows = parquet.read()
    except DataFileError as error:
        yield Problem("file", path, str(error))
        return
    except (pa.ArrowException, OSError) as error:
        yield Problem("file", path, str(damaged(path, error)))
        return
    offsets = np.r_[0, np.cumsum(blocks.rows)].astype(np.int64)
    for check, message in _verify_rows(source, blocks, rows, offsets):
        yield Problem(check, path, message)
    if TID in rows.column_names and not rows.column(TID).null_count:
        wrong = positions.add(path, rows.column(TID).to_numpy())
        if wrong is not None:
            yield Problem("master", path, wrong)


def _verify_rows(source: PlanBlocks, blocks: BlockTable, rows: pa.Table, offsets: Ints) -> Iterator[Finding]:
    yield from _verify_identifiers(source, blocks, rows)
    for column in source.plan.schema.columns:
        expected = blocks.has_column(column.name)
        if not expected.any():
            continue
        if column.name not in rows.column_names:
            yield "column", f"it lacks the column {column.name!r}"
            continue
        values = rows.column(column.name)
        try:
            yield from _verify_statistics(blocks, column, values, offsets)
        except SchemaError as error:
            yield "column", str(error)
            continue
        yield from _verify_sums(blocks, column, rows, offsets)
    yield from _verify_bits(source, blocks, rows, offsets)


def _verify_identifiers(source: PlanBlocks, blocks: BlockTable, rows: pa.Table) -> Iterator[Finding]:
    if BLOCK not in rows.column_names:
        yield "block-column", f"it lacks the column {BLOCK!r}"
    elif not np.array_equal(rows.column(BLOCK).to_numpy(), np.repeat(blocks.block_id, blocks.rows)):
        yield "block-column", f"its {BLOCK!r} values are not those of its blocks"
    if len(source.plan.scheme.layouts) > 1:
        if TID not in rows.column_names:
            yield "tid-column", f"it lacks the column {TID!r}"
        elif rows.column(TID).null_count or len(rows.column(TID).unique()) < rows.num_rows:
            yield "tid-column", f"its {TID!r} values are no distinct positions"


def _verify_statistics(blocks: BlockTable, column: Column, values: pa.ChunkedArray, offsets: Ints) -> Iterator[Finding]:
    """Whether no value lies outside the bounds that the catalog knows, and counts are right."""
    bounds = blocks.block_statistics().bounds[column.name]
    measured = measure(values, offsets, column.type)
    wrong = (bounds.nulls != UNKNOWN_NULLS) & (bounds.nulls != measured.nulls)
    nans = measured.nans if measured.nans is not None else np.zeros_like(measured.nulls)
    low = measured.low.to_pylist() if measured.low is not None else []
    high = measured.high.to_pylist() if measured.high is not None else []
    for i in np.flatnonzero(bounds.known) if low else ():
        if low[i] is not None and not (bounds.low[i] <= low[i] and high[i] <= bounds.high[i]):
            wrong[i] = True
        if nans[i] and bounds.high[i] < NAN_KEY:
            wrong[i] = True
    if wrong.any():
        block = int(blocks.block_id[np.argmax(wrong)])
        yield "statistics", f"the statistics of {column.name!r} are wrong in {int(wrong.sum())} blocks, as in {block}"


def _verify_sums(blocks: BlockTable, column: Column, rows: pa.Table, offsets: Ints) -> Iterator[Finding]:
    """Whether the values, and with several layouts their places in the segment, are those that were written."""
    name = column.name
    stored, at_tids = blocks.column_sums(name), blocks.column_tid_sums(name)
    hashes = value_hashes(rows.column(name), column.type) if is_hashable(column.type) or (at_tids >= 0).any() else None
    if hashes is None:
        return
    wrong = (stored >= 0) & (stored != sums_by_block(hashes, offsets))
    if wrong.any():
        block = int(blocks.block_id[np.argmax(wrong)])
        yield "checksum", f"the content of {name!r} was changed in {int(wrong.sum())} blocks, as in {block}"
    if TID not in rows.column_names:
        return
    tids = rows.column(TID).to_numpy()
    moved = (at_tids >= 0) & (at_tids != position_sums(hashes, tids, offsets)) & ~wrong
    if moved.any():
        block = int(blocks.block_id[np.argmax(moved)])
        yield "tid-checksum", f"values of {name!r} have other tids in {int(moved.sum())} blocks, as in {block}"


def _verify_bits(source: PlanBlocks, blocks: BlockTable, rows: pa.Table, offsets: Ints) -> Iterator[Finding]:
    """Whether no row makes a feature TRUE whose bit is 0 in its block."""
    for position, feature in enumerate(source.plan.features):
        if not feature.columns <= set(rows.column_names):
            continue
        matched = matching_rows(feature.node, rows)
        if matched is None:
            continue
        counts = np.diff(np.r_[0, np.cumsum(matched)][offsets])
        wrong = (counts > 0) & ~feature_bit(blocks.words, position)
        if wrong.any():
            block = int(blocks.block_id[np.argmax(wrong)])
            yield "union-vector", f"block {block} has rows of {describe(feature.node)}, but its union vector says none"
