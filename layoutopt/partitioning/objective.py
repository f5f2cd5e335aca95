"""What a blocking is worth: the weight of the queries that read a block, as a function of its union vector."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from layoutopt.model.vectors import Bits, Ints, VectorCounts, unpack
from layoutopt.partitioning.partition import Partition, Weights
from layoutopt.partitioning.weights import integer_weights

_Singles = npt.NDArray[np.float32]


class Objective(Protocol):
    """What reading a block costs a row of it. More bits never cost less."""

    def reading(self, unions: Bits) -> Weights:
        """The weight of the queries that read a block with each of these unions, ``bool[n, f]`` -> ``float64[n]``."""
        ...


def scanned(objective: Objective, partition: Partition, vectors: VectorCounts) -> float:
    """Rows scanned, each as often as its block is read: the objective summed over the rows of all blocks."""
    unions = unpack(partition.unions(vectors), vectors.n_features)
    return float(partition.sizes() @ objective.reading(unions))


@dataclass(frozen=True, eq=False)
class FeatureObjective:
    """Equation 3.1, as a cost: a block is read once for every feature that does not skip it.

    A query that several features subsume counts once for each of them.

    Attributes:
        weights: of the features, ``float64[f]``.
    """

    weights: Weights

    @classmethod
    def of(cls, weights: Weights, rows: int) -> FeatureObjective:
        """With weights scaled to integers, so that comparisons of up to ``rows`` rows are exact."""
        return cls(integer_weights(weights, rows))

    def reading(self, unions: Bits) -> Weights:
        """See :class:`Objective`."""
        read: Weights = unions @ self.weights
        return read


@dataclass(frozen=True, eq=False)
class ClauseObjective:
    """What queries really skip: a query skips a block once, through any clause of its filter (DESIGN 2).

    A query is an AND of clauses, a clause an OR of terms; a term can't match where any of its features has bit 0, a
    clause where all its terms can't, a query where any clause can't. A query without clauses reads every block.

    Attributes:
        terms: the features of each term, ``bool[t, f]``.
        clause_of_term: ``int64[t]``, every clause from 0 on has a term.
        query_of_clause: ``int64[c]``.
        weights: of the queries, ``float64[q]``.
    """

    terms: Bits
    clause_of_term: Ints
    query_of_clause: Ints
    weights: Weights

    @classmethod
    def of_matrix(cls, matrix: Bits, weights: Weights, rows: int) -> ClauseObjective:
        """From the features that subsume each query as a whole, ``bool[q, f]``; weights scaled to integers."""
        each = np.arange(len(matrix))
        return cls(matrix, each, each, integer_weights(weights, rows))

    def reading(self, unions: Bits) -> Weights:
        """See :class:`Objective`."""
        zeros = (~unions).astype(np.float32)
        alive_terms = zeros @ self._terms == 0
        dead_clauses = alive_terms.astype(np.float32) @ self._terms_of_clauses == 0
        alive_queries = dead_clauses.astype(np.float32) @ self._clauses_of_queries == 0
        read: Weights = alive_queries @ self.weights
        return read

    @cached_property
    def _terms(self) -> _Singles:
        return self.terms.T.astype(np.float32)

    @cached_property
    def _terms_of_clauses(self) -> _Singles:
        return _membership(self.clause_of_term, len(self.query_of_clause))

    @cached_property
    def _clauses_of_queries(self) -> _Singles:
        return _membership(self.query_of_clause, len(self.weights))


def _membership(group: Ints, n_groups: int) -> _Singles:
    """1 where an element is in a group, ``float32[len(group), n_groups]``."""
    member = np.zeros((len(group), n_groups), dtype=np.float32)
    member[np.arange(len(group)), group] = 1
    return member
