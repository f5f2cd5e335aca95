"""Queries of chapter 5, and some that no feature subsumes, answered from tables with copies as by their source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import pytest

from jobs.bench.experiment import LoggedQuery
from jobs.bench.tpch import TpchData
from jobs.bench.tpch_queries import STREAMS, TABLE, TEMPLATES
from layoutopt.inspect.verify import verify
from tests.jobs.bench.answers import QUERIES, Case, Making, asked, check, make_case, selected, write_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

# Of each template's columns, rows that none of its features is about: what copies lack has to be found elsewhere.
FOREIGN: Final = ("l_linenumber = 3", "l_quantity > 49 OR l_discount = 0.01", "s_name LIKE '%7' AND l_linenumber < 2")

_ALL: Final = STREAMS["chapter5"].templates
MAKINGS: Final[Mapping[str, Making]] = MappingProxyType(
    {
        "small": Making("gsop-r", ("q2", "q17", "q19"), budget=2.0, training=12),
        "gsop-r within 1.2": Making("gsop-r", _ALL, budget=1.2),
        "gsop-r within 1.5": Making("gsop-r", _ALL, budget=1.5),
        "gsop": Making("gsop", _ALL),
    }
)


def cases(names: Iterable[str]) -> pytest.MarkDecorator:
    """Each of some tables with each of its templates; all but the small table in the long run."""
    marks = {name: () if name == "small" else (pytest.mark.long,) for name in names}
    found = [pytest.param(name, template, marks=marks[name]) for name in names for template in MAKINGS[name].templates]
    return pytest.mark.parametrize(("case", "template"), found, indirect=["case"])


def foreign(templates: Iterable[str]) -> tuple[LoggedQuery, ...]:
    return tuple(
        LoggedQuery(name, f"SELECT {TEMPLATES[name].select} FROM {TABLE} WHERE {FOREIGN[place % len(FOREIGN)]}")
        for place, name in enumerate(templates)
    )


@pytest.fixture(scope="module")
def made(spark: SparkSession, tpch: TpchData, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    """The tables by name, each made when a test first asks for it."""

    def make(name: str) -> Case:
        making, folder = MAKINGS[name], tmp_path_factory.mktemp("copies")
        where = "o_year = 1997" if name == "small" else "true"
        others = foreign(making.templates)
        queries = (*asked(making.templates), *others)
        source = write_source(spark, str(tpch.denormalised), queries, str(folder / "source"), where)
        return make_case(spark, making, source, folder, others)

    return cache(make)


@pytest.mark.long
@pytest.mark.parametrize(
    "case",
    ["small", *(pytest.param(name, marks=pytest.mark.long) for name in MAKINGS if name.startswith("gsop-r"))],
    indirect=True,
)
def test_the_table_has_copies_that_unseen_queries_read(case: Case) -> None:
    (plan,) = case.table.catalog.plans.values()
    copies = {number for number, layout in enumerate(plan.scheme.layouts) if not layout.is_undivided}
    read = {
        number
        for query in case.queries
        for one in case.table.scan(query.sql).reads
        for pruned in one.pruned
        for number in pruned.rows_by_layout(pruned.read)
    }
    assert sum(len(layout.columns) for layout in plan.scheme.layouts) > len(plan.schema.names)
    assert read & copies
    assert verify(case.table).problems == ()


@pytest.mark.long
@cases(MAKINGS)
def test_the_embedded_engine_answers_as_the_source(case: Case, template: str) -> None:
    assert len(case.of(template)) == QUERIES + 1
    assert all(answer.column_names == selected(query) for query, answer in case.of(template))
    check(case, template, lambda sql: case.table.scan(sql).to_arrow())


@pytest.mark.long
@cases(MAKINGS)
def test_spark_answers_every_query_as_the_source(case: Case, template: str, spark: SparkSession) -> None:
    check(case, template, lambda sql: case.table.scan(sql).to_spark(spark).toArrow())
