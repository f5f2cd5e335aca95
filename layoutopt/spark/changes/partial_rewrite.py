"""Find the layouts of which a partial rewrite pays off (:mod:`layoutopt.loading.rewrite`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.partition_entry import PartitionEntry
from layoutopt.catalog.table import Catalog
from layoutopt.errors import CommitConflictError
from layoutopt.features.cross_validation import query_family
from layoutopt.inspect.cost import EntryBytes, measure_entry_bytes
from layoutopt.loading.rewrite import OpenSegments, PartialRewrite, can_rewrite_partially
from layoutopt.maintenance.candidates import Candidate, Layouts, Part, plan_steps
from layoutopt.maintenance.partial_rewrite import (
    can_mix,
    carry_words,
    missing_layouts,
    mix_plans,
    renumber_features,
    restrict_to_columns,
    select_layout_blocks,
    to_word_lists,
)
from layoutopt.model.arrays import Floats, spread
from layoutopt.model.feature import FeatureSet
from layoutopt.model.layout import Plan, Scheme
from layoutopt.model.query import Query
from layoutopt.planning.dry_run import dry_run_loads
from layoutopt.scan.table import Table, plan_entries_read
from layoutopt.scan.table_read import TableRead, exclude_blocks
from layoutopt.sources.door import Door
from layoutopt.spark.changes.replan import Target
from layoutopt.writer.dry_run import needed_columns


def restrict_to_layouts(table: Table, layouts: Sequence[int]) -> Table:
    """Return a dry-run table of one plan with only some of its layouts, in the given order; they hold every column."""
    (source,) = table.sources
    kept = tuple(replace(source.plan.scheme.layouts[layout], serves=None) for layout in layouts)
    plan = replace(source.plan, scheme=Scheme(kept), queries=(), reads=())
    return _with_plan(table, plan, select_layout_blocks(source.blocks, layouts))


def with_features(table: Table, features: FeatureSet) -> Table:
    """Return a dry-run table of one plan with other measured features, which include its guiding features."""
    (source,) = table.sources
    plan, blocks = source.plan, source.blocks
    index = blocks.block_index
    words = to_word_lists(carry_words(blocks.words, plan.features, features))
    index = index.set_column(index.schema.get_field_index("words"), "words", words)
    layouts = tuple(renumber_features(layout, plan.features, features) for layout in plan.scheme.layouts)
    plan = replace(plan, scheme=Scheme(layouts), features=features)
    return _with_plan(table, plan, replace(blocks, n_features=len(features), block_index=index))


def _with_plan(table: Table, plan: Plan, blocks: BlockTable) -> Table:
    entries = tuple(replace(entry, plan=plan.digest) for entry in table.catalog.partitions)
    return Table(Catalog.rehearsed(replace(table.catalog.snapshot, partitions=entries), plan, blocks))


class LayoutReads:
    """Estimates of what queries read from a dry-run table with some layouts of two plans, cached.

    Args:
        table: has all layouts of both plans.
        old: the number of layouts of the older plan; they come first and are always present.
        queries: a sample of each family is evaluated.
        most: the sample size.
    """

    def __init__(self, table: Table, old: int, queries: Sequence[Query], most: int = 12) -> None:
        self._table, self.old = table, old
        self._layouts = table.sources[0].plan.scheme.layouts
        families: dict[object, list[Query]] = {}
        for query in queries:
            families.setdefault(query_family(query), []).append(query)
        self._families = [
            (spread(members, most), sum(query.weight for query in members)) for members in families.values()
        ]
        self._reads: dict[tuple[int, frozenset[int]], float] = {}
        self._tables: dict[frozenset[int], Table] = {}

    def sets(self) -> list[frozenset[int]]:
        """Return the sets of layouts to try: each layout alone, and the fresh layouts with a column of a family."""
        fresh = range(self.old, len(self._layouts))
        sets = [frozenset((layout,)) for layout in fresh]
        for queries, _ in self._families:
            columns = set(queries[0].columns)
            sets.append(frozenset(i for i in fresh if columns & set(self._layouts[i].columns)))
        return [layouts for layouts in dict.fromkeys(sets) if layouts]

    def read(self, taken: frozenset[int]) -> float:
        """Return about how many bytes all queries read with these layouts of the fresh plan."""
        return sum(self._read_family(family, taken) for family in range(len(self._families)))

    def _read_family(self, family: int, taken: frozenset[int]) -> float:
        columns = set(self._families[family][0][0].columns)
        useful = frozenset(i for i in taken if columns & set(self._layouts[i].columns))
        if (family, useful) not in self._reads:
            self._reads[family, useful] = self._estimate_read(self.table(useful), family)
        return self._reads[family, useful]

    def _estimate_read(self, table: Table, family: int) -> float:
        queries, weight = self._families[family]
        read = measure_entry_bytes(table, queries)
        return weight * float(read.weights @ read.read.sum(axis=1)) / float(read.weights.sum())

    def table(self, taken: frozenset[int]) -> Table:
        """Return the table with the old layouts and some of the fresh plan."""
        if taken not in self._tables:
            self._tables[taken] = restrict_to_layouts(self._table, [*range(self.old), *sorted(taken)])
        return self._tables[taken]

    def find_unread(self, taken: frozenset[int], candidates: Sequence[int]) -> list[int]:
        """Return the old layouts among the candidates that can go, one after the other, without costing any family."""
        removed: list[int] = []
        for candidate in candidates:
            layouts = [i for i in (*range(self.old), *sorted(taken)) if i not in (*removed, candidate)]
            table = restrict_to_layouts(self._table, layouts)
            columns = set(self._layouts[candidate].columns)
            readers = [i for i, (queries, _) in enumerate(self._families) if columns & set(queries[0].columns)]
            if all(self._estimate_read(table, family) <= self._read_family(family, taken) for family in readers):
                removed.append(candidate)
        return removed

    def bytes_of(self, layout: int) -> float:
        """Return the bytes of a layout."""
        blocks = self._table.sources[0].blocks
        return float(blocks.bytes[blocks.layout == layout].sum())


# Partial rewrites are chosen by one dry run of all layouts of both plans on some segments. The blocks of a layout don't
# depend on other layouts, so this dry run gives what queries read with any set of them. The smallest rewrite writes no
# layout: it only measures the fresh plan's features for the blocks that exist.

# Rows of the dry run, over all its segments.
_ENOUGH_ROWS: Final = 400_000


@dataclass(frozen=True, eq=False)
class Level:
    """A set of layouts of a fresh plan to write, and the old layouts to keep beside them.

    Attributes:
        old: the digest of the older plan.
        plan: the plan of both.
        kept: the kept layouts as indexes into the older plan; they come first in ``plan``.
        bytes_a_row: bytes of the written layouts per row.
        saved: what each query saves, as a share of a full scan of what it reaches, ``float64[n_queries]``.
    """

    old: str
    plan: Plan
    kept: tuple[int, ...]
    bytes_a_row: float
    saved: Floats

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        """Return the columns of each written layout."""
        return tuple(layout.columns for layout in self.plan.scheme.layouts[len(self.kept) :])

    def rewrite(self, entries: Sequence[PartitionEntry]) -> PartialRewrite:
        """Return the rewrite of a partition that still has one entry, of the older plan, without deleted rows.

        Raises:
            CommitConflictError: another commit changed the partition.
        """
        if len(entries) != 1 or entries[0].plan != self.old or entries[0].deletes is not None:
            raise CommitConflictError(f"another commit changed partition {entries[0].key!r}; run `optimize` again")
        return PartialRewrite(entries[0], self.plan, self.kept)


@dataclass(frozen=True, eq=False)
class Parts:
    """Possible partial rewrites by partition key: the levels, and what each costs and gains."""

    levels: Mapping[str, Sequence[Level]] = field(default_factory=dict)
    parts: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)

    def add_to(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates with their parts."""
        return [replace(candidate, parts=self.parts.get(candidate.key, ())) for candidate in candidates]


