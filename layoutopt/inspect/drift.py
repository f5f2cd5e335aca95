"""Measure whether a table's plan still fits its queries: those of a new log against the plan's training queries.

Both are replayed on the current catalog, so that growth of the table and partitions of other plans affect both sides.
Compared are the share of rows skipped, weighted by query, and the query families. A log is a sample of all queries, so
its figures have intervals.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

import numpy as np

from layoutopt.catalog.paths import load_time
from layoutopt.errors import PlanError, StalePlanError
from layoutopt.features.cross_validation import query_family
from layoutopt.inspect.cost import EntryBytes
from layoutopt.inspect.status import current_plan
from layoutopt.maintenance.query_families import FamilyChanges, compare_families
from layoutopt.maintenance.rewrite_policy import Loss, find_half_life, sum_losses
from layoutopt.maintenance.sampling_error import Interval, ratio_interval
from layoutopt.model.arrays import Floats, Ints
from layoutopt.model.query import Query, group_queries
from layoutopt.model.summary import Report
from layoutopt.scan.table import Table


@dataclass(frozen=True)
class Regret(Report):
    """The bytes that a log's queries read of a table now, and would read after planning for them.

    All bytes are sums over the log's statements.

    Attributes:
        full: bytes of full scans.
        read: bytes read of the table now.
        fresh: bytes read if the whole table were loaded by the new plan, from a dry run.
        share: the lost share of what the new plan would save of full scans; negative if the table is better now.
        interval: the interval of that share for all queries, of which the log is a sample. The error of the dry run,
            some percent of the bytes, is not included.
    """

    plan: str
    full: float
    read: float
    fresh: float
    share: float
    interval: Interval


def measure_regret(reads: EntryBytes, shares: Floats, plan: str) -> Regret:
    """Return the regret, by what each query would read of what it reaches under a plan, ``float64[n_queries]``."""
    read, full = reads.read.sum(axis=1), reads.full.sum(axis=1)
    fresh = reads.expected(shares).sum(axis=1)
    weights = reads.weights
    lost, saved = float(weights @ (read - fresh)), float(weights @ (full - fresh))
    return Regret(
        plan,
        full=float(weights @ full),
        read=float(weights @ read),
        fresh=float(weights @ fresh),
        share=lost / saved if saved > 0 else 0.0,
        interval=ratio_interval(read - fresh, full - fresh, weights),
    )


@dataclass(frozen=True)
class Drift(Report):
    """What a new log's queries skip, compared with a plan's training queries.

    Attributes:
        skipped_then: the share of rows that the plan's queries skip, 0 to 1.
        skipped_now: the share that the new log's queries skip.
        queries_then, queries_now: the number of distinct queries of the plan and the new log.
        interval_now: the interval of ``skipped_now`` for all queries, of which the log is a sample.
        regret: what is lost by not planning again; None if not requested.
    """

    derived = ("fallen",)

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
        """The decrease of the skipped share; negative if it increased."""
        return self.skipped_then - self.skipped_now


def measure_drift(table: Table, recent: Sequence[Query]) -> Drift:
    """Compare a log's analysed queries with those of the current plan; raise PlanError if that has no queries."""
    plan = current_plan(table.catalog)
    if not plan.queries:
        raise PlanError(f"the plan {plan.digest[:12]} has no training queries to compare with; plan again with a log")
    kinds = group_queries(recent)
    rows, weights = _count_rows_read(table, kinds), _weights(kinds)
    stored = float(table.catalog.snapshot.stored_rows)
    then, now = skipped_share(table, plan.queries), share_skipped(rows, weights, stored)
    read = ratio_interval(rows, np.full(len(kinds), stored), weights)
    changes = compare_families(plan.queries, recent)
    skipped = Interval(1 - read.high, 1 - read.low)
    return Drift(table.name, plan.digest, then, now, len(plan.queries), len(kinds), skipped, changes)


def check_drift(drift: Drift, most: float) -> None:
    """Raise StalePlanError if a plan's skipped share has fallen by more than ``most``."""
    if drift.fallen > most:
        raise StalePlanError(
            f"the queries of the log skip {drift.skipped_now:.1%} of the rows, the plan's training queries "
            f"{drift.skipped_then:.1%}: more than {most:.1%} less; analyse the log and plan again"
        )


def skipped_share(table: Table, queries: Sequence[Query]) -> float:
    """Return the weighted share of rows that queries need not read; 0 if there is nothing to read."""
    kinds = group_queries(queries)
    stored = float(table.catalog.snapshot.stored_rows)
    return share_skipped(_count_rows_read(table, kinds), _weights(kinds), stored)


