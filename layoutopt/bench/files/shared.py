"""What it costs that blocks share files: of `serve`, whose answers name whole files, for several sizes of these.

A file is opened if any of its blocks may match; of the others Arrow leaves out those that their minima and maxima
exclude. The bytes follow from the catalog alone, so that any grouping of blocks can be tried without writing it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from layoutopt.model.arrays import Bits, Floats, Ints, Singles
from layoutopt.model.query import Query
from layoutopt.scan.table import Table
from layoutopt.workload.served import said

_PASSES = 10
_GAIN = 1e-9
"""The least share of all costs that an exchange has to save."""


@dataclass(frozen=True, eq=False)
class Asked:
    """What queries ask of the blocks of a table, in the order in which these were written.

    Attributes:
        needed: the blocks that may match, bool[queries, blocks].
        left: the blocks that minima and maxima leave, bool[queries, blocks].
        bytes: of the query's columns in each block, int64[queries, blocks].
        size: of each block in its file, int64[blocks].
        segment: a number for each block's segment, ascending, int64[blocks].
    """

    needed: Bits
    left: Bits
    bytes: Ints
    size: Ints
    segment: Ints

    def read(self, file: Ints) -> int:
        """The bytes read where block ``b`` lies in the file ``file[b]``."""
        members: Singles = np.zeros((len(file), int(file.max(initial=-1)) + 1), dtype=np.float32)
        members[np.arange(len(file)), file] = 1
        opened = (self.needed.astype(np.float32) @ members > 0)[:, file]
        return int((self.bytes * (opened & self.left)).sum())


def asked_of(table: Table, queries: Sequence[Query]) -> Asked:
    """What arrives of queries at a server, asked of a table of one layout."""
    (source,) = table.sources
    order = np.lexsort((source.blocks.block_id, source.segment_of))
    pruned = [table.prune(said(query.filter.root), query.columns)[0] for query in queries]
    return Asked(
        np.array([plan.read[order] for plan in pruned]),
        np.array([plan.needed_without_features[order] for plan in pruned]),
        np.array([plan.bytes[order] for plan in pruned]),
        source.blocks.bytes[order],
        source.segment_of[order],
    )


def shared_bytes(asked: Asked, file_bytes: int) -> dict[str, int]:
    """The bytes that the queries read where blocks are put into files of a size, by how they are.

    Returns:
        ``files``, how many there are; ``alone``, the bytes where each block has a file of its own, which no grouping
        undercuts; ``written``, in the order in which they were written; ``random``; and ``exchanged``, where from
        ``written`` on blocks change places as long as that saves these very queries bytes.
    """
    blocks = np.arange(len(asked.size))
    written = filled(blocks, asked.size, asked.segment, file_bytes)
    drawn = np.lexsort((np.random.default_rng(0).random(len(blocks)), asked.segment))
    at_random = np.empty_like(written)
    at_random[drawn] = filled(drawn, asked.size, asked.segment, file_bytes)
    return {
        "file_bytes": file_bytes,
        "files": int(written[-1]) + 1,
        "alone": asked.read(blocks),
        "written": asked.read(written),
        "random": asked.read(at_random),
        "exchanged": asked.read(_per_segment(asked, written)),
    }


def filled(order: Ints, size: Ints, segment: Ints, file_bytes: int) -> Ints:
    """The file of each block of ``order``, int64[n], as loads close files: when they are full, and after a segment."""
    files = np.empty(len(order), dtype=np.int64)
    file, held, last = -1, 0, -1
    for place, block in enumerate(order.tolist()):
        if segment[block] != last or held >= file_bytes:
            file, held, last = file + 1, 0, int(segment[block])
        files[place] = file
        held += int(size[block])
    return files


def _per_segment(asked: Asked, file: Ints) -> Ints:
    """Exchange blocks within each segment."""
    found = file.copy()
    for segment in np.unique(asked.segment):
        here = np.flatnonzero(asked.segment == segment)
        weights = asked.bytes[:, here].sum(axis=1) / max(1, int(asked.size[here].sum()))
        first = int(file[here].min())
        found[here] = first + exchanged(asked.needed[:, here], weights, asked.size[here], file[here] - first)
    return found


def exchanged(needed: Bits, weights: Floats, size: Ints, file: Ints) -> Ints:
    """Let blocks of different files change places while that saves bytes, the best exchange of each block in turn.

    Args:
        needed: bool[queries, blocks].
        weights: the bytes that a query reads for one byte of an opened file, float64[queries].
        size: of the blocks, int64[blocks].
        file: of the blocks, dense from 0, int64[blocks]; files stay between the smallest and the largest of these.
    """
    files = _Files(needed, weights, size, file)
    for _ in range(_PASSES):
        before = files.file.copy()
        for block in range(len(file)):
            files.exchange(block)
        if (before == files.file).all():
            break
    return files.file


class _Files:
    """Blocks in files: of each file how many of its blocks each query needs, and its size."""

    def __init__(self, needed: Bits, weights: Floats, size: Ints, file: Ints) -> None:
        self.file, self.size, self.weights = file.copy(), size, weights
        self.ones: Ints = needed.T.astype(np.int64)
        self.counts: Ints = np.zeros((int(file.max()) + 1, len(needed)), dtype=np.int64)
        np.add.at(self.counts, file, self.ones)
        self.sizes: Ints = np.bincount(file, size).astype(np.int64)
        self.least, self.most = self.sizes.min(), self.sizes.max()
        self.enough = _GAIN * float(self._cost(self.sizes, self.counts).sum())

    def _cost(self, sizes: Ints, counts: Ints) -> Floats:
        return np.asarray(sizes * ((counts > 0) @ self.weights))

    def exchange(self, block: int) -> None:
        """Exchange a block with the one of another file by which most is saved, if any."""
        here, others = self.file[block], np.flatnonzero(self.file != self.file[block])
        if not len(others):
            return
        there, change = self.file[others], self.size[others] - self.size[block]
        moved = self.ones[others] - self.ones[block]
        new_here, new_there = self.sizes[here] + change, self.sizes[there] - change
        before = self._cost(self.sizes[here], self.counts[here]) + self._cost(self.sizes[there], self.counts[there])
        after = self._cost(new_here, self.counts[here] + moved) + self._cost(new_there, self.counts[there] - moved)
        gains = before - after
        gains[(np.minimum(new_here, new_there) < self.least) | (np.maximum(new_here, new_there) > self.most)] = -np.inf
        best = int(np.argmax(gains))
        if gains[best] > self.enough:
            self.counts[here] += moved[best]
            self.counts[there[best]] -= moved[best]
            self.sizes[here], self.sizes[there[best]] = new_here[best], new_there[best]
            self.file[block], self.file[others[best]] = there[best], here
