"""Compare one data file with what the catalog says of its blocks.

Files are read some row groups at a time, so that memory is independent of their size and that of a segment.
With several layouts, every cell of the source must be in its master layout (Sun 2017, 5.4.1). A layout with master
columns holds every row of its segments once: rows with local features whole, other rows with the master columns only.
Tids identify these rows, and sums of hash(tid, value) show that the values are those of the source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import pyarrow as pa

from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.bounds import sum_groups
from layoutopt.catalog.source_lists import list_source_lists, read_source_list
from layoutopt.catalog.statistics import Measured
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.storage.footers import ENCRYPTED, MAGIC, coded_columns
from layoutopt.catalog.storage.index_files import plain_lists, read_index
from layoutopt.catalog.table import Catalog
from layoutopt.errors import CatalogError, DataFileError, SchemaError, SettingError
from layoutopt.evaluation.checksum import Positions, is_hashable, scramble_words, sums_by_block, value_hashes
from layoutopt.evaluation.expressions import is_computed_here
from layoutopt.evaluation.predicates import KeyedRows, combine_bits, matching_rows
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
from layoutopt.scan.files import damaged_file, open_parquet, translate_read_errors
from layoutopt.scan.prune import PlanBlocks
from layoutopt.skipping.cannot_match import UNKNOWN_NULLS, ColumnBounds

# A file of the table, and what is wrong with it.
FileProblem = tuple[str, str]
# The stable code of a check, and what is wrong.
Finding = tuple[str, str]

# Cells and rows that are read and checked at once: enough to hide the cost of a call, and they fit in memory.
_CELLS = 1 << 21
_MOST_ROWS = 1 << 18


@dataclass(frozen=True, eq=False)
class ExpectedIndex:
    """The catalog's values of one index, one per block, NULL if it has none."""

    spec: IndexSpec
    stored: pa.Array


@dataclass(frozen=True, eq=False)
class ExpectedColumn:
    """A column in n blocks, by the catalog: which hold it, its bounds, and its checksums (-1: unknown)."""

    column: Column
    held: Bits
    bounds: ColumnBounds
    sums: Ints
    tid_sums: Ints


@dataclass(frozen=True, eq=False)
class Expected:
    """The catalog's content for some blocks of a plan, as plain arrays that threads may share."""

    plan: Plan
    rows: Ints
    row_group: Ints
    block_id: Ints
    words: Words
    columns: tuple[ExpectedColumn, ...]
    indexes: tuple[ExpectedIndex, ...] = ()

    @classmethod
    def from_blocks(cls, plan: Plan, blocks: BlockTable) -> Expected:
        """Collect all that is checked of the blocks."""
        columns = []
        for column in plan.schema.columns:
            held = blocks.has_column(column.name)
            if held.any():
                bounds = blocks.block_statistics().bounds[column.name]
                sums, tid_sums = blocks.column_sums(column.name), blocks.column_tid_sums(column.name)
                columns.append(ExpectedColumn(column, held, bounds, sums, tid_sums))
        indexes = []
        for spec in plan.indexes:
            stored = blocks.stored_index(spec) if find_unchecked_reason(spec) is None else None
            if stored is not None:
                indexes.append(ExpectedIndex(spec, stored))
        arrays = (blocks.rows, blocks.row_group, blocks.block_id, blocks.words)
        return cls(plan, *arrays, tuple(columns), tuple(indexes))


@dataclass(frozen=True, eq=False)
class FileToCheck:
    """A data file: its path, its footer's digest if known, and its blocks in ``expected``, by row group."""

    path: str
    footer: str | None
    expected: Expected
    blocks: Ints


@dataclass(frozen=True, eq=False)
class CheckedFile:
    """The findings of a file, and its tids ``int64[rows]`` if they can be checked."""

    findings: tuple[Finding, ...]
    tids: Ints | None = None


def check_file(files: TableFiles, file: FileToCheck, use_threads: bool = False) -> CheckedFile:
    """Read a file again and compare it with the catalog; Arrow may decode columns in parallel."""
    expected = file.expected
    try:
        with translate_read_errors(file.path):
            _check_first_bytes(files, file.path)
            # open_parquet refuses a changed footer: reading by it could take any amount of memory.
            with open_parquet(files, file.path, file.footer, coded=coded_columns) as parquet:
                metadata = parquet.metadata
                rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
                expected_rows = expected.rows[file.blocks].tolist()
                in_order = expected.row_group[file.blocks].tolist() == list(range(len(rows)))
                if not in_order or rows != expected_rows:
                    wrong = f"it has row groups of {rows[:5]}… rows, expected {expected_rows[:5]}…"
                    return CheckedFile((("row-groups", wrong),))
                check = _Check(file)
                for start, stop in _split_rounds(rows, metadata.num_columns):
                    groups = list(range(start, stop))
                    check.add(start, stop, parquet.read_row_groups(groups, use_threads=use_threads))
    except DataFileError as error:
        return CheckedFile((("file", str(error)),))
    return check.finish()


