"""features.json comes back as it was, and nothing else is taken for it."""

from __future__ import annotations

import pytest

from layoutopt.errors import PlanError
from layoutopt.model.feature import Feature, FeatureSet
from layoutopt.model.features_document import FeaturesDocument, SkippedStatement
from layoutopt.model.predicates import Filter, InSet, Predicate
from layoutopt.model.query import Query
from layoutopt.model.schema import Column, Schema
from layoutopt.model.values import ValueSet
from tests.model.conditions import col

ONE = InSet(col("i"), ValueSet.point(1))
DOCUMENT = FeaturesDocument(
    table="t",
    schema=Schema((Column("i", "int"), Column("y", "date"))),
    features=FeatureSet((Feature((Predicate((ONE,)),), 2.0),)),
    queries=(Query(0, "t", ("i",), Filter.of(ONE)),),
    skipped=(SkippedStatement(1, "parse-error", "the text 'x' can't be parsed", "x"),),
    exclude_columns=("y",),
)


def test_a_document_comes_back_as_the_same_bytes() -> None:
    assert FeaturesDocument.loads(DOCUMENT.dumps()) == DOCUMENT
    assert FeaturesDocument.from_json(DOCUMENT.to_json()).dumps() == DOCUMENT.dumps()


def test_damaged_documents_are_refused() -> None:
    with pytest.raises(PlanError, match="layoutopt-features"):
        FeaturesDocument.loads(DOCUMENT.dumps()[:-10])
    with pytest.raises(PlanError, match="skipped"):
        FeaturesDocument.from_json({key: value for key, value in DOCUMENT.to_json().items() if key != "skipped"})
    with pytest.raises(PlanError, match="damaged"):
        FeaturesDocument.from_json({**DOCUMENT.to_json(), "queries": [{}]})
