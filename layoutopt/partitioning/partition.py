"""What a partitioner takes and gives: the Partitioner protocol, Partition, and the routing of rows to blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from layoutopt.model.vectors import Ints, VectorCounts, Words, union

if TYPE_CHECKING:
    from layoutopt.partitioning.objective import Objective

Weights = npt.NDArray[np.float64]


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
        sizes = np.zeros(self.n_blocks, dtype=np.int64)
        np.add.at(sizes, self.block, self.rows)
        return sizes

    def unions(self, vectors: VectorCounts) -> Words:
        """The union vector of each block, ``uint64[n_blocks, w]`` (Sun 2017, 3.4.1)."""
        return union(vectors.words[self.vector], self.block, self.n_blocks)


class Partitioner(Protocol):
    """What every partitioning algorithm is: a function of these arguments and of nothing else."""

    def __call__(
        self, vectors: VectorCounts, weights: Weights, min_rows: int, seed: int, objective: Objective | None = None
    ) -> Partition:
        """Put every row into a block.

        Args:
            vectors: the distinct vectors of one segment.
            weights: the worth of skipping by each feature (queries it subsumes), ``float64[n_features]``, not negative.
            min_rows: blocks hold ``[min_rows, 2 * min_rows)`` rows, except for at most one remainder that holds fewer.
            seed: the same arguments give the same partition; algorithms without chance ignore it.
            objective: what queries can't skip, over these features; None is Equation 3.1 with the weights, by which
                Ward's method goes whatever is given.

        Raises:
            ValueError: ``min_rows`` is below 1, or the weights don't fit the features or are negative or not finite.
        """
        ...


def check_arguments(vectors: VectorCounts, weights: Weights, min_rows: int) -> None:
    """Refuse arguments that no partitioner can use.

    Raises:
        ValueError: see :class:`Partitioner`.
    """
    if min_rows < 1:
        raise ValueError(f"min_rows is {min_rows}; give at least 1")
    if weights.shape != (vectors.n_features,):
        raise ValueError(f"weights of shape {weights.shape} don't fit {vectors.n_features} features; give one for each")
    if not bool(np.isfinite(weights).all()) or (len(weights) and float(weights.min()) < 0):
        raise ValueError(f"weights {weights.tolist()} must be finite and not negative")


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
    expected = np.zeros(n_vectors, dtype=np.int64)
    np.add.at(expected, partition.vector, partition.rows)
    if not np.array_equal(expected, np.bincount(inverse, minlength=n_vectors)):
        raise ValueError("the rows differ from those that were partitioned; partition the segment's own vectors")
    by_vector = np.argsort(inverse, kind="stable") if order is None else np.lexsort((order, inverse))
    block = np.empty(len(inverse), dtype=np.int64)
    block[by_vector] = np.repeat(partition.block, partition.rows)
    return block
