"""What queries ask for, over codes: which of them read a block, by the ranges of its codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from layoutopt.model.arrays import Bits, Floats, Ints
from layoutopt.partitioning.cuts.dimensions import Codes, Span


class CodeSet(NamedTuple):
    """A literal.

    Attributes:
        dimension: which.
        spans: the codes for which it may be TRUE.
        of_null: whether it is TRUE of NULL.
        is_range: whether it is a range of values, in whose place another might have been asked for.
    """

    dimension: int
    spans: tuple[Span, ...]
    of_null: bool = False
    is_range: bool = False


Clause = tuple[CodeSet, ...]
"""A disjunction of literals."""


@dataclass(frozen=True, eq=False)
class CodeRanges:
    """What is known of some rows together: for each dimension the smallest and largest code that is not 0, and nulls.

    Attributes:
        low, high: ``int64[d]``; where all rows are NULL, ``low`` is above every code.
        nulls: whether any row has code 0, ``bool[d]``.
    """

    low: Ints
    high: Ints
    nulls: Bits

    @classmethod
    def of(cls, codes: Codes, n_codes: int) -> CodeRanges:
        """The ranges of rows, ``int16[m, d]`` with ``m > 0``, of which no code reaches ``n_codes``."""
        is_null = codes == 0
        low = np.where(is_null, np.int16(n_codes), codes).min(axis=0)
        return cls(low.astype(np.int64), codes.max(axis=0).astype(np.int64), is_null.any(axis=0))


@dataclass(frozen=True, eq=False)
class CodeFilters:
    """Queries as conjunctions of clauses, clauses as disjunctions of literals, literals as sets of codes.

    A query reads a block unless one of its clauses has no literal that may be TRUE there.

    Attributes:
        n_dimensions: how many dimensions there are.
        n_codes: more than any code.
        dimension: of each distinct literal, ``int64[s]``.
        of_null: whether each is TRUE of NULL, ``bool[s]``.
        following: the first code of each distinct literal at or after each code, ``int16[s, n_codes + 1]``; above all
            codes where there is none.
        preceding: the last one at or before it; below 0 where there is none.
        literal: of each place in a clause, which distinct literal stands there, ``int64[l]``.
        clause: of each place its clause, ``int64[l]``, ascending.
        query: of each clause its query, ``int64[c]``, ascending.
        weights: of the queries, ``float64[q]``; integers that sum exactly.
    """

    n_dimensions: int
    n_codes: int
    dimension: Ints
    of_null: Bits
    following: Codes
    preceding: Codes
    literal: Ints
    clause: Ints
    query: Ints
    weights: Floats

    @classmethod
    def of(cls, queries: Sequence[Sequence[Clause]], weights: Floats, n_dimensions: int, n_codes: int) -> CodeFilters:
        """From each query's clauses. A query with a clause without literals reads nothing, so it counts for nothing."""
        number: dict[CodeSet, int] = {}
        literal: list[int] = []
        clause: list[int] = []
        query: list[int] = []
        for q, clauses in enumerate(queries):
            for each in clauses:
                literal += [number.setdefault(one, len(number)) for one in each]
                clause += [len(query)] * len(each)
                query.append(q)
        covered = np.zeros((len(number), n_codes + 1), dtype=np.bool_)
        for one, place in number.items():
            for first, stop in one.spans:
                covered[place, first:stop] = True
        every = np.arange(n_codes + 1, dtype=np.int16)
        after = np.where(covered, every, np.int16(n_codes + 1))[:, ::-1]
        return cls(
            n_dimensions=n_dimensions,
            n_codes=n_codes,
            dimension=np.array([one.dimension for one in number], dtype=np.int64),
            of_null=np.array([one.of_null for one in number], dtype=np.bool_),
            following=np.minimum.accumulate(after, axis=1)[:, ::-1],
            preceding=np.maximum.accumulate(np.where(covered, every, np.int16(-1)), axis=1),
            literal=np.array(literal, dtype=np.int64),
            clause=np.array(clause, dtype=np.int64),
            query=np.array(query, dtype=np.int64),
            weights=np.where([all(clauses) for clauses in queries], weights, 0.0),
        )

    @cached_property
    def importance(self) -> Floats:
        """The weight of the queries' literals about each dimension, ``float64[d]``."""
        of_literals = self.weights[self.query[self.clause]]
        return np.bincount(self.dimension[self.literal], of_literals, self.n_dimensions).astype(np.float64)
