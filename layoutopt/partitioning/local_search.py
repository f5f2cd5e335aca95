"""What a local search changes: shares in blocks, with counters per block and derived feature."""

from __future__ import annotations

import numpy as np

from layoutopt.model.arrays import Bits, Counters, Floats, Ints, Singles
from layoutopt.model.vectors import VectorCounts
from layoutopt.partitioning.objective import Derived, FeatureObjective, Objective, Partition, derive
from layoutopt.partitioning.ward import cluster, ward


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
        from layoutopt.partitioning import local_search_loops as shares

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


# ----------------------------------------------------------------------------------------------------
# Local search after a partitioner: clear blocks of features, move single vectors to other blocks, or exchange two.
#
# Clearing is an ejection chain (Glover 1996): steps that may each cost something, kept where all of them save.

DEFAULT_PASSES = 8
_WORTH_A_PASS = 0.01  # of what all passes have saved: what is scanned is only known up to a constant


def refine(
    partition: Partition,
    vectors: VectorCounts,
    objective: Objective,
    min_rows: int,
    seed: int,
    max_passes: int = DEFAULT_PASSES,
) -> Partition:
    """A partition that scans no more rows, with sizes in the same bounds.

    In each pass every block is cleared once of every derived feature for which that pays, all shares (the rows of one
    vector in one block) that have it moving to where they cost least. Then every share may move once to the block where
    it lowers the objective most; where that block is full, or its own would be left too small, it is exchanged for the
    share there that lowers it most. Orders are drawn from the seed. A pass that saves next to nothing ends the search;
    so do ``max_passes``.

    Args:
        partition: blocks of ``[min_rows, 2 * min_rows)`` rows and at most one remainder, which may shrink and vanish.
        vectors: what was partitioned.
        objective: with integer weights, so that a gain is a gain on every machine.
        min_rows: the smallest block.
        seed: of the orders.
        max_passes: bounds the work: a pass looks at every block once or twice a share.
    """
    state = State(partition, derive(objective, vectors), min_rows)
    improve(state, np.random.default_rng(seed), max_passes)
    return state.partition()


def improve(state: State, rng: np.random.Generator, max_passes: int) -> None:
    """Pass over all blocks and shares until that saves next to nothing."""
    blocks, features = state.having.shape
    first = state.cost
    for _ in range(max_passes):
        before = state.cost
        state.clear_each(rng.permutation(blocks), rng.permutation(features))
        state.move_each(rng.permutation(len(state.rows)))
        if before - state.cost <= _WORTH_A_PASS * (first - state.cost):
            break


def refined_ward(
    vectors: VectorCounts, weights: Floats, min_rows: int, seed: int, objective: Objective | None = None
) -> Partition:
    """Ward's method, refined; a :class:`layoutopt.partitioning.partitioner.Partitioner`."""
    partition = ward(vectors, weights, min_rows, seed)
    return refine(partition, vectors, objective or FeatureObjective.of(weights, vectors.rows), min_rows, seed)


# ----------------------------------------------------------------------------------------------------
# Large neighbourhoods: take a few like blocks apart, put them together anew by Ward's method, keep what is better.

# Blocks taken apart at once, at least and at most.
_FEWEST, _MOST = 2, 6
# They are drawn from so many of those that are most like the first.
_CANDIDATES = 12
# The search ends after so many rounds in vain, or a sixth of all if that is more; of few blocks after so many for each.
_IN_VAIN, _IN_VAIN_A_BLOCK = 20, 2
# Ward's method sees each weight times a number drawn from this one to 1, so that it puts the same blocks together in
# more than one way.
_LEAST_WEIGHT = 0.5
# Shares taken apart at once: the work of a round grows with their square.
_MOST_SHARES = 1_200


