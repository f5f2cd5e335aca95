"""A table opened at one snapshot: its blocks, and which of them a filter needs. Reads no data file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from layoutopt.catalog.partition_entry import PartitionEntry
from layoutopt.catalog.table import Catalog
from layoutopt.errors import QueryError
from layoutopt.model.arrays import Bits
from layoutopt.model.feature import SessionSettings
from layoutopt.model.predicates import TRUE, Node
from layoutopt.model.schema import Column, Schema
from layoutopt.model.udf import Udfs
from layoutopt.scan.prune import (
    PlanBlocks,
    PrunedPlan,
    PrunedQueries,
    PruneOutcome,
    Question,
    ScanSize,
    plan_blocks,
    prune,
    prune_all,
    under_zone,
)
from layoutopt.skipping.cannot_match import BlockStatistics, cannot_match, cannot_match_each


@dataclass(frozen=True, eq=False)
class OpenedTable:
    """A table at one snapshot; later commits are not visible. Texts may call the user-defined functions ``udfs``."""

    catalog: Catalog
    udfs: Udfs = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name by which SQL texts refer to the table, from its plan."""
        return next((plan.table for plan in self.catalog.plans.values()), "t")

    @property
    def schema(self) -> Schema:
        """The table's columns."""
        return self.catalog.schema

    @cached_property
    def rows(self) -> int:
        """The number of rows of the snapshot, without deleted ones."""
        return self.catalog.snapshot.rows

    @cached_property
    def settings(self) -> SessionSettings:
        """The session settings of the embedded engine: those of the table's first plan."""
        return next((plan.settings for plan in self.catalog.plans.values()), SessionSettings())

    @cached_property
    def sources(self) -> tuple[PlanBlocks, ...]:
        """The blocks, one item per plan."""
        return plan_blocks(self.catalog)

    @cached_property
    def partition_statistics(self) -> BlockStatistics:
        """Minimum, maximum and NULL count of every partition, under the table's settings."""
        return under_zone(self.catalog.partition_statistics(), self.settings.time_zone)

    @cached_property
    def _by_zone(self) -> dict[str, BlockStatistics]:
        return {self.settings.time_zone: self.partition_statistics}

    def partition_statistics_under(self, settings: SessionSettings) -> BlockStatistics:
        """Return :attr:`partition_statistics` under a session's settings."""
        zone = settings.time_zone
        if zone not in self._by_zone:
            self._by_zone[zone] = under_zone(self.partition_statistics, zone)
        return self._by_zone[zone]

    def decide(
        self, root: Node, columns: Sequence[str], settings: Sequence[SessionSettings] | None = None
    ) -> tuple[PrunedPlan, ...]:
        """Return which blocks a scan needs, one item per plan; ``settings`` are the session's for each plan."""
        return tuple(pruned[0] for pruned in self.decide_all([(root, columns)], settings))

    def decide_all(
        self, questions: Sequence[Question], settings: Sequence[SessionSettings] | None = None
    ) -> tuple[PrunedQueries, ...]:
        """Return :meth:`decide` of many scans, one item per plan."""
        sessions = settings or [self.settings] * len(self.sources)
        roots = [root for root, _ in questions]
        partitions_out = {
            session: cannot_match_each(roots, self.partition_statistics_under(session))
            for session in dict.fromkeys(sessions)
        }
        return tuple(
            prune_all(source, partitions_out[session], questions, session)
            for source, session in zip(self.sources, sessions, strict=True)
        )

    def all_rows_of(self, entries: Sequence[PartitionEntry], columns: Sequence[str]) -> tuple[PrunedPlan, ...]:
        """Return the blocks with all rows of some entries in some columns, one item for each of their plans.

        Blocks of other entries are not read: a table of thousands may be rewritten one after the other.
        """
        wanted = {entry.name for entry in entries}
        chosen = [entry for entry in self.catalog.partitions if entry.name in wanted]
        excluded = np.zeros(len(chosen), dtype=np.bool_)
        sources = plan_blocks(self.catalog.select(chosen, self.catalog.plans))
        return tuple(prune(source, excluded, TRUE, columns, self.settings) for source in sources)

    def partitions_out(self, root: Node) -> Bits:
        """Return the partitions in which no row can match, bool[n_partitions]."""
        return cannot_match(root, self.partition_statistics, None)

    def may_hold_nans(self, column: Column, layout: int) -> bool:
        """Return whether a float or double column may have a NaN in a layout."""
        for source in self.sources:
            blocks = source.blocks
            if blocks.schema.get(column.name) is None:
                continue  # added after this plan: NULL in all its rows
            mask = (blocks.layout == layout) & blocks.has_column(column.name)
            if (blocks.column_nans(column.name)[mask] != 0).any():
                return True
        return False

    def files(self, layout: int = 0) -> tuple[str, ...]:
        """Return the paths or URLs of one layout's data files, sorted; raises as :meth:`check_plain`."""
        self.check_plain()
        return self.data_files(layout)

    def check_plain(self) -> None:
        """Refuse a table with deletion vectors, since plain Parquet readers would return deleted rows.

        Raises:
            QueryError: a partition has deleted rows.
            EncryptedTableError: the files are encrypted.
        """
        self.catalog.files.check_plain()
        for entry in self.catalog.partitions:
            if entry.deletes is not None:
                raise QueryError(
                    f"the files of partition {entry.key!r} still hold {entry.deletes.rows} deleted rows; run "
                    "`layoutopt optimize --deleted-share 0` first to rewrite it"
                )

    def data_files(self, layout: int) -> tuple[str, ...]:
        """Return the files as :meth:`files`, but allow deletion vectors; raise QueryError for an unknown layout."""
        n_layouts = max((len(plan.scheme.layouts) for plan in self.catalog.plans.values()), default=1)
        if not 0 <= layout < n_layouts:
            raise QueryError(f"there is no layout {layout}; the table's layouts are 0 to {n_layouts - 1}")
        paths = set()
        for source in self.sources:
            used = np.unique(source.blocks.file[source.blocks.layout == layout])
            paths |= {source.blocks.files[index] for index in used}
        data = self.catalog.data
        data.check_plain()
        return tuple(data.full_path(path) for path in sorted(paths))


