"""Shadow check: read again what a decision skips, and fail if a row was lost.

The check runs with ``LAYOUTOPT_CHECK_SKIPPING=1``, and in all tests of this package. It trusts no feature, statistic,
bound or retrieval path. For each segment of which something is skipped, it reads the filter's columns of all rows and
evaluates the filter row by row. Each row for which it is TRUE must be in a block that is read, in every layout that is
read for it. Where possible, :mod:`layoutopt.scan.shadow_check_texts` also evaluates the query's own text, so that the
analysis of the text is not trusted either.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
import pyarrow as pa

from layoutopt.errors import SkippingError
from layoutopt.evaluation.conditions import match_condition
from layoutopt.evaluation.predicates import matching_rows
from layoutopt.model.arrays import Bits
from layoutopt.model.predicates import And, Node, Or, columns_of, describe
from layoutopt.model.predicates.render import to_sql
from layoutopt.scan.check_switch import TALLY
from layoutopt.scan.opened_table import OpenedTable
from layoutopt.scan.prune import PrunedPlan, PruneOutcome
from layoutopt.scan.segment_truth import SegmentTruth, load_segment


def check_decision(table: OpenedTable, root: Node, pruned: Sequence[PrunedPlan]) -> None:
    """Raise SkippingError if a decision skips a row for which the filter is TRUE, or lacks a partition."""
    if not table.catalog.written:
        return
    _check_coverage(table, pruned)
    names = columns_of(root)
    columns = [column for column in table.schema.columns if column.name in names]
    decided = True
    for plan in pruned:
        blocks = plan.source.blocks
        skipped = plan.on_path & ~plan.read
        TALLY["blocks"] += int(np.count_nonzero(skipped))
        TALLY["rows"] += int(blocks.rows[skipped].sum())
        for segment in segments_with_skips(plan):
            rows = load_segment(table.catalog.data, plan.source, segment)
            content = rows.table(columns)
            if not columns:  # a table without columns has no rows to evaluate a constant filter on
                content = pa.table({"_rows": pa.nulls(rows.rows)})
            certain, possible = bound_matches(root, content)
            missing = ~mask_delivered(plan, rows)
            if (possible & ~certain & missing).any():
                matches = match_condition(table.schema, to_sql(root), content, plan.settings.time_zone)
                decided &= matches is not None
                certain = certain if matches is None else certain | matches
            raise_if_lost(plan, rows, certain & missing, describe(root))
    TALLY["decisions" if decided else "undecided decisions"] += 1


def _check_coverage(table: OpenedTable, pruned: Sequence[PrunedPlan]) -> None:
    """Refuse a decision without some partition, whose rows would be skipped."""
    covered = {int(place) for plan in pruned for place in np.unique(plan.source.entry_of)}
    for place, entry in enumerate(table.catalog.partitions):
        if entry.live_rows and place not in covered:
            raise SkippingError(
                f"the scan has no decision about partition {entry.key!r}, which has {entry.live_rows} rows; run "
                "`layoutopt verify`, and report this if it finds nothing"
            )


def segments_with_skips(plan: PrunedPlan) -> list[int]:
    """Return the segments of which a block is not read, or a layout need not have every row."""
    incomplete = ~plan.read | plan.source.plan.scheme.has_tids
    segments: list[int] = np.unique(plan.source.segment_of[incomplete]).tolist()
    return segments


def mask_delivered(plan: PrunedPlan, rows: SegmentTruth) -> Bits:
    """Return the rows that are in a block to be read of each layout on the path, bool[rows]."""
    delivered = np.full(rows.rows, bool(plan.choice), dtype=np.bool_)
    for choice in plan.choice:
        block_of_row = rows.block_of(choice.layout)
        delivered &= (block_of_row >= 0) & plan.read[block_of_row]
    return delivered


def bound_matches(node: Node, rows: pa.Table) -> tuple[Bits, Bits]:
    """Return the rows for which a filter is surely TRUE, and may be TRUE; they differ if it calls functions."""
    if isinstance(node, And | Or):
        parts = [bound_matches(child, rows) for child in node.children]
        combine = np.logical_and if isinstance(node, And) else np.logical_or
        return reduce(combine, [low for low, _ in parts]), reduce(combine, [high for _, high in parts])
    matches = matching_rows(node, rows)
    if matches is None:
        return np.zeros(rows.num_rows, dtype=np.bool_), np.ones(rows.num_rows, dtype=np.bool_)
    return matches, matches


def raise_if_lost(plan: PrunedPlan, rows: SegmentTruth, lost: Bits, condition: str) -> None:
    """Raise SkippingError if a row is lost; names a block or layout, what skips it, and the filter."""
    if not lost.any():
        return
    place, blocks = int(np.argmax(lost)), plan.source.blocks
    cause = "no layout is read"
    for choice in plan.choice:
        block = int(rows.block_of(choice.layout)[place])
        if block < 0:
            cause = f"layout {choice.layout} is read, but lacks a matching row"
            break
        if not plan.read[block]:
            mechanism = PruneOutcome(plan.outcome[block]).name.lower().replace("_", " ")
            file = blocks.files[blocks.file[block]]
            cause = f"block {int(blocks.block_id[block])} of {file!r} is skipped by {mechanism}"
            break
    raise SkippingError(
        f"{int(lost.sum())} rows that match {condition:.200} would not be read ({cause}); run `layoutopt verify`, "
        "load the partition again, and report this if it finds nothing"
    )
