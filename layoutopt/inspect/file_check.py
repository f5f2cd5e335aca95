"""The checks of one data file: is in it what the catalog says of its blocks?

Files are read some row groups at a time, so that memory follows neither their size nor that of a segment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import pyarrow as pa

from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.statistics import Measured
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.storage.footers import ENCRYPTED, MAGIC, coded_columns
from layoutopt.errors import DataFileError, SchemaError
from layoutopt.indexes.block_values import BlockValues, block_values
from layoutopt.inspect.block_matches import BlockMatches
from layoutopt.inspect.index_check import ExpectedIndex, differing, expected_indexes
from layoutopt.model.arrays import Bits, Ints, Words
from layoutopt.model.columns import BLOCK, TID
from layoutopt.model.layout import Plan
from layoutopt.model.predicates import Node, describe
from layoutopt.model.schema import Column
from layoutopt.model.values import NAN_KEY
from layoutopt.model.vectors import feature_bit
from layoutopt.scan.files import damaged, missing, open_parquet
from layoutopt.skipping.cannot_match import UNKNOWN_NULLS, ColumnBounds
from layoutopt.writer.checksum import is_hashable, sums_by_block
from layoutopt.writer.positions import Positions, scrambled, value_hashes

Finding = tuple[str, str]
"""The stable code of a check, and what is wrong."""

# Read and checked at once: numpy's and Arrow's calls cost nothing beside so many, and they fit in memory often.
_CELLS = 1 << 21
_MOST_ROWS = 1 << 18


@dataclass(frozen=True, eq=False)
class ExpectedColumn:
    """What the catalog knows of a column in n blocks: which hold it, its bounds, and its checksums (-1: unknown)."""

    column: Column
    held: Bits
    bounds: ColumnBounds
    sums: Ints
    tid_sums: Ints


@dataclass(frozen=True, eq=False)
class Expected:
    """What the catalog says of some blocks of a plan, as plain arrays, which threads may share."""

    plan: Plan
    rows: Ints
    row_group: Ints
    block_id: Ints
    words: Words
    columns: tuple[ExpectedColumn, ...]
    indexes: tuple[ExpectedIndex, ...] = ()

    @classmethod
    def of(cls, plan: Plan, blocks: BlockTable) -> Expected:
        """All that is checked of the blocks.

        Raises:
            CatalogError: the blocks file is damaged.
        """
        columns = []
        for column in plan.schema.columns:
            held = blocks.has_column(column.name)
            if held.any():
                bounds = blocks.block_statistics().bounds[column.name]
                sums, tid_sums = blocks.column_sums(column.name), blocks.column_tid_sums(column.name)
                columns.append(ExpectedColumn(column, held, bounds, sums, tid_sums))
        indexes = expected_indexes(plan, blocks)
        return cls(plan, blocks.rows, blocks.row_group, blocks.block_id, blocks.words, tuple(columns), indexes)


@dataclass(frozen=True, eq=False)
class FileToCheck:
    """A data file: its path, its footer's digest if known, and its blocks in ``expected``, by row group."""

    path: str
    footer: str | None
    expected: Expected
    blocks: Ints


@dataclass(frozen=True, eq=False)
class CheckedFile:
    """What came of a file: what is wrong, and its tids ``int64[rows]`` where it has tids that can be judged."""

    findings: tuple[Finding, ...]
    tids: Ints | None = None


def check_file(files: TableFiles, file: FileToCheck, use_threads: bool = False) -> CheckedFile:
    """Reads a file again and compares it with the catalog.

    Args:
        files: the table's.
        file: which, and what the catalog says of it.
        use_threads: whether Arrow may decode columns side by side.
    """
    expected = file.expected
    try:
        _check_first_bytes(files, file.path)
        # A changed footer says nothing that is worth a look, and reading by it may take any memory.
        with open_parquet(files, file.path, file.footer, coded=coded_columns) as parquet:
            metadata = parquet.metadata
            found = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
            in_order = expected.row_group[file.blocks].tolist() == list(range(len(found)))
            if not in_order or found != expected.rows[file.blocks].tolist():
                wrong = f"it has row groups of {found[:5]}… rows, the catalog others"
                return CheckedFile((("row-groups", wrong),))
            check = _Check(file)
            for start, stop in _rounds(found, metadata.num_columns):
                groups = list(range(start, stop))
                check.add(start, stop, parquet.read_row_groups(groups, use_threads=use_threads))
    except DataFileError as error:
        return CheckedFile((("file", str(error)),))
    except (pa.ArrowException, OSError) as error:
        return CheckedFile((("file", str(damaged(file.path, error))),))
    return check.finished()


