"""Filters as what a block must be skipped for, part by part.

A block is skipped for ``x IN (1, 2, 3) AND y = 4`` by ``y = 4``, or where each of ``x = 1``, ``x = 2`` and ``x = 3``
has bit 0. So what a feature helps such a filter depends on which part it covers: two features for ``x = 1`` are of no
more use than the better of them, and without one for ``x = 3`` they are of none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from layoutopt.features.implications import Implications, single_parts
from layoutopt.model.arrays import Bits, Bytes, Floats, Ints
from layoutopt.model.predicates import And, Node, Or

MOST_UNITS = 64
"""A filter has at most so many; of longer lists evenly spread parts stand for all."""

_MOST_FACTOR = 255


@dataclass(frozen=True, eq=False)
class Units:
    """Each filter as units: one part of each of its disjunctions and lists, together with the rest of the filter.

    Attributes:
        of_filter: the filter of each unit, ``int64[units]``.
        shares: of a filter, ``float64[units]``; a filter's sum to 1.
        factors: ``uint8[units, items]``: 0 where the item does not subsume the unit, 1 where it subsumes the filter,
            and where it subsumes a part the number of parts there are: blocks must be skipped for the others too, so
            that its rows count so many times.
    """

    of_filter: Ints
    shares: Floats
    factors: Bytes


def units_of(nodes: Sequence[Node], relation: Implications, n_items: int) -> Units:
    """The units of filters, whose roots these are, over the relation's predicates."""
    of_filter: list[int] = []
    shares: list[float] = []
    factors: list[Bytes] = []
    for number, node in enumerate(nodes):
        chosen = _representatives([parts for parts in map(_parts, _conjuncts(node)) if len(parts) > 1])
        whole = relation.implied(node)
        units = [_factors(whole, combination, relation) for combination in product(*chosen)]
        of_filter += [number] * len(units)
        shares += [1.0 / len(units)] * len(units)
        factors += units
    stacked = np.stack(factors) if factors else np.zeros((0, n_items), dtype=np.uint8)
    return Units(np.array(of_filter, dtype=np.int64), np.array(shares, dtype=np.float64), stacked)


def _conjuncts(node: Node) -> Sequence[Node]:
    return node.children if isinstance(node, And) else (node,)


def _parts(node: Node) -> Sequence[Node]:
    return node.children if isinstance(node, Or) else single_parts(node)


_Part = tuple[Node, int]
"""A part, and how many there are of it and its like."""


def _representatives(disjunctions: Sequence[Sequence[Node]]) -> list[list[_Part]]:
    """Of each disjunction so many parts, evenly spread, that their combinations are not too many."""
    counts = [len(parts) for parts in disjunctions]
    while np.prod(counts, dtype=np.float64) > MOST_UNITS:
        counts[int(np.argmax(counts))] -= 1
    return [
        [(parts[i * len(parts) // count], len(parts)) for i in range(count)]
        for parts, count in zip(disjunctions, counts, strict=True)
    ]


def _factors(whole: Bits, combination: Sequence[_Part], relation: Implications) -> Bytes:
    found = np.where(whole, 1, _MOST_FACTOR + 1)
    for part, count in combination:
        found = np.where(relation.implied(part), np.minimum(found, min(count, _MOST_FACTOR)), found)
    return np.where(found > _MOST_FACTOR, 0, found).astype(np.uint8)
