"""How far partitions of an older plan are brought to a fresh one by some of its layouts, written alone.

All layouts of both plans are rehearsed on some segments of the table. Blocks of a layout don't depend on the others, so
what queries would read with any of the fresh ones is known from this one rehearsal. Least is to write no layout, and
to measure the fresh plan's features of the blocks that are there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from layoutopt.catalog.snapshot import PartitionEntry
from layoutopt.errors import CommitConflictError
from layoutopt.evolve.candidates import Candidate, Part
from layoutopt.evolve.mixed import can_be_mixed, lacked, mixed, of_columns
from layoutopt.evolve.stepping import Layouts, steps
from layoutopt.inspect.entry_bytes import EntryBytes, entry_bytes
from layoutopt.model.arrays import Floats
from layoutopt.model.layout import Plan
from layoutopt.model.predicates import TRUE, Filter
from layoutopt.model.query import Query
from layoutopt.model.sequences import spread
from layoutopt.scan.reads import TableRead, without
from layoutopt.scan.table import Table
from layoutopt.spark.changing.alone import can_stand_alone
from layoutopt.spark.changing.layout_reads import LayoutReads, with_features
from layoutopt.spark.changing.target import Target
from layoutopt.spark.loading.rehearse import needed_columns, rehearse_together
from layoutopt.spark.session.read import read_to_dataframe
from layoutopt.sql.scans import TableScan

_ENOUGH_ROWS: Final = 400_000
"""Of all segments together that are rehearsed."""


@dataclass(frozen=True, eq=False)
class Level:
    """Some layouts of a fresh plan beside those of an older one.

    Attributes:
        old: the digest of the older plan.
        plan: that has both.
        kept: the places in the older plan of its layouts that stay, the first ones of ``plan``.
        bytes_a_row: what the new ones take for each row.
        saved: what each query saves of a full scan of what it reaches, ``float64[n_queries]``.
    """

    old: str
    plan: Plan
    kept: tuple[int, ...]
    bytes_a_row: float
    saved: Floats

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        """Of the layouts that are written."""
        return tuple(layout.columns for layout in self.plan.scheme.layouts[len(self.kept) :])

    def still_of(self, entries: Sequence[PartitionEntry]) -> tuple[PartitionEntry]:
        """The one entry of a partition, if it still has the older plan's layouts and no deleted row.

        Raises:
            CommitConflictError: somebody else changed the partition meanwhile.
        """
        if len(entries) != 1 or entries[0].plan != self.old or entries[0].deletes is not None:
            raise CommitConflictError(
                f"partition {entries[0].key!r} was changed by somebody else meanwhile; optimize again"
            )
        return (entries[0],)


@dataclass(frozen=True, eq=False)
class Parts:
    """What could be written alone, by partition key: levels, and what each costs and gains."""

    levels: Mapping[str, Sequence[Level]] = field(default_factory=dict)
    parts: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)

    def of(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The candidates with their parts."""
        return [replace(one, parts=self.parts.get(one.key, ())) for one in candidates]


def parts_of(spark: SparkSession, table: Table, target: Target, candidates: Sequence[Candidate], least: float) -> Parts:
    """What could be written alone of some partitions.

    Args:
        spark: the session.
        table: at one snapshot.
        target: what they are to be laid out by.
        candidates: those that could be written anew.
        least: a gain below this share of what is read of a partition is none.
    """
    by_plan: dict[str, list[PartitionEntry]] = {}
    for one in candidates:
        (*others, entry) = table.catalog.snapshot.by_key[one.key]
        if not others and can_stand_alone(table, entry):
            by_plan.setdefault(entry.plan, []).append(entry)
    found: dict[str, Sequence[Level]] = {}
    parts: dict[str, tuple[Part, ...]] = {}
    read = {one.key: one.read for one in candidates}
    for entries in by_plan.values():
        of_plan = levels(spark, table, entries, target.plan, target.reads.queries)
        gains = [target.reads.weights @ target.reads.expected(level.saved) for level in of_plan]
        for entry in entries:
            place = table.catalog.partitions.index(entry)
            costs = [
                Part(number, round(level.bytes_a_row * entry.rows), float(gain[place]))
                for number, (level, gain) in enumerate(zip(of_plan, gains, strict=True))
            ]
            found[entry.key] = of_plan
            parts[entry.key] = tuple(part for part in costs if part.gain > least * read[entry.key])
    return Parts(found, parts)


