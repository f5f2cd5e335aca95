"""Whether a table's plan still fits what people ask: the queries of now beside those that the plan was made for.

Both are replayed on the catalog of today, so that growth of the table, and partitions of other plans, count on both
sides alike. What is compared is the share of rows that are skipped, each query with its weight, and which families of
queries there are. A log is a sample of what people ask, so figures of it have intervals.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from layoutopt.catalog.paths import load_time
from layoutopt.catalog.snapshot import PartitionEntry
from layoutopt.errors import PlanError, StalePlanError
from layoutopt.features.cross_validation import family_of
from layoutopt.inspect.cost import EntryBytes
from layoutopt.inspect.status import current_plan
from layoutopt.maintenance.query_families import FamilyChanges, family_changes
from layoutopt.maintenance.rewrite_policy import Loss, best_half_life, loss_of
from layoutopt.maintenance.sampling_error import Interval, ratio_interval
from layoutopt.model.arrays import Floats, Ints
from layoutopt.model.query import Query, classes
from layoutopt.scan.table import Table

# ----------------------------------------------------------------------------------------------------
# Regret: what is lost by not laying a table out anew for the queries of late, in bytes that they read.


@dataclass(frozen=True)
class Regret:
    """What a log's queries read of a table as it is, beside what they would read of one that is planned for them.

    All bytes are sums over the log's statements.

    Attributes:
        plan: the digest of the plan that was made for these queries.
        full: bytes of full scans.
        read: bytes read of the table as it is.
        fresh: bytes read if all of it were loaded by the fresh plan, as rehearsed.
        share: of what the fresh plan would save of full scans, the share that is lost now; negative where the table is
            better as it is.
        interval: in which that share lies for all that is asked, of which the log is a sample. The error of the
            rehearsal comes on top, some percent of the bytes.
    """

    plan: str
    full: float
    read: float
    fresh: float
    share: float
    interval: Interval

    def to_json(self) -> dict[str, Any]:
        """The regret as JSON."""
        return asdict(self)


def regret_of(reads: EntryBytes, shares: Floats, plan: str) -> Regret:
    """The regret of a table, by what the queries read of it.

    Args:
        reads: of the table as it is.
        shares: what each query would read of what it reaches by the fresh plan, ``float64[n_queries]``.
        plan: the fresh plan's digest.
    """
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


# ----------------------------------------------------------------------------------------------------
# What each partition has lost, day by day, since it was written, and what writing it anew is expected to save.

_DAY = 86_400.0


@dataclass(frozen=True)
class Prospect:
    """What speaks for writing a partition anew.

    Attributes:
        loss: what was lost since the partition was written, in bytes.
        expected: the bytes that are expected to be saved within the horizon.
    """

    loss: Loss
    expected: float


@dataclass(frozen=True, eq=False)
class DatedLog:
    """A log's queries by days.

    Attributes:
        queries: analysed, with the weights of the log.
        times: when each ran, in seconds since 1970, ``float64[n_queries]``.
    """

    queries: tuple[Query, ...]
    times: Floats

    @property
    def day(self) -> Ints:
        """The day on which each ran, from 0 for the first of the log, ``int64[n_queries]``."""
        days = np.floor(self.times / _DAY).astype(np.int64)
        return np.asarray(days - days.min())

    @property
    def days(self) -> int:
        """How many days the log covers, the first and the last among them."""
        return int(self.day.max()) + 1

    @property
    def weights(self) -> Floats:
        """Of the queries, ``float64[n_queries]``."""
        return np.array([query.weight for query in self.queries])

    def half_life(self) -> dt.timedelta:
        """The half-life by which the log's days foretell each other best."""
        families = {family: place for place, family in enumerate(dict.fromkeys(map(family_of, self.queries)))}
        mixes = np.zeros((self.days, len(families)))
        family = np.array([families[family_of(query)] for query in self.queries])
        np.add.at(mixes, (self.day, family), self.weights)
        asked = mixes.sum(axis=1) > 0
        mixes[asked] /= mixes[asked].sum(axis=1, keepdims=True)
        return dt.timedelta(days=best_half_life(mixes[asked]))


def prospects(
    table: Table,
    log: DatedLog,
    reads: EntryBytes,
    shares: Floats,
    half_life: dt.timedelta,
    horizon: dt.timedelta,
    costs: Mapping[str, float],
) -> dict[str, Prospect]:
    """By partition what speaks for writing it anew.

    Args:
        table: at one snapshot.
        log: the recent one.
        reads: what its queries read of the table; classes that it lacks don't count.
        shares: what each of these would read by the plan that partitions would be written by, ``float64[n_queries]``.
        half_life: by which the days so far tell of those to come.
        horizon: the time within which savings count.
        costs: of writing the partitions of these keys, in bytes read.
    """
    more = reads.read - reads.expected(shares)
    undeleted = reads.read - replace(reads, live=np.ones_like(reads.live)).expected(shares)
    places = {(query.filter.root, query.columns): place for place, query in enumerate(reads.queries)}
    known = [place for place, query in enumerate(log.queries) if (query.filter.root, query.columns) in places]
    row = np.array([places[log.queries[i].filter.root, log.queries[i].columns] for i in known], dtype=np.int64)
    day, times, weights = log.day[known], log.times[known], log.weights[known]
    counts = 0.5 ** (np.arange(log.days)[::-1] * _DAY / half_life.total_seconds())
    found = {}
    for key, cost in costs.items():
        entries = table.catalog.snapshot.by_key[key]
        mine = _places(table, key)
        here, before = (of[:, mine].sum(axis=1)[row] * weights for of in (more, undeleted))
        since = times >= min(load_time(entry.load_id) for entry in entries)  # what was appended is among its losses
        marked = _marked_at(entries)
        losing = np.where(times >= marked, here, before)  # rows deleted since then were no loss before
        lost = np.bincount(day[since], losing[since], log.days)
        a_day = float(counts @ np.bincount(day, here, log.days) / counts.sum())
        found[key] = Prospect(loss_of(lost.tolist(), cost), a_day * horizon.total_seconds() / _DAY)
    return found


def _marked_at(entries: Sequence[PartitionEntry]) -> float:
    """When rows of a partition were deleted last, in seconds since 1970; 0 where none is."""
    files = [entry.deletes.file for entry in entries if entry.deletes is not None]
    return max((load_time(PurePosixPath(file).stem) for file in files), default=0.0)


def _places(table: Table, key: str) -> Sequence[int]:
    """The places of a partition's entries in the snapshot."""
    return [place for place, entry in enumerate(table.catalog.partitions) if entry.key == key]
