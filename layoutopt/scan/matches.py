"""Find the rows that match a log's queries, in one pass over a table; every segment is read once, whole.

A query's own condition, cut out of its text, is evaluated by DuckDB. So the analysis, features, statistics and skipping
rule are not trusted. If DuckDB may interpret the condition differently from Spark, or the statement is more than one
plain SELECT, the analysed filter is evaluated instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache

import numpy as np
import pyarrow as pa

from layoutopt.catalog.arrow_types import empty_table
from layoutopt.errors import DataFileError, QueryError
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.predicates import TRUE, Node
from layoutopt.model.query import Query
from layoutopt.model.schema import TID, Column, Schema
from layoutopt.scan.engine import EngineQuery, Source, answer
from layoutopt.scan.files import BATCH_ROWS, read_files
from layoutopt.scan.opened_table import OpenedTable
from layoutopt.scan.prune import PlanBlocks
from layoutopt.scan.read import intersect_tids, read_segments
from layoutopt.scan.segments import SegmentRead, plan_file_reads, segments_to_read
from layoutopt.sql.duckdb.translate import PortableSql, portable_sql
from layoutopt.sql.scans import plain_condition
from layoutopt.writer.evaluation import matching_rows

Progress = Callable[[int, int], None]

# The column of a row's position in its segment.
PLACE = "_place"
# Conditions that DuckDB evaluates in one pass.
_CONDITIONS_AT_ONCE = 50


@dataclass
class Question:
    """The condition that several equal queries of a log put on rows.

    Attributes:
        condition: the queries' own WHERE, if it is evaluated instead of the filter.
        ids: the queries' places in the log.
    """

    root: Node
    columns: tuple[str, ...]
    condition: str | None
    ids: list[int] = field(default_factory=list)

    @property
    def needs(self) -> frozenset[str]:
        """The columns needed to evaluate it; for a text's own condition all that the query reads."""
        return self.root.columns if self.condition is None else frozenset(self.columns)


def find_matches(table: OpenedTable, questions: Sequence[Question], progress: Progress | None = None) -> list[Matches]:
    """Read a table and find what matches each question, one item per plan.

    ``progress`` is called with (segments done, all segments). Raises QueryError if a filter uses texts that are not
    UTF-8, which only Spark can match.
    """
    names = frozenset().union(*(question.needs for question in questions))
    columns = tuple(column for column in table.schema.columns if column.name in names) or table.schema.columns[:1]
    segments_by_plan = [segments_to_read(plan) for plan in table.decide(TRUE, [column.name for column in columns])]
    all_matches, done = [], 0
    for source, segments in zip(table.sources, segments_by_plan, strict=True):
        matches = Matches(source, len(questions))
        for number, segment in enumerate(segments):
            batches = list(read_segments(table.catalog.data, [segment], columns))
            rows = pa.Table.from_batches(batches, None if batches else empty_table(columns).schema)
            matches.add(table, questions, number, segment, rows)
            done += 1
            if progress is not None:
                progress(done, sum(map(len, segments_by_plan)))
        all_matches.append(matches)
    return all_matches


def find_questions(
    table: OpenedTable, queries: Iterable[Query], dialect: str
) -> tuple[list[Question], list[int | None]]:
    """Return the distinct questions of a log, and each query's index (None if only Spark can answer it)."""
    indices: dict[tuple[Node, tuple[str, ...], str | None], int] = {}
    questions: list[Question] = []
    index_of_query: list[int | None] = []
    no_rows = empty_table(table.schema.columns)
    find_condition = cache(lambda sql: _find_condition(table, sql, dialect))
    for query in queries:
        condition, root = find_condition(query.sql), query.filter.root
        if condition is None and matching_rows(root, no_rows) is None:
            index_of_query.append(None)
            continue
        index = indices.setdefault((root, query.columns, condition), len(indices))
        if index == len(questions):
            questions.append(Question(root, query.columns, condition))
        questions[index].ids.append(query.id)
        index_of_query.append(index)
    return questions, index_of_query


def _find_condition(table: OpenedTable, sql: str, dialect: str) -> str | None:
    """Return the query's WHERE if it is plain and means the same in DuckDB."""
    try:
        condition = plain_condition(sql, dialect)
        if condition is not None:
            bits_query(table.schema, (condition,), table.settings.time_zone)
    except QueryError:
        return None
    return condition


def evaluate_conditions(schema: Schema, conditions: Sequence[str], rows: pa.Table, time_zone: str) -> list[Bits]:
    """Return for each condition in Spark's dialect the rows that make it TRUE, bool[rows], by DuckDB.

    Args:
        schema: of the rows.
        conditions: on these columns.
        rows: the rows.
        time_zone: of the session.

    Raises:
        QueryError: DuckDB may differ from Spark, or fails on a row, perhaps on one that no query reads.
    """
    query = bits_query(schema, tuple(conditions), time_zone)
    placed = rows.append_column(PLACE, pa.array(np.arange(rows.num_rows, dtype=np.int64)))
    source = Source("t", placed.schema, lambda: iter(placed.to_batches()))
    bits = answer(EngineQuery(query.sql, query.columns, (source,), time_zone, False, query.functions, query.uses_times))
    order = np.argsort(np.asarray(bits.column(0)))
    return [np.asarray(column, dtype=np.bool_)[order] for column in bits.columns[1:]]


