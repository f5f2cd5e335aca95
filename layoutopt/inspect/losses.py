"""What each partition has lost, day by day, since it was written, and what writing it anew is expected to save."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

import numpy as np

from layoutopt.catalog.paths import load_time
from layoutopt.catalog.snapshot import PartitionEntry
from layoutopt.evolve.half_life import best_half_life
from layoutopt.evolve.when import Loss, loss_of
from layoutopt.features.splits import family_of
from layoutopt.inspect.entry_bytes import EntryBytes
from layoutopt.model.arrays import Floats, Ints
from layoutopt.model.query import Query
from layoutopt.scan.table import Table

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
