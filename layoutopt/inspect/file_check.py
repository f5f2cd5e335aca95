"""The checks of one data file: is in it what the catalog says of its blocks?

Files are read some row groups at a time, so that memory follows neither their size nor that of a segment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import pyarrow as pa

from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.statistics import Measured
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.storage.footers import ENCRYPTED, MAGIC, coded_columns
from layoutopt.catalog.storage.index_files import plain_lists, read_index
from layoutopt.catalog.table import Catalog
from layoutopt.errors import CatalogError, DataFileError, SchemaError, SettingError
from layoutopt.indexes.expressions import is_computed_here
from layoutopt.indexes.measuring import measure_indexes
from layoutopt.indexes.protocol import BlockValues, block_values
from layoutopt.indexes.registry import check_index
from layoutopt.model.arrays import Bits, Ints, Words
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.layout import Plan
from layoutopt.model.predicates import And, Constant, Node, Or, columns_of, describe
from layoutopt.model.schema import BLOCK, TID, Column
from layoutopt.model.values import NAN_KEY
from layoutopt.model.vectors import feature_bit
from layoutopt.scan.files import damaged, missing, open_parquet
from layoutopt.scan.prune import PlanBlocks
from layoutopt.skipping.cannot_match import UNKNOWN_NULLS, ColumnBounds
from layoutopt.writer.checksum import Positions, is_hashable, scrambled, sums_by_block, value_hashes
from layoutopt.writer.evaluation import KeyedRows, combined, matching_rows

# ----------------------------------------------------------------------------------------------------
# Which blocks have a row that meets a filter, by the distinct values of each block, and by rows where needed.


class BlockMatches:
    """Rows of blocks that are asked for many filters, which share literals.

    Args:
        rows: the columns; block i has the rows ``offsets[i] .. offsets[i + 1] - 1``.
        offsets: int64[n + 1].
        values: a column by its name.
    """

    def __init__(self, rows: pa.Table, offsets: Ints, values: Callable[[str], BlockValues]) -> None:
        self._rows = KeyedRows(rows)
        self._offsets = offsets
        self._values = values
        self._keyed: dict[str, KeyedRows] = {}
        self._of_values: dict[Node, Bits | None] = {}
        self._of_rows: dict[Node, Bits | None] = {}
        self._of_blocks: dict[Node, Bits | None] = {}

    def among(self, node: Node, wanted: Bits) -> Bits | None:
        """Which of the wanted blocks, ``bool[n]``, have a row that makes a filter TRUE.

        None where :func:`~layoutopt.writer.evaluation.matching_rows` has no answer.
        """
        possible = self._possible(node)
        if possible is None:
            return None
        found = possible & wanted
        if _is_of_one_column(node) or not found.any():
            return found
        matched = self._matched(node)
        if matched is None:
            return None
        for i in np.flatnonzero(found).tolist():
            found[i] = matched[self._offsets[i] : self._offsets[i + 1]].any()
        return found

    def _possible(self, node: Node) -> Bits | None:
        """The blocks that have a row for each literal that must be TRUE; for one of one column that is exact."""
        if node not in self._of_blocks:
            self._of_blocks[node] = self._new_possible(node)
        return self._of_blocks[node]

    def _new_possible(self, node: Node) -> Bits | None:
        if isinstance(node, And | Or):
            return combined(node, [self._possible(child) for child in node.children])
        if _is_of_one_column(node):
            matched = self._literal(node)
            return None if matched is None else self._values(_only_column(node)).sums(matched) > 0
        return None if self._matched(node) is None else np.ones(len(self._offsets) - 1, np.bool_)

    def _literal(self, node: Node) -> Bits | None:
        """The values of its one column that make a literal TRUE, ``bool[m]``."""
        if node not in self._of_values:
            name = _only_column(node)
            if name not in self._keyed:
                self._keyed[name] = KeyedRows(pa.table({name: self._values(name).values}))
            self._of_values[node] = matching_rows(node, self._keyed[name])
        return self._of_values[node]

    def _matched(self, node: Node) -> Bits | None:
        """The rows that make a filter TRUE, ``bool[rows]``."""
        if node not in self._of_rows:
            self._of_rows[node] = self._new_matched(node)
        return self._of_rows[node]

    def _new_matched(self, node: Node) -> Bits | None:
        if isinstance(node, And | Or):
            return combined(node, [self._matched(child) for child in node.children])
        if not _is_of_one_column(node):
            return matching_rows(node, self._rows)
        of_values = self._literal(node)
        return None if of_values is None else self._values(_only_column(node)).spread(of_values)


def _is_of_one_column(node: Node) -> bool:
    return not isinstance(node, And | Or | Constant) and len(columns_of(node)) == 1


def _only_column(node: Node) -> str:
    (name,) = columns_of(node)
    return name


# ----------------------------------------------------------------------------------------------------
# Whether every cell of the source is in its master layout, by what was read back (Sun 2017, 5.4.1).
#
# A layout with master columns holds every row of its segments once: with the local features whole, and the rest with
# the
# master columns alone. Tids say which rows those are, and sums of hash(tid, value) that the values are the source's.

Where = tuple[str, str]
"""A file of the table, and what is wrong with it."""


def master_columns(source: PlanBlocks) -> Iterator[Where]:
    """Master columns that the catalog has not for every row of a partition, or with other content than the source.

    Of the source's content the snapshot has the checksums: a load compared them with the source before it committed.
    """
    blocks = source.blocks
    for index in np.unique(source.entry_of):
        entry = source.entries[index]
        for number, layout in enumerate(source.plan.scheme.layouts):
            here = (source.entry_of == index) & (blocks.layout == number)
            for name in layout.master:
                held = here & blocks.has_column(name)
                rows, sums = int(blocks.rows[held].sum()), blocks.column_sums(name)[held]
                expected = entry.checksums.get(name)
                said = f"layout {number}, where {name!r} is master, has it in partition {entry.key!r}"
                if rows != entry.rows:
                    yield entry.blocks_file, f"{said} for {rows} of {entry.rows} rows"
                elif expected is not None and not (sums < 0).any() and int(sums.sum()) != expected:
                    yield entry.blocks_file, f"{said} with other values than the source had"


def misplaced_rests(source: PlanBlocks) -> Iterator[Where]:
    """Blocks of rows without a local feature that have one: a query that reads local rows alone would miss theirs."""
    blocks = source.blocks
    for number, layout in enumerate(source.plan.scheme.layouts):
        rest = (blocks.part == 1) & (blocks.layout == number)
        for feature in layout.features if rest.any() else ():
            wrong = rest & feature_bit(blocks.words, feature)
            if wrong.any():
                path = blocks.files[int(blocks.file[np.argmax(wrong)])]
                yield (
                    path,
                    f"block {int(blocks.block_id[np.argmax(wrong)])} is to be without feature {feature}, and is not",
                )


class TidsRead:
    """The tids read of each segment in each layout of a plan, judged when the last of their files was read."""

    def __init__(self, source: PlanBlocks) -> None:
        blocks, layouts = source.blocks, source.plan.scheme.layouts
        self._layouts = layouts
        place = source.segment_of * len(layouts) + blocks.layout
        self._place_of = {blocks.files[file]: at for file, at in zip(blocks.file.tolist(), place.tolist(), strict=True)}
        self._left = Counter(self._place_of.values())
        # Every master layout has all rows of a segment, so the most that a layout has are the segment's.
        in_place = np.bincount(place, blocks.rows, len(layouts) * (int(source.segment_of.max(initial=-1)) + 1))
        self._rows = in_place.reshape(-1, len(layouts)).max(axis=1).astype(np.int64)
        self._seen: dict[int, Bits] = {}
        self._twice: set[int] = set()

    def add(self, file: str, tids: Ints) -> str | None:
        """Add a file's tids, ``int64[rows]``; after the last file of a layout of a segment, what is wrong with it."""
        place = self._place_of[file]
        rows = int(self._rows[place // len(self._layouts)])
        seen = self._seen.setdefault(place, np.zeros(rows, dtype=np.bool_))
        known = tids[(tids >= 0) & (tids < rows)]
        here = np.zeros(rows, dtype=np.bool_)
        here[known] = True
        if np.count_nonzero(here) < len(tids) or (here & seen).any():
            self._twice.add(place)
        seen |= here
        self._left[place] -= 1
        return None if self._left[place] else self._judged(place, self._seen.pop(place))

    def _judged(self, place: int, seen: Bits) -> str | None:
        layout = place % len(self._layouts)
        if place in self._twice:
            return f"layout {layout} has a row of its segment twice, or one that the segment has not"
        if self._layouts[layout].master and not seen.all():
            missing = len(seen) - int(seen.sum())
            return (
                f"layout {layout} has master columns, and lacks {missing} rows of its segment, as tid {seen.argmin()}"
            )
        return None


# ----------------------------------------------------------------------------------------------------
# Whether stored indexes are what a load would measure of the rows.


@dataclass(frozen=True, eq=False)
class ExpectedIndex:
    """What the catalog has of one index in n blocks: one value a block, NULL where it has nothing."""

    spec: IndexSpec
    stored: pa.Array


def expected_indexes(plan: Plan, blocks: BlockTable) -> tuple[ExpectedIndex, ...]:
    """The indexes of some blocks that can be measured again here."""
    found = []
    for spec in plan.indexes:
        stored = blocks.stored_index(spec) if why_unchecked(spec) is None else None
        if stored is not None:
            found.append(ExpectedIndex(spec, stored))
    return tuple(found)


def why_unchecked(spec: IndexSpec) -> str | None:
    """Why an index can't be measured again here; None where it can."""
    try:
        check_index(spec)
    except SettingError:
        return "its type is not installed"
    return None if is_computed_here(spec.subject) else "only Spark can compute its values"


def differing(expected: ExpectedIndex, blocks: Ints, rows: pa.Table, offsets: Ints) -> Bits:
    """The blocks whose index is not that of their rows, ``bool[k]``.

    Args:
        expected: of all blocks.
        blocks: those that were read, by their places.
        rows: theirs; the k-th has ``offsets[k] .. offsets[k + 1] - 1``.
        offsets: int64[k + 1].

    Raises:
        SchemaError: the rows' values are not of the indexed type.
    """
    stored = plain_lists(expected.stored.take(pa.array(blocks)))
    measured = measure_indexes([expected.spec], rows, offsets).field(0)
    if stored.type == measured.type and stored.equals(measured):
        return np.zeros(len(blocks), np.bool_)
    pairs = zip(stored, measured, strict=True)
    return np.array([ours.is_valid and (not theirs.is_valid or ours != theirs) for ours, theirs in pairs], np.bool_)


def unreadable(catalog: Catalog) -> Iterator[tuple[str, str]]:
    """The index files that can't be read or are not what their load wrote: each path, and what is wrong."""
    rows: dict[str, int] = {}
    for entry in catalog.partitions:
        table = catalog.file_blocks(entry)
        for named in table.index_files:
            if named.path not in rows:
                rows[named.path] = table.n
                try:
                    read_index(catalog.files, named, table.n)
                except CatalogError as error:
                    yield named.path, str(error)


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