@lru_cache(maxsize=1000)
def bits_query(schema: Schema, conditions: tuple[str, ...], time_zone: str) -> PortableSql:
    """Return a query for each row's place and whether the row makes each condition TRUE; raises QueryError."""
    bits = ", ".join(f"CASE WHEN {text} THEN TRUE ELSE FALSE END AS c{i}" for i, text in enumerate(conditions))
    schema = Schema((*schema.columns, Column(PLACE, "bigint")))
    return portable_sql(f"SELECT {PLACE}, {bits} FROM t", {"t": schema}, "t", time_zone)


class Matches:
    """The matches of all questions in one plan's rows.

    Attributes:
        rows: the number of matching rows of each question, int64[questions].
        block: which blocks hold a matching row, bool[blocks, questions].
        lacking: by (layout, segment), for each question whether a matching row is in no block of that layout.
        unanswered: the questions on which DuckDB failed (an overflow, for example); their matches are unknown.
    """

    def __init__(self, source: PlanBlocks, questions: int) -> None:
        self.source = source
        self.block = np.zeros((source.blocks.n, questions), dtype=np.bool_)
        self.lacking: dict[tuple[int, int], Bits] = {}
        self.rows = np.zeros(questions, dtype=np.int64)
        self.unanswered: set[int] = set()
        self.read = 0

    def add(
        self, table: OpenedTable, questions: Sequence[Question], number: int, segment: SegmentRead, rows: pa.Table
    ) -> None:
        """Add the matches of one segment, given all its rows."""
        blocks_by_layout = self._locate_rows(table, number, segment, rows.num_rows)
        self.read += rows.num_rows
        for alike, mask in _match_rows(table, questions, rows):
            if mask is None:
                self.unanswered.update(alike)
                continue
            places = np.flatnonzero(mask)
            self.rows[alike] += len(places)
            for layout, block_of_row in blocks_by_layout.items():
                blocks = block_of_row[places]
                self.block[np.unique(blocks[blocks >= 0])[:, None], alike] = True
                if (blocks < 0).any():
                    lacking = self.lacking.setdefault((layout, number), np.zeros(len(questions), dtype=np.bool_))
                    lacking[alike] = True

    def _locate_rows(self, table: OpenedTable, number: int, read: SegmentRead, rows: int) -> dict[int, Ints]:
        """Return for each layout the block that holds each row, -1 if the layout lacks it; int64[rows]."""
        blocks = self.source.blocks
        ids = np.flatnonzero(self.source.segment_of == number)
        ids = ids[np.lexsort((blocks.row_group[ids], blocks.file[ids]))]
        if not self.source.plan.scheme.has_tids:
            return {0: np.repeat(ids, blocks.live_rows[ids])}
        by_layout = {layout: ids[blocks.layout[ids] == layout] for layout in np.unique(blocks.layout[ids]).tolist()}
        tids = {}
        for layout, block_ids in by_layout.items():
            batches = read_files(table.catalog.data, plan_file_reads(blocks, block_ids), [TID], BATCH_ROWS)
            arrays = (np.asarray(batch.column(0), dtype=np.int64) for batch in batches)
            tids[layout] = np.concatenate([np.zeros(0, np.int64), *arrays])
        # Rows of one layout are in the order of its files, rows of several in the order of their tids.
        read_tids = [tids[layout_read.layout] for layout_read in read.layouts]
        order = read_tids[0] if len(read_tids) == 1 else intersect_tids(read_tids)
        if len(order) != rows:
            raise DataFileError(
                f"segment {read.segment} of partition {read.partition!r} has {len(order)} row positions, expected "
                f"{rows}; load its partition again"
            )
        blocks_by_layout = {}
        for layout, block_ids in by_layout.items():
            block_of_tid = np.full(int(max(rows, *(t.max(initial=-1) + 1 for t in tids.values()))), -1, dtype=np.int64)
            block_of_tid[tids[layout]] = np.repeat(block_ids, blocks.live_rows[block_ids])
            blocks_by_layout[layout] = block_of_tid[order]
        return blocks_by_layout


def _match_rows(
    table: OpenedTable, questions: Sequence[Question], rows: pa.Table
) -> Iterator[tuple[list[int], Bits | None]]:
    """Yield the rows, bool[rows], that match some questions alike; None if DuckDB fails. Each question is in one."""
    by_text: dict[str, list[int]] = {}
    by_filter: dict[Node, list[int]] = {}
    for index, question in enumerate(questions):
        if question.condition is None:
            by_filter.setdefault(question.root, []).append(index)
        else:
            by_text.setdefault(question.condition, []).append(index)
    schema = Schema(tuple(column for column in table.schema.columns if column.name in rows.column_names))
    zone, conditions = table.settings.time_zone, list(by_text)
    for start in range(0, len(conditions), _CONDITIONS_AT_ONCE):
        part = conditions[start : start + _CONDITIONS_AT_ONCE]
        masks = _evaluate_texts(schema, part, rows, zone)
        yield from zip((by_text[text] for text in part), masks, strict=True)
    for root, alike in by_filter.items():
        mask = matching_rows(root, rows)
        if mask is None:
            id = questions[alike[0]].ids[0]
            raise QueryError(f"query {id} matches texts that are not UTF-8; remove it from the log")
        yield alike, mask


def _evaluate_texts(schema: Schema, conditions: Sequence[str], rows: pa.Table, zone: str) -> Sequence[Bits | None]:
    """Return for each condition the rows that make it TRUE, bool[rows]; None if DuckDB fails on it."""
    try:
        return evaluate_conditions(schema, conditions, rows, zone)
    except QueryError:
        if len(conditions) == 1:
            return [None]
        return [mask for text in conditions for mask in _evaluate_texts(schema, [text], rows, zone)]
