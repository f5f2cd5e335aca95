"""Checks a whole text: its own condition on what it skips, and its answer from all rows.

Both are DuckDB's, so texts are looked at that mean the same there as in Spark; of others the filter as analysed is all
that :mod:`layoutopt.scan.shadow_check` evaluates. What a text means is then not our analyser's to say.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from layoutopt.errors import QueryError, SkippingError
from layoutopt.model.feature import Settings
from layoutopt.model.predicates import TRUE, Filter
from layoutopt.scan.check_switch import TALLY
from layoutopt.scan.engine import EngineQuery, run, source_of
from layoutopt.scan.files import BATCH_ROWS
from layoutopt.scan.prune import PlanBlocks, PrunedPlan, PruneOutcome, choose_layouts
from layoutopt.scan.shadow_check import delivered, report_lost, segments_with_skips
from layoutopt.scan.shadow_check_rows import compiled_condition, matching_text, segment_rows
from layoutopt.scan.table_read import TableRead
from layoutopt.sql.duckdb.translate import PortableSql, portable_sql
from layoutopt.sql.scans import plain_condition

_CLOSE = 1e-9
"""Sums of floats depend on the order of the rows; what a lost row changes is larger, or another check's to find."""


def check_text(sql: str, reads: Sequence[TableRead], settings: Settings) -> bool:
    """Evaluates a text on what its reads skip, or answers it from all rows; whether that was possible.

    Args:
        sql: the text, in Spark's dialect.
        reads: what it reads, one item for each mention of a table.
        settings: the session's, in which DuckDB has to take the text as Spark does.

    Raises:
        SkippingError: a row that the text asks for is skipped, or the answer from all rows is another one.
        DataFileError: a data file is missing or damaged.
    """
    if not any(map(_leaves_out, reads)):
        return True
    if not settings.ansi or settings.case_sensitive or not all(read.table.catalog.written for read in reads):
        return False
    known = len(reads) == 1 and _check_condition(sql, reads[0], settings.time_zone)
    return _check_answer(sql, reads, settings.time_zone) or known


def _leaves_out(read: TableRead) -> bool:
    return any(len(plan.choice) > 1 or not plan.read.all() for plan in read.pruned)


def _check_condition(sql: str, read: TableRead, zone: str) -> bool:
    """Whether every row that is skipped was looked at."""
    condition, schema = _plain_condition(sql), read.table.schema
    if condition is None or compiled_condition(schema, condition, zone) is None:
        return False
    columns = [column for column in read.columns if column.name.lower() in condition.lower()]
    if not columns:
        return False
    for plan in read.pruned:
        for segment in segments_with_skips(plan):
            rows = segment_rows(read.table.catalog.data, plan.source, segment)
            found = matching_text(schema, condition, rows.table(columns), zone)
            if found is None:
                return False
            report_lost(plan, rows, found & ~delivered(plan, rows), condition)
    TALLY["conditions of texts"] += 1
    return True


@lru_cache(maxsize=1000)
def _plain_condition(sql: str) -> str | None:
    try:
        return plain_condition(sql)
    except QueryError:
        return None


def _check_answer(sql: str, reads: Sequence[TableRead], zone: str) -> bool:
    portable = _portable(sql, reads, zone)
    if portable is None or " limit " in f" {' '.join(sql.lower().split())} ":  # which rows a limit leaves is open
        return False
    try:
        skipping, whole = (_answer(portable, each, zone) for each in (reads, list(map(whole_read, reads))))
    except QueryError:  # an overflow, or a cast that fails on a row that is skipped
        return False
    if not same_rows(skipping, whole):
        raise SkippingError(
            f"the answer to {sql:.200} from what is not skipped ({skipping.num_rows} rows) is not the one from all "
            f"rows ({whole.num_rows}); run `layoutopt verify`, and report this where nothing is found"
        )
    TALLY["answers of texts"] += 1
    return True


def _portable(sql: str, reads: Sequence[TableRead], zone: str) -> PortableSql | None:
    schemas = {read.scan.table: read.table.schema for read in reads}
    udfs = {name: udf for read in reads for name, udf in read.table.udfs.items()}
    try:
        return portable_sql(sql, schemas, _views(reads), zone, udfs)
    except QueryError:
        return None


def _views(reads: Sequence[TableRead]) -> Mapping[int, str]:
    return {read.start: f"_checked_{index}" for index, read in enumerate(reads)}


def _answer(portable: PortableSql, reads: Sequence[TableRead], zone: str) -> pa.Table:
    views = _views(reads)
    sources = tuple(source_of(views[read.start], read) for read in reads)
    batches = list(
        run(EngineQuery(portable.sql, portable.columns, sources, zone, False, portable.functions), BATCH_ROWS)
    )
    return pa.Table.from_batches(batches) if batches else pa.table({})


def whole_read(read: TableRead) -> TableRead:
    """All rows of what a mention reads, each column from its master layout: nothing is decided by a filter."""
    scan = replace(read.scan, filter=Filter.of(TRUE))
    return TableRead(read.table, scan, tuple(_all_blocks(source, scan.columns) for source in read.table.sources))


def _all_blocks(source: PlanBlocks, columns: Sequence[str]) -> PrunedPlan:
    blocks, layouts = source.blocks, len(source.plan.scheme.layouts)
    absent = {column.name for column in source.absent}
    rows = np.bincount(blocks.layout, blocks.rows, layouts).astype(int).tolist()
    path = choose_layouts(source.plan, [name for name in columns if name not in absent], [False] * layouts, rows)
    chosen = np.isin(blocks.layout, [choice.layout for choice in path.choice])
    outcome = np.where(chosen, PruneOutcome.READ, PruneOutcome.OTHER_LAYOUT).astype(np.int8)
    return PrunedPlan(source, path, outcome, chosen, np.zeros(blocks.n, dtype=np.int64))


def same_rows(left: pa.Table, right: pa.Table) -> bool:
    """Whether two answers hold the same rows in any order, sums of floats up to rounding."""
    if left.num_rows != right.num_rows:
        return False
    return all(
        _same_value(one, other)
        for row, found in zip(_sorted_rows(left), _sorted_rows(right), strict=True)
        for one, other in zip(row, found, strict=True)
    )


def _sorted_rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """The rows by their exact values first, so that floats that differ by rounding stand side by side."""
    rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def key(row: tuple[Any, ...]) -> tuple[list[str], list[str]]:
        floats = [f"{value:.6g}" for value in row if isinstance(value, float)]
        return [repr(value) for value in row if not isinstance(value, float)], floats

    return iter(sorted(rows, key=key))


def _same_value(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (one != one and other != other) or math.isclose(one, other, rel_tol=_CLOSE)
    return bool(one == other) or repr(one) == repr(other)
