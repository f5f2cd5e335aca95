"""Whether a table's plan still fits what people ask: the queries of now beside those that the plan was made for.

Both are replayed on the catalog of today, so that growth of the table, and partitions of other plans, count on both
sides alike. What is compared is the share of rows that are skipped, each query with its weight, and which families of
queries there are. A log is a sample of what people ask, so figures of it have intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from layoutopt.errors import PlanError, StalePlanError
from layoutopt.evolve.families import FamilyChanges, family_changes
from layoutopt.evolve.sampled import Interval, ratio_interval
from layoutopt.inspect.regret import Regret
from layoutopt.inspect.status import current_plan
from layoutopt.model.arrays import Floats
from layoutopt.model.query import Query, classes
from layoutopt.scan.table import Table


@dataclass(frozen=True)
class Drift:
    """What a newer log's queries skip beside those that a plan was made for.

    Attributes:
        table: its name.
        plan: the digest of its current plan.
        skipped_then: the share of rows that the plan's own queries skip, 0 to 1.
        skipped_now: the share that those of the newer log skip.
        queries_then: how many those are, equal ones counted once.
        queries_now: and these.
        interval_now: in which the share skipped lies of all that is asked now, of which the newer log is a sample.
        families: of queries, and what became of them.
        regret: what is lost by not planning anew; None where that was not asked.
    """

    table: str
    plan: str
    skipped_then: float
    skipped_now: float
    queries_then: int
    queries_now: int
    interval_now: Interval
    families: FamilyChanges
    regret: Regret | None = None

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
    read = ratio_interval(
        _rows_read(table, recent), np.full(len(recent), float(table.catalog.snapshot.stored_rows)), _weights(recent)
    )
    changes = family_changes(plan.queries, recent)
    skipped = Interval(1 - read.high, 1 - read.low)
    return Drift(table.name, plan.digest, then, now, len(plan.queries), len(classes(recent)), skipped, changes)


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
    total = float(_weights(queries).sum()) * table.catalog.snapshot.stored_rows
    return 1 - float(_weights(queries) @ _rows_read(table, queries)) / total if total else 0.0


def _weights(queries: Sequence[Query]) -> Floats:
    return np.array([query.weight for query in queries], dtype=np.float64)


def _rows_read(table: Table, queries: Sequence[Query]) -> Floats:
    """The rows that each query reads, of several layouts the most, ``float64[n_queries]``."""
    known: dict[object, int] = {}
    for query in queries:
        key = (query.filter.root, query.columns)
        if key not in known:
            pruned = table.prune(query.filter.root, query.columns)
            known[key] = sum(max(plan.rows_by_layout(plan.read).values(), default=0) for plan in pruned)
    return np.array([known[query.filter.root, query.columns] for query in queries], dtype=np.float64)
