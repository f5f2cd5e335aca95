"""Keys of a join's small side choose the blocks of the other side while the query runs; answers are those without."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.model.layout import ByVectors, Layout
from layoutopt.model.schema import Column, Schema
from layoutopt.spark import disable, enable, last_scans, register
from layoutopt.spark.core.versions import is_spark_3, spark_version
from layoutopt.spark.session import enabling, readers
from tests.scan.builder import build, building, by_position
from tests.scan.deleting import delete_ids
from tests.spark.session.answers import answer
from tests.spark.settings import compared_here, under

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("by_tasks")]

ROWS, BLOCK = 1_200, 30
COLUMNS = Schema(
    (
        Column("id", "int"),
        Column("k", "bigint"),
        Column("i", "int"),
        Column("s", "string"),
        Column("d", "date"),
        Column("m", "decimal(10,2)"),
        Column("x", "double"),
        Column("v", "bigint"),
    )
)
_PARTS = (("id", "k", "i"), ("s", "d", "m"), ("x", "v"))
GROUPS = [Layout(part, (0,) if "k" in part else (), part, ByVectors()) for part in _PARTS]
DAY = dt.date(2020, 1, 1)


def fact() -> pa.Table:
    """Rows whose keys ascend with their position, so that a block has few; every 17th key is NULL, some are orphans."""
    keys = [n // 20 for n in range(ROWS)]
    kept = [None if n % 17 == 0 else key for n, key in enumerate(keys)]
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int32()),
            "k": pa.array(kept, pa.int64()),
            "i": pa.array(kept, pa.int32()),
            "s": pa.array([None if key is None else f"key {key:03d}" for key in kept], pa.string()),
            "d": pa.array([None if key is None else DAY + dt.timedelta(key) for key in kept], pa.date32()),
            "m": pa.array([None if key is None else Decimal(key) for key in kept], pa.decimal128(10, 2)),
            "x": pa.array([None if key is None else -0.0 if key == 0 else float(key) for key in kept], pa.float64()),
            "v": pa.array([n % 7 for n in range(ROWS)], pa.int64()),
        }
    )


def dimension() -> pa.Table:
    """Rows by key, some of them twice, one without a key; some keys of the fact have none."""
    keys = [key for key in range(50) if key % 9 != 4] + [7, 7, 100]
    rows = [None, *keys]
    return pa.table(
        {
            "dk": pa.array(rows, pa.int64()),
            "di": pa.array(rows, pa.int32()),
            "ds": pa.array([None if key is None else f"key {key:03d}" for key in rows], pa.string()),
            "dd": pa.array([None if key is None else DAY + dt.timedelta(key) for key in rows], pa.date32()),
            "dm": pa.array([None if key is None else Decimal(key) for key in rows], pa.decimal128(10, 2)),
            "dx": pa.array([None if key is None else float(key) for key in rows], pa.float64()),
            "name": pa.array(["x" if key in (None, 0, 7) else "y" for key in rows], pa.string()),
            "region": pa.array([n % 5 for n in range(len(rows))], pa.int64()),
        }
    )


@pytest.fixture(scope="module")
def session(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The fact as f (one layout), g (several) and h (with deleted rows), its rows in p and q, and dimensions."""
    root = tmp_path_factory.mktemp("star")
    rows = fact()
    blocking = by_position(BLOCK)
    build(root / "f", rows, building(COLUMNS, ["k < 3"], blocking=blocking))
    build(root / "g", rows, building(COLUMNS, ["k < 3"], blocking=blocking, layouts=GROUPS))
    build(root / "h", rows, building(COLUMNS, ["k < 3"], blocking=blocking))
    delete_ids(str(root / "h"), range(0, ROWS, 90))
    regions = pa.table({"r": pa.array(range(5), pa.int64()), "continent": ["n", "s", "s", "s", "s"]})
    for name, table in (
        ("p", rows),
        ("d", dimension()),
        ("regions", regions),
        ("none", dimension().slice(0, 0)),
    ):
        (root / name).mkdir()
        pq.write_table(table, root / name / "0.parquet")
    session = spark.newSession()
    enable(session)
    for name in "fgh":
        register(session, name, str(root / name))
    for name in ("p", "d", "regions", "none"):
        session.read.parquet(str(root / name)).createOrReplaceTempView(name)
    session.sql("SELECT * FROM p WHERE id % 90 <> 0").createOrReplaceTempView("q")
    with compared_here(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "measure_read", lambda read: 1 << 40)  # the fact is not the side that is broadcast
        yield session
    disable(session)


def ask(session: SparkSession, sql: str, fact: str = "f") -> list[str]:
    """The answer, which must be that of the plain rows; {x} selects two keys of the dimension."""
    sql = sql.replace("{x}", "WHERE name = 'x'")
    plain = "q" if fact == "h" else "p"
    expected = answer(session.sql(sql.replace("{f}", plain)))
    assert answer(session.sql(sql.replace("{f}", fact))) == expected
    return expected


