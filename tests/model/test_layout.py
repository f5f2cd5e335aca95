"""Layouts, schemes and plans: what is refused, and documents that are the same bytes everywhere."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from layoutopt.errors import PlanError, SchemaError
from layoutopt.model.feature import Feature, FeatureSet, SessionSettings
from layoutopt.model.layout import ByOrder, ByVectors, Layout, Plan, Scheme
from layoutopt.model.predicates import Filter, InSet, Predicate
from layoutopt.model.query import Query
from layoutopt.model.records import LazyTuple
from layoutopt.model.schema import Column, Schema
from layoutopt.model.values import ValueSet
from tests.model.conditions import col

ONE = InSet(col("i"), ValueSet.point(1))
PLAN = Plan(
    table="t",
    schema=Schema((Column("i", "int"), Column("s", "string", nullable=False), Column("y", "date"))),
    partition_by="y",
    method="gsop-r",
    features=FeatureSet((Feature((Predicate((ONE,)),), 2.0),)),
    queries=(Query(0, "t", ("i",), Filter.of(ONE)),),
    scheme=Scheme(
        (
            Layout(("i", "y"), (0,), ("i", "y"), ByVectors("ward", (("b", 2), ("a", "x")))),
            Layout(("s", "i"), (), ("s",), ByOrder("sort", ("s",))),
        )
    ),
    block_rows=100,
    segment_rows=1000,
    max_vectors=50,
    seed=7,
    predicted={"rows": 0.1 + 0.2, "bytes": 1e9 / 3},
)


def test_a_plan_comes_back_as_the_same_bytes() -> None:
    again = Plan.loads(PLAN.dumps())
    assert again == PLAN
    assert again.dumps() == PLAN.dumps()
    assert again.digest == PLAN.digest
    assert hash(again) == hash(PLAN)
    assert Plan.from_json(json.loads(PLAN.dumps())) == PLAN


def test_layouts_may_name_guides_and_the_queries_they_serve() -> None:
    layout = replace(PLAN.scheme.layouts[1], guides=(0, 0), serves=(0,))
    plan = replace(PLAN, scheme=Scheme((PLAN.scheme.layouts[0], layout)))
    assert Plan.loads(plan.dumps()) == plan
    assert layout.guiding == (0,)
    assert not layout.is_undivided
    assert b"guides" not in PLAN.dumps()
    with pytest.raises(ValueError, match="serves the queries"):
        replace(PLAN, scheme=Scheme((PLAN.scheme.layouts[0], replace(layout, serves=(1,)))))
    with pytest.raises(ValueError, match="local features"):
        replace(PLAN, scheme=Scheme((PLAN.scheme.layouts[0], replace(layout, guides=(1,)))))


def test_layouts_may_sort_the_rows_of_their_blocks() -> None:
    layout = PLAN.scheme.layouts[0]
    ordered = replace(layout, row_order=tuple(reversed(layout.columns)))
    plan = replace(PLAN, scheme=Scheme((ordered, *PLAN.scheme.layouts[1:])))
    assert Plan.loads(plan.dumps()) == plan
    assert json.loads(plan.dumps())["scheme"][0]["row_order"] == list(ordered.row_order)
    assert b"row_order" not in PLAN.dumps()  # older plans mean what they meant
    with pytest.raises(ValueError, match="the row order's column 'x' is not stored"):
        replace(layout, row_order=("x",))
    with pytest.raises(ValueError, match="the row order names the column 'i' twice"):
        replace(layout, row_order=(layout.columns[0], layout.columns[0]))


def test_rows_are_not_sorted_by_columns_without_an_order() -> None:
    schema = Schema((Column("tags", "map<string,int>"), *PLAN.schema.columns))
    layouts = [
        replace(each, columns=("tags", *each.columns), master=("tags", *each.master)) for each in PLAN.scheme.layouts
    ]
    ordered = replace(layouts[0], row_order=("tags",))
    with pytest.raises(SchemaError, match="the row order's column 'tags' is of the type 'map<string,int>'"):
        replace(PLAN, schema=schema, scheme=Scheme((ordered, *layouts[1:])))


def test_the_digest_is_that_of_the_content() -> None:
    assert PLAN.digest == "9f74a986da5687b8"
    assert replace(PLAN, seed=8).digest != PLAN.digest


def test_a_plan_whose_queries_are_read_late_is_the_same_plan() -> None:
    late = Plan.loads_late(PLAN.dumps())
    assert isinstance(late.queries, LazyTuple)
    assert late.digest == PLAN.digest
    assert late == PLAN
    assert replace(late, seed=8).dumps() == replace(PLAN, seed=8).dumps()


def test_damage_of_queries_that_are_read_late_is_told_when_they_are_read() -> None:
    damaged = json.loads(PLAN.dumps())
    damaged["queries"][0] = {"id": "x"}
    late = Plan.loads_late(json.dumps(damaged).encode())
    with pytest.raises(PlanError, match="plan's queries"):
        list(late.queries)
    with pytest.raises(PlanError, match="queries should be a list"):
        Plan.loads_late(json.dumps({**damaged, "queries": 7}).encode())


def test_predictions_are_rounded_to_what_machines_agree_on() -> None:
    assert PLAN.predicted == {"bytes": 333333000.0, "rows": 0.3}
    assert replace(PLAN, predicted={"rows": 0.3, "bytes": 333333000.0 + 1e-6}).digest == PLAN.digest


def test_parameters_are_in_the_order_of_their_names() -> None:
    assert ByVectors("ward", (("b", 2), ("a", "x"))) == ByVectors("ward", (("a", "x"), ("b", 2)))


def test_schemes_of_several_layouts_have_tids() -> None:
    assert PLAN.scheme.has_tids
    assert not Scheme((Layout(("i",), (), ("i",)),)).has_tids


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        "[" * 100_000,
        json.dumps({"format": "layoutopt-features", "version": 1}),
        json.dumps({"format": "layoutopt-plan", "version": 2}),
        json.dumps({"format": "layoutopt-plan", "version": 1}),
    ],
    ids=lambda data: str(data)[:30],
)
def test_what_is_no_plan_is_refused(data: bytes | str) -> None:
    with pytest.raises(PlanError, match="layoutopt-plan"):
        Plan.loads(data)


@pytest.mark.parametrize(
    "change",
    [
        {"scheme": []},
        {"scheme": [{"columns": ["i"], "features": [], "master": ["i"], "blocking": {"by": "magic", "params": {}}}]},
        {"scheme": [{**PLAN.to_json()["scheme"][0], "row_order": "i"}, PLAN.to_json()["scheme"][1]]},
        {"scheme": [{**PLAN.to_json()["scheme"][0], "row_order": ["nil"]}, PLAN.to_json()["scheme"][1]]},
        {"features": None},
        {"block_rows": 0},
        {"block_rows": "many"},
        {"predicted": []},
        {"schema": [{"name": "i"}]},
        {"settings": SessionSettings("Asia/Tokyo").to_json()},
        {"partition_by": "q"},
    ],
    ids=lambda change: str(change)[:60],
)
def test_damaged_plans_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(PlanError):
        Plan.from_json({**PLAN.to_json(), **change})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Layout(("a",), (), ("b",)), "'b'"),
        (lambda: Layout(("a", "a")), "a, a"),
        (lambda: Layout(("a",), (-1,)), "-1"),
        (lambda: Scheme(()), "no layout"),
        (lambda: Scheme((Layout(("a",), (), ("a",)), Layout(()))), "stores no column"),
        (lambda: Scheme((Layout(("a", "b"), (), ("a",)),)), "'b'"),
        (lambda: ByOrder("random"), "random"),
        (lambda: ByOrder("sort"), "'sort'"),
        (lambda: replace(PLAN, max_vectors=0), "max_vectors"),
        (lambda: replace(PLAN, features=FeatureSet(())), "local features"),
        (lambda: replace(PLAN, settings=SessionSettings(ansi=False)), "ANSI mode"),
        (lambda: replace(PLAN, reads=(0.5,) * (len(PLAN.queries) + 1)), "queries"),
        (lambda: replace(PLAN, reads=(math.nan,) * len(PLAN.queries)), "not all numbers"),
    ],
)
def test_nouns_refuse_what_has_no_meaning(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_scheme_must_store_the_schemas_columns() -> None:
    with pytest.raises(SchemaError, match="'z'"):
        replace(PLAN, schema=Schema((*PLAN.schema.columns, Column("z", "int"))))
    with pytest.raises(SchemaError, match="'q'"):
        replace(PLAN, partition_by="q")
