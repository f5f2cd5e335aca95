"""What a local search changes: shares in blocks, with counters per block and derived feature."""

from __future__ import annotations

import numpy as np

from layoutopt.model.arrays import Counters, Floats, Ints, Singles
from layoutopt.partitioning.derived import Derived
from layoutopt.partitioning.partition import Partition


class State:
    """Shares (the rows of one vector in one block) and their blocks, and what reading each block costs.

    Its arrays are changed in place: compiled loops hold the same ones.

    Attributes:
        rows, block: of each share, ``int64[k]``.
        sizes: rows of each block, ``int64[b]``; 0 where a block has vanished.
        having: how many shares of each block have each derived feature, ``int32[b, t]``.
        reading: the cost of reading a row of each block, ``float64[b]``.
    """

    def __init__(self, partition: Partition, derived: Derived, min_rows: int) -> None:
        # Compiling takes its time to be imported, which nothing else here needs.
        from layoutopt.partitioning.loops import shares

        self.min_rows = min_rows
        self.vector: Ints = partition.vector
        self.rows: Ints = partition.rows.copy()  # of the one type that compiled loops take, which is not read-only
        self.block: Ints = partition.block.copy()
        self.sizes: Ints = partition.sizes()
        self.weights: Singles = derived.weights.astype(np.float32)  # sums of them are exact
        self.bits: Counters = derived.bits[partition.vector].astype(np.int32, order="C")
        self.alone: Floats = derived.alone[partition.vector]
        self.having: Counters = np.zeros((partition.n_blocks, derived.bits.shape[1]), dtype=np.int32)
        np.add.at(self.having, self.block, self.bits)
        self.unions: Singles = (self.having > 0).astype(np.float32)
        self.reading: Floats = (self.unions @ self.weights).astype(np.float64)
        self._loops = shares
        self._shares = shares.Shares(
            min_rows, self.rows, self.block, np.argsort(-self.rows, kind="stable"), self.bits, self.alone,
            self.weights, self.sizes, self.having, self.unions, self.reading,
        )  # fmt: skip

    @property
    def cost(self) -> float:
        """Rows scanned, weighted, up to a constant."""
        return float(self.sizes @ self.reading)

    def sizes_allowed(self) -> bool:
        """Whether all blocks hold ``[min_rows, 2 * min_rows)`` rows, but for one that may be smaller."""
        small = (self.sizes > 0) & (self.sizes < self.min_rows)
        return int(self.sizes.max(initial=0)) < 2 * self.min_rows and int(small.sum()) <= 1

    def partition(self) -> Partition:
        """The blocks as they are now."""
        return Partition.of(self.vector, self.block, self.rows)

    def move_each(self, shares: Ints) -> int:
        """Let each of these shares in turn move to the block where it costs least, or be exchanged for a share there.

        It does where that costs less. A move of the share x of ``r`` rows from block A to block B changes :attr:`cost`
        by ``added - saved``::

            saved = |A| * reading(A) - (|A| - r) * reading(A without x)
            added = (|B| + r) * reading(B with x) - |B| * reading(B)

        Here a row of the first block reads for two features, as long as the third share is in it:

        >>> bits = np.array([[1, 0], [1, 0], [0, 1], [0, 1], [0, 1]], dtype=bool)
        >>> partition = Partition.of(np.arange(5), np.array([0, 0, 0, 1, 1]), np.ones(5, dtype=np.int64))
        >>> state = State(partition, Derived(bits, np.ones(2), exponent=0), min_rows=2)
        >>> state.cost  # 3 * 2 + 2 * 1; the move saves 3 * 2 - 2 * 1 and adds 3 * 1 - 2 * 1
        8.0
        >>> state.move_each(np.array([2])), state.cost, state.block.tolist()
        (1, 5.0, [0, 0, 1, 1, 1])

        Returns:
            How many moved or were exchanged.
        """
        return self._loops.move_each(self._shares, shares)

    def clear_each(self, blocks: Ints, features: Ints) -> int:
        """Move all shares that have a derived feature out of a block, each to where it costs least, if that costs less.

        Once for each of these blocks that hold several shares, and each of these features that weighs more than 0. A
        share that moves alone may cost more, as long as another one with the feature stays:

        >>> bits = np.array([[1, 0], [1, 0], [1, 1], [1, 1], [0, 1], [0, 1]], dtype=bool)
        >>> rows = np.array([6, 6, 1, 1, 6, 6])
        >>> partition = Partition.of(np.arange(6), np.array([0, 0, 0, 0, 1, 1]), rows)
        >>> state = State(partition, Derived(bits, np.array([1.0, 2.0]), exponent=0), min_rows=10)
        >>> state.cost, state.move_each(np.arange(6))  # one of the two saves 1 * 3 and adds 13 * 3 - 12 * 2
        (66.0, 0)
        >>> state.clear_each(np.array([0, 1]), np.array([0, 1])), state.cost, state.block.tolist()
        (1, 54.0, [0, 0, 1, 1, 1, 1])

        Returns:
            How often a feature was cleared out of a block.
        """
        shares = np.bincount(self.block, minlength=len(self.sizes))
        return self._loops.clear_each(self._shares, blocks[shares[blocks] > 1], features)

    def assign(self, shares: Ints, blocks: Ints) -> None:
        """Put these shares into these blocks, all at once."""
        touched = np.unique(np.concatenate([self.block[shares], blocks]))
        self.block[shares] = blocks
        for block in touched.tolist():
            members = self.block == block
            self.sizes[block] = self.rows[members].sum()
            self.having[block] = self.bits[members].sum(axis=0)
            self.unions[block] = self.having[block] > 0
        self.reading[touched] = self.unions[touched] @ self.weights

    def dissolve(self, block: int) -> bool:
        """Move each of a block's shares to where it costs least; False, and no change, where one finds no room."""
        return self._loops.dissolve(self._shares, block)

    def move_to_room(self, share: int) -> bool:
        """Move a share to where it costs least, even if that costs more; False where no block has room."""
        return self._loops.move_to_room(self._shares, share)

    def costs_of_merging(self, block: int) -> Floats:
        """What is scanned more if a block is joined with each other one, ``float64[b]``; infinite for itself."""
        shared = self.unions @ (self.unions[block] * self.weights)
        costs: Floats = self.sizes * (self.reading[block] - shared) + self.sizes[block] * (self.reading - shared)
        costs[self.sizes == 0] = np.inf
        costs[block] = np.inf
        return costs
