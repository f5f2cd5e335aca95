"""What a query would read, in bytes, from the catalog alone: for limits and prices before anything runs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from layoutopt.scan.prune import PruneOutcome, ScanSize

if TYPE_CHECKING:
    from layoutopt.scan.table import Scan

_ON_PATH = tuple(outcome for outcome in PruneOutcome if outcome is not PruneOutcome.OTHER_LAYOUT)


@dataclass(frozen=True)
class DryRun:
    """The compressed column chunks that a query reads, tids included, and those that it would read without skipping."""

    table: str
    snapshot: int
    bytes: int
    blocks: int
    rows: int
    bytes_total: int
    blocks_total: int
    rows_total: int

    def to_json(self) -> dict[str, Any]:
        """The numbers as JSON."""
        return asdict(self)

    def __str__(self) -> str:
        """The numbers in one line."""
        return f"{self.bytes:,} of {self.bytes_total:,} bytes, in {self.blocks:,} of {self.blocks_total:,} blocks"


def dry_run(scan: Scan) -> DryRun:
    """What a scan would read, summed over its mentions of the table; no data file is opened.

    Raises:
        CatalogError: a blocks file is damaged.
    """
    plans = [plan for read in scan.reads for plan in read.pruned]
    read, total = ScanSize(), ScanSize()
    for plan in plans:
        read, total = read + plan.size(PruneOutcome.READ), total + plan.size(*_ON_PATH)
    return DryRun(
        scan.table.name, scan.table.catalog.snapshot.number,
        read.bytes, read.blocks, read.rows, total.bytes, total.blocks, total.rows,
    )  # fmt: skip