def blocks(session: SparkSession) -> list[int]:
    """How many blocks each scan of the last query has read."""
    return [scan.read.blocks for scan in last_scans(session)]


ALL = ROWS // BLOCK
# The keys 0 and 7, each of 20 rows: at most two blocks each.
FEW = 4

NARROWED = {
    "inner": "SELECT sum(v), count(*) FROM {f} JOIN d ON k = dk {x}",
    "turned": "SELECT sum(v), count(*) FROM d JOIN {f} ON k = dk {x}",
    "text key": "SELECT sum(v), count(*) FROM {f} JOIN d ON s = ds {x}",
    "date key": "SELECT sum(v), count(*) FROM {f} JOIN d ON d.dd = {f}.d {x}",
    "decimal key": "SELECT sum(v), count(*) FROM {f} JOIN d ON m = dm {x}",
    "two int keys in a long": "SELECT sum(v), count(*) FROM {f} JOIN d ON i = di AND CAST(k AS int) = di {x}",
    "keys of two types": "SELECT sum(v), count(*) FROM {f} JOIN d ON i = di AND s = ds {x}",
    "int and bigint": "SELECT sum(v), count(*) FROM {f} JOIN d ON i = dk {x}",
    "semi": "SELECT sum(v), count(*) FROM {f} WHERE k IN (SELECT dk FROM d {x})",
    "exists": "SELECT sum(v) FROM {f} WHERE EXISTS (SELECT 1 FROM d WHERE dk = k AND name = 'x')",
    "group by": "SELECT name, v, count(*) FROM {f} JOIN d ON k = dk {x} GROUP BY name, v ORDER BY v LIMIT 3",
    "filtered too": "SELECT sum(v) FROM {f} JOIN d ON k = dk {x} AND v < 4",
    "projected": "SELECT sum(v) FROM (SELECT k AS a, v FROM {f} WHERE v > 1) JOIN d ON a = dk {x}",
    "null safe beside": "SELECT count(*) FROM {f} JOIN d ON k = dk AND s <=> ds {x}",
    "snowflake": "SELECT count(*) FROM {f} JOIN (d JOIN regions ON region = r) ON k = dk {x} AND continent = 'n'",
}


@pytest.mark.parametrize("name", NARROWED)
def test_keys_of_a_broadcast_choose_blocks(name: str, session: SparkSession) -> None:
    ask(session, NARROWED[name])
    (read,) = blocks(session)
    assert read <= FEW, last_scans(session)
    assert "from d: " in last_scans(session)[0].keys


def test_a_plan_says_that_keys_may_skip_more(session: SparkSession) -> None:
    frame = session.sql("SELECT sum(v) FROM f JOIN d ON k = dk WHERE name = 'x'")
    frame.explain()
    (scan,) = last_scans(session)
    assert (scan.read.blocks, scan.keys) == (ALL, "keys of a join may skip more by k while the query runs")
    frame.collect()
    (scan,) = last_scans(session)
    assert scan.read.blocks <= FEW
    assert scan.keys == "from d: 2 keys"


UNTOUCHED = {
    "outer": "SELECT id, name FROM d LEFT JOIN {f} ON k = dk {x}",  # no side can be broadcast but the fact
    "left outer": "SELECT count(*), count(name) FROM {f} LEFT JOIN d ON k = dk AND name = 'x'",
    "full outer": "SELECT count(*), count(name) FROM {f} FULL JOIN (SELECT * FROM d {x}) ON k = dk",
    "not in": "SELECT count(*) FROM {f} WHERE k NOT IN (SELECT dk FROM d {x} AND dk IS NOT NULL)",
    "not in with NULL": "SELECT count(*) FROM {f} WHERE k NOT IN (SELECT dk FROM d {x})",
    "not exists": "SELECT count(*) FROM {f} WHERE NOT EXISTS (SELECT 1 FROM d WHERE dk = k AND name = 'x')",
    "null safe": "SELECT count(*), sum(v) FROM {f} JOIN d ON k <=> dk {x}",
    "no equality": "SELECT count(*) FROM {f} JOIN d ON k < dk {x}",
    "float key": "SELECT count(*), sum(v) FROM {f} JOIN d ON x = dx {x}",
    "struct key": (
        "SELECT count(*) FROM {f} JOIN d ON named_struct('a', k, 'b', s) = named_struct('a', dk, 'b', ds) {x}"
    ),
    "computed text": "SELECT count(*) FROM {f} JOIN d ON s || 'a' = ds || 'a' {x}",
    # The fact is shuffled first, which begins beside the broadcast.
    "grouped below": "SELECT sum(n) FROM (SELECT k, count(*) AS n FROM {f} GROUP BY k) JOIN d ON k = dk {x}",
    "window below": "SELECT sum(l) FROM (SELECT k, lag(v) OVER (ORDER BY id) AS l FROM {f}) JOIN d ON k = dk {x}",
    "limit below": "SELECT count(*) FROM (SELECT k FROM {f} ORDER BY id LIMIT 1000) JOIN d ON k = dk {x}",
    "sum as key": "SELECT count(*) FROM (SELECT sum(v) AS n FROM {f} GROUP BY k) JOIN d ON n = dk {x}",
    "null-producing side": (
        "SELECT count(*) FROM (SELECT dk AS a FROM d WHERE dk < 60) LEFT JOIN {f} ON a = k"
        " JOIN (SELECT dk AS b FROM d {x}) ON coalesce(k, 0) = b"
    ),
    "many keys": "SELECT count(*), sum(v) FROM {f} JOIN d ON k = dk WHERE region >= 0",
}