def _check_first_bytes(files: TableFiles, path: str) -> None:
    """Check the magic bytes at the start of a Parquet file, which readers ignore."""
    expected = MAGIC if files.keys is None else ENCRYPTED
    with files.open_input(path) as stream:
        actual = bytes(stream.read(len(expected)))
    if actual != expected:
        raise damaged_file(path, ValueError(f"it begins with {actual!r}, expected {expected!r}"))


@dataclass(frozen=True, eq=False)
class _Fault:
    """A fault of a file: the check, a message for a count of blocks and one of them, and the blocks, bool[n]."""

    check: str
    message: Callable[[int, int], str]
    wrong: Bits

    def text(self, ids: Ints) -> str:
        return self.message(int(self.wrong.sum()), int(ids[np.argmax(self.wrong)]))


class _Part:
    """Some row groups as they were read, their ``blocks`` in the expected content, and the rows' ``offsets``."""

    def __init__(
        self, rows: pa.Table, offsets: Ints, start: int, stop: int, blocks: Ints, types: Mapping[str, str]
    ) -> None:
        self.rows, self.offsets, self.start, self.stop, self.blocks = rows, offsets, start, stop, blocks
        self._types = types
        self.names = frozenset(rows.column_names)  # which Arrow lists anew each time
        self._values: dict[str, BlockValues] = {}

    def values(self, name: str) -> BlockValues:
        if name not in self._values:
            self._values[name] = block_values(self.rows.column(name), self.offsets, self._types[name])
        return self._values[name]

    def forget(self, name: str) -> None:
        self._values.pop(name, None)

    @cached_property
    def positions(self) -> Positions:
        return Positions(np.asarray(self.rows.column(TID).fill_null(0)))


