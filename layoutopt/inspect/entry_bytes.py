"""The bytes that queries read of each of a table's partitions, and what they would read of it by another plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from layoutopt.model.arrays import Bits, Floats, Ints
from layoutopt.model.predicates import TRUE, Node
from layoutopt.model.query import Query, classes
from layoutopt.scan.prune import PruneOutcome
from layoutopt.scan.table import Table


@dataclass(frozen=True, eq=False)
class EntryBytes:
    """What queries read of each entry of a snapshot, by the catalog.

    Attributes:
        queries: one for each class of queries that are read and skipped alike.
        read: compressed bytes of columns, ``float64[n_queries, n_entries]``; weights don't count in it.
        full: the same of full scans of the queries' columns.
        reached: where the partition's own bounds don't exclude the query, ``bool[n_queries, n_entries]``.
        live: the share of the rows in the files that are not deleted, ``float64[n_entries]``.
    """

    queries: tuple[Query, ...]
    read: Floats
    full: Floats
    reached: Bits
    live: Floats

    @cached_property
    def weights(self) -> Floats:
        """Of the queries, ``float64[n_queries]``."""
        return np.array([query.weight for query in self.queries])

    def shares_of(self, entries: Sequence[int]) -> Floats | None:
        """What each query reads of full scans of those of some entries that it reaches, ``float64[n_queries]``.

        A query that reaches none of them has the share of all. None where no query reaches any.
        """
        reached = self.reached[:, entries]
        return shares(self.read[:, entries].sum(axis=1), (self.full[:, entries] * reached).sum(axis=1), self.weights)

    def expected(self, shares: Floats) -> Floats:
        """What queries would read of each entry, written anew without deleted rows, by a plan of these shares.

        Args:
            shares: what each query reads by the plan of what it reaches, ``float64[n_queries]``.

        Returns:
            ``float64[n_queries, n_entries]``.
        """
        expected: Floats = shares[:, None] * self.full * self.reached * self.live
        return expected


def shares(read: Floats, reached: Floats, weights: Floats) -> Floats | None:
    """What each query reads of what it reaches; of one that reaches nothing the share of all, None where none does.

    Args:
        read: bytes, ``float64[n_queries]``.
        reached: bytes of full scans of the partitions that it reaches, ``float64[n_queries]``.
        weights: ``float64[n_queries]``.
    """
    total = float(weights @ reached)
    if not total:
        return None
    found: Floats = np.full(len(read), float(weights @ read) / total)
    return np.divide(read, reached, out=found, where=reached > 0)


def entry_bytes(table: Table, queries: Sequence[Query]) -> EntryBytes:
    """Replay queries on a table's catalog.

    Raises:
        CatalogError: a blocks file is damaged.
    """
    distinct = tuple(classes(queries))
    shape = (len(distinct), len(table.catalog.partitions))
    read, full, reached = np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=np.bool_)
    scans: dict[tuple[str, ...], Floats] = {}
    for number, query in enumerate(distinct):
        read[number], reached[number] = _of_entries(table, query.filter.root, query.columns)
        if query.columns not in scans:
            scans[query.columns] = _of_entries(table, TRUE, query.columns)[0]
        full[number] = scans[query.columns]
    live = [entry.live_rows / max(1, entry.rows) for entry in table.catalog.partitions]
    return EntryBytes(distinct, read, full, reached, np.array(live, dtype=np.float64))


def _of_entries(table: Table, root: Node, columns: Sequence[str]) -> tuple[Floats, Bits]:
    """Of each entry the bytes read, and whether its bounds let the filter hold."""
    n = len(table.catalog.partitions)
    found, reached = np.zeros(n), np.zeros(n, dtype=np.bool_)
    for pruned in table.prune(root, columns):
        chosen, entry_of = pruned.read, pruned.source.entry_of
        found += _sums(entry_of[chosen], pruned.bytes[chosen], n)
        reached[entry_of[pruned.outcome != PruneOutcome.PARTITION]] = True
    return found, reached


def _sums(places: Ints, values: Ints, n: int) -> Floats:
    return np.bincount(places, values, n).astype(np.float64)
