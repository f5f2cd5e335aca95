"""The commit protocol: plan, blocks, then the snapshot by exclusive creation (DESIGN 5, promises 3 and 4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from layoutopt.catalog.filesystem import TableFiles
from layoutopt.catalog.snapshot import PartitionEntry, Snapshot
from layoutopt.model.layout import Plan

CommitHook = Callable[[str], None]


def ensure_table_root(files: TableFiles) -> Snapshot | None:
    """Claim a path for a table before a load writes its first data file; the newest snapshot, None where there is none yet.

    Raises:
        NotATableError: the path holds something else.
        CatalogError: the newest snapshot is damaged or of an unknown version.
    """
    raise NotImplementedError


def commit_load(
    files: TableFiles,
    base: Snapshot | None,
    plan: Plan,
    load_id: str,
    entries: Sequence[PartitionEntry],
    blocks: pa.Table,
    *,
    whole_table: bool = False,
    at: CommitHook = lambda point: None,
) -> Snapshot:
    """Make a load visible: write the plan and its blocks, then the next snapshot.

    ``whole_table``: partitions that the load does not have disappear.
    """
    raise NotImplementedError
