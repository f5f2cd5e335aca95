"""Which rows a log's queries ask for, in one pass over a table: every segment is read once, whole.

A query's own condition, cut out of its text, is evaluated by DuckDB, so that nothing of the analysis, the features, the
statistics or the skipping rule is believed. Where DuckDB might take the condition otherwise than Spark, or the
statement is more than one plain SELECT, the filter as analysed is evaluated instead, which believes the analysis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

import duckdb
import numpy as np
import pyarrow as pa

from layoutopt.errors import DataFileError, QueryError
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.predicates import TRUE, Node
from layoutopt.model.query import Query
from layoutopt.model.schema import TID, Column, Schema
from layoutopt.scan.arrow_types import empty_table
from layoutopt.scan.engine import connect
from layoutopt.scan.files import BATCH_ROWS, read_files
from layoutopt.scan.opened_table import OpenedTable
from layoutopt.scan.prune import PlanBlocks
from layoutopt.scan.read import present_everywhere, read_segments
from layoutopt.scan.segments import SegmentRead, file_reads, segments_to_read
from layoutopt.sql.duckdb.translate import portable_sql
from layoutopt.sql.scans import plain_condition
from layoutopt.sql.schema import plain_name
from layoutopt.writer.evaluation import matching_rows

Progress = Callable[[int, int], None]

PLACE = "_place"
"""A row's position among those of its segment."""
_AT_ONCE = 50  # conditions that DuckDB evaluates in one pass


@dataclass
class Question:
    """What some queries of a log ask of rows, all of them the same.

    Attributes:
        root: the filter as analysed.
        columns: the columns that the queries read.
        condition: their own WHERE, where that is evaluated; else the filter is.
        ids: the queries' places in the log.
    """

    root: Node
    columns: tuple[str, ...]
    condition: str | None
    ids: list[int] = field(default_factory=list)

    @property
    def needs(self) -> frozenset[str]:
        """The columns that tell which rows match; of a text's own condition all that the query reads."""
        return self.root.columns if self.condition is None else frozenset(self.columns)


def find_matches(table: OpenedTable, questions: Sequence[Question], progress: Progress | None = None) -> list[Matches]:
    """Reads a table and finds what matches each question, one item a plan.

    Args:
        table: the table at one snapshot.
        questions: of :func:`questions_of`.
        progress: called with (segments done, all segments).

    Raises:
        DataFileError: a data file is missing or damaged.
        QueryError: a filter is about texts that are no UTF-8, which only Spark can match.
    """
    names = frozenset().union(*(each.needs for each in questions))
    columns = tuple(column for column in table.schema.columns if column.name in names) or table.schema.columns[:1]
    whole = [segments_to_read(plan) for plan in table.decide(TRUE, [column.name for column in columns])]
    found, done = [], 0
    for source, segments in zip(table.sources, whole, strict=True):
        matches = Matches(source, len(questions))
        for number, segment in enumerate(segments):
            batches = list(read_segments(table.catalog.data, [segment], columns))
            content = pa.Table.from_batches(batches, None if batches else empty_table(columns).schema)
            matches.add(table, questions, number, segment, content)
            done += 1
            if progress is not None:
                progress(done, sum(map(len, whole)))
        found.append(matches)
    return found


def questions_of(table: OpenedTable, queries: Iterable[Query], dialect: str) -> tuple[list[Question], list[int | None]]:
    """The distinct questions of a log, and for each query which is its; None where only Spark could answer it."""
    asked: dict[tuple[Node, tuple[str, ...], str | None], int] = {}
    questions: list[Question] = []
    of_query: list[int | None] = []
    nothing = empty_table(table.schema.columns)
    own_condition = cache(lambda sql: _own_condition(table, sql, dialect))
    for query in queries:
        condition, root = own_condition(query.sql), query.filter.root
        if condition is None and matching_rows(root, nothing) is None:
            of_query.append(None)
            continue
        index = asked.setdefault((root, query.columns, condition), len(asked))
        if index == len(questions):
            questions.append(Question(root, query.columns, condition))
        questions[index].ids.append(query.id)
        of_query.append(index)
    return questions, of_query


def _own_condition(table: OpenedTable, sql: str, dialect: str) -> str | None:
    """The query's WHERE where it is plain and means the same to DuckDB."""
    try:
        condition = plain_condition(sql, dialect)
        if condition is not None:
            bits_sql(table.schema, [condition], table.settings.time_zone)
    except QueryError:
        return None
    return condition


def with_places(rows: pa.Table) -> pa.Table:
    """The rows as :func:`bits_sql` reads them: under plain names, each with its place."""
    named = rows.rename_columns([plain_name(name) for name in rows.column_names])
    return named.append_column(PLACE, pa.array(np.arange(rows.num_rows, dtype=np.int64)))


def bits_sql(schema: Schema, conditions: Sequence[str], time_zone: str) -> str:
    """DuckDB's text for whether each row makes each condition TRUE, with the row's place."""
    bits = ", ".join(f"CASE WHEN {text} THEN TRUE ELSE FALSE END AS c{i}" for i, text in enumerate(conditions))
    placed = Schema((*schema.columns, Column(PLACE, "bigint")))
    return portable_sql(f"SELECT {PLACE}, {bits} FROM t", {"t": placed}, "t", time_zone).sql


