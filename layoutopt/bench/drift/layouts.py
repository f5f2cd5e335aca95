"""What queries read of a partition by each plan: a sample of rows, put into blocks by our partitioner."""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np

from layoutopt.bench.drift.streams import CONSTANTS, FAMILIES, Families
from layoutopt.model.arrays import Bits, Floats
from layoutopt.model.vectors import VectorCounts, distinct, pack
from layoutopt.partitioning.objective import FeatureObjective, assign_rows
from layoutopt.partitioning.registry import DEFAULT, find_partitioner

ROWS: Final = 6_000
BLOCK_ROWS: Final = 60
GUIDES: Final = 24
"""Features that guide a plan's blocks, the heaviest; all are measured."""

_ATTRIBUTES: Final = 8
_VALUES: Final = 24


class Layouts:
    """The layouts that plans of some day would give, each made once.

    Attributes:
        bits: whether a row of the sample meets the filter of each type of queries, ``bool[rows, types]``.
        reads: what each type reads of a partition in each layout so far, a share of the bytes of its columns.
    """

    def __init__(self, families: Families, seed: int) -> None:
        self._families = families
        self._seed = seed
        self.bits = _rows(seed)
        self.reads: list[Floats] = []
        self._known: dict[bytes, int] = {}

    def plan(self, mix: Floats) -> int:
        """The layout for a mix of families, ``float64[families]``: a number by which its reads are found."""
        weights = np.round(mix[self._families.of_type] * self._families.columns[self._families.of_type], 6)
        weights = weights * self._families.shares
        key = weights.tobytes()
        if key not in self._known:
            self._known[key] = len(self.reads)
            self.reads.append(self._read_by(weights))
        return self._known[key]

    @property
    def matrix(self) -> Floats:
        """The reads of all layouts so far, ``float64[layouts, types]``."""
        return np.stack(self.reads)

    @cached_property
    def matching(self) -> Floats:
        """The share of rows that each type matches, ``float64[types]``; no layout reads less."""
        return np.asarray(self.bits.mean(axis=0))

    def _read_by(self, weights: Floats) -> Floats:
        worth = weights * (1 - self.matching)
        guides = np.sort(np.argsort(-worth, kind="stable")[:GUIDES])
        words, of_row, counts = distinct(pack(self.bits[:, guides]))
        vectors = VectorCounts(words, counts, GUIDES)
        objective = FeatureObjective.of(weights[guides], ROWS)
        partition = find_partitioner(DEFAULT)(vectors, weights[guides], BLOCK_ROWS, self._seed, objective)
        block = assign_rows(partition, of_row)
        by_block = np.argsort(block, kind="stable")
        sizes = partition.sizes()
        unions = np.logical_or.reduceat(self.bits[by_block], np.concatenate([[0], np.cumsum(sizes)[:-1]]))
        return np.asarray(sizes @ unions / ROWS)


def _rows(seed: int) -> Bits:
    """Rows whose attributes are skewed and correlated in part; a family filters by a value of each of one or two."""
    rng = np.random.default_rng(seed)
    base = rng.zipf(1.3, (ROWS, _ATTRIBUTES)) % _VALUES
    bits = np.zeros((ROWS, FAMILIES * CONSTANTS), dtype=np.bool_)
    for family in range(FAMILIES):
        one, other = rng.choice(_ATTRIBUTES, 2, replace=False)
        for constant in range(CONSTANTS):
            met = base[:, one] == (family + constant) % 12 + 1
            if family % 3 == 0:
                met &= base[:, other] < 8
            bits[:, family * CONSTANTS + constant] = met
    return bits
