"""What a filter needs of a table, compared with the rows where this process checks what it skips."""

from __future__ import annotations

from collections.abc import Sequence

from layoutopt.model.feature import Settings
from layoutopt.model.predicates import Node
from layoutopt.scan import check_switch as switch
from layoutopt.scan.checking.decisions import check_decision
from layoutopt.scan.opened import OpenedTable
from layoutopt.scan.prune import PrunedPlan
from layoutopt.scan.reads import TableRead
from layoutopt.sql.scans import TableScan


def checked(table: OpenedTable, root: Node, pruned: tuple[PrunedPlan, ...]) -> tuple[PrunedPlan, ...]:
    """What was decided under a filter, once more compared with the rows where skipping is checked.

    Raises:
        SkippingError: a row for which the filter is TRUE would not be read.
        DataFileError: it is checked, and a data file is missing or damaged.
    """
    if switch.is_on():
        check_decision(table, root, pruned)
    return pruned


def prune_checked(table: OpenedTable, root: Node, columns: Sequence[str], settings: Settings) -> tuple[PrunedPlan, ...]:
    """What a scan of these columns under this filter reads, one item a plan; raises as :func:`checked`."""
    return prune_under(table, root, columns, [settings] * len(table.sources))


def prune_under(
    table: OpenedTable, root: Node, columns: Sequence[str], settings: Sequence[Settings]
) -> tuple[PrunedPlan, ...]:
    """Return what a scan reads under settings of its own for each plan; raises as :func:`checked`."""
    return checked(table, root, table.decide(root, columns, settings))


def table_read(table: OpenedTable, scan: TableScan, settings: Settings) -> TableRead:
    """The read that one mention of a table makes in a session with these settings; raises as :func:`checked`."""
    return TableRead(table, scan, prune_checked(table, scan.filter.root, scan.columns, settings))
