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
from layoutopt.model.arrays import Bytes, Floats, Ints
from layoutopt.model.predicates import Node, Or, conjuncts

MOST_UNITS = 64
"""A filter has at most so many; of longer lists evenly spread parts stand for all."""

_MOST_FACTOR = 255


@dataclass(frozen=True, eq=False)
class Units:
    """Each filter as units: one part of each of its disjunctions and lists, together with the rest of the filter.

    A block is skipped only if all units of the filter are, so what a filter reads is the sum of what its units do. A
    filter of *k* parts has *k* units that weigh a *k*-th each; a feature with the selectivity *s* for one of the parts
    leaves the share *s* of all rows to be read for it, which is ``k * s`` of the unit's weight.

    Attributes:
        of_filter: the filter of each unit, ``int64[units]``.
        shares: of a filter, ``float64[units]``; a filter's sum to 1.
        factors: how often an item's rows count for a unit, ``uint8[units, items]``: 1 where the item subsumes the whole
            filter, *k* where it subsumes the unit's part, one of *k*, and 0 where it subsumes neither.
    """

    of_filter: Ints
    shares: Floats
    factors: Bytes


def units_of(nodes: Sequence[Node], relation: Implications, n_items: int) -> Units:
    """The units of filters, whose roots these are, over the relation's predicates.

    Of ``x IN (1, 2)`` and the items ``x = 1``, ``x = 2``, ``x IN (1, 2)`` and ``x = 3``:

    >>> from layoutopt.model.predicates import Col, InSet, Predicate
    >>> from layoutopt.model.values import ValueSet
    >>> lists = [InSet(Col("x", "int"), ValueSet.of(values)) for values in ([1], [2], [1, 2], [3])]
    >>> units = units_of([lists[2]], Implications([Predicate((one,)) for one in lists]), 4)
    >>> units.shares.tolist(), units.factors.tolist()
    ([0.5, 0.5], [[2, 0, 1, 0], [0, 2, 1, 0]])
    """
    of_filter: list[int] = []
    shares: list[float] = []
    factors: list[Bytes] = []
    for number, node in enumerate(nodes):
        disjunctions = [parts for conjunct in conjuncts(node) if len(parts := _parts(conjunct)) > 1]
        units = [_factors(node, chosen, relation) for chosen in product(*_representatives(disjunctions))]
        of_filter += [number] * len(units)
        shares += [1.0 / len(units)] * len(units)
        factors += units
    stacked = np.stack(factors) if factors else np.zeros((0, n_items), dtype=np.uint8)
    return Units(np.array(of_filter, dtype=np.int64), np.array(shares, dtype=np.float64), stacked)


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


def _factors(node: Node, chosen: Sequence[_Part], relation: Implications) -> Bytes:
    """The factors of one unit, ``uint8[items]``: the smallest that holds."""
    factors = np.zeros_like(relation.implied(node), dtype=np.uint8)
    for part, count in sorted(chosen, key=lambda each: -each[1]):
        factors[relation.implied(part)] = min(count, _MOST_FACTOR)
    factors[relation.implied(node)] = 1
    return factors
