"""Texts that DuckDB may answer in Spark's place, and those that it may not."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException

from layoutopt.errors import QueryError
from layoutopt.evaluation import engine
from layoutopt.evaluation.engine import EngineQuery, EngineView
from layoutopt.model.schema import Column, Schema
from layoutopt.sql.duckdb.translate import portable_sql
from tests.effort import one_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TYPES = {
    "id": "int", "b": "bigint", "sm": "smallint", "s": "string", "d": "date", "flag": "boolean",
    "f": "float", "g": "double", "price": "decimal(15,2)", "ts": "timestamp",
}  # fmt: skip
SCHEMA = Schema(tuple(Column(name, type_name) for name, type_name in TYPES.items()))
UTC = dt.UTC


def nasty_rows() -> pa.Table:
    """Rows with NULL, NaN, -0.0, infinities, odd texts, ends of ranges."""
    june = dt.date(1994, 6, 1)
    prices = ["0.05", "0.06", None, "-3.10", "99999.99", "1.00"]
    times = [dt.datetime(2020, 1, 1, 23, 59, 59, tzinfo=UTC), None] + [dt.datetime(1994, 1, 1, tzinfo=UTC)] * 4
    return pa.table(
        {
            "id": pa.array([1, 2, 3, 4, None, 6], pa.int32()),
            "b": pa.array([2**53, -5, 0, None, 7, 7], pa.int64()),
            "sm": pa.array([32767, -32768, 0, 1, None, 2], pa.int16()),
            "s": ["05", "", None, "Ärger", "a%b_c", "ax"],
            "d": pa.array([dt.date(1994, 1, 31), dt.date(1995, 1, 1), None, dt.date(2000, 2, 29), june, june]),
            "flag": [True, False, None, True, None, False],
            "f": pa.array([0.1, float("nan"), -0.0, None, float("inf"), 2.5], pa.float32()),
            "g": pa.array([0.1, float("nan"), -0.0, None, float("-inf"), 2.5], pa.float64()),
            "price": pa.array([Decimal(p) if p else None for p in prices], pa.decimal128(15, 2)),
            "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
        }
    )  # fmt: skip


PORTABLE = [
    "SELECT id FROM t WHERE s = 'R' OR s <> 'a r'",
    "SELECT id, round(cast(g + 0.25 AS float), 1), round(f, 1), round(g, 1) FROM t",
    "SELECT * FROM t",
    "SELECT id, s FROM t WHERE d < date '1994-01-01' + interval '1' year AND price > 0.055",
    "SELECT id FROM t WHERE d BETWEEN '1994-01-31' AND '1995-01-01' OR d IS NULL",
    "SELECT id FROM t WHERE f = 0.1",
    "SELECT id FROM t WHERE f < 0.11 OR g >= 2",
    "SELECT id FROM t WHERE g >= 0.10000000000000000555111512312578 OR f < -1e-3 OR g < -0.00000000000000001",
    "SELECT id FROM t WHERE g BETWEEN -12345678901234567.5 AND 0.1000000000000000001 OR g IN (2.50000000000000001)",
    "SELECT id FROM t WHERE g = g AND NOT g > 5",
    "SELECT id FROM t WHERE s LIKE 'a%' OR s LIKE '%g_r'",
    "SELECT id FROM t WHERE s NOT IN ('ax', '05') AND NOT (flag AND id > 1)",
    "SELECT id FROM t WHERE b NOT IN (7, NULL)",
    "SELECT id FROM t WHERE id > 2.5 AND price < 100000",
    "SELECT id FROM t WHERE ts >= '2020-01-01 00:00:00'",
    "SELECT id <=> NULL AS n, id IS NOT NULL AS m FROM t",
    "SELECT s, count(*), sum(price * (1 - price)) AS revenue, sum(id), min(d), max(g) FROM t GROUP BY s ORDER BY s",
    "SELECT year(d) AS y, avg(id), count(DISTINCT s) FROM t GROUP BY year(d) HAVING count(*) >= 1",
    "SELECT sm + 1, id * 2 - sm, -b, id / 4, year(ts) FROM t",
    "SELECT sm + sm AS a, sm * sm AS b, -sm AS c, sm - 1 AS d FROM t WHERE sm BETWEEN 0 AND 2",
    "SELECT id FROM t ORDER BY g DESC, id LIMIT 3",
    "SELECT id FROM t ORDER BY price, id",
    "SELECT CASE WHEN price > 1 THEN price ELSE 0 END AS c, coalesce(price, 1.5) AS e, if(flag, id, b) AS i FROM t",
    "SELECT substring(s, 2, 2) || '!' AS u FROM t",
    "WITH c AS (SELECT id, b FROM t WHERE id > 1) SELECT x.id, y.b FROM c x LEFT JOIN t y ON x.b = y.b AND y.id = 6",
    "SELECT id FROM t WHERE id IN (SELECT sm FROM t) OR EXISTS (SELECT 1 FROM t u WHERE u.id = t.b)",
    "SELECT id FROM t LEFT ANTI JOIN (SELECT id AS k FROM t WHERE flag) ON id = k",
    "SELECT s FROM t UNION SELECT s FROM t WHERE id = 1",
    "SELECT DISTINCT d, flag FROM t",
    "SELECT count(*) FROM t",
    "SELECT id, x.s FROM t x JOIN (SELECT id FROM t WHERE id > 1) y USING (id) WHERE id < 5",
    "SELECT id, x.b, n FROM t x LEFT JOIN (SELECT id, b AS n FROM t WHERE b > 0) y USING (id) WHERE id < 5 OR n < 8",
    "SELECT coalesce(f, 0.1) = 0.1 AS c, if(id > 1, f, 16777217) AS x, CASE WHEN id > 1 THEN f ELSE g END AS y FROM t",
    "SELECT id FROM t WHERE d = '1994-1-31' OR d = '1995' OR ts >= date '2020-01-01' OR date(ts) = '2020-1'",
    "SELECT id FROM t WHERE ts BETWEEN '1994-01-01' AND '2020-01-01T23:59:59+00:00'",
    "SELECT d + interval 1 week AS w, d - interval 2 months AS m, d + 30 AS p, date_sub(d, 3) AS s FROM t",
    "SELECT date_add(ts, 1) AS d, date_add(date '2020-01-01', 3) = d AS c FROM t",
    "SELECT b BETWEEN 9007199254740993 AND 1e300, g BETWEEN 0 AND 2.5, id NOT BETWEEN NULL AND 2.0D FROM t",
    "SELECT sm % 7 AS r, b % 3 AS q, f * 2 AS e, g / 4 AS h, abs(f) AS a, abs(b) AS i, abs(price) AS p FROM t",
    "SELECT greatest(id, b, 2.5) AS g, least(s, 'b') AS l, concat(s, 'x', s) AS c FROM t",
    "SELECT length(s) AS l, instr(s, 'g') AS i, last_day(ts) AS d, datediff(ts, d) AS f, weekofyear(ts) AS w FROM t",
    "SELECT cast(id AS bigint) AS a, cast(f AS double) AS b, cast(sm AS decimal(7,1)) AS c, quarter(ts) AS q FROM t",
    "SELECT 'it''s' AS a, \"it\"\"s\" AS b, 'a\"\"b' AS c, \"a''b\" AS d, '''' AS e FROM t WHERE s <> 'it''s'",
    "SELECT count(*) FROM t x JOIN t y USING (id) JOIN (SELECT b FROM t) z ON z.b = x.b AND id > 1",
    "SELECT avg(price) FROM t",
    "SELECT id % -3 FROM t",
    "SELECT substring(s, 0, 2) FROM t",
    "SELECT substring(s, -2) FROM t",
    "SELECT substring(s, id) FROM t",
    "SELECT substring(b, 1) FROM t",
    "SELECT greatest(f, g) FROM t",
    "SELECT ts + interval 1 day FROM t",
    "SELECT reverse(s) FROM t",
    "SELECT trim(s) FROM t",
    "SELECT sqrt(g) FROM t",
    "SELECT id FROM t WHERE cast(price AS decimal(20,2)) = g",
    "SELECT f + f FROM t",
    "SELECT id FROM t WHERE cast('5' AS int) = id",
    "SELECT upper(s) FROM t",
    "SELECT id FROM t WHERE isnan(g)",
    "SELECT dayofweek(d) FROM t",
    "SELECT cast(price AS int) FROM t",
    "SELECT try_cast(s AS int) FROM t",
    "SELECT price / 3 FROM t",
    "SELECT id FROM t WHERE s LIKE 'a\\\\_%'",
    "SELECT g, count(*) FROM t GROUP BY g",
    "SELECT id FROM t WHERE id = '5'",
    "SELECT id FROM t WHERE price = '0.05'",
    "SELECT id FROM t WHERE s LIKE 'a!_%' ESCAPE '!'",
    "SELECT id FROM t WHERE s ILIKE 'Ä%'",
    "SELECT id FROM t WHERE s RLIKE 'a'",
    "SELECT lower(s) FROM t",
    "SELECT round(price) FROM t",
    "SELECT isnan(NULL) FROM t",
    "SELECT hour(ts) FROM t",
]

NOT_PORTABLE = [
    ("SELECT id FROM t WHERE price IN (SELECT f FROM t)", "comparing a decimal(15,2) with a float"),
    ("SELECT id FROM t WHERE b < 9223372036854775808", "comparing a whole number with 9223372036854775808"),
    ("SELECT (id + 0 >= -9223372036854775809) IS NULL FROM t", "comparing a whole number"),
    ("SELECT id FROM t WHERE sm BETWEEN 0 AND 9223372036854775807.5", "comparing a whole number"),
    ("SELECT rand() FROM t", "rand"),
    ("SELECT sum(id) OVER (PARTITION BY s) FROM t", "sum"),
    ("SELECT id FROM t TABLESAMPLE (10 ROWS)", "tablesample"),
    ("SELECT id FROM t WHERE flag = 1", "comparing a boolean with a int"),
    ("SELECT initcap(s) FROM t", "initcap"),
    ("SELECT weekday(d) FROM t", "weekday"),
    ("SELECT date_format(ts, 'y') FROM t", "date_format"),
    ("SELECT from_utc_timestamp(ts, 'Asia/Tokyo') FROM t", "from_utc_timestamp"),
    ("SELECT id FROM t x RIGHT JOIN (SELECT id FROM t) y USING (id)", "RIGHT JOIN"),
    ("SELECT id FROM t x FULL JOIN (SELECT id FROM t) y USING (id)", "FULL JOIN"),
    ("SELECT x.s FROM t x NATURAL JOIN (SELECT id FROM t) y", "NATURAL JOIN"),
    ("SELECT * FROM t x JOIN (SELECT id FROM t) y USING (id)", "USING"),
    ("SELECT y.* FROM t x JOIN (SELECT id FROM t) y USING (id)", "USING"),
    ("SELECT y.id FROM t x JOIN (SELECT id FROM t) y USING (id)", "USING"),
    ("SELECT id FROM t x JOIN (SELECT b AS id FROM t) y USING (id)", "USING on a bigint and a int"),
    ("SELECT g FROM t x JOIN (SELECT g FROM t) y USING (g)", "USING on a double"),
]

# Both engines fail.
FAILING = [
    "SELECT id FROM t WHERE id / 1e-400 > 1",
    "SELECT to_date(s) FROM t",
    "SELECT coalesce(s, id) FROM t",
    "SELECT id FROM t WHERE s = 5",
    "SELECT id / b FROM t",
    "SELECT id FROM t WHERE s > d",
    "SELECT id FROM t WHERE s > 5",
]

COLLATED = Schema((Column("id", "int"), Column("l", "string collate UTF8_LCASE")))


@pytest.mark.parametrize("sql", ["SELECT id FROM c ORDER BY l", "SELECT id, l AS x FROM c ORDER BY x LIMIT 1"])
def test_an_order_of_collated_texts_is_sent_to_spark(sql: str) -> None:
    with pytest.raises(QueryError, match="ordering by a string collate UTF8_LCASE"):
        portable_sql(sql, {"c": COLLATED}, "v")


def test_a_sign_belongs_to_a_number() -> None:
    sql = "SELECT -2147483648 AS i, -9223372036854775808 AS b, price + -5 AS p FROM t WHERE b >= -9223372036854775807"
    found = [column.type for column in portable_sql(sql, {"t": SCHEMA}, "v").columns]
    assert found == ["int", "bigint", "decimal(16,2)"]


BAD = [
    ("SELECT nope FROM t", "nope"),
    ("SELECT id FROM elsewhere", "elsewhere"),
    ("SELECT 1 +", "SELECT 1 +"),
    ("DELETE FROM t", "DELETE"),
    ("SELECT 1; SELECT 2", "one SELECT"),
]


def answer(sql: str, rows: pa.Table) -> tuple[list[str], list[tuple[Any, ...]]]:
    portable = portable_sql(sql, {"T": SCHEMA}, "rows_of_t")
    view = EngineView("rows_of_t", rows.schema, rows.to_batches)
    query = EngineQuery(portable.sql, portable.columns, (view,), "UTC", False, portable.functions, portable.uses_times)
    found = engine.answer(query)
    return [column.name for column in portable.columns], [
        tuple(row) for row in zip(*(c.to_pylist() for c in found.columns), strict=True)
    ]


def comparable(rows: list[tuple[Any, ...]]) -> list[str]:
    """Rows as sorted texts: NaN equals itself, whole numbers of any type are equal, times are in UTC."""
    return sorted(repr([_plain(value) for value in row]) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    if isinstance(value, Decimal):
        return str(value.normalize()) if value else "0"
    if isinstance(value, int) and not isinstance(value, bool):
        return str(Decimal(value).normalize()) if value else "0"
    return value


@pytest.mark.spark
@pytest.mark.parametrize("sql", one_in(2, PORTABLE))
def test_portable_texts_answer_as_spark_does(sql: str, spark: SparkSession) -> None:
    if not spark.catalog.tableExists("t"):
        spark.createDataFrame(nasty_rows()).createOrReplaceTempView("t")
    expected = spark.sql(sql).toArrow()
    names, rows = answer(sql, nasty_rows())
    theirs = [tuple(row) for row in zip(*(column.to_pylist() for column in expected.columns), strict=True)]
    assert comparable(rows) == comparable(theirs)
    assert [c.type for c in portable_sql(sql, {"t": SCHEMA}, "v").columns] == [
        field.dataType.simpleString() for field in spark.sql(sql).schema.fields
    ]
    assert len(names) == len(expected.schema.names)


@pytest.mark.parametrize("sql", PORTABLE)
def test_portable_texts_run(sql: str) -> None:
    names, _ = answer(sql, nasty_rows())
    assert names


@pytest.mark.spark
@pytest.mark.parametrize("sql", FAILING)
def test_texts_that_fail_in_spark_fail(sql: str, spark: SparkSession) -> None:
    if not spark.catalog.tableExists("t"):
        spark.createDataFrame(nasty_rows()).createOrReplaceTempView("t")
    with pytest.raises(PySparkException):
        spark.sql(sql).toArrow()
    with pytest.raises(QueryError):
        answer(sql, nasty_rows())


@pytest.mark.parametrize(("sql", "named"), NOT_PORTABLE)
def test_doubtful_texts_are_sent_to_spark(sql: str, named: str) -> None:
    with pytest.raises(QueryError, match="--engine spark") as raised:
        portable_sql(sql, {"t": SCHEMA}, "v")
    assert named.lower() in str(raised.value).lower()


NAMED = Schema((Column("id", "int"), Column("c", "int"), Column("b", "struct<c:int,b:int>")))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT b.* FROM t",
        "SELECT b.c FROM t x JOIN (SELECT c FROM t) b USING (c)",
        "SELECT 1 FROM (SELECT c FROM t) b WHERE EXISTS (SELECT 1 FROM t x WHERE b.c = 1)",
        "SELECT 1 FROM t x JOIN (SELECT id FROM t) y ON b.c = 1 JOIN (SELECT c FROM t) b ON true",
    ],
)
def test_names_that_may_mean_a_field_are_sent_to_spark(sql: str) -> None:
    with pytest.raises(QueryError, match="--engine spark"):
        portable_sql(sql, {"t": NAMED}, "v")


FIELDS = [
    "SELECT b.b.c FROM t b WHERE b.b.c = 7", "SELECT b.c FROM t", "SELECT t.b.c FROM t", "SELECT (b).c FROM t",
    "SELECT x.b.c FROM t x JOIN (SELECT c FROM t) b ON x.id = b.c", "SELECT b.c AS b FROM t WHERE b.c > 3",
    "SELECT b.C, B.c FROM t", "SELECT b.b FROM t GROUP BY b.b",
    "SELECT 1 FROM t x WHERE EXISTS (SELECT 1 FROM t b WHERE x.b.c = b.c)",
]  # fmt: skip


@pytest.mark.spark
@pytest.mark.parametrize("sql", FIELDS)
def test_names_mean_the_fields_that_they_mean_to_spark(sql: str, spark: SparkSession) -> None:
    structs = [{"c": 3, "b": 4}, {"c": 7, "b": None}, None]
    kind = pa.struct([("c", pa.int32()), ("b", pa.int32())])
    numbers = pa.array([1, 7, 2], pa.int32())
    rows = pa.table({"id": numbers, "c": numbers.take(pa.array([1, 0, 2])), "b": pa.array(structs, kind)})
    session, connection = spark.newSession(), duckdb.connect()
    session.createDataFrame(rows).createOrReplaceTempView("t")
    connection.register("v", rows)
    ours = connection.sql(portable_sql(sql, {"t": NAMED}, "v").sql).fetchall()
    assert comparable(ours) == comparable([tuple(row) for row in session.sql(sql).collect()])


def test_fields_whose_names_are_not_plain_are_answered_at_any_depth() -> None:
    schema = Schema((Column("x", "struct<A b:int,p:struct<q.r:array<int>>>"),))
    for condition, field in (("x.`a B` = 1", "'A b'"), ("x.p.`Q.r`[0] = 1", "'q.r'"), ("size(x.p.`q.r`) = 1", "'q.r'")):
        sql = portable_sql(f"SELECT 1 AS one FROM t WHERE {condition}", {"t": schema}, "v").sql
        assert field in sql
        assert "_layoutopt_name_" not in sql


def test_names_that_mean_no_field_are_answered() -> None:
    for sql in ("SELECT b.c FROM t b", "SELECT b.b AS c FROM (SELECT c AS b FROM t) b"):
        assert [column.type for column in portable_sql(sql, {"t": NAMED}, "v").columns] == ["int"]


@pytest.mark.parametrize(("sql", "named"), BAD)
def test_bad_texts_are_named(sql: str, named: str) -> None:
    with pytest.raises(QueryError) as raised:
        portable_sql(sql, {"t": SCHEMA}, "v")
    assert named in str(raised.value)


def test_each_mention_of_a_table_can_read_its_own_view() -> None:
    sql = (
        "WITH c AS (SELECT id FROM t WHERE id = 1) "
        "SELECT a.id FROM c a JOIN t b ON a.id = b.id WHERE b.id IN (SELECT id FROM t)"
    )
    places = [place.start() for place in re.finditer(r"\bt\b", sql)]
    text = portable_sql(sql, {"t": SCHEMA}, {place: f"v{i}" for i, place in enumerate(places)}).sql
    assert text.index('"v0"') < text.index('"v1"') < text.index('"v2"')


def test_a_cte_hides_a_table_of_its_name() -> None:
    text = portable_sql("WITH t AS (SELECT 1 AS id) SELECT id FROM t", {"t": SCHEMA}, {}).sql
    assert "v0" not in text


def test_names_are_those_of_spark() -> None:
    sql = "SELECT count(*), sum(id), S, id AS x FROM t GROUP BY s, id"
    assert [c.name for c in portable_sql(sql, {"t": SCHEMA}, "v").columns] == ["count(1)", "sum(id)", "S", "x"]


# Clocks there are set back at 2020-11-01 02:00, and forward at 2020-03-08 02:00.
SHIFTING = "America/New_York"
IN_ZONE = [
    "SELECT count(*) FROM z WHERE ts >= '2020-11-01 00:30:00' AND ts < timestamp '2020-11-01 02:00:00'",
    "SELECT ts FROM z WHERE ts <= '2020-03-08 03:00:00'",
    "SELECT year(ts) AS y, month(ts) AS m, day(ts) AS d, count(*) FROM z GROUP BY year(ts), month(ts), day(ts)",
    "SELECT ts FROM z WHERE ts < '2000-01-01 00:00:00' OR ts = '2011-12-30 12:00:00'",
    "SELECT ts FROM z WHERE ts < '2020-11-01 01:30:00' OR ts > date '2020-11-02'",
    "SELECT ts FROM z WHERE ts >= timestamp '2020-11-01 01:00:00'",
    "SELECT ts FROM z WHERE ts >= '2020-03-08 02:30:00'",
    "SELECT ts FROM z WHERE to_date(ts) = '2020-11-01'",
]
MOMENTS = [
    *(
        dt.datetime.fromisoformat(f"{text}+00:00")
        for text in ["1899-12-31 05:00", "1900-01-01 05:00", "2011-12-30 17:00", "2020-03-08 06:59", "2020-03-08 07:30"]
    ),
    *(dt.datetime(2020, 11, 1, tzinfo=UTC) + dt.timedelta(minutes=30 * n) for n in range(24)),
]


def in_zone(sql: str) -> str:
    return portable_sql(sql, {"z": Schema((Column("ts", "timestamp"),))}, "z", SHIFTING).sql


@pytest.mark.spark
def test_times_of_a_zone_are_those_of_spark(spark: SparkSession) -> None:
    rows = pa.table({"ts": pa.array(MOMENTS, pa.timestamp("us", tz="UTC"))})
    session, connection = spark.newSession(), duckdb.connect()
    session.conf.set("spark.sql.session.timeZone", SHIFTING)
    session.createDataFrame(rows).createOrReplaceTempView("z")
    connection.execute(f"SET TimeZone = '{SHIFTING}'")
    connection.register("z", rows)
    for sql in IN_ZONE:
        ours, theirs = connection.sql(in_zone(sql)).to_arrow_table(), session.sql(sql).toArrow()
        rows_of = [[tuple(row.values()) for row in found.to_pylist()] for found in (ours, theirs)]
        assert comparable(rows_of[0]) == comparable(rows_of[1]), sql


def test_a_time_of_long_ago_is_sent_to_spark() -> None:
    sql = "SELECT ts FROM z WHERE ts >= '1999-12-31 00:00:00'"
    with pytest.raises(QueryError, match="--engine spark"):
        in_zone(sql)
    assert portable_sql(sql, {"z": Schema((Column("ts", "timestamp"),))}, "z", "UTC")


def test_stars_spell_columns_as_the_table_does_and_aliases_as_the_text_does() -> None:
    schema = Schema((Column("Year", "int"), Column("Größe", "int"), Column("a.B", "int")))

    def names(sql: str) -> list[str]:
        return [column.name for column in portable_sql(sql, {"t": schema}, "v").columns]

    assert names("SELECT * FROM t WHERE YEAR = 1 AND `A.b` = 2") == ["Year", "Größe", "a.B"]
    assert names("SELECT `größe`, `A.B`, year AS `YEAR x` FROM t") == ["größe", "A.B", "YEAR x"]
    assert names("SELECT * FROM (SELECT year AS yEAR, `größe` AS `x Y` FROM t)") == ["yEAR", "x Y"]


@given(st.booleans(), st.decimals(0, 10**14, allow_nan=False, places=22))
def test_a_decimal_beside_a_double_is_rounded_once(negative: bool, value: Decimal) -> None:
    written = f"{'-' if negative else ''}{value:f}"
    text = portable_sql(f"SELECT g = {written} AS e FROM t", {"t": SCHEMA}, "v").sql
    with duckdb.connect() as connection:
        connection.execute(f"CREATE VIEW v AS SELECT {float(written)!r}::DOUBLE AS g")
        assert connection.execute(text).fetchall() == [(True,)]
