"""What each type of index is worth, on columns of synthetic blocks: the table of `layoutopt bench indexes`.

Every case asks queries whose constants no feature foresaw. A block is skippable where none of its rows matches, as
its values tell; minima and maxima are what there is without an index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from time import process_time
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.bounds import column_bounds
from layoutopt.catalog.keys import stored_keys
from layoutopt.catalog.statistics import block_statistics, reduce_blocks
from layoutopt.catalog.storage.index_files import encode_index
from layoutopt.indexes.expressions import Evaluated, of_elements, parts_of, point_of
from layoutopt.indexes.lists import in_values, matching_keys
from layoutopt.indexes.metric_distance import distances, texts_of
from layoutopt.indexes.protocol import BlockColumn
from layoutopt.indexes.registry import find_index, parameter_of
from layoutopt.indexes.stored import StoredIndex
from layoutopt.model.arrays import Bits
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.predicates import And, Call, Col, Const, Expr, InSet, Like, Node, conjunction, like, parse_like
from layoutopt.model.predicates.normal import array_of, elements_of
from layoutopt.model.schema import Column, Schema
from layoutopt.model.values import Key, ValueSet, to_key
from layoutopt.skipping.cannot_match import BlockStatistics, cannot_match
from layoutopt.skipping.implied_literals import literals_of_elements

if TYPE_CHECKING:
    from rich.console import Console

BLOCKS, BLOCK_ROWS = 100, 10_000
_QUERIES = 100
_DISTINCT = 100_000
_WORDS = 5_000


@dataclass(frozen=True)
class IndexFigure:
    """One type of index on one column.

    Attributes:
        index: the index, as ``plan --index`` takes it.
        predicate: what was asked.
        skippable: pairs of a query and a block in which nothing matches.
        by_bounds, skipped: of these, those that minima and maxima prove, and those that the index proves with them.
        block_bytes: of its file, a block.
        column_bytes: of the column itself, a block.
        row_nanoseconds: of processor time to measure it, a row.
    """

    index: str
    predicate: str
    skippable: int
    by_bounds: int
    skipped: int
    block_bytes: float
    column_bytes: float
    row_nanoseconds: float


@dataclass(frozen=True)
class _Case:
    """A column, and what is asked of it; where elements of arrays are indexed, its type is that of elements."""

    column: Column
    predicate: str
    rows: Callable[[int, int], pa.Array]
    ask: Callable[[Col, np.random.Generator], Node]
    free: Callable[[Node, BlockColumn], Bits]
    of: Expr | None = None

    @property
    def subject(self) -> Expr:
        """What is indexed: the column as filters have it, unless the case names something else."""
        return self.of or Col(self.column.name, self.column.type)


def index_figures(blocks: int = BLOCKS, block_rows: int = BLOCK_ROWS, seed: int = 0) -> tuple[IndexFigure, ...]:
    """Every built-in type on a column that it is meant for; takes about a minute."""
    return tuple(
        figure for case, indexes in _CASES for figure in _figures(_Asked.of(case, blocks, block_rows, seed), indexes)
    )


@dataclass(frozen=True, eq=False)
class _Asked:
    """A case with its rows, its queries, and which blocks have a row for each, ``bool[queries, blocks]``."""

    case: _Case
    rows: int
    column: BlockColumn
    bounds: BlockStatistics
    asked: tuple[Node, ...]
    free: Bits

    @classmethod
    def of(cls, case: _Case, blocks: int, block_rows: int, seed: int) -> _Asked:
        """The rows of a case, asked."""
        offsets, rng = block_rows * np.arange(blocks + 1), np.random.default_rng(seed)
        found = Evaluated(pa.chunked_array([case.rows(blocks, block_rows)]), starts=np.arange(offsets[-1] + 1))
        if array_of(case.subject) is not None:
            found = of_elements(found)
        assert found.starts is not None, "given above"
        column = BlockColumn(found.values, found.starts[offsets], case.column.type)
        asked = tuple(case.ask(Col(case.column.name, case.column.type), rng) for _ in range(_QUERIES))
        free = [case.free(each, column) for each in asked]
        return cls(case, int(offsets[-1]), column, _bounds(case, column), asked, np.array(free))

    def skipped(self, *indexes: StoredIndex) -> int:
        """How many pairs of a query and a block are proved to have no match, by bounds and these indexes."""
        known = replace(self.bounds, indexes={self.case.subject: indexes})
        found = [cannot_match(node, known, None) for node in self.asked]
        return int(np.sum(found))


def _figures(asked: _Asked, indexes: Sequence[tuple[str, float | None]]) -> Iterator[IndexFigure]:
    blocks = asked.column.n
    for kind, parameter in indexes:
        spec, index = IndexSpec(asked.case.subject, kind, parameter), find_index(kind)
        fresh = BlockColumn(asked.column.values, asked.column.offsets, asked.column.type)
        start = process_time()
        stored = index.measure(fresh, parameter_of(spec))
        seconds = process_time() - start
        yield IndexFigure(
            index=str(spec),
            predicate=asked.case.predicate,
            skippable=int(asked.free.sum()),
            by_bounds=asked.skipped(),
            skipped=asked.skipped(StoredIndex(spec, index, blocks, partial(_same, stored))),
            block_bytes=len(encode_index(stored)) / blocks,
            column_bytes=len(encode_index(asked.column.values)) / blocks,
            row_nanoseconds=1e9 * seconds / asked.rows,
        )


def _same(stored: pa.Array) -> pa.Array:
    return stored


def _bounds(case: _Case, of: BlockColumn) -> BlockStatistics:
    """Minima and maxima of the columns; there are none of a piece of a text."""
    columns, values = [case.column], [of.values]
    if case.of is not None:
        columns = [Column(part.name, part.type) for part in parts_of(case.of) if isinstance(part, Col)]
        values = [pc.struct_field(of.values, [i]) for i in range(len(columns))]
    if not columns:
        return BlockStatistics(np.diff(of.offsets))
    stats = block_statistics(pa.table(values, names=[c.name for c in columns]), of.offsets, Schema(tuple(columns)))
    rows = np.diff(of.offsets)
    bounds = {c.name: column_bounds(stats.field(i), rows, c.type) for i, c in enumerate(columns)}
    return BlockStatistics(rows, bounds=bounds)


def _no_value(node: Node, column: BlockColumn) -> Bits:
    """The blocks without a value that makes a literal TRUE."""
    assert isinstance(node, InSet | Like)
    none: Bits = reduce_blocks(np.add, matching_keys(node, column.keys.keys), column.keys.offsets) == 0
    return none


def _no_element(node: Node, column: BlockColumn) -> Bits:
    """The blocks without an element of which a condition on arrays is TRUE."""
    assert isinstance(node, InSet)
    return _no_value(literals_of_elements(node)[0], column)


def _no_point(node: Node, column: BlockColumn) -> Bits:
    both = np.ones(len(column.values), np.bool_)
    for i, each in enumerate(node.children if isinstance(node, And) else ()):
        assert isinstance(each, InSet)
        both &= matching_keys(each, stored_keys(pc.struct_field(column.values, [i]), each.subject.type))
    none: Bits = reduce_blocks(np.add, both, column.offsets) == 0
    return none


def _none_near(node: Node, column: BlockColumn) -> Bits:
    assert isinstance(node, InSet)
    assert isinstance(node.subject, Call)
    word = node.subject.args[1]
    assert isinstance(word, Const)
    near = in_values(distances(texts_of(column.keys.keys), str(word.value)), node.values)
    none: Bits = reduce_blocks(np.add, near, column.keys.offsets) == 0
    return none


def _scattered(blocks: int, rows: int) -> npt.NDArray[np.int64]:
    return np.random.default_rng(1).integers(0, _DISTINCT, blocks * rows)


def _numbers(blocks: int, rows: int) -> pa.Array:
    """Every value anywhere: 100,000 distinct ones."""
    return pa.array(7 * _scattered(blocks, rows))


def _names(blocks: int, rows: int) -> pa.Array:
    return pa.array([f"user-{n:05d}@example.org" for n in _scattered(blocks, rows).tolist()])


def _codes(blocks: int, rows: int) -> pa.Array:
    """Forty of 2,000 codes in each block."""
    rng = np.random.default_rng(2)
    own = rng.integers(0, 2_000, (blocks, 40))
    return pa.array([f"c{n}" for n in own[:, rng.integers(0, 40, rows)].ravel().tolist()])


def _visits(blocks: int, rows: int) -> pa.Array:
    """Ten bursts of seconds in each block, anywhere in a year."""
    rng = np.random.default_rng(3)
    bursts = rng.integers(0, 365 * 86_400, (blocks, 10))
    return pa.array((bursts[:, rng.integers(0, 10, rows)] + rng.integers(0, 3_600, (blocks, rows))).ravel())


def _paths(blocks: int, rows: int) -> pa.Array:
    """Twenty of 1,000 services in each block, and twenty of 400 endings."""
    rng = np.random.default_rng(4)
    services, endings = rng.integers(0, 1_000, (blocks, 20)), rng.integers(0, 400, (blocks, 20))
    own = services[:, rng.integers(0, 20, rows)].ravel(), endings[:, rng.integers(0, 20, rows)].ravel()
    middle = rng.integers(0, 10**6, blocks * rows)
    return pa.array([f"/s{a:03d}/{m}.e{b:03d}" for a, m, b in zip(own[0], middle, own[1], strict=True)])


@cache
def _words() -> list[str]:
    letters = np.random.default_rng(5).integers(97, 123, (_WORDS, 8)).astype(np.uint8)
    return [bytes(word).decode() for word in letters]


def _comments(blocks: int, rows: int) -> pa.Array:
    """Six words a row, the n-th most frequent word with a share of 1/n."""
    rng = np.random.default_rng(6)
    ranks = np.minimum(rng.zipf(1.3, (blocks * rows, 6)), _WORDS) - 1
    return pa.array([" ".join(_words()[rank] for rank in row) for row in ranks.tolist()])


def _places(blocks: int, rows: int) -> pa.Array:
    """Two towns in each block, a few kilometres wide, of a country ten degrees wide."""
    rng = np.random.default_rng(7)
    towns = rng.uniform(45, 55, (blocks, 2, 2))
    points = towns[np.arange(blocks)[:, None], rng.integers(0, 2, (blocks, rows))] + rng.normal(
        0, 0.02, (blocks, rows, 2)
    )
    return pa.StructArray.from_arrays([pa.array(points[:, :, i].ravel()) for i in range(2)], names=["c0", "c1"])


def _near_town(column: Col, rng: np.random.Generator) -> Node:
    centre = rng.uniform(45, 55, 2)
    sides = zip(parts_of(_POINT), centre, strict=True)
    return conjunction([InSet(of, ValueSet.interval(*map(_key, (at - 0.2, at + 0.2)))) for of, at in sides])


def _key(number: float) -> Key:
    return to_key(number, "double")


def _spellings(blocks: int, rows: int) -> pa.Array:
    """In each block the spellings of a word of eight letters: each with two letters changed."""
    rng = np.random.default_rng(8)
    letters = np.repeat(np.array([list(word.encode()) for word in _words()[:blocks]], dtype=np.uint8), rows, axis=0)
    for _ in range(2):
        letters[np.arange(len(letters)), rng.integers(0, 8, len(letters))] = rng.integers(97, 123, len(letters))
    return pa.array(letters.view("S8").ravel().astype("U8"))


def _spelt(column: Col, rng: np.random.Generator) -> Node:
    word = _words()[int(rng.integers(0, 2 * BLOCKS))]
    return InSet(Call("levenshtein", (column, Const(word, "string")), "int"), ValueSet.interval(None, 3))


def _agents(blocks: int, rows: int) -> pa.Array:
    """The names of agents, ten of 500 in each block: what stands before the first slash of longer texts."""
    rng = np.random.default_rng(9)
    own = rng.integers(0, 500, (blocks, 10))
    return pa.array([f"agent{n:03d}" for n in own[:, rng.integers(0, 10, rows)].ravel().tolist()])


def _agent(column: Col, rng: np.random.Generator) -> Node:
    return InSet(_NAME, ValueSet.point(f"agent{int(rng.integers(0, 500)):03d}"))


def _tags(blocks: int, rows: int) -> pa.Array:
    """Five words a row, of 2,000 of 50,000 in each block."""
    own = np.random.default_rng(10).integers(0, 50_000, (blocks, 2_000))
    words = own[:, np.random.default_rng(11).integers(0, 2_000, 5 * rows)].ravel()
    texts = pa.array([f"tag{n:05d}" for n in range(50_000)]).take(pa.array(words))
    return pa.ListArray.from_arrays(pa.array(5 * np.arange(blocks * rows + 1), pa.int32()), texts)


def _tagged(column: Col, rng: np.random.Generator) -> Node:
    word = Const(f"tag{int(rng.integers(0, 50_000)):05d}", "string")
    return InSet(Call("array_contains", (Col(column.name, _TAGS.type), word), "boolean"), ValueSet.point(1))


def _equal(text: str, column: Col, rng: np.random.Generator) -> InSet:
    number = int(rng.integers(0, _DISTINCT))
    return InSet(column, ValueSet.point(text.format(number) if text else 7 * number))


def _matching(pattern: str, most: int, column: Col, rng: np.random.Generator) -> InSet | Like:
    found = like(column, parse_like(pattern.format(int(rng.integers(0, most)))))
    assert isinstance(found, InSet | Like)
    return found


def _word(column: Col, rng: np.random.Generator) -> InSet | Like:
    """A word from the rarer four fifths."""
    found = like(column, parse_like(f"%{_words()[int(rng.integers(_WORDS // 5, _WORDS))]}%"))
    assert isinstance(found, InSet | Like)
    return found


def _hour(column: Col, rng: np.random.Generator) -> InSet:
    start = int(rng.integers(0, 365 * 86_400))
    return InSet(column, ValueSet.interval(start, start + 3_600))


_POINT = point_of([Col("lat", "double"), Col("lon", "double")])
_NAME = Call("split_part", (Col("agent", "string"), Const("/", "string"), Const(1, "int")), "string")
_TAGS = Col("tags", "array<string>")
_NUMBERS = _Case(Column("user", "bigint"), "= a number, 100,000 of them", _numbers, partial(_equal, ""), _no_value)
_EMAILS = _Case(
    Column("email", "string"),
    "= a text, 100,000 of them",
    _names,
    partial(_equal, "user-{:05d}@example.org"),
    _no_value,
)
_PICKED = _Case(
    Column("code", "string"), "= one of 2,000, 40 a block", _codes, partial(_matching, "c{}", 2_000), _no_value
)
_VISITS = _Case(Column("visit", "bigint"), "an hour of a year", _visits, _hour, _no_value)
_BEGUN = _Case(Column("path", "string"), "LIKE '/s123/%'", _paths, partial(_matching, "/s{:03d}/%", 1_000), _no_value)
_ENDED = _Case(Column("path", "string"), "LIKE '%.e123'", _paths, partial(_matching, "%.e{:03d}", 400), _no_value)
_SAID = _Case(Column("comment", "string"), "LIKE '%word%'", _comments, _word, _no_value)
_NAMED = _Case(Column("agent", "string"), "= a name, of 500, 10 a block", _agents, _agent, _no_value, _NAME)
_TOWNS = _Case(Column("point", _POINT.type), "within 0.2 degrees of a place", _places, _near_town, _no_point, _POINT)
_TAGGED = _Case(
    Column("tags", "string"),
    "array_contains(tags, 'w'), of 50,000, 2,000 a block",
    _tags,
    _tagged,
    _no_element,
    elements_of(_TAGS),
)
_NEARLY = _Case(Column("word", "string"), "levenshtein(word, 'w') < 3", _spellings, _spelt, _none_near)
_CASES: Sequence[tuple[_Case, Sequence[tuple[str, float | None]]]] = (
    (_NUMBERS, (("bloom", None), ("bloom", 0.05), ("value-list", 16_384), ("hybrid", None))),
    (_EMAILS, (("bloom", None), ("bloom", 0.05))),
    (_PICKED, (("value-list", None), ("hybrid", None), ("bloom", None))),
    (_VISITS, (("gap-list", None), ("gap-list", 4))),
    (_BEGUN, (("prefix", 5),)),
    (_ENDED, (("suffix", 5),)),
    (_SAID, (("ngrams", None), ("ngrams", 0.1))),
    (_NAMED, (("formatted", None),)),
    (_TOWNS, (("geo-box", None), ("geo-box", 2))),
    (_NEARLY, (("metric-distance", None),)),
    (_TAGGED, (("value-list", 16_384), ("bloom", None))),
)


def print_indexes(console: Console, figures: Sequence[IndexFigure]) -> None:
    """The figures as a table."""
    from rich.table import Table

    table = Table(title=f"{BLOCKS} blocks of {BLOCK_ROWS:,} rows, {_QUERIES} queries each")
    for name in ("index", "filter"):
        table.add_column(name)
    for name in ("skippable", "without", "skipped", "bytes a block", "column's", "ns a row"):
        table.add_column(name, justify="right")
    for each in figures:
        shares = [f"{count / max(each.skippable, 1):.1%}" for count in (each.by_bounds, each.skipped)]
        sizes = [f"{each.block_bytes:,.0f}", f"{each.column_bytes:,.0f}", f"{each.row_nanoseconds:,.0f}"]
        table.add_row(each.index, each.predicate, f"{each.skippable:,}", *shares, *sizes)
    console.print(table)
