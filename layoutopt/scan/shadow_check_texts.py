"""Shadow check of a whole text: its own condition on what it skips, and its answer from all rows.

Both are evaluated by DuckDB, so only texts that mean the same there as in Spark are checked. The analysis of the text
is then not trusted. For other texts, :mod:`layoutopt.scan.shadow_check` evaluates only the filter as analysed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from layoutopt.errors import QueryError, SkippingError
from layoutopt.evaluation.conditions import can_match, match_condition
from layoutopt.evaluation.engine import EngineQuery, run
from layoutopt.model.feature import SessionSettings
from layoutopt.model.predicates import TRUE, Filter
from layoutopt.scan.check_switch import TALLY
from layoutopt.scan.files import BATCH_ROWS
from layoutopt.scan.prune import PlanBlocks, PrunedPlan, choose_layouts
from layoutopt.scan.segment_truth import load_segment
from layoutopt.scan.shadow_check import mask_delivered, raise_if_lost, segments_with_skips
from layoutopt.scan.table_read import TableRead
from layoutopt.sql.duckdb.translate import PortableSql, portable_sql
from layoutopt.sql.scans import plain_condition

# The relative difference between equal sums of floats, which depend on the order of the rows.
_CLOSE = 1e-9


def check_text(sql: str, reads: Sequence[TableRead], settings: SessionSettings) -> bool:
    """Evaluate a text on what its reads skip, or answer it from all rows; return whether that was possible.

    Raises SkippingError if a matching row is skipped, or the answer from all rows differs.
    """
    if all(len(plan.choice) <= 1 and plan.read.all() for read in reads for plan in read.pruned):
        return True  # nothing is skipped
    if not settings.ansi or settings.case_sensitive or not all(read.table.catalog.written for read in reads):
        return False
    decided = len(reads) == 1 and _check_condition(sql, reads[0], settings.time_zone)
    return _check_answer(sql, reads, settings.time_zone) or decided


def _check_condition(sql: str, read: TableRead, zone: str) -> bool:
    """Return whether the text's condition was evaluated on every row that is skipped."""
    condition, schema = _find_condition(sql), read.table.schema
    if condition is None or not can_match(schema, condition, zone):
        return False
    columns = [column for column in read.columns if column.name.lower() in condition.lower()]
    if not columns:
        return False
    for plan in read.pruned:
        for segment in segments_with_skips(plan):
            rows = load_segment(read.table.catalog.data, plan.source, segment)
            matches = match_condition(schema, condition, rows.table(columns), zone)
            if matches is None:
                return False
            raise_if_lost(plan, rows, matches & ~mask_delivered(plan, rows), condition)
    TALLY["conditions of texts"] += 1
    return True


@lru_cache(maxsize=1000)
def _find_condition(sql: str) -> str | None:
    try:
        return plain_condition(sql)
    except QueryError:
        return None


def _check_answer(sql: str, reads: Sequence[TableRead], zone: str) -> bool:
    views = {read.start: f"_checked_{index}" for index, read in enumerate(reads)}
    schemas = {read.scan.table: read.table.schema for read in reads}
    udfs = {name: udf for read in reads for name, udf in read.table.udfs.items()}
    try:
        portable = portable_sql(sql, schemas, views, zone, udfs)
    except QueryError:
        return False
    if " limit " in f" {' '.join(sql.lower().split())} ":  # a limit may return any of the rows
        return False
    try:
        pruned = _run_query(portable, reads, views, zone)
        whole = _run_query(portable, list(map(whole_read, reads)), views, zone)
    except QueryError:  # an overflow, or a cast that fails on a row that is skipped
        return False
    if not have_same_rows(pruned, whole):
        raise SkippingError(
            f"the answer to {sql:.200} with skipping ({pruned.num_rows} rows) differs from the answer without "
            f"({whole.num_rows} rows); run `layoutopt verify`, and report this if it finds nothing"
        )
    TALLY["answers of texts"] += 1
    return True


def _run_query(portable: PortableSql, reads: Sequence[TableRead], views: Mapping[int, str], zone: str) -> pa.Table:
    sources = tuple(read.as_view(views[read.start]) for read in reads)
    query = EngineQuery(portable.sql, portable.columns, sources, zone, False, portable.functions, portable.uses_times)
    batches = list(run(query, BATCH_ROWS))
    return pa.Table.from_batches(batches) if batches else pa.table({})


def whole_read(read: TableRead) -> TableRead:
    """Return a mention's read of all rows, each column from its master layout, without a filter."""
    scan = replace(read.scan, filter=Filter.of(TRUE))
    return TableRead(read.table, scan, tuple(_read_all(source, scan.columns) for source in read.table.sources))


def _read_all(source: PlanBlocks, columns: Sequence[str]) -> PrunedPlan:
    blocks, layouts = source.blocks, len(source.plan.scheme.layouts)
    absent = {column.name for column in source.absent}
    rows = np.bincount(blocks.layout, blocks.rows, layouts).astype(int).tolist()
    path = choose_layouts(source.plan, [name for name in columns if name not in absent], [False] * layouts, rows)
    read = np.isin(blocks.layout, [choice.layout for choice in path.choice])
    return PrunedPlan(source, TRUE, source.plan.settings, np.zeros(blocks.n, dtype=np.bool_), path, read)


def have_same_rows(left: pa.Table, right: pa.Table) -> bool:
    """Return whether two answers hold the same rows in any order, sums of floats up to rounding."""
    if left.num_rows != right.num_rows:
        return False
    return all(
        _are_equal(left_value, right_value)
        for left_row, right_row in zip(_sort_rows(left), _sort_rows(right), strict=True)
        for left_value, right_value in zip(left_row, right_row, strict=True)
    )


def _sort_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """Sort rows by exact values first, so that floats that differ by rounding are compared with each other."""
    rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def key(row: tuple[Any, ...]) -> tuple[list[str], list[str]]:
        floats = [f"{value:.6g}" for value in row if isinstance(value, float)]
        return [repr(value) for value in row if not isinstance(value, float)], floats

    return sorted(rows, key=key)


def _are_equal(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (left != left and right != right) or math.isclose(left, right, rel_tol=_CLOSE)
    return bool(left == right) or repr(left) == repr(right)