@pytest.mark.parametrize("name", UNTOUCHED)
def test_no_block_is_left_out_otherwise(name: str, session: SparkSession) -> None:
    ask(session, UNTOUCHED[name])
    assert max(blocks(session)) >= ALL - 8  # the fact has keys beyond all of the dimension's


@pytest.mark.parametrize("fact", ["g", "h"])
@pytest.mark.parametrize("name", ["inner", "text key", "semi", "projected"])
def test_keys_reach_several_layouts_and_blocks_with_deleted_rows(fact: str, name: str, session: SparkSession) -> None:
    ask(session, NARROWED[name], fact)
    assert blocks(session)[0] <= ALL + FEW - (fact == "h") * ALL  # of a layout without the key, all blocks


def test_a_key_of_another_time_zone_is_none(session: SparkSession) -> None:
    for zone in ("UTC", "America/Los_Angeles"):
        with under(session, {"spark.sql.session.timeZone": zone}):
            ask(session, "SELECT count(*) FROM {f} JOIN d ON hour(CAST({f}.d AS timestamp)) = di {x}")
            ask(session, "SELECT count(*) FROM {f} JOIN d ON CAST({f}.d AS timestamp) = CAST(dd AS timestamp) {x}")


@pytest.mark.parametrize("fact", ["f", "g"])
def test_each_step_of_a_recursion_has_keys_of_its_own(fact: str, session: SparkSession) -> None:
    if is_spark_3() or spark_version() < (4, 1):
        pytest.skip("this Spark has no recursion")
    steps = "SELECT {f}.id, {f}.k FROM {f} JOIN t ON {f}.id = t.id + 100"
    text = f"WITH RECURSIVE t AS (SELECT id, k FROM {{f}} WHERE id = 1 UNION ALL {steps}) SELECT count(*) FROM t"
    assert ask(session, text, fact) == ['{"count(1)": 12}']


def test_a_random_part_used_twice_is_the_same(session: SparkSession) -> None:
    random_rows = "WITH c AS (SELECT id, rand() AS r FROM {f} JOIN d ON k = dk {x})"
    ask(session, f"{random_rows} SELECT count(*) FROM c a JOIN c b ON a.id = b.id AND a.r = b.r")


def test_two_dimensions_add_up(session: SparkSession) -> None:
    ask(session, "SELECT count(*) FROM {f} JOIN d ON k = dk JOIN regions ON v = r WHERE name = 'x' AND continent = 'n'")
    ask(
        session,
        "SELECT count(*) FROM {f} JOIN (SELECT * FROM d WHERE dk < 9) a ON k = a.dk"
        " JOIN (SELECT * FROM d WHERE name = 'x') b ON s = b.ds",
    )
    assert blocks(session)[0] <= 4


def test_each_mention_has_keys_of_its_own(session: SparkSession) -> None:
    one, other = ("SELECT v, sum(k) AS s FROM {f} JOIN d ON k = dk WHERE " + part for part in ("dk = 7", "dk < 2"))
    ask(session, f"SELECT a.s, b.s FROM ({one} GROUP BY v) a JOIN ({other} GROUP BY v) b ON a.v = b.v")
    assert all(read <= 4 for read in blocks(session))
    ask(session, "SELECT count(*) FROM {f} JOIN d ON k = dk WHERE name = 'x' UNION ALL SELECT count(*) FROM {f}")
    assert sorted(blocks(session))[-1] == ALL
    assert sorted(blocks(session))[0] <= FEW
    twice = "SELECT sum(v) AS n FROM {f} JOIN d ON k = dk WHERE name = 'x'"
    ask(session, f"WITH c AS ({twice}) SELECT a.n + b.n FROM c a CROSS JOIN c b")
    assert all(read <= FEW for read in blocks(session))
    ask(session, "SELECT count(*) FROM {f} a JOIN {f} b ON a.k = b.k WHERE a.id = 140")


