"""Predicate augmentation (Sun 2017, 3.3.2): relate every query to all predicates that subsume it, in a matrix."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from layoutopt.features.implications import Implications, single_parts
from layoutopt.features.weights import Units, make_units
from layoutopt.model.arrays import Bits, Floats
from layoutopt.model.predicates import Comparison, Constant, Filter, InSet, Literal, Predicate, columns_of, literals_of
from layoutopt.model.query import Query

# Further predicates are dropped, the rarest first, so the matrix stays small for any log.
MOST_PREDICATES = 2_000


@dataclass(frozen=True, eq=False)
class Augmented:
    """A workload over its own predicates. Queries with equal filters are one row.

    Attributes:
        predicates: the items: predicates of the queries, and single literals of their disjunctions.
        weights: how many queries have the row's filter, ``float64[filters]``.
        subsumes: whether the predicate subsumes the filter, ``bool[filters, predicates]``.
        shares: how much of the filter the predicate covers, ``float64[filters, predicates]``; see
            ``Implications.shares``.
        stricter: ``stricter[i, j]`` where i is subsumed by j (i = j included), ``bool[predicates, predicates]``.
        units: the filters part by part, over the predicates.
    """

    predicates: tuple[Predicate, ...]
    weights: Floats
    subsumes: Bits
    shares: Floats
    stricter: Bits
    units: Units


@dataclass(frozen=True)
class Exclusion:
    """The columns that make no features.

    Attributes:
        columns: column names, in any case.
        comparisons: whether comparisons of two such columns are excluded too. Partition pruning can't serve ``shipped
            < due``, though both are dates.
    """

    columns: frozenset[str] = frozenset()
    comparisons: bool = True

    @classmethod
    def of(cls, columns: Iterable[str], *, comparisons: bool = True) -> Exclusion:
        """Return the exclusion of these columns."""
        return cls(frozenset(name.lower() for name in columns), comparisons)

    def excludes(self, predicate: Predicate) -> bool:
        """Return whether a predicate makes no feature: any of its literals is excluded."""
        return any(
            (self.comparisons or not isinstance(literal, Comparison))
            and not self.columns.isdisjoint(name.lower() for name in columns_of(literal))
            for literal in predicate.literals
        )


def augment(queries: Sequence[Query], threshold: float, exclusion: Exclusion | None = None) -> Augmented:
    """Relate every query to every predicate of the workload (3.3.2).

    Beside the text's predicates the items hold the single literals of disjunctions and lists of values, since these
    recur where the lists do not: a block is skipped for ``x IN (1, 2)`` when ``x = 1`` and ``x = 2`` have bit 0. Items
    that can't help ``threshold`` queries (T), or that are excluded, are dropped.
    """
    weights = weights_by_filter(queries)
    predicates = _choose_items(weights, threshold, exclusion or Exclusion())
    relation = Implications(predicates)
    shape = (len(weights), len(predicates))
    nodes = [filter_.root for filter_ in weights]
    shares = np.array([relation.shares(node) for node in nodes], dtype=np.float64).reshape(shape)
    subsumes = np.array([relation.implied(node) for node in nodes], dtype=np.bool_).reshape(shape)
    totals = np.array(list(weights.values()), dtype=np.float64)
    helpful = (totals @ (shares > 0)) >= threshold
    kept = tuple(p for p, keep in zip(predicates, helpful, strict=True) if keep)
    units = make_units(nodes, relation, len(predicates))
    units = replace(units, factors=units.factors[:, helpful])
    return Augmented(kept, totals, subsumes[:, helpful], shares[:, helpful], compare_strictness(kept), units)


def predicate_subject(predicate: Predicate) -> Hashable:
    """Return what a predicate restricts: an expression, a pair, or for a mixed disjunction the set of these."""
    subjects = frozenset(literal_subject(literal) for literal in predicate.literals)
    return next(iter(subjects)) if len(subjects) == 1 else subjects


def compare_strictness(predicates: Sequence[Predicate]) -> Bits:
    """Return which predicate is subsumed by which, ``bool[predicates, predicates]``; the diagonal is True."""
    relation = Implications(predicates)
    matrix = np.zeros((len(predicates), len(predicates)), dtype=np.bool_)
    for i, predicate in enumerate(predicates):
        matrix[i] = np.logical_and.reduce([relation.implied(literal) for literal in predicate.literals])
    np.fill_diagonal(matrix, True)
    return matrix


def literal_subject(literal: Literal) -> Hashable:
    """Return the expression that a literal restricts, or the pair that it compares."""
    return (literal.left, literal.right) if isinstance(literal, Comparison) else literal.subject


def weights_by_filter(queries: Iterable[Query]) -> dict[Filter, float]:
    """Return the queries of each distinct filter, in order of appearance, without constant filters."""
    weights: dict[Filter, float] = {}
    for query in queries:
        if not isinstance(query.filter.root, Constant):
            weights[query.filter] = weights.get(query.filter, 0.0) + query.weight
    return weights


def _choose_items(weights: dict[Filter, float], threshold: float, exclusion: Exclusion) -> tuple[Predicate, ...]:
    """Return the predicates worth relating, the most frequent first, else in order of appearance."""
    occurrences: dict[Predicate, float] = {}
    for filter_, weight in weights.items():
        for predicate in dict.fromkeys(_list_predicates(filter_)):
            if not exclusion.excludes(predicate):
                occurrences[predicate] = occurrences.get(predicate, 0.0) + weight
    items = [p for p, count in occurrences.items() if count >= threshold or _may_subsume_more(p)]
    items.sort(key=lambda p: -occurrences[p])
    return tuple(items[:MOST_PREDICATES])


def _may_subsume_more(predicate: Predicate) -> bool:
    """Return whether a predicate could subsume queries that don't contain it verbatim.

    Only ``x = 1`` itself implies ``x = 1``. A disjunction over several expressions, which the expansion of an OR of
    ANDs makes by the dozen, is rarely implied by another filter.
    """
    if len(predicate.literals) > 1:
        return False
    literal = predicate.literals[0]
    return not isinstance(literal, InSet) or literal.values.points() is None or bool(single_parts(literal))


def _list_predicates(filter_: Filter) -> Iterator[Predicate]:
    """Yield a filter's predicates, then every literal of its disjunctions and every value of its lists."""
    yield from filter_.predicates
    for leaf in literals_of(filter_.root):
        yield Predicate((leaf,))
        yield from (Predicate((part,)) for part in single_parts(leaf))
