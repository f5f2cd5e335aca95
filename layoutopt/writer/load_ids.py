"""Name a load, number its blocks, and remove the files of a failed one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from layoutopt.catalog.paths import load_folder, new_load_id
from layoutopt.catalog.snapshot import Snapshot
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import BoundError, CommitConflictError, PlanError, SchemaError, StoreError
from layoutopt.model.layout import Plan

# A block's number has 23 bits of the load's hash and 40 bits of a number in the load: positive, and unique in the
# table.
_NUMBER_BITS = 40
_LOAD_HASHES = 1 << 23
# Failures before the commit.
ANY_FAILURE: Final = (BaseException,)
# Failures that refuse a commit for certain. After any other failure the snapshot may exist and name the load's files.
COMMIT_REFUSALS: Final = (CommitConflictError, PlanError, SchemaError)


def fresh_load_id(base: Snapshot | None, blocks: Collection[int] = ()) -> str:
    """Return a new load id whose block numbers differ from those of the snapshot's loads and of ``blocks``."""
    used_hashes = set() if base is None else {_hash_load_id(entry.load_id) for entry in base.partitions}
    used_hashes |= {number >> _NUMBER_BITS for number in blocks}
    while True:
        load_id = new_load_id()
        if _hash_load_id(load_id) not in used_hashes:
            return load_id


def check_block_numbers(plan: Plan, segments: int) -> None:
    """Raise BoundError if the blocks of so many segments could take the numbers of another load's."""
    max_rows = (1 << _NUMBER_BITS) // (max(1, segments) * len(plan.scheme.layouts))
    if plan.segment_rows > max_rows:
        raise BoundError(
            f"segment_rows is {plan.segment_rows}, too many to number the blocks of {segments} segments; "
            f"plan with at most {max_rows}"
        )


def first_block(load_id: str) -> int:
    """Return the least block number of a load; no other load's numbers have the same upper bits."""
    return _hash_load_id(load_id) << _NUMBER_BITS


def _hash_load_id(load_id: str) -> int:
    return int.from_bytes(hashlib.sha256(load_id.encode()).digest()[:4], "big") % _LOAD_HASHES


@contextmanager
def remove_on_failure(
    failures: tuple[type[BaseException], ...],
    files: TableFiles,
    load_id: str,
    keys: Iterable[str],
    first: Callable[[], object] | None = None,
    paths: Iterable[str] = (),
) -> Iterator[None]:
    """Remove a load's files from its partitions if the body fails in one of these ways.

    No snapshot names these files then, so one that can't be removed is garbage.

    Args:
        failures: :data:`ANY_FAILURE` before the commit, :data:`COMMIT_REFUSALS` while committing.
        keys: the keys of the partitions.
        first: called before removal, to stop other writers.
        paths: other files of the load, as they are when it fails.
    """
    try:
        yield
    except failures:
        try:
            if first is not None:
                first()
        finally:
            with suppress(StoreError):  # it would refuse the others, too
                for path in paths:
                    with suppress(OSError):
                        files.delete(path)
                for key in keys:
                    with suppress(OSError):
                        files.delete_folder(load_folder(key, load_id))
        raise