def test_a_dataframe_may_run_again(session: SparkSession) -> None:
    frame = session.sql("SELECT sum(v) FROM f JOIN d ON k = dk WHERE name = 'x'")
    first = frame.collect()
    assert frame.collect() == first
    assert frame.count() == 1
    frame.cache()
    assert frame.collect() == first
    frame.unpersist()


def test_an_empty_dimension_leaves_nothing(session: SparkSession) -> None:
    for excluded in ("", "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"):
        with under(session, {"spark.sql.adaptive.optimizer.excludedRules": excluded}):
            ask(session, "SELECT count(*), sum(v) FROM {f} JOIN none ON k = dk WHERE name = 'x'")
            ask(session, "SELECT count(*), sum(v) FROM {f} JOIN d ON k = dk WHERE name = 'z'")


def test_a_random_side_chooses_as_it_ran(session: SparkSession) -> None:
    side = "SELECT dk FROM d WHERE rand() < 0.5"
    rows = session.sql(f"SELECT k, dk FROM f JOIN ({side}) ON k = dk").collect()
    assert all(row.k == row.dk for row in rows)
    counts = session.sql(
        f"SELECT dk, count(*) AS n FROM f JOIN (SELECT DISTINCT dk FROM ({side})) ON k = dk GROUP BY dk"
    )
    held = {row.k: row.n for row in session.sql("SELECT k, count(*) AS n FROM p GROUP BY k").collect()}
    assert all(row.n == held[row.dk] for row in counts.collect())


def test_a_failure_leaves_the_plan(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Any:
        raise RuntimeError("no keys today")

    monkeypatch.setattr(enabling, "_narrow_part", fail)
    ask(session, NARROWED["inner"])
    assert blocks(session) == [ALL]


SETTINGS = [
    {"spark.sql.adaptive.enabled": adaptive, "spark.sql.autoBroadcastJoinThreshold": limit}
    for adaptive in ("true", "false")
    for limit in ("10MB", "-1")
]


def draw_query(drawn: random.Random) -> str:
    """A random query over the fact and one or two dimensions."""
    keys = {"k": "dk", "i": "di", "s": "ds", "{f}.d": "dd", "m": "dm", "x": "dx"}
    key = drawn.choice(list(keys))
    equal = drawn.choice(["=", "=", "=", "<=>"])
    on = f"{key} {equal} {keys[key]}" + drawn.choice(
        ["", "", f" AND {drawn.choice(['i', 'k'])} = {drawn.choice(['di', 'dk'])}"]
    )
    side = drawn.choice(
        ["name = 'x'", "dk < 5", "dk IS NULL OR dk = 30", "region = 2", "name = 'z'", "dk > 90", "TRUE"]
    )
    where = drawn.choice(["", "", "v < 3", "id BETWEEN 300 AND 700", "k IS NULL", "v = 1 OR k > 40"])
    form = drawn.choice(["INNER", "INNER", "LEFT", "RIGHT", "FULL", "SEMI", "ANTI", "in", "not in", "grouped"])
    own = f" WHERE {where}" if where else ""
    dim = f"(SELECT * FROM d WHERE {side})"
    if form in ("in", "not in"):
        plain = key.replace("{f}.", "")
        return (
            f"SELECT count(*), sum(v) FROM {{f}} WHERE {plain} {form.upper()} (SELECT {keys[key]} FROM d WHERE {side})"
            + (f" AND ({where})" if where else "")
        )
    if form == "grouped":
        grouped = f"(SELECT k, i, count(*) AS n FROM {{f}}{own} GROUP BY k, i)"
        return f"SELECT count(*), sum(n) FROM {grouped} JOIN {dim} ON k = dk"
    mine = f"(SELECT * FROM {{f}}{own})"
    on = on.replace("{f}.", "a.")
    if form in ("SEMI", "ANTI"):
        return f"SELECT count(*), sum(v) FROM {mine} a LEFT {form} JOIN {dim} ON {on}"
    joined = f"{mine} a {form} JOIN {dim} ON {on}" if drawn.random() < 0.6 else f"{dim} {form} JOIN {mine} a ON {on}"
    if drawn.random() < 0.3:
        joined += f" {drawn.choice(['JOIN', 'LEFT JOIN'])} (SELECT * FROM regions WHERE continent = 'n') ON region = r"
    return f"SELECT count(*), count(name), sum(v), sum(dk), count(id) FROM {joined}"


@pytest.mark.parametrize("settings", SETTINGS)
def test_random_stars_are_answered_as_by_plain_tables(settings: dict[str, str], session: SparkSession) -> None:
    drawn = random.Random(str(settings))
    with under(session, settings):
        for _ in range(12):
            ask(session, draw_query(drawn), drawn.choice("ffgh"))
