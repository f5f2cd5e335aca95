"""Reads again what a decision skips, and says so if a row was lost."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
import pyarrow as pa

from layoutopt.errors import SkippingError
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.predicates import And, Node, Or, columns_of, describe
from layoutopt.model.predicates.render import to_sql
from layoutopt.scan.check_switch import TALLY
from layoutopt.scan.opened_table import OpenedTable
from layoutopt.scan.prune import PrunedPlan, PruneOutcome
from layoutopt.scan.shadow_check_rows import SegmentRows, segment_rows
from layoutopt.writer.evaluation import matching_rows

# ----------------------------------------------------------------------------------------------------
# Checks every decision to skip: with ``LAYOUTOPT_CHECK_SKIPPING=1``, what is skipped is read too.
#
# For who trusts, but verifies; the package's own tests all run so. Nothing of what decides to skip is believed: no
# feature, statistic, bound or retrieval path. For each decision the filter's columns are read of all rows of the
# segments
# of which something is left out, the filter is evaluated row by row, and each row for which it is TRUE must be in a
# block
# that is read, in every layout that is read for it. Where :mod:`layoutopt.scan.shadow_check_texts` can, it evaluates
# the
# query's own text too, so that the analysis of the text is not believed either.


def check_decision(table: OpenedTable, root: Node, pruned: Sequence[PrunedPlan]) -> None:
    """Reads what a decision leaves out, and the filter's columns of all rows of those segments.

    Args:
        table: the table.
        root: the filter.
        pruned: what was decided, one item a plan.

    Raises:
        SkippingError: a row for which the filter is TRUE would not be read, or a partition is in no plan's decision.
        DataFileError: a data file is missing or damaged.
    """
    if not table.catalog.written:
        return
    _check_coverage(table, pruned)
    wanted = columns_of(root)
    columns = [column for column in table.schema.columns if column.name in wanted]
    decided = True
    for plan in pruned:
        blocks = plan.source.blocks
        skipped = ~plan.read & np.isin(blocks.layout, [choice.layout for choice in plan.choice])
        TALLY["blocks"] += int(np.count_nonzero(skipped))
        TALLY["rows"] += int(blocks.rows[skipped].sum())
        for segment in segments_with_skips(plan):
            rows = segment_rows(table.catalog.data, plan.source, segment)
            content = _content(rows, rows.table(columns))
            surely, maybe = bounds_of_matches(root, content)
            lacking = ~delivered(plan, rows)
            if (maybe & ~surely & lacking).any():
                from layoutopt.scan.shadow_check_rows import matching_text

                found = matching_text(table.schema, to_sql(root), content, table.settings.time_zone)
                decided &= found is not None
                surely = surely if found is None else surely | found
            report_lost(plan, rows, surely & lacking, describe(root))
    TALLY["decisions" if decided else "undecided decisions"] += 1


def _check_coverage(table: OpenedTable, pruned: Sequence[PrunedPlan]) -> None:
    """Whether something was decided about every partition: what nobody looks at is skipped, too."""
    covered = {int(place) for plan in pruned for place in np.unique(plan.source.entry_of)}
    for place, entry in enumerate(table.catalog.partitions):
        if entry.live_rows and place not in covered:
            raise SkippingError(
                f"nothing was decided about the partition {entry.key!r}, which has {entry.live_rows} rows; "
                "run `layoutopt verify`, and report this where nothing is found"
            )


def segments_with_skips(plan: PrunedPlan) -> list[int]:
    """The segments of which a decision may leave out rows: a block is not read, or a layout need not have every row."""
    left = ~plan.read | plan.source.plan.scheme.has_tids
    found: list[int] = np.unique(plan.source.segment_of[left]).tolist()
    return found


def delivered(plan: PrunedPlan, rows: SegmentRows) -> Bits:
    """The rows that are in a block to be read of each layout on the path, bool[rows]."""
    inside = [_read_of(plan, rows.block_of(choice.layout)) for choice in plan.choice]
    return reduce(np.logical_and, inside) if inside else np.zeros(rows.rows, dtype=np.bool_)


def _read_of(plan: PrunedPlan, block_of: Ints) -> Bits:
    found: Bits = (block_of >= 0) & plan.read[block_of]
    return found


def _content(rows: SegmentRows, content: pa.Table) -> pa.Table:
    """A table without columns has no rows, so that of a constant filter gets one."""
    return content if content.num_columns else pa.table({"_rows": pa.nulls(rows.rows)})


def bounds_of_matches(node: Node, rows: pa.Table) -> tuple[Bits, Bits]:
    """The rows for which a filter is surely TRUE, and may be TRUE; they differ where it calls functions."""
    if isinstance(node, And | Or):
        parts = [bounds_of_matches(child, rows) for child in node.children]
        combine = np.logical_and if isinstance(node, And) else np.logical_or
        return reduce(combine, [low for low, _ in parts]), reduce(combine, [high for _, high in parts])
    found = matching_rows(node, rows)
    if found is None:
        return np.zeros(rows.num_rows, dtype=np.bool_), np.ones(rows.num_rows, dtype=np.bool_)
    return found, found


def report_lost(plan: PrunedPlan, rows: SegmentRows, lost: Bits, what: str) -> None:
    """Fails where a row is lost.

    Raises:
        SkippingError: it names a block or layout, what skips it, and the filter.
    """
    if not lost.any():
        return
    place, blocks = int(np.argmax(lost)), plan.source.blocks
    where = "no layout is read"
    for choice in plan.choice:
        block = int(rows.block_of(choice.layout)[place])
        if block < 0:
            where = f"layout {choice.layout} lacks one, but is read for it"
            break
        if not plan.read[block]:
            mechanism = PruneOutcome(plan.outcome[block]).name.lower().replace("_", " ")
            file = blocks.files[blocks.file[block]]
            where = f"block {int(blocks.block_id[block])} of {file!r} is skipped by {mechanism}"
            break
    raise SkippingError(
        f"{int(lost.sum())} rows that match {what:.200} would not be read ({where}); "
        "run `layoutopt verify`, load the partition again, and report this where nothing is found"
    )
