"""`spark.sql` that skips: the same answers as without, whatever the text looks like, and less read where it must be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from layoutopt.spark import disable, enable, last_scans, register
from layoutopt.spark.session import relations
from tests.scan.builder import build, building, by_position
from tests.scan.layouts import GROUPS
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows
from tests.spark.session.answers import answer, skipped
from tests.spark.settings import compared_here, new_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

# What must skip reads fewer blocks than there are in at least one mention of an optimised table.
SKIPPING = {
    "filter": "SELECT id, kind FROM t WHERE kind = 'air'",
    "left join": "SELECT d.kind, t.id FROM dim d LEFT JOIN t ON d.kind = t.kind AND t.kind = 'air'",
    "right join": "SELECT d.kind, t.id FROM dim d RIGHT JOIN t ON d.kind = t.kind WHERE t.price > 50",
    "full join": "SELECT d.kind, t.id FROM dim d FULL JOIN (SELECT * FROM t WHERE price > 50) t ON d.kind = t.kind",
    "join of a join": "SELECT a.id, b.id FROM t a JOIN dim d USING (kind) JOIN u b ON a.id = b.id WHERE b.id < 20",
    "anti join": "SELECT d.kind FROM dim d LEFT ANTI JOIN t ON d.kind = t.kind AND t.price > 50",
    "semi join": "SELECT d.kind FROM dim d LEFT SEMI JOIN t ON d.kind = t.kind AND t.id < 3",
    "not exists": "SELECT kind FROM dim d WHERE NOT EXISTS (SELECT 1 FROM t WHERE t.kind = d.kind AND t.price > 50)",
    "count": "SELECT count(*) AS n FROM t WHERE kind = 'air'",
    "count of no columns": "SELECT count(1) AS n FROM t WHERE kind = 'air' AND year = 1994",
    "limit": "SELECT count(*) AS n FROM (SELECT id FROM t WHERE kind = 'air' LIMIT 5)",
    "ordered limit": "SELECT id FROM t WHERE kind = 'air' ORDER BY id DESC LIMIT 5 OFFSET 2",
    "not in with NULL": "SELECT id FROM t WHERE kind NOT IN ('air', NULL)",
    "not in a subquery": "SELECT kind FROM dim WHERE kind NOT IN (SELECT kind FROM t WHERE price > 50)",
    "long list": f"SELECT id FROM t WHERE id IN ({', '.join(str(-n if n > 40 else n) for n in range(2_000))})",
    "self-join": "SELECT a.id, t.id AS other FROM t a JOIN t ON a.price = t.price WHERE a.kind = 'air' AND t.id < 99",
    "CTE used twice": "WITH c AS (SELECT * FROM t WHERE kind = 'air') SELECT x.id FROM c x JOIN c y ON x.id = y.id",
    "CTE of the table's name": "WITH t AS (SELECT * FROM t WHERE kind = 'air') SELECT count(*) AS n FROM t",
    "window": "SELECT id, rank() OVER (PARTITION BY kind ORDER BY id) AS r FROM t WHERE kind IN ('air', 'rail')",
    "union": "SELECT id FROM t WHERE kind = 'air' UNION SELECT id FROM u WHERE id < 9 UNION ALL SELECT n FROM dim",
    "two tables": "SELECT t.id, u.price FROM t JOIN u ON t.id = u.id WHERE t.kind = 'air' AND u.id BETWEEN 5 AND 60",
    "scalar subquery": "SELECT id FROM t WHERE price = (SELECT max(price) FROM u WHERE id < 30) AND kind LIKE '%p'",
    "lateral": "SELECT d.kind, m FROM dim d, LATERAL (SELECT count(*) AS m FROM t WHERE t.kind = d.kind AND id < 9)",
    "pivot": "SELECT * FROM (SELECT kind, year FROM t WHERE id < 9) PIVOT (count(1) FOR year IN (1994, 1995))",
    "natural join": "SELECT * FROM dim NATURAL JOIN (SELECT id, kind FROM t WHERE id < 40)",
    "characters": "SELECT '😀' AS s, /* t */ id FROM t WHERE kind = 'air' -- FROM t",
    "hint": "SELECT /*+ BROADCAST(t) */ t.id FROM t JOIN dim d ON d.kind = t.kind WHERE t.id < 7",
    "qualified star": "SELECT t.* FROM t JOIN dim USING (kind) WHERE t.kind = 'air'",
    "group": "SELECT kind AS k, avg(price) AS p, count(*) AS n FROM t WHERE price > 50 GROUP BY 1 HAVING count(*) > 2",
}  # fmt: skip
# Nothing can be skipped in these, or they can't be analysed: right answers are all that is asked.
WHOLE = {
    "everything": "SELECT * FROM t",
    "count all": "SELECT count(*) AS n FROM t",
    "outer join": "SELECT d.kind, t.id FROM dim d LEFT JOIN t ON d.kind = t.kind WHERE t.id IS NULL",
    "anti join by NULL": "SELECT d.kind FROM dim d LEFT JOIN t ON d.kind = t.kind AND t.id > 5 WHERE t.kind IS NULL",
    "not in a list with NULL": "SELECT id FROM t WHERE id NOT IN (1, 2) OR kind IS NULL",
    "values": "SELECT * FROM VALUES (1, 't') AS v(a, t)",
    "identifier": "SELECT count(*) AS n FROM IDENTIFIER('t') WHERE kind = 'air'",
    "table statement": "TABLE t",
    "exists": "SELECT kind FROM dim WHERE EXISTS (SELECT * FROM t)",
}


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return some_rows()


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory, rows: pa.Table) -> dict[str, Path]:
    """Where t (by features, partitioned), u (by id) and g (as t, in column groups) lie."""
    root = tmp_path_factory.mktemp("tables")
    build(root / "t", rows, building(SCHEMA, CONDITIONS, partition_by="year", segment_rows=60))
    build(root / "u", rows.sort_by("id"), building(SCHEMA, CONDITIONS, blocking=by_position(30)))
    build(root / "g", rows, building(SCHEMA, CONDITIONS, layouts=GROUPS, partition_by="year", segment_rows=60))
    return {name: root / name for name in "tug"}


@pytest.fixture(scope="module")
def on_the_source(spark: SparkSession, rows: pa.Table) -> SparkSession:
    """A session in which t and u are the source, which lies in no file."""
    session = new_session(spark)
    for name in ("t", "u"):
        session.createDataFrame(rows).coalesce(1).createOrReplaceTempView(name)
    _add_dim(session)
    return session


@pytest.fixture(scope="module")
def enabled(spark: SparkSession, tables: dict[str, Path]) -> Iterator[SparkSession]:
    """A session of its own in which t and u are optimised tables."""
    yield from _enabled(new_session(spark), {"t": tables["t"], "u": tables["u"]})


@pytest.fixture(scope="module")
def enabled_groups(spark: SparkSession, tables: dict[str, Path]) -> Iterator[SparkSession]:
    """The same with t in column groups."""
    yield from _enabled(new_session(spark), {"t": tables["g"], "u": tables["u"]})


def _enabled(session: SparkSession, tables: dict[str, Path]) -> Iterator[SparkSession]:
    for name, path in tables.items():
        register(session, name, str(path))
    _add_dim(session)
    enable(session)
    with compared_here(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(relations, "_ROWS_OF_A_PART", 20)  # small files are read in parts
        yield session
    disable(session)


def _add_dim(session: SparkSession) -> None:
    kinds = [("air", 1), ("ship", 2), (None, 3), ("no such kind", 4)]
    session.createDataFrame(kinds, "kind string, n int").coalesce(1).createOrReplaceTempView("dim")


@pytest.mark.parametrize("sql", SKIPPING.values(), ids=SKIPPING)
def test_less_is_read_and_the_answer_is_the_same(sql: str, enabled: SparkSession, on_the_source: SparkSession) -> None:
    assert answer(enabled.sql(sql)) == answer(on_the_source.sql(sql))
    assert skipped(enabled) > 0
    assert not any(scan.note for scan in last_scans(enabled))


@pytest.mark.parametrize("sql", WHOLE.values(), ids=WHOLE)
def test_where_nothing_is_skipped_the_answer_is_the_same(
    sql: str, enabled: SparkSession, on_the_source: SparkSession
) -> None:
    assert answer(enabled.sql(sql)) == answer(on_the_source.sql(sql))
    assert skipped(enabled) == 0


@pytest.mark.parametrize("name", ["filter", "left join", "count", "self-join", "CTE used twice", "two tables"])
def test_column_groups_skip_too(name: str, enabled_groups: SparkSession, on_the_source: SparkSession) -> None:
    assert answer(enabled_groups.sql(SKIPPING[name])) == answer(on_the_source.sql(SKIPPING[name]))
    assert skipped(enabled_groups) > 0
