"""Whether a table's plan still fits what people ask: the queries of now beside those that the plan was made for.

Both are replayed on the catalog of today, so that growth of the table, and partitions of other plans, count on both
sides alike. What is compared is the share of rows that are skipped, each query with its weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from layoutopt.errors import PlanError, StalePlanError
from layoutopt.inspect.status import current_plan
from layoutopt.model.query import Query
from layoutopt.scan.table import Table


@dataclass(frozen=True)
class Drift:
    """Shares of rows skipped, 0 to 1: by the queries that the plan was made for, and by those of a newer log."""

    table: str
    plan: str
    skipped_then: float
    skipped_now: float
    queries_then: int
    queries_now: int

    @property
    def fallen(self) -> float:
        """By how much less is skipped now; negative where it is more."""
        return self.skipped_then - self.skipped_now

    def to_json(self) -> dict[str, Any]:
        """The comparison as JSON."""
        return {**asdict(self), "fallen": self.fallen}


def drift(table: Table, recent: Sequence[Query]) -> Drift:
    """Compare a log's analysed queries with those of the table's current plan.

    Raises:
        PlanError: the plan was made for no queries.
        CatalogError: a catalog file is damaged.
    """
    plan = current_plan(table.catalog)
    if not plan.queries:
        raise PlanError(f"the plan {plan.digest[:12]} was made for no queries, so nothing tells whether it still fits")
    then, now = (skipped_share(table, queries) for queries in (plan.queries, recent))
    return Drift(table.name, plan.digest, then, now, len(plan.queries), len(recent))


def check_drift(found: Drift, most: float) -> None:
    """Refuse a plan that fits less well than it did.

    Raises:
        StalePlanError: the skipped share has fallen by more than ``most``.
    """
    if found.fallen > most:
        raise StalePlanError(
            f"the queries of the log skip {found.skipped_now:.1%} of the rows, those that the plan was made for "
            f"{found.skipped_then:.1%}: more than {most:.1%} less; analyse the log and plan again"
        )


def skipped_share(table: Table, queries: Sequence[Query]) -> float:
    """The share of the rows that queries need not read, by their weights; 0 where there is nothing to read."""
    known: dict[object, int] = {}
    scanned = total = 0.0
    for query in queries:
        key = (query.filter.root, query.columns)
        if key not in known:
            pruned = table.prune(query.filter.root, query.columns)
            known[key] = sum(max(plan.rows_by_layout(plan.read).values(), default=0) for plan in pruned)
        scanned += query.weight * known[key]
        total += query.weight * table.rows
    return 1 - scanned / total if total else 0.0
