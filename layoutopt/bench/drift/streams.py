"""What is asked of the simulated table: families of queries, and their mixes on each of the days."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from layoutopt.model.arrays import Floats, Ints

DAYS: Final = 60
OLD_PARTITIONS: Final = 30
"""One a day had arrived before the first day; one more arrives on each day after it."""

FAMILIES: Final = 16
CONSTANTS: Final = 4
"""A family's queries differ in a constant; each constant makes a type of queries."""

QUERIES_A_DAY: Final = 300.0
LATE_DAYS: Final = 7
LATE_SHARE: Final = 0.003
"""Of a partition's rows so many come late, on each of so many days after its own."""


@dataclass(frozen=True, eq=False)
class Families:
    """Families of queries.

    Attributes:
        of_type: the family of each type of queries, ``int64[types]``.
        shares: of a type in its family, ``float64[types]``.
        days_back: how many of the newest partitions a family's queries read, ``int64[families]``.
        columns: the share of a partition's bytes that are of the columns that they read, ``float64[families]``.
    """

    of_type: Ints
    shares: Floats
    days_back: Ints
    columns: Floats

    @classmethod
    def drawn(cls, seed: int) -> Families:
        """Families at random."""
        rng = np.random.default_rng(seed)
        skewed = 1.0 / np.arange(1, CONSTANTS + 1)
        return cls(
            np.repeat(np.arange(FAMILIES), CONSTANTS),
            np.tile(skewed / skewed.sum(), FAMILIES),
            rng.choice([2, 7, 30, DAYS + OLD_PARTITIONS], FAMILIES, p=[0.2, 0.3, 0.3, 0.2]),
            rng.uniform(0.1, 0.5, FAMILIES),
        )

    def loads(self, mix: Floats, ages: Ints) -> Floats:
        """How much is asked of each partition on a day, by types, in full scans of the partition.

        Args:
            mix: of the families, ``float64[families]``.
            ages: of the partitions in days, ``int64[partitions]``; negative where it has not come yet.

        Returns:
            ``float64[partitions, types]``.
        """
        reached = (ages[:, None] >= 0) & (ages[:, None] < self.days_back[None, :])
        by_family = QUERIES_A_DAY * mix * self.columns * reached
        return np.asarray(by_family[:, self.of_type] * self.shares)


def mixes() -> Floats:
    """Four mixes of eight families each, of which two that follow each other share a half, ``float64[4, families]``."""
    found = np.zeros((4, FAMILIES))
    for number in range(4):
        weights = 1.0 / np.arange(1, FAMILIES // 2 + 1) ** 0.5
        found[number, (4 * number + np.arange(FAMILIES // 2)) % FAMILIES] = weights / weights.sum()
    return found


def _abrupt() -> Floats:
    """Twice half of the families are replaced overnight."""
    return np.asarray(mixes()[np.repeat([0, 1, 2], DAYS // 3)])


def _gradual() -> Floats:
    """All families are replaced little by little, over forty days."""
    first, _, last, _ = mixes()
    share = np.clip((np.arange(DAYS) - 10) / 40, 0, 1)[:, None]
    return np.asarray((1 - share) * first + share * last)


def _seasonal() -> Floats:
    """Half of the families are others in the last ten days of each month."""
    return np.asarray(mixes()[np.where(np.arange(DAYS) % 30 < 20, 0, 1)])


STREAMS: Final[Mapping[str, Floats]] = MappingProxyType(
    {"abrupt": _abrupt(), "gradual": _gradual(), "seasonal": _seasonal()}
)
"""Of each kind of drift the mix of each day, ``float64[days, families]``; what an adversary asks depends on answers."""