def share_skipped(rows: Floats, weights: Floats, stored: float) -> float:
    """Return the share of ``stored`` rows that queries with these weights skip; ``rows`` are those that each reads."""
    total = float(weights.sum()) * stored
    return 1 - float(weights @ rows) / total if total else 0.0


def _weights(queries: Sequence[Query]) -> Floats:
    return np.array([query.weight for query in queries], dtype=np.float64)


def _count_rows_read(table: Table, queries: Sequence[Query]) -> Floats:
    """Return the rows that each query reads, in the layout with the most, ``float64[n_queries]``."""
    read = np.zeros(len(queries))
    for places, plans in table.prune_all([(query.filter.root, query.columns) for query in queries]):
        for plan in plans:
            read[places] += plan.rows_read
    return read


_DAY = 86_400.0  # seconds


@dataclass(frozen=True)
class Prospect:
    """The bytes lost since a partition was written, and those that rewriting should save within the horizon."""

    loss: Loss
    expected: float


@dataclass(frozen=True, eq=False)
class DatedLog:
    """A log's analysed queries, and when each ran in seconds since 1970, ``float64[n_queries]``."""

    queries: tuple[Query, ...]
    times: Floats

    @property
    def day(self) -> Ints:
        """The day on which each query ran, 0 for the first day of the log, ``int64[n_queries]``."""
        days = np.floor(self.times / _DAY).astype(np.int64)
        return np.asarray(days - days.min())

    @property
    def days(self) -> int:
        """The number of days from the first to the last of the log."""
        return int(self.day.max()) + 1

    @property
    def weights(self) -> Floats:
        """The queries' weights, ``float64[n_queries]``."""
        return np.array([query.weight for query in self.queries])

    def half_life(self) -> dt.timedelta:
        """Return the half-life with which the log's days predict each other best."""
        families = {family: place for place, family in enumerate(dict.fromkeys(map(query_family, self.queries)))}
        mixes = np.zeros((self.days, len(families)))
        family = np.array([families[query_family(query)] for query in self.queries])
        np.add.at(mixes, (self.day, family), self.weights)
        mixes = mixes[mixes.sum(axis=1) > 0]
        return dt.timedelta(days=find_half_life(mixes / mixes.sum(axis=1, keepdims=True)))


def estimate_prospects(
    table: Table,
    log: DatedLog,
    reads: EntryBytes,
    shares: Floats,
    half_life: dt.timedelta,
    horizon: dt.timedelta,
    costs: Mapping[str, float],
) -> dict[str, Prospect]:
    """Return by partition the expected gain of rewriting it.

    Args:
        reads: what its queries read of the table; query classes that it lacks are ignored.
        shares: what each of these would read under the new plan, ``float64[n_queries]``.
        half_life: the half-life of the days' weights.
        horizon: the time within which savings count.
        costs: by partition key, the cost of rewriting it, in bytes read.
    """
    saved = reads.read - reads.expected(shares)
    saved_undeleted = reads.read - replace(reads, live=np.ones_like(reads.live)).expected(shares)
    places = {(query.filter.root, query.columns): place for place, query in enumerate(reads.queries)}
    known = [place for place, query in enumerate(log.queries) if (query.filter.root, query.columns) in places]
    row = np.array([places[log.queries[i].filter.root, log.queries[i].columns] for i in known], dtype=np.int64)
    day, times, weights = log.day[known], log.times[known], log.weights[known]
    day_weights = 0.5 ** (np.arange(log.days)[::-1] * _DAY / half_life.total_seconds())
    by_key = {}
    for key, cost in costs.items():
        entries = table.catalog.snapshot.by_key[key]
        columns = [place for place, entry in enumerate(table.catalog.partitions) if entry.key == key]
        loss, loss_undeleted = (matrix[:, columns].sum(axis=1)[row] * weights for matrix in (saved, saved_undeleted))
        since = times >= min(load_time(entry.load_id) for entry in entries)  # appended rows are among the losses
        vectors = [entry.deletes.file for entry in entries if entry.deletes is not None]
        deleted_at = max((load_time(PurePosixPath(file).stem) for file in vectors), default=0.0)
        losses = np.where(times >= deleted_at, loss, loss_undeleted)  # reading rows before their deletion is no loss
        lost = np.bincount(day[since], losses[since], log.days)
        daily = float(day_weights @ np.bincount(day, loss, log.days) / day_weights.sum())
        by_key[key] = Prospect(sum_losses(lost.tolist(), cost), daily * horizon.total_seconds() / _DAY)
    return by_key
