"""Improve a partition by local search: clear blocks of features, move or exchange shares, rebuild neighbourhoods.

Clearing is an ejection chain (Glover 1996): steps that may each cost something, kept where they save together. A large
neighbourhood is a few similar blocks that Ward's method puts together again; it is kept where it is better.
"""

from __future__ import annotations

import numpy as np

from layoutopt.model.arrays import Counters, Floats, Ints, Singles
from layoutopt.model.vectors import VectorCounts
from layoutopt.partitioning.objective import DerivedObjective, FeatureObjective, Objective, Partition, derive
from layoutopt.partitioning.ward import cluster, ward

DEFAULT_PASSES = 8
# A pass has to save this share of what all passes have saved; the cost is only known up to a constant.
_MIN_PASS_GAIN = 0.01
# Blocks that are rebuilt at once, at least and at most.
_MIN_REBUILT, _MAX_REBUILT = 2, 6
# They are drawn from this many blocks that are most similar to the first.
_CANDIDATES = 12
# The search ends after this many failures in a row, or a sixth of all rounds if that is more, or this many per block.
_MAX_FAILURES, _MAX_FAILURES_PER_BLOCK = 20, 2
# Ward's method sees each weight times a random number from this to 1, so that it puts blocks together in more than one
# way.
_MIN_NOISE = 0.5
# Shares that are rebuilt at once: the work of a round grows with their square.
_MAX_SHARES = 1_200
# The smallest blocks that are tried when a block has to go.
_BLOCKS_TRIED = 3


class State:
    """Shares (the rows of one vector in one block), their blocks, and the cost of reading each block.

    Its arrays are changed in place, since compiled loops hold the same arrays.

    Attributes:
        rows, block: of each share, ``int64[k]``.
        sizes: rows of each block, ``int64[b]``; 0 where a block has vanished.
        having: how many shares of each block have each derived feature, ``int32[b, t]``.
        reading: the cost of reading a row of each block, ``float64[b]``.
    """

    def __init__(self, partition: Partition, derived: DerivedObjective, min_rows: int) -> None:
        # Imported here, since importing the compiler takes long.
        from layoutopt.partitioning import local_search_loops as loops

        self.min_rows = min_rows
        self.vector: Ints = partition.vector
        self.rows: Ints = partition.rows.copy()  # compiled loops take only writable arrays
        self.block: Ints = partition.block.copy()
        self.sizes: Ints = partition.sizes()
        self.weights: Singles = derived.weights.astype(np.float32)  # sums of them are exact
        self.bits: Counters = derived.bits[partition.vector].astype(np.int32, order="C")
        self.alone: Floats = derived.alone[partition.vector]
        self.having: Counters = np.zeros((partition.n_blocks, derived.bits.shape[1]), dtype=np.int32)
        np.add.at(self.having, self.block, self.bits)
        self.unions: Singles = (self.having > 0).astype(np.float32)
        self.reading: Floats = (self.unions @ self.weights).astype(np.float64)
        self._loops = loops
        self._shares = loops.Shares(
            min_rows, self.rows, self.block, np.argsort(-self.rows, kind="stable"), self.bits, self.alone,
            self.weights, self.sizes, self.having, self.unions, self.reading,
        )  # fmt: skip

    @property
    def cost(self) -> float:
        """Return the rows scanned, weighted, up to a constant."""
        return float(self.sizes @ self.reading)

    def sizes_allowed(self) -> bool:
        """Return whether all blocks but one hold ``[min_rows, 2 * min_rows)`` rows, and that one no more."""
        small = (self.sizes > 0) & (self.sizes < self.min_rows)
        return int(self.sizes.max(initial=0)) < 2 * self.min_rows and int(small.sum()) <= 1

    def partition(self) -> Partition:
        """Return the current blocks."""
        return Partition.of(self.vector, self.block, self.rows)

    def move_each(self, shares: Ints) -> int:
        """Move each of these shares once to the block where it costs least, or exchange it, if that costs less.

        A move of the share x of ``r`` rows from block A to block B changes :attr:`cost` by ``added - saved``::

            saved = |A| * reading(A) - (|A| - r) * reading(A without x)
            added = (|B| + r) * reading(B with x) - |B| * reading(B)

        Here a row of the first block reads for two features while the third share is in it:

        >>> bits = np.array([[1, 0], [1, 0], [0, 1], [0, 1], [0, 1]], dtype=bool)
        >>> partition = Partition.of(np.arange(5), np.array([0, 0, 0, 1, 1]), np.ones(5, dtype=np.int64))
        >>> state = State(partition, DerivedObjective(bits, np.ones(2), exponent=0), min_rows=2)
        >>> state.cost  # 3 * 2 + 2 * 1; the move saves 3 * 2 - 2 * 1 and adds 3 * 1 - 2 * 1
        8.0
        >>> state.move_each(np.array([2])), state.cost, state.block.tolist()
        (1, 5.0, [0, 0, 1, 1, 1])

        Returns:
            How many moved or were exchanged.
        """
        return self._loops.move_each(self._shares, shares)

    def clear_each(self, blocks: Ints, features: Ints) -> int:
        """Move all shares with a derived feature out of a block, each to where it costs least, if the cost falls.

        This is tried once for each of these blocks with several shares and each of these features of positive weight.
        A single share may raise the cost while another one with the feature stays:

        >>> bits = np.array([[1, 0], [1, 0], [1, 1], [1, 1], [0, 1], [0, 1]], dtype=bool)
        >>> rows = np.array([6, 6, 1, 1, 6, 6])
        >>> partition = Partition.of(np.arange(6), np.array([0, 0, 0, 0, 1, 1]), rows)
        >>> state = State(partition, DerivedObjective(bits, np.array([1.0, 2.0]), exponent=0), min_rows=10)
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
        """Move each of a block's shares to where it costs least; without change return False if one finds no room."""
        return self._loops.dissolve(self._shares, block)

    def move_to_room(self, share: int) -> bool:
        """Move a share to where it costs least, even if the cost rises; return False if no block has room."""
        return self._loops.move_to_room(self._shares, share)

    def costs_of_merging(self, block: int) -> Floats:
        """Return the added cost of joining a block with each block, ``float64[b]``; infinite for itself."""
        shared = self.unions @ (self.unions[block] * self.weights)
        costs: Floats = self.sizes * (self.reading[block] - shared) + self.sizes[block] * (self.reading - shared)
        costs[self.sizes == 0] = np.inf
        costs[block] = np.inf
        return costs