def _split_rounds(rows: list[int], n_columns: int) -> Iterator[tuple[int, int]]:
    """Yield runs of row groups to be read at once."""
    most = min(_MOST_ROWS, _CELLS // max(n_columns, 1))
    start = total = 0
    for i, count in enumerate(rows):
        if total and total + count > most:
            yield start, i
            start, total = i, 0
        total += count
    if start < len(rows):
        yield start, len(rows)


class _Check:
    """The checks of one file, whose row groups are added in rounds."""

    def __init__(self, file: FileToCheck) -> None:
        expected = file.expected
        self._expected, self._blocks = expected, file.blocks
        self._columns = [column for column in expected.columns if column.held[file.blocks].any()]
        self._types = {column.name: column.type for column in expected.plan.schema.columns}
        self._shared = {name for feature in expected.plan.features for name in feature.columns}
        self._faults: dict[tuple[int, int], _Fault] = {}  # by place in the report
        self._tids: list[pa.Array] = []

    def add(self, start: int, stop: int, rows: pa.Table) -> None:
        """Check the row groups from ``start`` to before ``stop``."""
        blocks = self._blocks[start:stop]
        offsets = np.concatenate(([0], np.cumsum(self._expected.rows[blocks]))).astype(np.int64)
        part = _Part(rows, offsets, start, stop, blocks, self._types)
        self._check_identifiers(part)
        for place, expected in enumerate(self._columns):
            try:
                self._check_column(4 * place, expected, part)
            except SchemaError as error:
                self._add_fault((1, 4 * place), "column", str(error))
            if expected.column.name not in self._shared:
                part.forget(expected.column.name)
        self._check_union_vectors(part)
        for place, index in enumerate(self._expected.indexes):
            self._check_index((3, place), index, part)

    def finish(self) -> CheckedFile:
        tids = None
        if self._tids:
            tids = np.concatenate([np.asarray(chunk.fill_null(-1)) for chunk in self._tids])
            if any(chunk.null_count for chunk in self._tids) or _has_repeats(tids):
                self._add_fault((0, 1), "tid-column", f"its {TID!r} values are not distinct positions")
            tids = None if any(chunk.null_count for chunk in self._tids) else tids
        ids = self._expected.block_id[self._blocks]
        faults = [self._faults[place] for place in sorted(self._faults)]
        return CheckedFile(tuple((fault.check, fault.text(ids)) for fault in faults), tids)

    def _add_fault(self, place: tuple[int, int], check: str, message: str) -> None:
        self._faults.setdefault(place, _Fault(check, lambda n, block: message, np.ones(len(self._blocks), np.bool_)))

    def _mark_blocks(
        self, place: tuple[int, int], check: str, message: Callable[[int, int], str], wrong: Bits, part: _Part
    ) -> None:
        if wrong.any():
            fault = self._faults.setdefault(place, _Fault(check, message, np.zeros(len(self._blocks), np.bool_)))
            fault.wrong[part.start : part.stop] = wrong

    def _check_identifiers(self, part: _Part) -> None:
        rows = part.rows
        if BLOCK not in part.names:
            self._add_fault((0, 0), "block-column", f"it lacks the column {BLOCK!r}")
        else:
            ids = np.repeat(self._expected.block_id[part.blocks], np.diff(part.offsets))
            if not np.array_equal(rows.column(BLOCK).to_numpy(), ids):
                self._add_fault((0, 0), "block-column", f"its {BLOCK!r} values are not those of its blocks")
        if TID in part.names:
            self._tids += rows.column(TID).chunks
        elif len(self._expected.plan.scheme.layouts) > 1:
            self._add_fault((0, 1), "tid-column", f"it lacks the column {TID!r}")

    def _check_column(self, place: int, expected: ExpectedColumn, part: _Part) -> None:
        """Check a column's statistics, checksums, and checksums with tids."""
        name, type = expected.column.name, expected.column.type
        if name not in part.names:
            self._add_fault((1, place), "column", f"it lacks the column {name!r}")
            return
        values = part.values(name)
        self._mark_blocks(
            (1, place + 1), "statistics",
            lambda n, block: f"the statistics of {name!r} are wrong in {n} blocks, as in {block}",
            _find_outside(expected.bounds, part.blocks, values.measured(type)), part,
        )  # fmt: skip
        sums, tid_sums = expected.sums[part.blocks], expected.tid_sums[part.blocks]
        if not is_hashable(type) and not (tid_sums >= 0).any():
            return
        hashes = value_hashes(pa.chunked_array([values.values]), type)
        if hashes is None:
            return
        wrong = (sums >= 0) & (sums != values.sums(hashes))
        self._mark_blocks(
            (1, place + 2), "checksum",
            lambda n, block: f"the content of {name!r} was changed in {n} blocks, as in {block}", wrong, part,
        )  # fmt: skip
        if TID in part.names and (tid_sums >= 0).any():
            tid_hashes = part.positions.hashes(values.spread(scramble_words(hashes)))
            self._mark_blocks(
                (1, place + 3), "tid-checksum",
                lambda n, block: f"values of {name!r} have other tids in {n} blocks, as in {block}",
                (tid_sums >= 0) & (tid_sums != sums_by_block(tid_hashes, part.offsets)) & ~wrong, part,
            )  # fmt: skip

    def _check_union_vectors(self, part: _Part) -> None:
        """Check that no row makes a feature TRUE whose bit is 0 in the row's block."""
        matches = BlockMatches(part.rows, part.offsets, part.values)
        words, names = self._expected.words[part.blocks], part.names
        for position, feature in enumerate(self._expected.plan.features):
            if not feature.columns <= names:
                continue
            unset = ~feature_bit(words, position)
            wrong = matches.match(feature.node, unset) if unset.any() else None
            if wrong is not None:
                message = partial(_describe_missing_bit, feature.node)
                self._mark_blocks((2, position), "union-vector", message, wrong, part)

    def _check_index(self, place: tuple[int, int], index: ExpectedIndex, part: _Part) -> None:
        if not index.spec.subject.columns <= part.names:
            return
        try:
            wrong = compare_index(index, part.blocks, part.rows, part.offsets)
        except SchemaError as error:
            self._add_fault(place, "index", str(error))
            return
        spec = index.spec
        self._mark_blocks(
            place, "index", lambda n, block: f"the index {spec} is wrong in {n} blocks, as in {block}", wrong, part
        )


def _describe_missing_bit(node: Node, _: int, block: int) -> str:
    return f"block {block} has rows of {describe(node)}, but its union vector does not have the feature"


def _find_outside(bounds: ColumnBounds, blocks: Ints, measured: Measured) -> Bits:
    """Return the blocks with a value outside the known bounds, or with a wrong NULL count."""
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


def _has_repeats(tids: Ints) -> bool:
    if not len(tids):
        return False
    if tids.min() < 0 or tids.max() > _MOST_ROWS + 64 * len(tids):
        return len(np.unique(tids)) < len(tids)
    seen = np.zeros(int(tids.max()) + 1, np.bool_)
    seen[tids] = True
    return int(np.count_nonzero(seen)) < len(tids)


class TidsRead:
    """The tids read of each segment in each layout of a plan, checked after the last of their files."""

    def __init__(self, source: PlanBlocks) -> None:
        blocks, layouts = source.blocks, source.plan.scheme.layouts
        self._layouts = layouts
        place = source.segment_of * len(layouts) + blocks.layout
        self._place_of = {blocks.files[file]: p for file, p in zip(blocks.file.tolist(), place.tolist(), strict=True)}
        self._files_left = Counter(self._place_of.values())
        # Every master layout has all rows of a segment, so a segment has as many rows as its largest layout.
        rows = np.bincount(place, blocks.rows, len(layouts) * (int(source.segment_of.max(initial=-1)) + 1))
        self._rows = rows.reshape(-1, len(layouts)).max(axis=1).astype(np.int64)
        self._seen: dict[int, Bits] = {}
        self._invalid: set[int] = set()

    def add(self, file: str, tids: Ints) -> str | None:
        """Add a file's tids, ``int64[rows]``; return what is wrong after the last file of a segment's layout."""
        place = self._place_of[file]
        rows = int(self._rows[place // len(self._layouts)])
        seen = self._seen.setdefault(place, np.zeros(rows, dtype=np.bool_))
        mask = np.zeros(rows, dtype=np.bool_)
        mask[tids[(tids >= 0) & (tids < rows)]] = True
        if np.count_nonzero(mask) < len(tids) or (mask & seen).any():
            self._invalid.add(place)
        seen |= mask
        self._files_left[place] -= 1
        if self._files_left[place]:
            return None
        layout, seen = place % len(self._layouts), self._seen.pop(place)
        if place in self._invalid:
            return f"layout {layout} has a row of its segment twice, or a row that is not in the segment"
        if self._layouts[layout].master and not seen.all():
            count = len(seen) - int(seen.sum())
            return f"layout {layout} has master columns, but lacks {count} rows of its segment, as tid {seen.argmin()}"
        return None


def check_master_columns(source: PlanBlocks) -> Iterator[FileProblem]:
    """Yield master columns that lack rows of a partition, or differ from the source.

    The source's checksums are in the snapshot: the load compared them with the source before it committed.
    """
    blocks = source.blocks
    entries, group = source.by_entry
    count = len(entries)
    for number, layout in enumerate(source.plan.scheme.layouts):
        for name in layout.master:
            mask = (blocks.layout == number) & blocks.has_column(name)
            in_column, stored = group[mask], blocks.column_sums(name)[mask]
            rows, sums = sum_groups(blocks.rows[mask], in_column, count), sum_groups(stored, in_column, count)
            unknown = sum_groups(stored < 0, in_column, count)
            for place, index in enumerate(entries.tolist()):
                entry = source.entries[index]
                expected = entry.checksums.get(name)
                where = f"the master column {name!r} of layout {number} in partition {entry.key!r}"
                if rows[place] != entry.rows:
                    yield entry.blocks_file, f"{where} has {rows[place]} of {entry.rows} rows"
                elif expected is not None and not unknown[place] and sums[place] != expected:
                    yield entry.blocks_file, f"{where} has other values than the source had"


def check_rest_blocks(source: PlanBlocks) -> Iterator[FileProblem]:
    """Yield blocks of rows without local features that have one: queries for local rows would miss them."""
    blocks = source.blocks
    for number, layout in enumerate(source.plan.scheme.layouts):
        rest = (blocks.part == 1) & (blocks.layout == number)
        for feature in layout.features if rest.any() else ():
            wrong = rest & feature_bit(blocks.words, feature)
            if wrong.any():
                block = int(np.argmax(wrong))
                problem = f"block {int(blocks.block_id[block])} must be without feature {feature}, but has it"
                yield blocks.files[int(blocks.file[block])], problem


def check_index_files(catalog: Catalog) -> Iterator[FileProblem]:
    """Yield the index files that can't be read or differ from what was written, and what is wrong."""
    checked: set[str] = set()
    for entry in catalog.partitions:
        blocks = catalog.file_blocks(entry)
        for file in blocks.index_files:
            if file.path not in checked:
                checked.add(file.path)
                try:
                    read_index(catalog.files, file, blocks.n)
                except CatalogError as error:
                    yield file.path, str(error)


def check_source_lists(catalog: Catalog) -> Iterator[FileProblem]:
    """Yield the source lists that can't be read or differ from what was written, and what is wrong."""
    for name in dict.fromkeys(list_source_lists(catalog.files, catalog.snapshot).values()):
        try:
            read_source_list(catalog.files, name)
        except CatalogError as error:
            yield name.path, str(error)


def find_unchecked_reason(spec: IndexSpec) -> str | None:
    """Return why an index can't be measured again here; None if it can."""
    try:
        check_index(spec)
    except SettingError:
        return "its type is not installed"
    return None if is_computed_here(spec.subject) else "only Spark can compute its values"


def compare_index(expected: ExpectedIndex, blocks: Ints, rows: pa.Table, offsets: Ints) -> Bits:
    """Return the blocks whose index differs from that of their rows, ``bool[k]``.

    Args:
        blocks: the places of the k blocks that were read.
        rows: their rows; the k-th block has ``offsets[k] .. offsets[k + 1] - 1``.
        offsets: int64[k + 1].

    Raises:
        SchemaError: the rows' values are not of the indexed type.
    """
    stored = plain_lists(expected.stored.take(pa.array(blocks)))
    measured = measure_indexes([expected.spec], rows, offsets).field(0)
    if stored.type == measured.type and stored.equals(measured):
        return np.zeros(len(blocks), np.bool_)
    pairs = zip(stored, measured, strict=True)
    return np.array([old.is_valid and (not new.is_valid or old != new) for old, new in pairs], np.bool_)


class BlockMatches:
    """The rows of blocks, on which many filters that share literals are evaluated.

    Block i has the rows ``offsets[i] .. offsets[i + 1] - 1``.
    """

    def __init__(self, rows: pa.Table, offsets: Ints, values: Callable[[str], BlockValues]) -> None:
        self._rows = KeyedRows(rows)
        self._offsets = offsets
        self._values = values
        self._keyed_values: dict[str, KeyedRows] = {}
        self._value_masks: dict[Node, Bits | None] = {}
        self._row_masks: dict[Node, Bits | None] = {}
        self._block_masks: dict[Node, Bits | None] = {}

    def match(self, node: Node, blocks: Bits) -> Bits | None:
        """Return which of some blocks, ``bool[n]``, have a row that makes a filter TRUE.

        None if :func:`~layoutopt.evaluation.predicates.matching_rows` has no answer.
        """
        possible = self._match_blocks(node)
        if possible is None:
            return None
        matches = possible & blocks
        if _has_one_column(node) or not matches.any():
            return matches
        rows = self._match_rows(node)
        if rows is None:
            return None
        for i in np.flatnonzero(matches).tolist():
            matches[i] = rows[self._offsets[i] : self._offsets[i + 1]].any()
        return matches

    def _match_blocks(self, node: Node) -> Bits | None:
        """Return the blocks that have a row for each required literal; exact for a literal of one column."""
        if node in self._block_masks:
            return self._block_masks[node]
        mask: Bits | None
        if isinstance(node, And | Or):
            mask = combine_bits(node, [self._match_blocks(child) for child in node.children])
        elif _has_one_column(node):
            values = self._match_values(node)
            mask = None if values is None else self._values(_only_column(node)).sums(values) > 0
        else:
            mask = None if self._match_rows(node) is None else np.ones(len(self._offsets) - 1, np.bool_)
        self._block_masks[node] = mask
        return mask

    def _match_values(self, node: Node) -> Bits | None:
        """Return the values of its one column that make a literal TRUE, ``bool[m]``."""
        if node not in self._value_masks:
            name = _only_column(node)
            if name not in self._keyed_values:
                self._keyed_values[name] = KeyedRows(pa.table({name: self._values(name).values}))
            self._value_masks[node] = matching_rows(node, self._keyed_values[name])
        return self._value_masks[node]

    def _match_rows(self, node: Node) -> Bits | None:
        """Return the rows that make a filter TRUE, ``bool[rows]``."""
        if node in self._row_masks:
            return self._row_masks[node]
        mask: Bits | None
        if isinstance(node, And | Or):
            mask = combine_bits(node, [self._match_rows(child) for child in node.children])
        elif _has_one_column(node):
            values = self._match_values(node)
            mask = None if values is None else self._values(_only_column(node)).spread(values)
        else:
            mask = matching_rows(node, self._rows)
        self._row_masks[node] = mask
        return mask


def _has_one_column(node: Node) -> bool:
    return not isinstance(node, And | Or | Constant) and len(columns_of(node)) == 1


def _only_column(node: Node) -> str:
    (name,) = columns_of(node)
    return name
