"""``spark.read.format("layoutopt")``: the source's rows, however often what was loaded is used."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from layoutopt.scan.table import Table, open_table
from layoutopt.spark.session.datasource import register_format
from tests.effort import long_too
from tests.scan.builder import build, building
from tests.scan.layouts import GROUPS
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows
from tests.spark.session.answers import answer
from tests.spark.settings import UNCOMPILED, new_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = some_rows()


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return build(tmp_path_factory.mktemp("source"), ROWS, building(SCHEMA, CONDITIONS, partition_by="year"))


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    session = new_session(spark)
    register_format(session)
    session.createDataFrame(ROWS).createOrReplaceTempView("s")
    return session


def loaded(session: SparkSession, table: Table, **options: str) -> DataFrame:
    return session.read.format("layoutopt").options(**options).load(table.catalog.files.root)


USES = {
    "two conditions in one query": ("SELECT id FROM {0} WHERE id < 5 UNION ALL SELECT id FROM {0} WHERE id > 290", 14),
    "one without a condition": ("SELECT id FROM {0} UNION ALL SELECT id FROM {0} WHERE id < 5", 305),
    "one with a condition": ("SELECT id FROM {0} WHERE id < 5 UNION ALL SELECT id FROM {0}", 305),
    "a join's other side": ("SELECT a.id FROM {0} a LEFT JOIN {0} b ON a.id = b.id AND b.id < 7", 300),
    "a subquery": ("SELECT id FROM {0} WHERE id > (SELECT max(id) FROM {0} WHERE id < 9)", 291),
}


@pytest.mark.long
@pytest.mark.parametrize("pushdown", ["true", *long_too("false")])
def test_no_use_of_a_loaded_table_reads_what_another_left(session: SparkSession, table: Table, pushdown: str) -> None:
    """Spark 4.3.0 has one plan for all uses of what was loaded once: the last pushed condition's."""
    other = new_session(session, {**UNCOMPILED, "spark.sql.python.filterPushdown.enabled": pushdown})
    register_format(other)
    once = loaded(other, table)
    once.createOrReplaceTempView("v")
    for name, (text, rows) in USES.items():
        assert other.sql(text.format("v")).count() == rows, name
    for where, rows in (("id < 5", 5), ("TRUE", 300), ("kind = 'air' AND id < 0", 0), ("id > 290", 9)):
        assert once.where(where).count() == rows
    assert once.count() == 300


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


def test_a_catalog_s_table_is_refused_and_a_view_answers(session: SparkSession, table: Table) -> None:
    using = f"USING layoutopt OPTIONS (path '{table.catalog.files.root}')"
    with pytest.raises(Exception, match="write CREATE TEMPORARY VIEW name USING"):
        session.sql(f"CREATE TABLE no_table {using}")
    session.sql(f"CREATE TEMPORARY VIEW some_view {using}")
    assert session.table("some_view").count() == 300


def test_nothing_is_written(session: SparkSession, table: Table) -> None:
    before = table.catalog.snapshot.number
    for mode in ("append", "overwrite"):
        with pytest.raises(Exception, match="the format layoutopt only reads"):
            loaded(session, table).write.format("layoutopt").mode(mode).save(table.catalog.files.root)
    assert open_table(table.catalog.files.root).catalog.snapshot.number == before
    assert loaded(session, table).count() == 300
