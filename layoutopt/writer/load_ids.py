"""A load's name, the numbers that its blocks may have, and the end of what a failed one wrote."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import fsspec

from layoutopt.catalog.paths import load_folder, new_load_id
from layoutopt.catalog.snapshot import Snapshot
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import BoundError, CommitConflictError, PlanError, SchemaError
from layoutopt.model.layout import Plan

# A block's number is the load's mark, 23 bits, and a number in the load, 40 bits: positive, and unique in the table.
_NUMBER_BITS = 40
_MARKS = 1 << 23
ANY: Final = (BaseException,)
REFUSED: Final = (CommitConflictError, PlanError, SchemaError)
"""How a commit is refused for certain. After any other failure the snapshot may exist, and name the load's files."""


def fresh_load_id(base: Snapshot | None, blocks: Collection[int] = ()) -> str:
    """A new load id whose blocks' numbers no load of the snapshot has, nor any of the loads of some other blocks."""
    taken = set() if base is None else {_mark(entry.load_id) for entry in base.partitions}
    taken |= {number >> _NUMBER_BITS for number in blocks}
    while True:
        load_id = new_load_id()
        if _mark(load_id) not in taken:
            return load_id


def check_block_numbers(plan: Plan, segments: int) -> None:
    """Refuse a load of so many segments whose blocks might take the numbers of another load's.

    Raises:
        BoundError: they might.
    """
    most = (1 << _NUMBER_BITS) // (max(1, segments) * len(plan.scheme.layouts))
    if plan.segment_rows > most:
        raise BoundError(
            f"with segment_rows {plan.segment_rows} the blocks of {segments} segments can't be numbered; "
            f"plan with at most {most}"
        )


def first_block(load_id: str) -> int:
    """The least number that a block of a load may have; no other load's has the same upper bits."""
    return _mark(load_id) << _NUMBER_BITS


def _mark(load_id: str) -> int:
    return int.from_bytes(hashlib.sha256(load_id.encode()).digest()[:4], "big") % _MARKS


@contextmanager
def removed_after(
    failures: tuple[type[BaseException], ...],
    files: TableFiles,
    load_id: str,
    keys: Iterable[str],
    first: Callable[[], object] | None = None,
) -> Iterator[None]:
    """Remove what a load wrote to partitions where what is done within fails in one of these ways.

    Nothing names these files then, so one that can't be removed is garbage that nobody sees.

    Args:
        failures: :data:`ANY` before the commit, :data:`REFUSED` while committing.
        files: the table's.
        load_id: the load's.
        keys: of the partitions.
        first: called before, where somebody else may write still.
    """
    try:
        yield
    except failures:
        try:
            if first is not None:
                first()
        finally:
            for key in keys:
                with suppress(OSError):
                    filesystem, path = fsspec.core.url_to_fs(files.full_path(load_folder(key, load_id)))
                    filesystem.rm(path, recursive=True)
        raise