def find_parts(
    door: Door[OpenSegments], table: Table, target: Target, candidates: Sequence[Candidate], least: float
) -> Parts:
    """Find the possible partial rewrites of some partitions.

    Args:
        door: of the table's segments.
        table: at one snapshot.
        target: the wanted layout.
        candidates: partitions worth considering.
        least: parts that gain at most this share of the partition's bytes read are left out.
    """
    by_plan: dict[str, list[PartitionEntry]] = {}
    for candidate in candidates:
        entries = table.catalog.snapshot.by_key[candidate.key]
        if len(entries) == 1 and can_rewrite_partially(table, entries[0]):
            by_plan.setdefault(entries[0].plan, []).append(entries[0])
    levels: dict[str, Sequence[Level]] = {}
    parts: dict[str, tuple[Part, ...]] = {}
    read = {candidate.key: candidate.read for candidate in candidates}
    for plan_entries in by_plan.values():
        plan_levels = find_levels(door, table, plan_entries, target.plan, target.reads.queries)
        gains = [target.reads.weights @ target.reads.expected(level.saved) for level in plan_levels]
        for entry in plan_entries:
            index = table.catalog.snapshot.places[entry.name]
            costs = [
                Part(number, round(level.bytes_a_row * entry.rows), float(gain[index]))
                for number, (level, gain) in enumerate(zip(plan_levels, gains, strict=True))
            ]
            levels[entry.key] = plan_levels
            parts[entry.key] = tuple(part for part in costs if part.gain > least * read[entry.key])
    return Parts(levels, parts)


