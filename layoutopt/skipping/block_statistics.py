"""What a catalog knows of blocks: rows, union vectors by feature, and bounds of columns.

Whatever is missing or unknown proves nothing: see :mod:`layoutopt.skipping.cannot_match`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from layoutopt.model.arrays import Bits, Ints, Keys, Packed, Words
from layoutopt.model.vectors import feature_bit

if TYPE_CHECKING:
    from layoutopt.model.predicates.nodes import Expr, InSet, Literal, Node

UNKNOWN_NULLS = -1


@dataclass(frozen=True, eq=False)
class ColumnBounds:
    """What is known of one column in each of ``n`` blocks.

    Attributes:
        low: a key no larger than any value of the block, ``int64[n]`` or objects; has a meaning where ``known``.
        high: a key no smaller than any value. Where a float column has, or may have, a NaN, this is ``NAN_KEY``.
        known: whether ``low`` and ``high`` are, ``bool[n]``.
        nulls: how many values are NULL, ``int64[n]``; ``UNKNOWN_NULLS`` where that is not known.
        type: the column's Spark type.
    """

    low: Keys
    high: Keys
    known: Bits
    nulls: Ints
    type: str


class FeatureBits:
    """The blocks' union vectors by feature: for each a bitmap over the blocks, so that many tests are few ANDs."""

    def __init__(self, words: Words) -> None:
        """Takes union vectors ``uint64[n, w]``. A feature's bitmap is made when it is first asked for."""
        self.n = len(words)
        self._words = np.asfortranarray(words)
        self._bitmaps: dict[int, Packed] = {}

    def bitmap(self, feature: int) -> Packed:
        """The blocks whose union has this feature's bit, packed, ``uint8[ceil(n / 8)]``.

        Raises:
            ValueError: the words are too few for that feature.
        """
        if feature not in self._bitmaps:
            self._bitmaps[feature] = np.packbits(feature_bit(self._words, feature))
        return self._bitmaps[feature]


class BlockIndex(Protocol):
    """One index of one expression in each of ``n`` blocks: what it proves of the values that stand there.

    The invariant: where :meth:`cannot_match` is TRUE, no value of the expression in any row of the block makes the
    literal TRUE. Of rows where the expression is NULL it says nothing. Of the elements of an array
    (:mod:`layoutopt.model.predicates.normal`) a row has many values, or none.
    """

    @property
    def functions(self) -> frozenset[str]:
        """The functions of the expression, and of constants, whose literals it is asked too."""

    @property
    def parts(self) -> tuple[Expr, ...]:
        """The expressions that it is asked of together, joined by AND; none where it is of a single one."""

    def cannot_match(self, literal: Literal) -> Bits:
        """The blocks of which that is proved, ``bool[n]``; none for a literal that the index does not serve.

        Args:
            literal: of the expression alone or of one of :attr:`functions` of it, and one that NULL does not make TRUE.
        """

    def cannot_match_all(self, literals: Sequence[InSet]) -> Bits:
        """The blocks of which it is proved that no row makes all of the literals TRUE, ``bool[n]``.

        Args:
            literals: one of each of :attr:`parts`, none of which NULL makes TRUE.
        """


@dataclass(frozen=True, eq=False)
class BlockStatistics:
    """What the catalog knows of ``n`` blocks of one plan.

    Attributes:
        rows: of each block, ``int64[n]``.
        bits: the union vectors, or None: features prove nothing.
        bounds: by column name as filters spell it; a column without bounds might hold anything.
        indexes: by the expression that they are of; what has none proves nothing.
    """

    rows: Ints
    bits: FeatureBits | None = None
    bounds: Mapping[str, ColumnBounds] = field(default_factory=dict)
    indexes: Mapping[Expr, Sequence[BlockIndex]] = field(default_factory=dict)

    @property
    def n(self) -> int:
        """How many blocks there are."""
        return len(self.rows)

    @cached_property
    def proved(self) -> dict[Node, Packed]:
        """What counts and bounds have proved of literals so far; :mod:`layoutopt.skipping.zone_maps` fills it."""
        return {}

    @cached_property
    def derived(self) -> dict[Expr, ColumnBounds | None]:
        """Bounds of functions that were asked for; :mod:`layoutopt.skipping.derived_bounds` fills it."""
        return {}

    @cached_property
    def proved_by_indexes(self) -> dict[Node, Packed]:
        """What indexes have proved of literals so far; :mod:`layoutopt.skipping.cannot_match` fills it."""
        return {}
