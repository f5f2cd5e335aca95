"""A table opened at one snapshot: its blocks, and which of them a filter needs. No data file is touched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from layoutopt.catalog.snapshot import PartitionEntry
from layoutopt.catalog.table import Catalog
from layoutopt.errors import QueryError
from layoutopt.model.arrays import Bits
from layoutopt.model.feature import Settings
from layoutopt.model.predicates import TRUE, Node, describe_all
from layoutopt.model.schema import Column, Schema
from layoutopt.model.udf import Udfs
from layoutopt.scan.prune import PlanBlocks, PrunedPlan, PruneOutcome, ScanSize, plan_blocks, prune
from layoutopt.skipping.cannot_match import BlockStatistics, cannot_match


@dataclass(frozen=True, eq=False)
class OpenedTable:
    """A table at one snapshot; what others commit meanwhile is not seen."""

    catalog: Catalog
    udfs: Udfs = field(default_factory=dict)
    """The functions of the user's that texts over the table may call."""

    @property
    def name(self) -> str:
        """The name that SQL texts call the table by: its plan's."""
        return next((plan.table for plan in self.catalog.plans.values()), "t")

    @property
    def schema(self) -> Schema:
        """The table's columns."""
        return self.catalog.schema

    @cached_property
    def rows(self) -> int:
        """How many rows the snapshot has, without those that are deleted."""
        return self.catalog.snapshot.rows

    @cached_property
    def settings(self) -> Settings:
        """The session settings under which the embedded engine reads: those of the table's first plan."""
        return next((plan.settings for plan in self.catalog.plans.values()), Settings())

    @cached_property
    def sources(self) -> tuple[PlanBlocks, ...]:
        """The blocks, one item a plan."""
        return plan_blocks(self.catalog)

    @cached_property
    def partition_statistics(self) -> BlockStatistics:
        """Min, max and nulls of every partition."""
        return self.catalog.partition_statistics()

    def decide(
        self, root: Node, columns: Sequence[str], settings: Sequence[Settings] | None = None
    ) -> tuple[PrunedPlan, ...]:
        """Which blocks a scan of these columns under this filter needs, one item a plan.

        Args:
            root: the filter; rows for which it is not TRUE need not be read.
            columns: what is read, filter columns included.
            settings: of the session, one item a plan; by default the table's.
        """
        sessions = settings or [self.settings] * len(self.sources)
        out = self.partitions_out(root)
        return tuple(
            prune(source, out, root, columns, session) for source, session in zip(self.sources, sessions, strict=True)
        )

    def all_rows_of(self, entries: Sequence[PartitionEntry], columns: Sequence[str]) -> tuple[PrunedPlan, ...]:
        """The blocks that have all rows of some entries in these columns, one item a plan; no filter decides."""
        out = np.ones(len(self.catalog.partitions), dtype=np.bool_)
        out[[self.catalog.partitions.index(entry) for entry in entries]] = False
        return tuple(prune(source, out, TRUE, columns, self.settings) for source in self.sources)

    def partitions_out(self, root: Node) -> Bits:
        """The partitions in which no row can match, bool[n_partitions]."""
        return cannot_match(root, self.partition_statistics, None)

    def may_hold_nans(self, column: Column, layout: int) -> bool:
        """Whether a float or double column may have a NaN in the rows of a layout, or isn't known to have none."""
        for source in self.sources:
            blocks = source.blocks
            if blocks.schema.get(column.name) is None:
                continue  # it came after this plan: NULL in all its rows
            here = (blocks.layout == layout) & blocks.has_column(column.name)
            if (blocks.column_nans(column.name)[here] != 0).any():
                return True
        return False

    def files(self, layout: int = 0) -> tuple[str, ...]:
        """The paths or URLs of the snapshot's data files of one layout, sorted, for who reads them whole.

        Raises:
            QueryError: no plan of the table has such a layout, or rows are deleted that these files still have.
        """
        self.check_plain()
        return self.data_files(layout)

    def check_plain(self) -> None:
        """Refuse a table whose files have deleted rows, which readers that know no vectors would bring back.

        Raises:
            QueryError: it is one.
            EncryptedTableError: its files are encrypted.
        """
        self.catalog.files.check_plain()
        for entry in self.catalog.partitions:
            if entry.deletes is not None:
                raise QueryError(
                    f"partition {entry.key!r} has {entry.deletes.rows} deleted rows that its files still hold; run "
                    "`layoutopt optimize --deleted-share 0` first, which writes it anew"
                )

    def data_files(self, layout: int) -> tuple[str, ...]:
        """As :meth:`files`, with what is deleted still in them.

        Raises:
            QueryError: no plan of the table has such a layout, or rows of a source's file were deleted.
            EncryptedTableError: the files are encrypted.
        """
        known = max((len(plan.scheme.layouts) for plan in self.catalog.plans.values()), default=1)
        if not 0 <= layout < known:
            raise QueryError(f"there is no layout {layout}; the table's are 0 to {known - 1}")
        found = set()
        for source in self.sources:
            used = np.unique(source.blocks.file[source.blocks.layout == layout])
            found |= {source.blocks.files[index] for index in used}
        data = self.catalog.data
        data.check_plain()
        return tuple(data.full_path(path) for path in sorted(found))


# ----------------------------------------------------------------------------------------------------
# How much of a table a filter reads and skips, summed over plans; and what of that is said as JSON.

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