def find_levels(
    door: Door[OpenSegments], table: Table, entries: Sequence[PartitionEntry], fresh: Plan, queries: Sequence[Query]
) -> list[Level]:
    """Return levels for entries of one plan, by falling gain per byte; each level contains the one before.

    Args:
        door: of the table's segments.
        table: at one snapshot.
        entries: of one plan, without deleted rows.
        fresh: the wanted plan.
        queries: one for each class.
    """
    old = table.catalog.plans[entries[0].plan]
    read = {name for query in queries for name in query.columns}
    fresh = restrict_to_columns(fresh, read)
    missing = missing_layouts(old, fresh) if can_mix(old, fresh) else ()
    if not missing:
        return []
    before = len(old.scheme.layouts)
    both = mix_plans(old, fresh, range(before), missing)
    held = needed_columns([both], read)
    # The dry-run table lacks layouts that would hold none of these columns.
    present = [i for i, layout in enumerate(both.scheme.layouts) if set(held) & set(layout.columns)]
    read_sample = _sample_segments(table, entries, held)
    keys = [segment.partition for segment in read_sample.segments]

    def dry_run(open_rows: OpenSegments) -> Table:
        rows, segments = open_rows(table, both, read_sample)
        return dry_run_loads(rows, [both], held, segments, keys)[0]

    tried = door.read(dry_run)
    reads = LayoutReads(tried, sum(i < before for i in present), queries)
    sizes = {layout: reads.bytes_of(layout) for layout in range(reads.old, len(present))}
    first = measure_entry_bytes(with_features(reads.table(frozenset()), old.features), queries)
    levels = []
    for step in plan_steps(reads.sets(), sizes, reads.read):
        taken = [missing[present[layout] - before] for layout in step.layouts]
        kept = _choose_kept(old, fresh, taken, reads, step.layouts, present)
        then = measure_entry_bytes(reads.table(step.layouts), queries)
        read_then, full = (float((then.weights @ figures).sum()) for figures in (then.read, then.full))
        predicted = {**fresh.predicted, "bytes_fraction": round(read_then / full, 6) if full else 0.0}
        plan = replace(mix_plans(old, fresh, kept, taken), predicted=predicted)
        levels.append(Level(old.digest, plan, kept, step.bytes / max(1, tried.rows), _measure_savings(first, then)))
    return levels


def _sample_segments(table: Table, entries: Sequence[PartitionEntry], columns: Sequence[str]) -> TableRead:
    """Return the read of some evenly spread segments of the entries."""
    read = plan_entries_read(table, entries, columns)
    (pruned,) = (plan for plan in read.pruned if plan.source.plan.digest == entries[0].plan)
    segment_of = pruned.source.segment_of
    segments = np.unique(segment_of[pruned.read])
    rows = sum(entry.rows for entry in entries)
    sample = spread(segments.tolist(), max(1, round(len(segments) * _ENOUGH_ROWS / max(1, rows))))
    return replace(read, pruned=(exclude_blocks(pruned, ~np.isin(segment_of, sample)),))


def _choose_kept(
    old: Plan, fresh: Plan, taken: Sequence[int], reads: LayoutReads, layouts: Layouts, present: Sequence[int]
) -> tuple[int, ...]:
    """Return the old layouts to keep: those with a column that no new layout has, or that queries read."""
    new_columns = {name for layout in taken for name in fresh.scheme.layouts[layout].master}
    covered = [i for i, layout in enumerate(old.scheme.layouts) if set(layout.columns) <= new_columns]
    removed = {layout for layout in covered if layout not in present}
    unread = reads.find_unread(layouts, [present.index(layout) for layout in covered if layout in present])
    removed |= {present[layout] for layout in unread}
    kept = tuple(layout for layout in range(len(old.scheme.layouts)) if layout not in removed)
    # A single layout would have no positions by which its values could be checked.
    return kept if len(kept) + len(taken) > 1 else (0,)


def _measure_savings(before: EntryBytes, after: EntryBytes) -> Floats:
    reached = (before.full * before.reached).sum(axis=1)
    less = before.read.sum(axis=1) - after.read.sum(axis=1)
    saved: Floats = np.divide(less, reached, out=np.zeros(len(less)), where=reached > 0)
    return saved