def _check_first_bytes(files: TableFiles, path: str) -> None:
    """The only bytes of a Parquet file that no reader looks at.

    Raises:
        DataFileError: they are not what such a file begins with, or it is missing.
        OSError: it can't be read.
    """
    wanted = MAGIC if files.keys is None else ENCRYPTED
    try:
        with files.open_input(path) as stream:
            found = bytes(stream.read(len(wanted)))
    except FileNotFoundError as error:
        raise missing(path) from error
    if found != wanted:
        raise damaged(path, ValueError(f"it begins with {found!r}, not {wanted!r}"))


@dataclass(frozen=True, eq=False)
class _Fault:
    """Something wrong with a file: the check, how to say it of so many blocks and one of them, and which, bool[n]."""

    check: str
    message: Callable[[int, int], str]
    wrong: Bits

    def text(self, ids: Ints) -> str:
        """The message; ``ids`` are the blocks'."""
        return self.message(int(self.wrong.sum()), int(ids[np.argmax(self.wrong)]))


class _Part:
    """Some row groups as they were read: ``blocks`` are theirs, in what is expected, and ``offsets`` cut the rows."""

    def __init__(
        self, rows: pa.Table, offsets: Ints, start: int, stop: int, blocks: Ints, types: Mapping[str, str]
    ) -> None:
        self.rows, self.offsets, self.start, self.stop, self.blocks = rows, offsets, start, stop, blocks
        self._types = types
        self._made: dict[str, BlockValues] = {}

    def values(self, name: str) -> BlockValues:
        """A column's values."""
        if name not in self._made:
            self._made[name] = block_values(self.rows.column(name), self.offsets, self._types[name])
        return self._made[name]

    def forget(self, name: str) -> None:
        """Nobody asks for the column again."""
        self._made.pop(name, None)

    @cached_property
    def positions(self) -> Positions:
        """The rows' tids."""
        return Positions(np.asarray(self.rows.column(TID).fill_null(0)))


