"""Find which predicates of a list a filter implies, and how much of it each covers: whole rows of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from layoutopt.model.arrays import Bits, Floats
from layoutopt.model.feature import FeatureSet
from layoutopt.model.predicates import And, InSet, Node, Or, Predicate
from layoutopt.model.query import Query
from layoutopt.skipping.cannot_match import ImpliedPredicates, split_literal


class Implications:
    """Relates nodes of filters to a fixed list of predicates, with a cache of nodes.

    Attributes:
        implied: which predicates subsume a node (3.3.1), ``bool[predicates]``. False whenever unsure.
        shares: how much of a node each predicate covers, from 0 to 1, ``float64[predicates]``: 1 where the predicate
            subsumes it. A disjunction (or a list of values) of *k* parts is skipped where every part is; a predicate
            that subsumes *j* of them covers ``j / k``. Of a conjunction's parts the best covered one counts, since any
            one suffices.
    """

    def __init__(self, predicates: Sequence[Predicate]) -> None:
        self._predicates = tuple(predicates)
        self._relation = ImpliedPredicates(self._predicates)
        self.implied = cache(self._compute_implied)
        self.shares = cache(self._compute_shares)

    def _compute_implied(self, node: Node) -> Bits:
        packed = self._relation.of(node).to_bytes(-(-len(self._predicates) // 8), "little")
        bits = np.unpackbits(np.frombuffer(packed, np.uint8), count=len(self._predicates), bitorder="little")
        implied: Bits = bits.view(np.bool_)
        return implied

    def _compute_shares(self, node: Node) -> Floats:
        covered = np.zeros(len(self._predicates))
        if isinstance(node, And):
            covered = np.max([self.shares(child) for child in node.children], axis=0)
        elif len(parts := node.children if isinstance(node, Or) else single_parts(node)) > 1:
            covered = np.mean([self.shares(part) for part in parts], axis=0)
        return np.where(self.implied(node), 1.0, covered)


def find_subsumed(features: FeatureSet, queries: Sequence[Query]) -> Bits:
    """Return which features subsume each query's filter, as :meth:`~layoutopt.model.feature.FeatureSet.matrix`.

    Each distinct leaf of the filters is compared once with whole arrays of predicates.
    """
    predicates = dict.fromkeys(predicate for feature in features for predicate in feature.predicates)
    place = {predicate: i for i, predicate in enumerate(predicates)}
    members = [[place[predicate] for predicate in feature.predicates] for feature in features]
    relation = Implications(tuple(predicates))
    implied = np.array([relation.implied(query.filter.root) for query in queries], dtype=np.bool_)
    implied = implied.reshape(len(queries), len(predicates))
    columns = [implied[:, places].all(axis=1) for places in members]
    return np.stack(columns, axis=1) if columns else np.zeros((len(queries), 0), dtype=np.bool_)


def single_parts(node: Node) -> tuple[InSet, ...]:
    """Return a list of values (or closed ranges) as one literal a value; nothing for other nodes and long lists.

    Neighbouring integers are values too: the parts of ``x IN (3, 7, 8)`` are 3, 7 and 8, which recur in other lists
    where ``x BETWEEN 7 AND 8`` does not. ``x <> 1`` is no list: its halves are no more likely to recur than it is.
    """
    if not isinstance(node, InSet) or any(None in interval for interval in node.values.intervals):
        return ()
    return split_literal(node)
