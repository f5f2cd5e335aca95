"""Features mined from a part of a log."""

from __future__ import annotations

from layoutopt.features.selection import mine_features, mine_subset
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.predicates import Col, InSet
from layoutopt.model.query import Query
from layoutopt.model.schema import Column, Schema
from layoutopt.model.values import compare
from tests.features import workloads

SCHEMA = Schema((Column("a", "int"), Column("b", "int"), Column("day", "date")))


def query(number: int, column: str, value: int) -> Query:
    return workloads.query(InSet(Col(column, "int"), compare("=", value, "int")), number=number)


def test_features_are_those_that_the_analysis_of_the_training_queries_would_find() -> None:
    log = [query(i, "a", i % 3) for i in range(30)] + [query(30 + i, "b", 7) for i in range(2)]
    whole = FeaturesDocument("t", SCHEMA, mine_features(log, threshold=2), tuple(log), exclude_columns=("day",))
    assert {f.columns for f in whole.features} == {frozenset("a"), frozenset("b")}
    again = mine_subset(whole, log[:30], threshold=2)
    assert again.features == mine_features(log[:30], threshold=2, num_features=len(whole.features))
    assert again.queries == tuple(log[:30])
    assert len(mine_subset(whole, log, threshold=2, num_features=1).features) == 1
    assert len(mine_subset(whole, log, threshold=5).features) < len(whole.features)
