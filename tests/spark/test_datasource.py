"""``spark.read.format("layoutopt")``: the source's rows, less read, and conditions that are only used for skipping."""

from __future__ import annotations

import datetime as dt
import math
import operator
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import datasource as ds

from layoutopt.model.predicate import TRUE
from layoutopt.scan.table import Table
from layoutopt.spark.datasource import LayoutoptReader, node_of, register_format
from tests.model.evaluator import holds
from tests.scan.builder import build, building
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows
from tests.scan.test_layouts import GROUPS
from tests.spark.test_enabling import answer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = some_rows()
VALUES = {name: [value for value in ROWS[name].to_pylist() if value is not None] for name in SCHEMA.names}
ORDER: dict[type[ds.Filter], Callable[[Any, Any], bool]] = {
    ds.EqualTo: operator.eq,
    ds.GreaterThan: operator.gt,
    ds.GreaterThanOrEqual: operator.ge,
    ds.LessThan: operator.lt,
    ds.LessThanOrEqual: operator.le,
}


@st.composite
def filters(draw: st.DrawFn) -> ds.Filter:
    """Conditions as Spark hands them over, about values that occur."""
    name = draw(st.sampled_from(SCHEMA.names))
    value = st.sampled_from(VALUES[name])
    kinds: list[Any] = [*ORDER, ds.EqualNullSafe]
    made: list[st.SearchStrategy[ds.Filter]] = [
        st.builds(lambda kind, v: kind((name,), v), st.sampled_from(kinds), value),
        st.builds(lambda vs: ds.In((name,), tuple(vs)), st.lists(st.none() | value, min_size=1, max_size=4)),
        st.sampled_from([ds.IsNull((name,)), ds.IsNotNull((name,))]),
    ]
    if name == "kind":
        text = st.sampled_from(["", "a", "ai", "r", "ail"])
        of_text = st.sampled_from([ds.StringStartsWith, ds.StringEndsWith, ds.StringContains])
        made.append(st.builds(lambda kind, v: kind((name,), v), of_text, text))
    condition = draw(st.one_of(made))
    return ds.Not(condition) if draw(st.booleans()) else condition


def truth(condition: ds.Filter, row: dict[str, Any]) -> bool | None:
    """What Spark makes of a condition on a row, by its documentation: None is NULL."""
    if isinstance(condition, ds.Not):
        inner = truth(condition.child, row)
        return None if inner is None else not inner
    value = row[getattr(condition, "attribute", ("?",))[0]]
    if isinstance(condition, ds.IsNull):
        return value is None
    if isinstance(condition, ds.IsNotNull):
        return value is not None
    if isinstance(condition, ds.EqualNullSafe):
        return value is not None and ordered(value) == ordered(condition.value)
    if value is None:
        return None
    if isinstance(condition, ds.In):
        found = any(each is not None and ordered(value) == ordered(each) for each in condition.value)
        return found or (None if None in condition.value else False)
    if isinstance(condition, ds.StringStartsWith):
        return bool(value.startswith(condition.value))
    if isinstance(condition, ds.StringEndsWith):
        return bool(value.endswith(condition.value))
    if isinstance(condition, ds.StringContains):
        return condition.value in value
    return ORDER[type(condition)](ordered(value), ordered(getattr(condition, "value", None)))


