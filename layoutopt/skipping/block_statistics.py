"""Statistics of blocks: rows, union vectors by feature, bounds of columns, and indexes.

Whatever is missing or unknown proves nothing: see :mod:`layoutopt.skipping.cannot_match`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from layoutopt.functions.registry import FUNCTIONS
from layoutopt.model.arrays import Bits, Ints, Keys, Packed, Words
from layoutopt.model.vectors import feature_bit

if TYPE_CHECKING:
    from layoutopt.model.predicates.nodes import Call, Expr, InSet, Literal, Node
    from layoutopt.model.values import Key

UNKNOWN_NULLS = -1
# Returns the key of a call's value for keys of its arguments, none of which is NULL; None for NULL. Raises ValueError
# if the value is unknown.
ComputeCall: TypeAlias = "Callable[[Call, Sequence[Key]], Key | None]"


def compute_by_record(call: Call, arguments: Sequence[Key]) -> Key | None:
    """Return the key of a call's value by the function's record alone: see :data:`ComputeCall`."""
    function = FUNCTIONS.get(call.fn)
    value = None if function is None else function.evaluate(arguments)
    if value is None:
        raise ValueError(f"the value of {call.fn} is unknown")
    return int(value) if isinstance(value, bool) else value


@dataclass(frozen=True, eq=False)
class ColumnBounds:
    """The bounds and NULLs of one column in each of ``n`` blocks.

    Attributes:
        low: a key no larger than any value of the block, ``int64[n]`` or objects; valid where ``known``.
        high: a key no smaller than any value; ``NAN_KEY`` if a float column has, or may have, a NaN.
        known: whether ``low`` and ``high`` are valid, ``bool[n]``.
        nulls: the count of NULLs, ``int64[n]``; ``UNKNOWN_NULLS`` if unknown.
        type: the column's Spark type.
    """

    low: Keys
    high: Keys
    known: Bits
    nulls: Ints
    type: str


class FeatureBits:
    """The blocks' union vectors, ``uint64[n, w]``, as one bitmap over the blocks per feature, built on first use."""

    def __init__(self, words: Words) -> None:
        self.n = len(words)
        self._words = np.asfortranarray(words)
        self._bitmaps: dict[int, Packed] = {}

    def bitmap(self, feature: int) -> Packed:
        """Return the blocks whose union vector has this feature's bit, packed, ``uint8[ceil(n / 8)]``.

        Raises:
            ValueError: there are too few words for that feature.
        """
        if feature not in self._bitmaps:
            self._bitmaps[feature] = np.packbits(feature_bit(self._words, feature))
        return self._bitmaps[feature]


class BlockIndex(Protocol):
    """An index of one expression, or of several together, in each of ``n`` blocks.

    The invariant: where :meth:`cannot_match` is TRUE, no value of the expression in any row of the block makes the
    literal TRUE. It says nothing about rows where the expression is NULL. If the expression is the elements of an array
    (:mod:`layoutopt.model.predicates.normal`), a row has many values, or none.
    """

    @property
    def functions(self) -> frozenset[str]:
        """Return the functions of the expression, and of constants, whose literals the index also answers."""

    @property
    def parts(self) -> tuple[Expr, ...]:
        """Return the expressions of a joint index, whose literals are joined by AND; none for a single one."""

    def cannot_match(self, literal: Literal) -> Bits:
        """Return the blocks for which that is proved, ``bool[n]``; none for an unsupported literal.

        Args:
            literal: about the expression or one of its :attr:`functions`; NULL does not make it TRUE.
        """

    def cannot_match_all(self, literals: Sequence[InSet]) -> Bits:
        """Return the blocks that are proved to have no row that makes all literals TRUE, ``bool[n]``.

        Args:
            literals: one for each of :attr:`parts`; NULL makes none of them TRUE.
        """


@dataclass(frozen=True, eq=False)
class BlockStatistics:
    """The statistics of ``n`` blocks of one plan.

    Attributes:
        rows: the rows of each block, ``int64[n]``.
        bits: the union vectors; if None, features prove nothing.
        bounds: by column name as filters spell it; a column without bounds may hold anything.
        indexes: by the indexed expression.
        compute: computes functions for blocks where each argument has one value.
    """

    rows: Ints
    bits: FeatureBits | None = None
    bounds: Mapping[str, ColumnBounds] = field(default_factory=dict)
    indexes: Mapping[Expr, Sequence[BlockIndex]] = field(default_factory=dict)
    compute: ComputeCall = compute_by_record

    @property
    def n(self) -> int:
        """Return the number of blocks."""
        return len(self.rows)

    @cached_property
    def proved(self) -> dict[Node, Packed]:
        """Return the cache of proofs by counts and bounds; :mod:`layoutopt.skipping.zone_maps` fills it."""
        return {}

    @cached_property
    def derived(self) -> dict[Expr, ColumnBounds | None]:
        """Return the cache of bounds of functions; :mod:`layoutopt.skipping.derived_bounds` fills it."""
        return {}

    @cached_property
    def proved_by_indexes(self) -> dict[Node, Packed]:
        """Return the cache of proofs by indexes; :mod:`layoutopt.skipping.cannot_match` fills it."""
        return {}
