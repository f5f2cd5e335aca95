"""Metrics of what the queries of a Spark session read and skip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from layoutopt.scan.opened_table import sum_all, sum_read, sum_skipped
from layoutopt.scan.prune import ScanSize
from layoutopt.scan.table_read import TableRead


@dataclass(frozen=True)
class ScanMetrics:
    """What one scan of an optimised table reads and skips, according to the catalog.

    Attributes:
        table: the table's name in the session.
        path: the table's folder or URL.
        snapshot: the number of the snapshot that is read.
        alias: the same as ``table``.
        columns: the columns that the query reads, in schema order.
        total: all blocks of the layouts read, their rows, and the bytes of these columns.
        read: the part that is read.
        skipped_by: the skipped part by mechanism: ``partition``, ``features``, ``statistics``.
        note: why less is skipped than possible, if the condition or a session setting is not supported.
        keys: the keys of joins that have skipped blocks, or by which columns some may while the query runs.
    """

    table: str
    path: str
    snapshot: int
    alias: str
    columns: tuple[str, ...]
    total: ScanSize
    read: ScanSize
    skipped_by: Mapping[str, ScanSize]
    note: str = ""
    keys: str = ""

    @classmethod
    def of(cls, name: str, read: TableRead) -> ScanMetrics:
        """Return the metrics of a read of the table with this name in the session."""
        return cls(
            table=name,
            path=read.table.catalog.files.root,
            snapshot=read.table.catalog.snapshot.number,
            alias=read.scan.alias,
            columns=read.scan.columns,
            total=sum_all(read.pruned),
            read=sum_read(read.pruned),
            skipped_by=sum_skipped(read.pruned),
        )

    @property
    def label(self) -> str:
        """Return the name of the scan in Spark's plans and UI."""
        by = ", ".join(f"{name} {amount.blocks:,}" for name, amount in self.skipped_by.items() if amount.blocks)
        read = f"{self.table} snapshot {self.snapshot}: reads {self.read.blocks:,} of {self.total.blocks:,} blocks"
        return f"{read}, skipped by {by}" if by else read

    @property
    def skipped(self) -> ScanSize:
        """Return the part that all mechanisms skip together."""
        total = ScanSize()
        for amount in self.skipped_by.values():
            total += amount
        return total

    def __str__(self) -> str:
        by = ", ".join(f"{name} {amount.blocks:,}" for name, amount in self.skipped_by.items())
        read = f"{self.read.blocks:,} of {self.total.blocks:,} blocks, {self.read.rows:,} of {self.total.rows:,} rows"
        size = f"{self.read.bytes:,} of {self.total.bytes:,} bytes"
        notes = "".join(f"; {note}" for note in (self.keys, self.note) if note)
        return f"{self.alias}: reads {read}, {size}; blocks skipped by {by}{notes}"