def ordered(value: Any) -> Any:
    """A value that Python orders as Spark does: NaN above all and equal to itself."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value


@given(filters())
def test_no_row_that_a_condition_keeps_is_outside_of_what_it_skips_by(condition: ds.Filter) -> None:
    node = node_of(condition, SCHEMA)
    for row in ROWS.to_pylist():
        assert node is None or holds(node, row) or truth(condition, row) is not True


@given(st.lists(filters(), min_size=1, max_size=3))
def test_pushed_conditions_skip_no_row_that_they_keep(table: Table, conditions: list[ds.Filter]) -> None:
    reader = LayoutoptReader(table, table.schema.columns)
    assert reader.pushFilters(conditions) == conditions, "Spark has to apply all of them again"
    read = {id for part in reader.partitions() for batch in reader.read(part) for id in batch["id"].to_pylist()}
    kept = {row["id"] for row in ROWS.to_pylist() if all(truth(each, row) is True for each in conditions)}
    assert kept <= read


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return build(tmp_path_factory.mktemp("source"), ROWS, building(SCHEMA, CONDITIONS, partition_by="year"))


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    register_format(session)
    session.createDataFrame(ROWS).createOrReplaceTempView("s")
    return session


def loaded(session: SparkSession, table: Table, **options: str) -> DataFrame:
    return session.read.format("layoutopt").options(**options).load(table.catalog.files.root)


def test_conditions_keep_the_source_s_rows(session: SparkSession, table: Table) -> None:
    where = "score > 0.25D AND NOT kind <=> 'ship' AND seen >= TIMESTAMP '2020-02-01 00:00:00' AND year < 1996"
    found = loaded(session, table, columns="kind, id, score, seen, year").where(where)
    assert found.columns == ["kind", "id", "score", "seen", "year"]
    assert answer(found) == answer(session.table("s").where(where).select(*found.columns)) != []


def test_column_groups_are_put_together(session: SparkSession, tmp_path: Path) -> None:
    groups = build(tmp_path, ROWS, building(SCHEMA, CONDITIONS, layouts=GROUPS, segment_rows=60))
    found = loaded(session, groups, columns="id,kind,price").where("kind = 'air'")
    assert answer(found) == answer(session.table("s").select("id", "kind", "price").where("kind = 'air'"))


def test_an_old_snapshot_can_be_read(session: SparkSession, tmp_path: Path) -> None:
    table = build(tmp_path, ROWS, building(SCHEMA, CONDITIONS))
    build(tmp_path, ROWS.slice(0, 10), building(SCHEMA, CONDITIONS), load_id="load-2")
    first = str(table.catalog.snapshot.number)
    assert (loaded(session, table).count(), loaded(session, table, snapshot=first).count()) == (10, 300)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"columns": "id,nope"}, "nope"),
        ({"snapshot": "x"}, "'x' is no number"),
    ],
)
def test_bad_options_are_refused(options: dict[str, str], says: str, session: SparkSession, table: Table) -> None:
    with pytest.raises(Exception, match=says):
        loaded(session, table, **options).collect()


@pytest.mark.parametrize(
    ("condition", "segments"),
    [
        (ds.EqualTo(("year",), 1994), 1),
        (ds.In(("year",), (1994, 1996)), 2),
        (ds.EqualTo(("id",), -1), 0),
        (ds.Not(ds.IsNotNull(("year",))), 0),
        (ds.EqualTo(("inner", "field"), 1), 3),
    ],
)
def test_segments_that_can_t_match_get_no_task(condition: ds.Filter, segments: int, table: Table) -> None:
    reader = LayoutoptReader(table, table.schema.columns)
    reader.pushFilters([condition])
    parts: Any = reader.partitions()
    assert sum(len(part.segments) for part in parts) == segments


def test_features_skip_by_pushed_conditions(table: Table) -> None:
    def blocks(conditions: list[ds.Filter]) -> int:
        reader = LayoutoptReader(table, table.schema.columns)
        reader.pushFilters(conditions)
        parts: Any = reader.partitions()
        files = [file for part in parts for s in part.segments for layout in s.layouts for file in layout.files]
        return sum(len(file.row_groups) for file in files)

    # Within a block texts range over all kinds: only the feature "kind IN ('air', 'rail')" can tell.
    assert 0 < blocks([ds.EqualTo(("kind",), "rail")]) < blocks([])
    assert node_of(ds.StringContains(("kind",), "a"), SCHEMA) is None
    assert node_of(ds.EqualTo(("price",), Decimal("1.50")), SCHEMA) not in (None, TRUE)
    assert node_of(ds.EqualTo(("seen",), dt.datetime(2020, 1, 1)), SCHEMA) is None, "no zone, no instant"