# The mechanisms that skip blocks, in the order in which they are tried.
MECHANISMS = {
    "partition": PruneOutcome.PARTITION,
    "features": PruneOutcome.FEATURES,
    "statistics": PruneOutcome.STATISTICS,
    "index": PruneOutcome.INDEX,
}


def sum_read(pruned: Iterable[PrunedPlan]) -> ScanSize:
    """Return the blocks, rows and bytes that are read, over all plans."""
    return sum((plan.size(plan.read) for plan in pruned), ScanSize())


def sum_all(pruned: Iterable[PrunedPlan]) -> ScanSize:
    """Return all blocks of the layouts read, with their rows and bytes, over all plans."""
    return sum((plan.size(plan.on_path) for plan in pruned), ScanSize())


def sum_skipped(pruned: Iterable[PrunedPlan]) -> dict[str, ScanSize]:
    """Return the blocks, rows and bytes that each mechanism skips, over all plans."""
    plans = list(pruned)
    return {
        name: sum((plan.size(plan.outcome == outcome) for plan in plans), ScanSize())
        for name, outcome in MECHANISMS.items()
    }


def size_json(amount: ScanSize) -> dict[str, int]:
    """Return a size as JSON."""
    return {"blocks": amount.blocks, "rows": amount.rows, "bytes": amount.bytes}


def layout_json(pruned: PrunedPlan) -> dict[str, Any]:
    """Return a plan's retrieval path as JSON: the plan's digest and the columns read from each layout."""
    choice = {str(c.layout): list(c.columns) for c in pruned.choice}
    return {"plan": pruned.source.plan.digest, "columns": choice}


def find_subsumed_features(table: OpenedTable, root: Node) -> list[str]:
    """Return the features, as texts, that follow from a whole filter: its query vector (Sun 2017, 3.5)."""
    texts: dict[str, None] = {}
    for source in table.sources:
        features = source.features_under(table.settings)
        for position in features.subsuming(root) if features is not None else ():
            texts[source.feature_text(position)] = None
    return list(texts)
