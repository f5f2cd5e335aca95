"""Features: the sets of predicates that guide the blocking, and the session settings that their meaning depends on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from layoutopt.model.arrays import Bits, Floats
from layoutopt.model.predicates.nodes import Columns, Node, Predicate, order_of
from layoutopt.model.predicates.normal import conjunction, disjunction
from layoutopt.model.predicates.subsume import implies
from layoutopt.model.query import Query
from layoutopt.model.records import HashedOnce, Record


@dataclass(frozen=True)
class SessionSettings(Record):
    """The session settings that affect a predicate's meaning; features apply only where all of them are equal.

    They are ``spark.sql.session.timeZone``, ``spark.sql.ansi.enabled`` and ``spark.sql.caseSensitive``.
    """

    time_zone: str = "UTC"
    ansi: bool = True
    case_sensitive: bool = False

    def __str__(self) -> str:
        """Return the settings as messages list them.

        >>> str(SessionSettings("Asia/Tokyo", ansi=False))
        'time zone Asia/Tokyo, ANSI mode off'
        """
        case = ", case-sensitive" if self.case_sensitive else ""
        return f"time zone {self.time_zone}, ANSI mode {'on' if self.ansi else 'off'}{case}"


@dataclass(frozen=True)
class Feature(HashedOnce, Record):
    """A conjunction of at least one predicate (3.3.2), in canonical order, with its weight, not negative."""

    predicates: tuple[Predicate, ...]
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not self.predicates:
            raise ValueError("a feature without predicates holds for every row; leave it out")
        if not 0 <= self.weight < float("inf"):
            raise ValueError(f"a feature has the weight {self.weight!r}; give a number from 0")
        ordered = sorted(set(self.predicates), key=lambda predicate: order_of(predicate.node))
        object.__setattr__(self, "predicates", tuple(ordered))

    @cached_property
    def columns(self) -> Columns:
        """Return the columns of all predicates."""
        return frozenset().union(*(predicate.columns for predicate in self.predicates))

    @cached_property
    def node(self) -> Node:
        """Return the feature as a condition."""
        return conjunction(disjunction(predicate.literals) for predicate in self.predicates)


@dataclass(frozen=True)
class FeatureSet(Record):
    """The features of a plan: feature *i* is bit *i* of every vector; ``settings`` are those of their evaluation."""

    features: tuple[Feature, ...]
    settings: SessionSettings = field(default_factory=SessionSettings)

    def __len__(self) -> int:
        return len(self.features)

    def __iter__(self) -> Iterator[Feature]:
        return iter(self.features)

    def __getitem__(self, index: int) -> Feature:
        return self.features[index]

    @cached_property
    def weights(self) -> Floats:
        """Return the features' weights, float64[n_features]."""
        return np.array([feature.weight for feature in self.features], dtype=np.float64)

    def only(self, indices: Iterable[int]) -> FeatureSet:
        """Return some of the features (their indices), in that order."""
        return replace(self, features=tuple(self.features[i] for i in indices))

    def places(self, features: FeatureSet) -> list[int]:
        """Return the bits of features, ignoring their weights; raise KeyError if one is not in the set."""
        return [self._index_by_predicates[feature.predicates] for feature in features]

    @cached_property
    def _index_by_predicates(self) -> dict[tuple[Predicate, ...], int]:
        return {feature.predicates: i for i, feature in enumerate(self.features)}

    def matrix(self, queries: Sequence[Query]) -> Bits:
        """Return the query vectors of 3.5: which features subsume each query's filter, bool[n_queries, n_features].

        A query skips every block whose union vector lacks one of its features. (The text has the opposite polarity.)
        """
        predicates = dict.fromkeys(predicate for feature in self.features for predicate in feature.predicates)
        rows: dict[Node, Bits] = {}
        matrix = np.zeros((len(queries), len(self.features)), dtype=np.bool_)
        for q, query in enumerate(queries):
            root = query.filter.root
            if root not in rows:
                implied = {predicate for predicate in predicates if implies(root, predicate)}
                rows[root] = np.array([implied.issuperset(f.predicates) for f in self.features], dtype=np.bool_)
            matrix[q] = rows[root]
        return matrix


def all_features(sets: Sequence[FeatureSet]) -> FeatureSet:
    """Return the features of sets (at least one) with the same settings, each once, in order of appearance."""
    by_predicates = {feature.predicates: feature for features in sets for feature in features}
    return replace(sets[0], features=tuple(by_predicates.values()))
