"""How much of a table a filter reads and skips, summed over plans; and what of that is said as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from layoutopt.model.predicates import Node, describe_all
from layoutopt.scan.opened import OpenedTable
from layoutopt.scan.prune import PrunedPlan, PruneOutcome, ScanSize

MECHANISMS = {
    "partition": PruneOutcome.PARTITION,
    "features": PruneOutcome.FEATURES,
    "statistics": PruneOutcome.STATISTICS,
    "index": PruneOutcome.INDEX,
}
"""What skips blocks, in the order of trying."""


def size_over(pruned: Sequence[PrunedPlan], *outcomes: PruneOutcome) -> ScanSize:
    """Blocks, rows and bytes of these outcomes over all plans."""
    total = ScanSize()
    for plan in pruned:
        total += plan.size(*outcomes)
    return total


def size_json(amount: ScanSize) -> dict[str, int]:
    """An amount as JSON."""
    return {"blocks": amount.blocks, "rows": amount.rows, "bytes": amount.bytes}


def layout_json(pruned: PrunedPlan) -> dict[str, Any]:
    """One plan's retrieval path: its digest and, by layout, the columns read from it."""
    choice = {str(c.layout): list(c.columns) for c in pruned.choice}
    return {"plan": pruned.source.plan.digest, "columns": choice}


def subsumed_by(table: OpenedTable, root: Node) -> list[str]:
    """The features, as texts, that follow from a whole filter: the ones of the text's query vector (3.5)."""
    found: dict[str, None] = {}
    for source in table.sources:
        features = source.features_under(table.settings)
        for position in features.subsuming(root) if features is not None else ():
            found[describe_all(source.plan.features.features[position].predicates)] = None
    return list(found)
