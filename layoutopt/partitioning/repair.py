"""From labels of any sizes to blocks of the right sizes: what partitioners that don't balance need."""

from __future__ import annotations

import numpy as np

from layoutopt.model.arrays import Ints
from layoutopt.partitioning.derived import Derived
from layoutopt.partitioning.state import State
from layoutopt.partitioning.ward import cluster

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