def levels(
    spark: SparkSession, table: Table, entries: Sequence[PartitionEntry], fresh: Plan, queries: Sequence[Query]
) -> list[Level]:
    """What could be written alone of entries of one plan, the best gain a byte first, each with the one before in it.

    Args:
        spark: the session.
        table: at one snapshot.
        entries: of one plan, without deleted rows.
        fresh: the plan that they are to be brought to.
        queries: one for each class.
    """
    old = table.catalog.plans[entries[0].plan]
    read = {name for query in queries for name in query.columns}
    fresh = of_columns(fresh, read)
    missing = lacked(old, fresh) if can_be_mixed(old, fresh) else ()
    if not missing:
        return []
    before = len(old.scheme.layouts)
    both = mixed(old, fresh, range(before), missing)
    held = needed_columns([both], read)
    # A rehearsal knows nothing of layouts that would hold none of these.
    present = [place for place, layout in enumerate(both.scheme.layouts) if set(held) & set(layout.columns)]
    (rehearsed,) = rehearse_together(spark, _some_rows(spark, table, entries, held), [both], held)
    reads = LayoutReads(rehearsed, sum(place < before for place in present), queries)
    chain = steps(reads.sets(), {place: reads.bytes_of(place) for place in range(reads.old, len(present))}, reads.read)
    first = entry_bytes(with_features(reads.table(frozenset()), old.features), queries)
    found = []
    for step in chain:  # the first writes no layout: features are measured of the blocks that are there
        taken = [missing[present[place] - before] for place in step.layouts]
        kept = _kept(old, fresh, taken, reads, step.layouts, present)
        then = entry_bytes(reads.table(step.layouts), queries)
        read_then, full = (float((then.weights @ of).sum()) for of in (then.read, then.full))
        foretold = {**fresh.predicted, "bytes_fraction": round(read_then / full, 6) if full else 0.0}
        plan = replace(mixed(old, fresh, kept, taken), predicted=foretold)
        found.append(Level(old.digest, plan, kept, step.bytes / max(1, rehearsed.rows), _saved(first, then)))
    return found


def _some_rows(
    spark: SparkSession, table: Table, entries: Sequence[PartitionEntry], columns: Sequence[str]
) -> DataFrame:
    """The rows of some segments of the entries, spread evenly, with these columns; others are NULL."""
    scan = TableScan(table.name, table.name, tuple(columns), Filter.of(TRUE))
    of_plans = table.all_rows_of(entries, scan.columns)
    (pruned,) = (found for found in of_plans if found.source.plan.digest == entries[0].plan)
    segment_of = pruned.source.segment_of
    there = np.unique(segment_of[pruned.read])
    rows = sum(entry.rows for entry in entries)
    few = spread(there.tolist(), max(1, round(len(there) * _ENOUGH_ROWS / max(1, rows))))
    return read_to_dataframe(spark, TableRead(table, scan, (without(pruned, ~np.isin(segment_of, few)),)))


def _kept(
    old: Plan, fresh: Plan, taken: Sequence[int], reads: LayoutReads, layouts: Layouts, present: Sequence[int]
) -> tuple[int, ...]:
    """The older plan's layouts that stay: all but those of which every column is elsewhere, and that nobody reads."""
    elsewhere = {name for place in taken for name in fresh.scheme.layouts[place].master}
    covered = [place for place, layout in enumerate(old.scheme.layouts) if set(layout.columns) <= elsewhere]
    gone = {place for place in covered if place not in present}
    unread = reads.unread(layouts, [present.index(place) for place in covered if place in present])
    gone |= {present[place] for place in unread}
    kept = tuple(place for place in range(len(old.scheme.layouts)) if place not in gone)
    # A single layout would have no positions, and could not be told to hold what others held.
    return kept if len(kept) + len(taken) > 1 else (0,)


def _saved(before: EntryBytes, after: EntryBytes) -> Floats:
    reached = (before.full * before.reached).sum(axis=1)
    less = before.read.sum(axis=1) - after.read.sum(axis=1)
    saved: Floats = np.divide(less, reached, out=np.zeros(len(less)), where=reached > 0)
    return saved
