"""What a local search changes: shares in blocks, with counters per block and derived feature."""

from __future__ import annotations

import numpy as np

from layoutopt.model.arrays import Bits, Counters, Floats, Ints, Singles
from layoutopt.partitioning.derived import Derived
from layoutopt.partitioning.partition import Partition


class State:
    """Shares (the rows of one vector in one block) and their blocks, and what reading each block costs.

    Attributes:
        rows, block: of each share, ``int64[k]``.
        sizes: rows of each block, ``int64[b]``; 0 where a block has vanished.
        having: how many shares of each block have each derived feature, ``int32[b, t]``.
        reading: the cost of reading a row of each block, ``float64[b]``.
    """

    def __init__(self, partition: Partition, derived: Derived, min_rows: int) -> None:
        self.min_rows = min_rows
        self.vector: Ints = partition.vector
        self.rows: Ints = partition.rows
        self.block: Ints = partition.block.copy()
        self.sizes: Ints = partition.sizes()
        self.weights: Singles = derived.weights.astype(np.float32)  # sums of them are exact
        self.bits: Counters = derived.bits[partition.vector].astype(np.int32)
        self.weighted: Singles = self.bits * self.weights
        self.alone: Floats = derived.alone[partition.vector]
        self.having: Counters = np.zeros((partition.n_blocks, derived.bits.shape[1]), dtype=np.int32)
        np.add.at(self.having, self.block, self.bits)
        self.unions: Singles = (self.having > 0).astype(np.float32)
        self.reading: Floats = (self.unions @ self.weights).astype(np.float64)

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

    def try_to_move(self, share: int) -> bool:
        """Move a share to the block where it costs least, or exchange it for a share there, if that costs less.

        A move of the share x of ``r`` rows from block A to block B changes :attr:`cost` by ``added - saved``::

            saved = |A| * reading(A) - (|A| - r) * reading(A without x)
            added = (|B| + r) * reading(B with x) - |B| * reading(B)

        Here a row of the first block reads for two features, as long as the third share is in it:

        >>> bits = np.array([[1, 0], [1, 0], [0, 1], [0, 1], [0, 1]], dtype=bool)
        >>> partition = Partition.of(np.arange(5), np.array([0, 0, 0, 1, 1]), np.ones(5, dtype=np.int64))
        >>> state = State(partition, Derived(bits, np.ones(2), exponent=0), min_rows=2)
        >>> state.cost  # 3 * 2 + 2 * 1; the move saves 3 * 2 - 2 * 1 and adds 3 * 1 - 2 * 1
        8.0
        >>> state.try_to_move(2), state.cost, state.block.tolist()
        (True, 5.0, [0, 0, 1, 1, 1])
        """
        source, rows = int(self.block[share]), int(self.rows[share])
        left = int(self.sizes[source]) - rows
        saved = float(self.sizes[source] * self.reading[source]) - left * self._reading_without(source, share)
        if saved <= rows * self.alone[share]:  # a row costs at least that wherever it is
            return False
        added = self._added(share)
        has_room = self._has_room(rows)
        if left >= self.min_rows or self.sizes[source] < self.min_rows:  # the source may do without the share
            best = int(np.where(has_room, added, np.inf).argmin())
            if has_room[best] and added[best] < saved:
                self.move(share, best)
                return True
            added = np.where(has_room, np.inf, added)
        target = int(added.argmin())
        return bool(added[target] < saved) and self._try_to_exchange(share, target)

    def move(self, share: int, target: int) -> None:
        """Put a share into another block."""
        source = int(self.block[share])
        self.block[share] = target
        self._change(source, -int(self.rows[share]), -self.bits[share])
        self._change(target, int(self.rows[share]), self.bits[share])

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
        shares = np.flatnonzero(self.block == block)
        shares = shares[np.argsort(-self.rows[shares], kind="stable")]
        for share in shares.tolist():
            if not self.move_to_room(share):
                self.assign(shares, np.full(len(shares), block))
                return False
        return True

    def move_to_room(self, share: int) -> bool:
        """Move a share to where it costs least, even if that costs more; False where no block has room."""
        added = np.where(self._has_room(int(self.rows[share])), self._added(share), np.inf)
        target = int(added.argmin())
        if not np.isfinite(added[target]):
            return False
        self.move(share, target)
        return True

    def costs_of_merging(self, block: int) -> Floats:
        """What is scanned more if a block is joined with each other one, ``float64[b]``; infinite for itself."""
        shared = self.unions @ (self.unions[block] * self.weights)
        costs: Floats = self.sizes * (self.reading[block] - shared) + self.sizes[block] * (self.reading - shared)
        costs[self.sizes == 0] = np.inf
        costs[block] = np.inf
        return costs

    def _reading_without(self, block: int, share: int) -> float:
        return float((self.having[block] > self.bits[share]) @ self.weights)

    def _has_room(self, rows: int) -> Bits:
        """The blocks that stay below the largest size with so many rows more, ``bool[b]``."""
        return np.asarray(self.sizes + rows < 2 * self.min_rows, dtype=np.bool_)

    def _added(self, share: int) -> Floats:
        """What each block costs more with the share x, ``float64[b]``; infinite for its own and vanished ones.

        With ``alone`` what a row of x reads for by itself, and ``shared`` what it has of that in common with the block,
        ``reading(B with x) = reading(B) + alone - shared``.
        """
        rows = int(self.rows[share])
        shared = self.unions @ self.weighted[share]
        added: Floats = (self.sizes + rows) * (self.alone[share] - shared) + rows * self.reading
        added[self.sizes == 0] = np.inf
        added[self.block[share]] = np.inf
        return added

    def _try_to_exchange(self, share: int, target: int) -> bool:
        """Exchange a share for the one of the target block with which both blocks cost least, if that is less than now.

        The cost of both with x and y exchanged is
        ``|A'| * reading(A without x, with y) + |B'| * reading(B without y, with x)``, with the sizes after it.
        """
        source, rows = int(self.block[share]), int(self.rows[share])
        others = np.flatnonzero(self.block == target)
        source_sizes = self.sizes[source] - rows + self.rows[others]
        target_sizes = self.sizes[target] + rows - self.rows[others]
        smallest = np.minimum(self.min_rows, self.sizes[[source, target]])
        allowed = (source_sizes >= smallest[0]) & (target_sizes >= smallest[1])
        allowed &= np.maximum(source_sizes, target_sizes) < 2 * self.min_rows
        others, source_sizes, target_sizes = others[allowed], source_sizes[allowed], target_sizes[allowed]
        if not len(others):
            return False
        gone = self.bits[share] - self.bits[others]  # from the source's counters to the target's
        source_readings = ((self.having[source] - gone > 0) @ self.weights).astype(np.float64)
        target_readings = ((self.having[target] + gone > 0) @ self.weights).astype(np.float64)
        costs = source_sizes * source_readings + target_sizes * target_readings
        best = int(costs.argmin())
        if costs[best] >= self.sizes[[source, target]] @ self.reading[[source, target]]:
            return False
        self.move(share, target)
        self.move(int(others[best]), source)
        return True

    def _change(self, block: int, rows: int, bits: Counters) -> None:
        self.sizes[block] += rows
        self.having[block] += bits
        self.unions[block] = self.having[block] > 0
        self.reading[block] = float(self.unions[block] @ self.weights)