def _rounds(rows: list[int], n_columns: int) -> Iterator[tuple[int, int]]:
    """Runs of row groups to be read at once."""
    most = min(_MOST_ROWS, _CELLS // max(n_columns, 1))
    start = held = 0
    for i, more in enumerate(rows):
        if held and held + more > most:
            yield start, i
            start, held = i, 0
        held += more
    if start < len(rows):
        yield start, len(rows)


class _Check:
    """A file's checks, from round to round of its row groups."""

    def __init__(self, file: FileToCheck) -> None:
        expected = file.expected
        self._expected, self._blocks = expected, file.blocks
        self._columns = [of for of in expected.columns if of.held[file.blocks].any()]
        self._types = {column.name: column.type for column in expected.plan.schema.columns}
        self._shared = {name for feature in expected.plan.features for name in feature.columns}
        self._found: dict[tuple[int, int], _Fault] = {}  # by place in the report
        self._tids: list[pa.Array] = []

    def add(self, start: int, stop: int, rows: pa.Table) -> None:
        """The row groups from ``start`` to before ``stop``."""
        blocks = self._blocks[start:stop]
        offsets = np.concatenate(([0], np.cumsum(self._expected.rows[blocks]))).astype(np.int64)
        part = _Part(rows, offsets, start, stop, blocks, self._types)
        self._identifiers(part)
        for place, of in enumerate(self._columns):
            try:
                self._column(4 * place, of, part)
            except SchemaError as error:
                self._say((1, 4 * place), "column", str(error))
            if of.column.name not in self._shared:
                part.forget(of.column.name)
        self._bits(part)
        for place, index in enumerate(self._expected.indexes):
            self._index((3, place), index, part)

    def finished(self) -> CheckedFile:
        """What came of all row groups."""
        tids = None
        if self._tids:
            tids = np.concatenate([np.asarray(chunk.fill_null(-1)) for chunk in self._tids])
            if any(chunk.null_count for chunk in self._tids) or _repeat(tids):
                self._say((0, 1), "tid-column", f"its {TID!r} values are no distinct positions")
            tids = None if any(chunk.null_count for chunk in self._tids) else tids
        ids = self._expected.block_id[self._blocks]
        found = [(fault.check, fault.text(ids)) for _, fault in sorted(self._found.items(), key=lambda item: item[0])]
        return CheckedFile(tuple(found), tids)

    def _say(self, place: tuple[int, int], check: str, message: str) -> None:
        self._found.setdefault(place, _Fault(check, lambda n, block: message, np.ones(len(self._blocks), np.bool_)))

    def _mark(
        self, place: tuple[int, int], check: str, message: Callable[[int, int], str], wrong: Bits, part: _Part
    ) -> None:
        if wrong.any():
            fault = self._found.setdefault(place, _Fault(check, message, np.zeros(len(self._blocks), np.bool_)))
            fault.wrong[part.start : part.stop] = wrong

    def _identifiers(self, part: _Part) -> None:
        rows = part.rows
        if BLOCK not in rows.column_names:
            self._say((0, 0), "block-column", f"it lacks the column {BLOCK!r}")
        else:
            ids = np.repeat(self._expected.block_id[part.blocks], np.diff(part.offsets))
            if not np.array_equal(rows.column(BLOCK).to_numpy(), ids):
                self._say((0, 0), "block-column", f"its {BLOCK!r} values are not those of its blocks")
        if TID in rows.column_names:
            self._tids += rows.column(TID).chunks
        elif len(self._expected.plan.scheme.layouts) > 1:
            self._say((0, 1), "tid-column", f"it lacks the column {TID!r}")

    def _column(self, place: int, of: ExpectedColumn, part: _Part) -> None:
        """A column's statistics, checksums, and checksums at tids."""
        name = of.column.name
        if name not in part.rows.column_names:
            self._say((1, place), "column", f"it lacks the column {name!r}")
            return
        values = part.values(name)
        self._mark(
            (1, place + 1), "statistics",
            lambda n, block: f"the statistics of {name!r} are wrong in {n} blocks, as in {block}",
            _outside(of.bounds, part.blocks, values.measured(of.column.type)), part,
        )  # fmt: skip
        sums, tid_sums = of.sums[part.blocks], of.tid_sums[part.blocks]
        if not is_hashable(of.column.type) and not (tid_sums >= 0).any():
            return
        hashes = value_hashes(pa.chunked_array([values.values]), of.column.type)
        if hashes is None:
            return
        wrong = (sums >= 0) & (sums != values.sums(hashes))
        self._mark(
            (1, place + 2), "checksum",
            lambda n, block: f"the content of {name!r} was changed in {n} blocks, as in {block}", wrong, part,
        )  # fmt: skip
        if TID in part.rows.column_names and (tid_sums >= 0).any():
            at_tids = part.positions.hashes(values.spread(scrambled(hashes)))
            self._mark(
                (1, place + 3), "tid-checksum",
                lambda n, block: f"values of {name!r} have other tids in {n} blocks, as in {block}",
                (tid_sums >= 0) & (tid_sums != sums_by_block(at_tids, part.offsets)) & ~wrong, part,
            )  # fmt: skip

    def _bits(self, part: _Part) -> None:
        """Whether no row makes a feature TRUE whose bit is 0 in its block."""
        matches = BlockMatches(part.rows, part.offsets, part.values)
        words, there = self._expected.words[part.blocks], set(part.rows.column_names)
        for position, feature in enumerate(self._expected.plan.features):
            if not feature.columns <= there:
                continue
            unset = ~feature_bit(words, position)
            wrong = matches.among(feature.node, unset) if unset.any() else None
            if wrong is not None:
                self._mark((2, position), "union-vector", partial(_said_none, feature.node), wrong, part)

    def _index(self, place: tuple[int, int], index: ExpectedIndex, part: _Part) -> None:
        """Whether an index is that of the rows."""
        if not index.spec.subject.columns <= set(part.rows.column_names):
            return
        try:
            wrong = differing(index, part.blocks, part.rows, part.offsets)
        except SchemaError as error:
            self._say(place, "index", str(error))
            return
        spec = index.spec
        self._mark(
            place, "index", lambda n, block: f"the index {spec} is wrong in {n} blocks, as in {block}", wrong, part
        )


def _said_none(node: Node, _: int, block: int) -> str:
    return f"block {block} has rows of {describe(node)}, but its union vector says none"


def _outside(bounds: ColumnBounds, blocks: Ints, measured: Measured) -> Bits:
    """The blocks of which a value lies outside the bounds that the catalog knows, or the count of NULLs is wrong."""
    expected = bounds.nulls[blocks]
    wrong: Bits = (expected != UNKNOWN_NULLS) & (expected != measured.nulls)
    if measured.low is None or measured.high is None:
        return wrong
    nans = measured.nans if measured.nans is not None else np.zeros_like(measured.nulls)
    low, high = measured.low.to_pylist(), measured.high.to_pylist()
    for i in np.flatnonzero(bounds.known[blocks]).tolist():
        lowest, highest = bounds.low[blocks[i]], bounds.high[blocks[i]]
        if low[i] is not None and not (lowest <= low[i] and high[i] <= highest):
            wrong[i] = True
        if nans[i] and highest < NAN_KEY:
            wrong[i] = True
    return wrong


def _repeat(tids: Ints) -> bool:
    """Whether a tid occurs twice."""
    if not len(tids):
        return False
    if tids.min() < 0 or tids.max() > _MOST_ROWS + 64 * len(tids):
        return len(np.unique(tids)) < len(tids)
    seen = np.zeros(int(tids.max()) + 1, np.bool_)
    seen[tids] = True
    return int(np.count_nonzero(seen)) < len(tids)
