"""Whether every cell of the source is in its master layout, by what was read back (Sun 2017, 5.4.1).

A layout with master columns holds every row of its segments once: with the local features whole, and the rest with the
master columns alone. Tids say which rows those are, and sums of hash(tid, value) that the values are the source's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.vectors import feature_bit
from layoutopt.scan.prune import PlanBlocks

Where = tuple[str, str]
"""A file of the table, and what is wrong with it."""


def master_columns(source: PlanBlocks) -> Iterator[Where]:
    """Master columns that the catalog has not for every row of a partition, or with other content than the source.

    Of the source's content the snapshot has the checksums: a load compared them with the source before it committed.
    """
    blocks = source.blocks
    for index in np.unique(source.entry_of):
        entry = source.entries[index]
        for number, layout in enumerate(source.plan.scheme.layouts):
            here = (source.entry_of == index) & (blocks.layout == number)
            for name in layout.master:
                held = here & blocks.has_column(name)
                rows, sums = int(blocks.rows[held].sum()), blocks.column_sums(name)[held]
                expected = entry.checksums.get(name)
                said = f"layout {number}, where {name!r} is master, has it in partition {entry.key!r}"
                if rows != entry.rows:
                    yield entry.blocks_file, f"{said} for {rows} of {entry.rows} rows"
                elif expected is not None and not (sums < 0).any() and int(sums.sum()) != expected:
                    yield entry.blocks_file, f"{said} with other values than the source had"


def misplaced_rests(source: PlanBlocks) -> Iterator[Where]:
    """Blocks of rows without a local feature that have one: a query that reads local rows alone would miss theirs."""
    blocks = source.blocks
    for number, layout in enumerate(source.plan.scheme.layouts):
        rest = (blocks.part == 1) & (blocks.layout == number)
        for feature in layout.features if rest.any() else ():
            wrong = rest & feature_bit(blocks.words, feature)
            if wrong.any():
                path = blocks.files[int(blocks.file[np.argmax(wrong)])]
                yield (
                    path,
                    f"block {int(blocks.block_id[np.argmax(wrong)])} is to be without feature {feature}, and is not",
                )


class TidsRead:
    """The tids read of each segment in each layout of a plan, judged when the last of their files was read."""

    def __init__(self, source: PlanBlocks) -> None:
        blocks, layouts = source.blocks, source.plan.scheme.layouts
        self._layouts = layouts
        place = source.segment_of * len(layouts) + blocks.layout
        self._place_of = {blocks.files[file]: at for file, at in zip(blocks.file.tolist(), place.tolist(), strict=True)}
        self._left = Counter(self._place_of.values())
        # Every master layout has all rows of a segment, so the most that a layout has are the segment's.
        in_place = np.bincount(place, blocks.rows, len(layouts) * (int(source.segment_of.max(initial=-1)) + 1))
        self._rows = in_place.reshape(-1, len(layouts)).max(axis=1).astype(np.int64)
        self._seen: dict[int, Bits] = {}
        self._twice: set[int] = set()

    def add(self, file: str, tids: Ints) -> str | None:
        """Add a file's tids, ``int64[rows]``; after the last file of a layout of a segment, what is wrong with it."""
        place = self._place_of[file]
        rows = int(self._rows[place // len(self._layouts)])
        seen = self._seen.setdefault(place, np.zeros(rows, dtype=np.bool_))
        known = tids[(tids >= 0) & (tids < rows)]
        here = np.zeros(rows, dtype=np.bool_)
        here[known] = True
        if np.count_nonzero(here) < len(tids) or (here & seen).any():
            self._twice.add(place)
        seen |= here
        self._left[place] -= 1
        return None if self._left[place] else self._judged(place, self._seen.pop(place))

    def _judged(self, place: int, seen: Bits) -> str | None:
        layout = place % len(self._layouts)
        if place in self._twice:
            return f"layout {layout} has a row of its segment twice, or one that the segment has not"
        if self._layouts[layout].master and not seen.all():
            missing = len(seen) - int(seen.sum())
            return (
                f"layout {layout} has master columns, and lacks {missing} rows of its segment, as tid {seen.argmin()}"
            )
        return None
