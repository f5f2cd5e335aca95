"""What a scan reads of each segment: which row groups of which files, and which columns of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from layoutopt.scan.prune import PrunedPlan


@dataclass(frozen=True)
class FileRead:
    """The row groups of one file to read, ascending, with the rows that the catalog says each holds.

    ``footer`` is the digest of the file's footer, None where the catalog has none.
    """

    path: str
    row_groups: tuple[int, ...]
    rows: tuple[int, ...]
    footer: str | None = None


@dataclass(frozen=True)
class LayoutRead:
    """What is read of one layout in one segment: these columns of these row groups."""

    layout: int
    columns: tuple[str, ...]
    files: tuple[FileRead, ...]


@dataclass(frozen=True)
class SegmentRead:
    """One segment's part of a scan; more than one layout means that rows are put together by tid."""

    partition: str
    segment: int
    layouts: tuple[LayoutRead, ...]


def segments_to_read(pruned: PrunedPlan) -> list[SegmentRead]:
    """The surviving row groups of a plan's blocks, by segment, layout and file."""
    source, blocks = pruned.source, pruned.source.blocks
    chosen = np.flatnonzero(pruned.read)
    order = chosen[np.lexsort((blocks.row_group[chosen], blocks.file[chosen], source.segment_of[chosen]))]
    segments = []
    for members in _runs(order, source.segment_of[order]):
        first = members[0]
        layouts = [_layout_read(pruned, members, index) for index in range(len(pruned.choice))]
        partition = source.entries[source.entry_of[first]].key
        segments.append(SegmentRead(partition, int(blocks.segment[first]), tuple(layouts)))
    return segments


def _layout_read(pruned: PrunedPlan, members: Any, index: int) -> LayoutRead:
    blocks, choice = pruned.source.blocks, pruned.choice[index]
    mine = members[blocks.layout[members] == choice.layout]
    files = tuple(
        FileRead(
            blocks.files[blocks.file[run[0]]],
            tuple(blocks.row_group[run].tolist()),
            tuple(blocks.rows[run].tolist()),
            blocks.footers[blocks.file[run[0]]],
        )
        for run in _runs(mine, blocks.file[mine])
    )
    return LayoutRead(choice.layout, choice.columns, files)


def _runs(values: Any, labels: Any) -> list[Any]:
    """``values`` cut where ``labels`` (equally long) change."""
    if not len(values):
        return []
    return np.split(values, np.flatnonzero(labels[1:] != labels[:-1]) + 1)
