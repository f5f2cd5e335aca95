"""A table's catalog, opened at one snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from layoutopt.catalog.filesystem import TableFiles
from layoutopt.catalog.snapshot import PartitionEntry, Snapshot
from layoutopt.model.layout import Plan
from layoutopt.model.schema import Schema


@dataclass(frozen=True)
class Catalog:
    """What a table knows of itself at one snapshot."""

    files: TableFiles
    snapshot: Snapshot
    plans: Mapping[str, Plan]

    @property
    def schema(self) -> Schema:
        """The table's schema."""
        return self.snapshot.schema

    @classmethod
    def open(cls, root: str, snapshot: int | None = None, as_of: str | None = None) -> Catalog:
        """Open a table at its newest snapshot, at one by number, or at the newest not after a time (ISO 8601)."""
        raise NotImplementedError
