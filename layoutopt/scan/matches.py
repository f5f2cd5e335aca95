"""Find the rows that match a log's queries, in one pass over a table; every segment is read once, whole.

A query's own condition, cut out of its text, is evaluated by DuckDB. So the analysis, features, statistics and skipping
rule are not trusted. If DuckDB may interpret the condition differently from Spark, or the statement is more than one
plain SELECT, the analysed filter is evaluated instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pyarrow as pa

from layoutopt.errors import QueryError
from layoutopt.evaluation.arrow_types import empty_table
from layoutopt.evaluation.conditions import bits_query, evaluate_conditions
from layoutopt.evaluation.predicates import matching_rows
from layoutopt.model.arrays import Bits
from layoutopt.model.predicates import Node
from layoutopt.model.query import Query
from layoutopt.model.schema import Column, Schema
from layoutopt.scan.opened_table import OpenedTable
from layoutopt.scan.prune import PlanBlocks
from layoutopt.scan.segment_truth import SegmentTruth
from layoutopt.sql.scans import plain_condition

Progress = Callable[[int, int], None]

# Conditions that DuckDB evaluates in one pass.
_CONDITIONS_AT_ONCE = 50


@dataclass
class LogCondition:
    """The condition that several equal queries of a log put on rows.

    Attributes:
        text: the queries' own WHERE, if it is evaluated instead of the filter.
        ids: the queries' places in the log.
    """

    root: Node
    columns: tuple[str, ...]
    text: str | None
    ids: list[int] = field(default_factory=list)

    @property
    def needs(self) -> frozenset[str]:
        """The columns needed to evaluate it; for a text's own condition all that the query reads."""
        return self.root.columns if self.text is None else frozenset(self.columns)


def find_matches(
    table: OpenedTable, conditions: Sequence[LogCondition], progress: Progress | None = None
) -> list[Matches]:
    """Read a table and find what matches each condition, one item per plan.

    ``progress`` is called with (segments done, all segments). Raises QueryError if a filter uses texts that are not
    UTF-8, which only Spark can match.
    """
    names = frozenset().union(*(condition.needs for condition in conditions))
    columns = tuple(column for column in table.schema.columns if column.name in names) or table.schema.columns[:1]
    segments_by_plan = [np.unique(source.segment_of).tolist() for source in table.sources]
    all_matches, done = [], 0
    for source, segments in zip(table.sources, segments_by_plan, strict=True):
        matches = Matches(source, len(conditions))
        for segment in segments:
            matches.add(table, conditions, columns, segment)
            done += 1
            if progress is not None:
                progress(done, sum(map(len, segments_by_plan)))
        all_matches.append(matches)
    return all_matches


def find_log_conditions(
    table: OpenedTable, queries: Iterable[Query], dialect: str
) -> tuple[list[LogCondition], list[int | None]]:
    """Return the distinct conditions of a log, and each query's index (None if only Spark can answer it)."""
    indices: dict[tuple[Node, tuple[str, ...], str | None], int] = {}
    conditions: list[LogCondition] = []
    index_of_query: list[int | None] = []
    no_rows = empty_table(table.schema.columns)
    find_condition = cache(lambda sql: _find_condition(table, sql, dialect))
    for query in queries:
        text, root = find_condition(query.sql), query.filter.root
        if text is None and matching_rows(root, no_rows) is None:
            index_of_query.append(None)
            continue
        index = indices.setdefault((root, query.columns, text), len(indices))
        if index == len(conditions):
            conditions.append(LogCondition(root, query.columns, text))
        conditions[index].ids.append(query.id)
        index_of_query.append(index)
    return conditions, index_of_query


def _find_condition(table: OpenedTable, sql: str, dialect: str) -> str | None:
    """Return the query's WHERE if it is plain and means the same in DuckDB."""
    try:
        condition = plain_condition(sql, dialect)
        if condition is not None:
            bits_query(table.schema, (condition,), table.settings.time_zone)
    except QueryError:
        return None
    return condition


class Matches:
    """The matches of all conditions in one plan's rows.

    Attributes:
        rows: the number of matching rows of each condition, int64[conditions].
        block: which blocks hold a matching row, bool[blocks, conditions].
        lacking: by (layout, segment), whether a row that matches each condition is in no block of that layout.
        unanswered: the conditions on which DuckDB failed (an overflow, for example); their matches are unknown.
    """

    def __init__(self, source: PlanBlocks, conditions: int) -> None:
        self.source = source
        self.block = np.zeros((source.blocks.n, conditions), dtype=np.bool_)
        self.lacking: dict[tuple[int, int], Bits] = {}
        self.rows = np.zeros(conditions, dtype=np.int64)
        self.unanswered: set[int] = set()
        self.read = 0

    def add(
        self, table: OpenedTable, conditions: Sequence[LogCondition], columns: Sequence[Column], segment: int
    ) -> None:
        """Add the matches of one segment, whose rows are read."""
        truth = SegmentTruth(table.catalog.data, self.source, segment)
        rows = truth.table(columns)
        self.read += rows.num_rows
        for alike, mask in _match_rows(table, conditions, rows):
            if mask is None:
                self.unanswered.update(alike)
                continue
            places = np.flatnonzero(mask)
            self.rows[alike] += len(places)
            for layout in range(len(self.source.plan.scheme.layouts)):
                blocks = truth.block_of(layout)[places]
                self.block[np.unique(blocks[blocks >= 0])[:, None], alike] = True
                if (blocks < 0).any():
                    lacking = self.lacking.setdefault((layout, segment), np.zeros(len(conditions), dtype=np.bool_))
                    lacking[alike] = True


def _match_rows(
    table: OpenedTable, conditions: Sequence[LogCondition], rows: pa.Table
) -> Iterator[tuple[list[int], Bits | None]]:
    """Yield the rows, bool[rows], that match some conditions alike; None if DuckDB fails. Each condition is in one."""
    by_text: dict[str, list[int]] = {}
    by_filter: dict[Node, list[int]] = {}
    for index, condition in enumerate(conditions):
        if condition.text is None:
            by_filter.setdefault(condition.root, []).append(index)
        else:
            by_text.setdefault(condition.text, []).append(index)
    schema = Schema(tuple(column for column in table.schema.columns if column.name in rows.column_names))
    zone, texts = table.settings.time_zone, list(by_text)
    for start in range(0, len(texts), _CONDITIONS_AT_ONCE):
        part = texts[start : start + _CONDITIONS_AT_ONCE]
        masks = _evaluate_texts(schema, part, rows, zone)
        yield from zip((by_text[text] for text in part), masks, strict=True)
    for root, alike in by_filter.items():
        mask = matching_rows(root, rows)
        if mask is None:
            id = conditions[alike[0]].ids[0]
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
