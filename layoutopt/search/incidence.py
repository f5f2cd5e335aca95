"""Which things belong to which sets, as lists: most sets have few things, so that lists are shorter than a matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from layoutopt.model.arrays import Bits, Bytes, Ints


@dataclass(frozen=True, eq=False)
class Incidence:
    """Sets of numbered things: set ``i`` has ``things[starts[i]:starts[i + 1]]``.

    Attributes:
        starts: int64[sets + 1].
        things: int64[n].
    """

    starts: Ints
    things: Ints

    @classmethod
    def of(cls, belongs: Bits) -> Incidence:
        """The sets of a matrix, ``bool[sets, things]``."""
        sets, things = np.nonzero(belongs)
        return cls(np.searchsorted(sets, np.arange(len(belongs) + 1)), things)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def only(self, sets: Ints) -> Incidence:
        """Some of the sets, in that order."""
        sizes = np.diff(self.starts)[sets]
        starts = np.concatenate(([0], np.cumsum(sizes)))
        return Incidence(starts, self.things[np.repeat(self.starts[sets] - starts[:-1], sizes) + np.arange(starts[-1])])

    def any_of(self, packed: Bytes) -> Bytes:
        """Where any of a set's things has a bit, ``uint8[sets, k]``; nowhere for an empty set.

        Args:
            packed: bits of every thing (:func:`numpy.packbits`), ``uint8[things, k]``.

        >>> sets = Incidence.of(np.array([[True, True, False], [False, False, False]]))
        >>> sets.any_of(np.array([[0b10], [0b01], [0b100]], dtype=np.uint8)).tolist()
        [[3], [0]]
        """
        found = np.zeros((len(self), packed.shape[1]), dtype=np.uint8)
        filled = self.starts[:-1] < self.starts[1:]
        if filled.any():
            found[filled] = np.bitwise_or.reduceat(packed[self.things], self.starts[:-1][filled], axis=0)
        return found