class Matches:
    """What of one plan's rows matches which question.

    Attributes:
        source: the plan's blocks.
        read: rows read.
        rows: the matching rows of each question, int64[questions].
        block: which blocks hold a matching row, bool[blocks, questions].
        lacking: by (layout, segment), for each question whether a matching row is in no block of that layout.
        unanswered: the questions on which DuckDB failed, as on an overflow that Spark has not; their rows are unknown.
    """

    def __init__(self, source: PlanBlocks, questions: int) -> None:
        self.source = source
        self.block = np.zeros((source.blocks.n, questions), dtype=np.bool_)
        self.lacking: dict[tuple[int, int], Bits] = {}
        self.rows = np.zeros(questions, dtype=np.int64)
        self.unanswered: set[int] = set()
        self.read = 0

    def add(
        self, table: OpenedTable, asked: Sequence[Question], number: int, segment: SegmentRead, rows: pa.Table
    ) -> None:
        """Notes what matches in one segment, of which these are all rows."""
        blocks_of = self._blocks_of_rows(table, number, segment, rows.num_rows)
        self.read += rows.num_rows
        for index, matched in _matching(table, asked, rows):
            if matched is None:
                self.unanswered.add(index)
                continue
            places = np.flatnonzero(matched)
            self.rows[index] += len(places)
            for layout, block_of in blocks_of.items():
                blocks = block_of[places]
                self.block[blocks[blocks >= 0], index] = True
                if (blocks < 0).any():
                    lacking = self.lacking.setdefault((layout, number), np.zeros(len(asked), dtype=np.bool_))
                    lacking[index] = True

    def _blocks_of_rows(self, table: OpenedTable, number: int, read: SegmentRead, rows: int) -> dict[int, Ints]:
        """For each layout the block that holds each row, -1 where the layout lacks it; int64[rows]."""
        blocks = self.source.blocks
        here = np.flatnonzero(self.source.segment_of == number)
        here = here[np.lexsort((blocks.row_group[here], blocks.file[here]))]
        if not self.source.plan.scheme.has_tids:
            return {0: np.repeat(here, blocks.live_rows[here])}
        by_layout = {layout: here[blocks.layout[here] == layout] for layout in np.unique(blocks.layout[here]).tolist()}
        tids = {layout: self._tids(table, mine) for layout, mine in by_layout.items()}
        # Rows of one layout come as they stand in its files, rows of several in the order of their tids.
        among = [tids[each.layout] for each in read.layouts]
        order = among[0] if len(among) == 1 else present_everywhere(among)
        if len(order) != rows:
            raise DataFileError(
                f"segment {read.segment} of partition {read.partition!r} has {len(order)} rows by their positions, not "
                f"{rows}; load its partition again"
            )
        found = {}
        for layout, mine in by_layout.items():
            block_of_tid = np.full(int(max(rows, *(t.max(initial=-1) + 1 for t in tids.values()))), -1, dtype=np.int64)
            block_of_tid[tids[layout]] = np.repeat(mine, blocks.live_rows[mine])
            found[layout] = block_of_tid[order]
        return found

    def _tids(self, table: OpenedTable, mine: Ints) -> Ints:
        parts = file_reads(self.source.blocks, mine)
        arrays = [batch.column(0) for batch in read_files(table.catalog.data, parts, [TID], BATCH_ROWS)]
        return np.concatenate([np.zeros(0, np.int64), *(np.asarray(array, dtype=np.int64) for array in arrays)])


def _matching(table: OpenedTable, asked: Sequence[Question], rows: pa.Table) -> Iterator[tuple[int, Bits | None]]:
    """For each question the rows that it asks for, bool[rows]; None where DuckDB fails."""
    by_text = [(index, each.condition) for index, each in enumerate(asked) if each.condition is not None]
    schema = Schema(tuple(column for column in table.schema.columns if column.name in rows.column_names))
    zone = table.settings.time_zone
    with connect(zone) as connection:
        connection.register("t", with_places(rows))
        for start in range(0, len(by_text), _AT_ONCE):
            part = by_text[start : start + _AT_ONCE]
            found = _evaluate_texts(connection, schema, [text for _, text in part], zone)
            yield from zip((index for index, _ in part), found, strict=True)
    for index, each in enumerate(asked):
        if each.condition is None:
            bits = matching_rows(each.root, rows)
            if bits is None:
                raise QueryError(f"query {each.ids[0]} matches texts that are no UTF-8; leave it out of the log")
            yield index, bits


def _evaluate_texts(
    connection: duckdb.DuckDBPyConnection, schema: Schema, conditions: Sequence[str], zone: str
) -> list[Bits | None]:
    """Return for each condition the rows of ``t`` that make it TRUE, bool[rows]; None where DuckDB fails on one."""
    try:
        found = connection.sql(bits_sql(schema, conditions, zone)).to_arrow_table()
    except duckdb.Error:
        if len(conditions) == 1:
            return [None]
        return [bits for each in conditions for bits in _evaluate_texts(connection, schema, [each], zone)]
    order = np.argsort(np.asarray(found.column(0)))
    return [np.asarray(column, dtype=np.bool_)[order] for column in found.columns[1:]]
