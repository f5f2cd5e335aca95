"""What no blocking can beat."""

from __future__ import annotations

import numpy as np

from layoutopt.model.arrays import Floats, Ints
from layoutopt.model.vectors import VectorCounts
from layoutopt.partitioning.derived import Derived, derive
from layoutopt.partitioning.objective import SkipSetObjective

# Vectors compared with all others at once.
_CHUNK = 512
# Beyond so many vectors the comparison of all pairs is left out, and the bound is the weaker one.
_MOST_VECTORS = 6_000


def blocking_lower_bound(objective: SkipSetObjective, vectors: VectorCounts, min_rows: int) -> float:
    """The fewest rows, weighted, that the queries scan of any blocks of at least ``min_rows`` rows.

    The larger of two bounds. By queries: a query reads every row that its skip sets don't exclude, and a block at least
    where there is such a row. By vectors: a block around a row holds ``min_rows`` rows, so its union is at least that
    of the row's vector and of the nearest others that fill it up, "nearest" being what reading them together costs.

    Args:
        objective: what queries can't skip.
        vectors: of a segment.
        min_rows: the smallest block; a remainder below it is not considered.
    """
    derived = derive(objective, vectors)
    reading = objective.reading(vectors.bits())
    by_vectors = float(vectors.counts @ reading)
    if derived.exact and len(vectors) <= _MOST_VECTORS:
        by_vectors += float(vectors.counts @ _unavoidable(derived, vectors.counts, min_rows))
    return max(by_vectors, _by_queries(objective, vectors, min_rows))


def _by_queries(objective: SkipSetObjective, vectors: VectorCounts, min_rows: int) -> float:
    needed = vectors.counts @ ~objective.skipped(vectors.bits())
    block = min(min_rows, vectors.rows)
    return float(objective.weights @ np.where(needed > 0, np.maximum(needed, block), 0))


def _unavoidable(derived: Derived, counts: Ints, min_rows: int) -> Floats:
    """What reading a row costs more in any block than alone, at least; in queries' weights, ``float64[d]``."""
    more = np.zeros(len(counts))
    light = np.flatnonzero(counts < min_rows)
    bits = derived.bits.astype(np.float32)
    weighted = bits * derived.weights.astype(np.float32)
    for start in range(0, len(light), _CHUNK):
        some = light[start : start + _CHUNK]
        added = derived.alone - weighted[some] @ bits.T  # of each other vector, to a block with this one
        nearest = np.argsort(added, axis=1, kind="stable")
        filled = np.cumsum(counts[nearest], axis=1) >= min(min_rows, int(counts.sum()))
        last = np.take_along_axis(nearest, filled.argmax(axis=1)[:, None], axis=1)
        more[some] = np.take_along_axis(added, last, axis=1)[:, 0]
    return np.ldexp(more, -derived.exponent)
