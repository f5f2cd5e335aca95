"""The blocks of one segment as shares of its vectors, and the rows that go to each block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from layoutopt.model.arrays import Ints, Words
from layoutopt.model.sequences import stable_order
from layoutopt.model.vectors import VectorCounts, union


@dataclass(frozen=True, eq=False)
class Partition:
    """The blocking map of one segment: which rows of which vector go to which block (Sun 2017, 3.4.4).

    Share ``k`` says that ``rows[k]`` rows of vector ``vector[k]`` lie in block ``block[k]``. A vector lies in one block
    unless its rows fill several. Shares are sorted by (vector, block), each pair once; no block is empty.

    Attributes:
        vector: index into the distinct vectors, ``int64[k]``.
        block: ``int64[k]`` in ``[0, n_blocks)``.
        rows: ``int64[k]``, positive.
        n_blocks: how many blocks there are.
    """

    vector: Ints
    block: Ints
    rows: Ints
    n_blocks: int

    @classmethod
    def of(cls, vector: Ints, block: Ints, rows: Ints) -> Partition:
        """The partition of these shares, in any order, blocks named by any numbers.

        Blocks are numbered anew by their smallest vector and then by the number given, so that equal partitions are
        equal arrays. Shares of one vector in one block are summed.

        Raises:
            ValueError: a share has no rows.
        """
        if len(rows) and int(rows.min()) < 1:
            raise ValueError(f"a share of {int(rows.min())} rows is no share; leave it out")
        names, compact = np.unique(block, return_inverse=True)
        n_blocks = len(names)
        first_vector = np.full(n_blocks, np.iinfo(np.int64).max)
        np.minimum.at(first_vector, compact, vector)
        number = np.empty(n_blocks, dtype=np.int64)
        number[np.lexsort((names, first_vector))] = np.arange(n_blocks)
        pairs, which = np.unique(vector * max(n_blocks, 1) + number[compact], return_inverse=True)
        summed = np.zeros(len(pairs), dtype=np.int64)
        np.add.at(summed, which, rows)
        return cls(pairs // max(n_blocks, 1), pairs % max(n_blocks, 1), summed, n_blocks)

    def sizes(self) -> Ints:
        """Rows of each block, ``int64[n_blocks]``."""
        return np.bincount(self.block, self.rows, self.n_blocks).astype(np.int64)

    def unions(self, vectors: VectorCounts) -> Words:
        """The union vector of each block, ``uint64[n_blocks, w]`` (Sun 2017, 3.4.1)."""
        return union(vectors.words[self.vector], self.block, self.n_blocks)


def assign_rows(partition: Partition, inverse: Ints, order: Ints | None = None) -> Ints:
    """The block of each row, ``int64[n]``.

    A vector that several blocks share is cut along ``order``, so that each block's rows of it are contiguous in that
    order: sorted by dates, say, its blocks have narrow ranges of dates.

    Args:
        partition: the blocking map.
        inverse: the vector of each row, ``int64[n]``, as :func:`layoutopt.model.vectors.distinct` gives it.
        order: the rank of each row, ``int64[n]``; None is the order of the rows.

    Raises:
        ValueError: the rows of some vector are not as many as the partition has.
    """
    n_vectors = max(int(inverse.max(initial=-1)), int(partition.vector.max(initial=-1))) + 1
    expected = np.bincount(partition.vector, partition.rows, n_vectors)
    if not np.array_equal(expected, np.bincount(inverse, minlength=n_vectors)):
        raise ValueError("the rows differ from those that were partitioned; partition the segment's own vectors")
    if order is None:
        by_vector = stable_order(inverse, n_vectors)
    else:
        in_order = np.argsort(order, kind="stable")
        by_vector = in_order[stable_order(inverse[in_order], n_vectors)]
    block = np.empty(len(inverse), dtype=np.int64)
    block[by_vector] = np.repeat(partition.block, partition.rows)
    return block