def refine(
    partition: Partition,
    vectors: VectorCounts,
    objective: Objective,
    min_rows: int,
    seed: int,
    max_passes: int = DEFAULT_PASSES,
) -> Partition:
    """Return a partition that scans no more rows, with sizes in the same bounds.

    Each pass first clears every block of every derived feature where that pays. Then every share may move once to the
    block where it lowers the objective most; where that block is full, or its own would become too small, it is
    exchanged for a share there. Orders are drawn from the seed. The search ends after a pass that saves next to
    nothing, or after ``max_passes``.

    At most one block of the partition is a remainder, which may shrink and vanish. The objective has integer weights,
    so gains are equal on every machine.
    """
    state = State(partition, derive(objective, vectors), min_rows)
    improve(state, np.random.default_rng(seed), max_passes)
    return state.partition()


def improve(state: State, rng: np.random.Generator, max_passes: int) -> None:
    """Pass over all blocks and shares until a pass saves next to nothing."""
    blocks, features = state.having.shape
    first = state.cost
    for _ in range(max_passes):
        before = state.cost
        state.clear_each(rng.permutation(blocks), rng.permutation(features))
        state.move_each(rng.permutation(len(state.rows)))
        if before - state.cost <= _MIN_PASS_GAIN * (first - state.cost):
            break


def ward_refined(
    vectors: VectorCounts, weights: Floats, min_rows: int, seed: int, objective: Objective | None = None
) -> Partition:
    """Refine Ward's method; a :class:`layoutopt.partitioning.partitioner.Partitioner`."""
    partition = ward(vectors, weights, min_rows, seed)
    return refine(partition, vectors, objective or FeatureObjective.of(weights, vectors.rows), min_rows, seed)