def search_neighbourhoods(state: State, rng: np.random.Generator, rounds: int) -> None:
    """Take blocks apart at most so many times, the ones that lose most by mixing more often.

    No round raises the cost or the number of blocks, or leaves a second block too small.
    """
    in_vain = 0
    for _ in range(rounds):
        mixed = _mixed(state)
        if in_vain >= min(max(_IN_VAIN, rounds // 6), _IN_VAIN_A_BLOCK * mixed.sum()):
            return
        wasted = np.where(mixed, _wasted(state), 0.0)
        if not wasted.any():
            return
        first = int(rng.choice(len(wasted), p=wasted / wasted.sum()))
        costs = np.where(mixed, state.costs_of_merging(first), np.inf)
        like = np.argsort(costs, kind="stable")[:_CANDIDATES]
        like = like[np.isfinite(costs[like])]
        count = min(int(rng.integers(_FEWEST, _MOST + 1)) - 1, len(like))
        better = _rebuild(state, rng, np.append(rng.choice(like, count, replace=False), first))
        in_vain = 0 if better else in_vain + 1


def _mixed(state: State) -> Bits:
    """The blocks without a vector that fills a block by itself: the rows of such a one lie well already."""
    mixed = state.sizes > 0
    mixed[state.block[state.rows >= state.min_rows]] = False
    return mixed


def _wasted(state: State) -> Floats:
    """Rows of each block that queries read only for other rows there, weighted, ``float64[b]``."""
    needed = np.bincount(state.block, weights=state.rows * state.alone, minlength=len(state.sizes))
    return np.maximum(state.sizes * state.reading - needed, 0.0)


def _rebuild(state: State, rng: np.random.Generator, blocks: Ints) -> bool:
    """Cluster the shares of these blocks anew, improve these, and take all back if that costs no less."""
    # In an order of chance, by which Ward's method breaks ties.
    shares = rng.permutation(np.flatnonzero(np.isin(state.block, blocks)))
    if len(shares) > _MOST_SHARES:
        return False
    weights = np.rint(state.weights * rng.uniform(_LEAST_WEIGHT, 1, len(state.weights)))
    labels = cluster(state.bits[shares] > 0, state.rows[shares], weights, state.min_rows)
    names, compact = np.unique(labels, return_inverse=True)
    if len(names) > len(blocks) + 1:
        return False
    before, cost = state.block.copy(), state.cost
    by_size = np.argsort(-np.bincount(compact, weights=state.rows[shares]), kind="stable")
    slots = np.empty(len(names), dtype=np.int64)
    slots[by_size] = np.append(blocks, blocks[-1])[: len(names)]  # one too many, the smallest, joins the next
    state.assign(shares, slots[compact])
    state.clear_each(blocks, rng.permutation(len(weights)))
    state.move_each(shares)
    if state.cost < cost and state.sizes_allowed():
        return True
    changed = np.flatnonzero(state.block != before)
    state.assign(changed, before[changed])
    return False


# ----------------------------------------------------------------------------------------------------
# From labels of any sizes to blocks of the right sizes: what partitioners that don't balance need.

# So many of the smallest blocks are tried when one has to go.
_TRIED = 3


def join_leaves(leaves: Ints, derived: Derived, rows: Ints, min_rows: int) -> Ints:
    """Labels of light vectors by leaf, where leaves are too small joined, and where too large put together anew.

    Both by Ward's method over the derived features.

    Args:
        leaves: of each vector, ``int64[n]``, dense from 0.
        derived: the objective, for these vectors.
        rows: of each vector, ``int64[n]``, all below ``min_rows``.
        min_rows: the smallest block.
    """
    sizes = np.bincount(leaves, weights=rows).astype(np.int64)
    n_leaves = len(sizes)
    vectors = np.arange(len(leaves))
    whole = (sizes[leaves] >= min_rows) & (sizes[leaves] < 2 * min_rows)
    open_vectors = vectors[~whole]
    names = np.where(sizes[leaves] < min_rows, leaves, n_leaves + vectors)[open_vectors]
    found, part = np.unique(names, return_inverse=True)
    unions = np.zeros((len(found), derived.bits.shape[1]), dtype=np.bool_)
    np.logical_or.at(unions, part, derived.bits[open_vectors])
    part_rows = np.bincount(part, weights=rows[open_vectors], minlength=len(found)).astype(np.int64)
    labels = leaves.copy()
    labels[open_vectors] = n_leaves + cluster(unions, part_rows, derived.weights, min_rows)[part]
    return labels


def fit(state: State, most_blocks: int) -> bool:
    """Bring sizes into bounds and blocks to at most so many, at little cost; False where that fails."""
    _lighten(state)
    while True:
        present = np.flatnonzero(state.sizes > 0)
        small = int((state.sizes[present] < state.min_rows).sum())
        if small <= 1 and len(present) <= most_blocks:
            return state.sizes_allowed()
        by_size = present[np.argsort(state.sizes[present], kind="stable")]
        if not any(state.dissolve(int(block)) for block in by_size[: max(_TRIED, small)]):
            return False


def _lighten(state: State) -> None:
    """Take shares out of blocks that are too large while others have room."""
    for block in np.flatnonzero(state.sizes >= 2 * state.min_rows).tolist():
        for share in np.flatnonzero(state.block == block).tolist():
            if state.sizes[block] < 2 * state.min_rows:
                break
            state.move_to_room(share)