def search_neighbourhoods(state: State, rng: np.random.Generator, rounds: int) -> None:
    """Rebuild groups of similar blocks, at most ``rounds`` times; those that lose most by mixing more often.

    No round raises the cost or the number of blocks, or leaves a second block too small.
    """
    failures = 0
    for _ in range(rounds):
        mixed = state.sizes > 0
        # A vector that fills a block by itself already lies well.
        mixed[state.block[state.rows >= state.min_rows]] = False
        if failures >= min(max(_MAX_FAILURES, rounds // 6), _MAX_FAILURES_PER_BLOCK * mixed.sum()):
            return
        # Weighted rows of each block that queries read only because of its other rows.
        needed = np.bincount(state.block, weights=state.rows * state.alone, minlength=len(state.sizes))
        wasted = np.where(mixed, np.maximum(state.sizes * state.reading - needed, 0.0), 0.0)
        if not wasted.any():
            return
        first = int(rng.choice(len(wasted), p=wasted / wasted.sum()))
        costs = np.where(mixed, state.costs_of_merging(first), np.inf)
        similar = np.argsort(costs, kind="stable")[:_CANDIDATES]
        similar = similar[np.isfinite(costs[similar])]
        count = min(int(rng.integers(_MIN_REBUILT, _MAX_REBUILT + 1)) - 1, len(similar))
        better = _rebuild(state, rng, np.append(rng.choice(similar, count, replace=False), first))
        failures = 0 if better else failures + 1


def _rebuild(state: State, rng: np.random.Generator, blocks: Ints) -> bool:
    """Cluster the shares of these blocks again and improve them; undo this if the cost does not fall."""
    # A random order, by which Ward's method breaks ties.
    shares = rng.permutation(np.flatnonzero(np.isin(state.block, blocks)))
    if len(shares) > _MAX_SHARES:
        return False
    weights = np.rint(state.weights * rng.uniform(_MIN_NOISE, 1, len(state.weights)))
    labels = cluster(state.bits[shares] > 0, state.rows[shares], weights, state.min_rows)
    names, compact = np.unique(labels, return_inverse=True)
    if len(names) > len(blocks) + 1:
        return False
    before, cost = state.block.copy(), state.cost
    by_size = np.argsort(-np.bincount(compact, weights=state.rows[shares]), kind="stable")
    slots = np.empty(len(names), dtype=np.int64)
    # If there is one cluster too many, the smallest joins the next.
    slots[by_size] = np.append(blocks, blocks[-1])[: len(names)]
    state.assign(shares, slots[compact])
    state.clear_each(blocks, rng.permutation(len(weights)))
    state.move_each(shares)
    if state.cost < cost and state.sizes_allowed():
        return True
    changed = np.flatnonzero(state.block != before)
    state.assign(changed, before[changed])
    return False


def join_leaves(leaves: Ints, derived: DerivedObjective, rows: Ints, min_rows: int) -> Ints:
    """Return labels of light vectors by leaf; small leaves are joined and large ones rebuilt, by Ward's method.

    ``leaves`` are dense from 0, ``int64[d]``; all ``rows`` are below ``min_rows``.
    """
    sizes = np.bincount(leaves, weights=rows).astype(np.int64)
    n_leaves = len(sizes)
    vectors = np.arange(len(leaves))
    fits = (sizes[leaves] >= min_rows) & (sizes[leaves] < 2 * min_rows)
    open_vectors = vectors[~fits]
    names = np.where(sizes[leaves] < min_rows, leaves, n_leaves + vectors)[open_vectors]
    parts, part = np.unique(names, return_inverse=True)
    unions = np.zeros((len(parts), derived.bits.shape[1]), dtype=np.bool_)
    np.logical_or.at(unions, part, derived.bits[open_vectors])
    part_rows = np.bincount(part, weights=rows[open_vectors], minlength=len(parts)).astype(np.int64)
    labels = leaves.copy()
    labels[open_vectors] = n_leaves + cluster(unions, part_rows, derived.weights, min_rows)[part]
    return labels


def fit_sizes(state: State, most_blocks: int) -> bool:
    """Bring sizes into bounds and blocks to at most ``most_blocks``, at little cost; return False on failure."""
    _shrink_large_blocks(state)
    while True:
        present = np.flatnonzero(state.sizes > 0)
        small = int((state.sizes[present] < state.min_rows).sum())
        if small <= 1 and len(present) <= most_blocks:
            return state.sizes_allowed()
        by_size = present[np.argsort(state.sizes[present], kind="stable")]
        if not any(state.dissolve(int(block)) for block in by_size[: max(_BLOCKS_TRIED, small)]):
            return False


def _shrink_large_blocks(state: State) -> None:
    for block in np.flatnonzero(state.sizes >= 2 * state.min_rows).tolist():
        for share in np.flatnonzero(state.block == block).tolist():
            if state.sizes[block] < 2 * state.min_rows:
                break
            state.move_to_room(share)
