"""Columns, fields of structs, aliases and keys that share names: what Spark takes a name for is what is skipped by."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

from layoutopt.model.layout import ByVectors, Layout
from layoutopt.spark import disable, enable, register
from tests.effort import one_in
from tests.scan.builder import build, building, by_position
from tests.spark.named import SCHEMAS, Texts, named_rows
from tests.spark.session.answers import planned
from tests.spark.settings import UNCOMPILED, compared_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

_QUICK = {
    **UNCOMPILED,
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
BATCH = 20


@pytest.fixture(scope="module")
def source(spark: SparkSession) -> SparkSession:
    """A session in which the tables lie in no file."""
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # a page for each text that Spark refuses
    return _session(spark, "tuv")


@pytest.fixture(scope="module")
def enabled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session in which t and u are laid out in blocks of six rows, u in column groups: of those only what is read."""
    session, root = _session(spark, "v"), tmp_path_factory.mktemp("named")
    groups = [Layout(names, (), names, ByVectors()) for names in (("c", "b"), ("k", "a", "id"))]
    for name, layouts in (("t", None), ("u", groups)):
        build(root / name, named_rows(name), building(SCHEMAS[name], blocking=by_position(6), layouts=layouts))
        register(session, name, str(root / name))
    enable(session)
    with compared_here():
        yield session
    disable(session)


def _session(spark: SparkSession, views: str) -> SparkSession:
    session = spark.newSession()
    for key, value in _QUICK.items():
        session.conf.set(key, value)
    for name in views:
        session.createDataFrame(named_rows(name)).coalesce(1).createOrReplaceTempView(name)
    return session


@pytest.fixture(scope="module")
def expected(source: SparkSession) -> dict[str, Answer]:
    """What the source says of the texts that are written down here, in one query."""
    texts = [*CASES.values(), *SKIPPING.values()]
    return dict(zip(texts, answers(source, texts), strict=True))


Answer = tuple[int, object]
"""How many rows, and the sum of their hashes."""


def answers(session: SparkSession, texts: Sequence[str]) -> list[Answer]:
    """The answers to several texts, in one query: each is few rows, and most of the time goes into starting."""
    summed = "count(*) AS n, sum(cast(xxhash64(*) AS decimal(38, 0))) AS h"
    arms = [f"SELECT {place} AS q, {summed} FROM ({text}) AS z" for place, text in enumerate(texts)]
    found = sorted((row.q, row.n, row.h) for row in session.sql(" UNION ALL ".join(arms)).collect())
    return [(n, h) for _, n, h in found]


def skips(session: SparkSession, text: str) -> bool:
    return any(scan.skipped.blocks for scan in planned(session.sql(text)))


def runs(session: SparkSession, text: str) -> bool:
    """Whether Spark takes a text."""
    from pyspark.errors import PySparkException

    try:
        session.sql(text)
    except PySparkException:
        return False
    return True


def taken(session: SparkSession, texts: Texts, count: int) -> list[str]:
    """So many texts that Spark takes."""
    found: list[str] = []
    while len(found) < count:
        text = texts.text()
        if runs(session, text):
            found.append(text)
    return found


def differing(source: SparkSession, enabled: SparkSession, texts: Sequence[str]) -> list[str]:
    """The texts that the enabled session answers otherwise."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        if answers(source, texts) == answers(enabled, texts):
            return []
    except (PySparkException, Py4JJavaError):  # Spark's own: it loses a common table now and then
        pass
    wrong = []
    for text in texts:
        try:
            expected = answers(source, [text])
        except (PySparkException, Py4JJavaError):
            continue
        if answers(enabled, [text]) != expected:
            wrong.append(text)
    return wrong


def check(source: SparkSession, enabled: SparkSession, seed: int, count: int) -> float:
    """Compare so many texts; the share of them that skip."""
    texts = taken(source, Texts(random.Random(seed)), count)
    wrong = [text for at in range(0, count, BATCH) for text in differing(source, enabled, texts[at : at + BATCH])]
    assert not wrong, min(wrong, key=len)
    return sum(skips(enabled, text) for text in texts) / count


FIELD = "b.b.c = 5"  # of t AS b: the field c of its column b
CASES = {
    "field": f"SELECT b.b.c FROM t b WHERE {FIELD}",
    "field of a join": f"SELECT b.id FROM t b JOIN u x ON b.id = x.id WHERE {FIELD}",
    "field in ON": f"SELECT x.id FROM u x LEFT JOIN t b ON b.id = x.id AND {FIELD}",
    "field in EXISTS": f"SELECT x.id FROM u x WHERE EXISTS (SELECT 1 FROM t b WHERE b.id = x.id AND {FIELD})",
    "field below": f"SELECT q.id FROM (SELECT * FROM t b WHERE {FIELD}) q",
    "field above": f"SELECT b.id FROM (SELECT * FROM t) b WHERE {FIELD}",
    "field of a common table": f"WITH b AS (SELECT * FROM t) SELECT b.id FROM b WHERE {FIELD}",
    "field called as its column": "SELECT id FROM t WHERE b.b IS NULL",
    "field of an inner table": "SELECT b.c FROM u b WHERE EXISTS (SELECT 1 FROM t WHERE b.c = 5)",
    "field beside a hidden key": "SELECT 1 FROM t x JOIN (SELECT c, id AS z FROM t) b USING (c) WHERE b.c = 5",
    **{
        f"{kind} JOIN of types": f"SELECT * FROM VALUES ('2020-1-1'), ('2020-01-11') v(k) {kind} JOIN t USING (k) "
        "WHERE k > '2020-02'"
        for kind in ("", "LEFT", "RIGHT", "FULL")
    },
    **{
        f"NATURAL {kind} JOIN of types": "SELECT * FROM VALUES ('2020-1-1'), ('2020-01-11') v(k) "
        f"NATURAL {kind} JOIN t WHERE k > '2020-02'"
        for kind in ("", "LEFT", "RIGHT", "FULL")
    },
    "several keys": "SELECT * FROM v x FULL JOIN t y USING (k) LEFT JOIN u z USING (k) WHERE k > '2020-02'",
    "RIGHT JOIN of types, swapped": "SELECT * FROM t RIGHT JOIN VALUES ('2020-1-1') v(k) USING (k) WHERE k > '2020-02'",
    "star of a hidden key": "SELECT * FROM (SELECT y.* FROM t x JOIN u y USING (id)) q(p, q, r, s, z) WHERE p = 20",
    "a name given twice": "SELECT q FROM (SELECT b AS c, * FROM u) q(p, q, r, s, t, v) WHERE q > 2",
    "order by all": "SELECT id FROM (SELECT * FROM u ORDER BY ALL LIMIT 2) q",
    "group by all": "SELECT c FROM (SELECT * FROM u WHERE c < 3 GROUP BY ALL) q",
}
SKIPPING = {
    "a column of that table": "SELECT b.id FROM t b WHERE b.c = 5",
    "a column beside a field": f"SELECT b.id FROM t b WHERE {FIELD} AND b.c >= 2",
    "a key of the left": "SELECT * FROM t JOIN v USING (k) WHERE k > '2020-02'",
    "a key of the right": "SELECT * FROM v RIGHT JOIN t USING (k) WHERE k > '2020-02'",
    "a qualified key": "SELECT * FROM VALUES ('2020-1-1') v(k) JOIN t USING (k) WHERE t.k < '2020-02'",
    "sides by place": "SELECT k FROM (SELECT * FROM t WHERE a = 1 UNION ALL SELECT * FROM t WHERE id > 40) q",
}


@pytest.mark.parametrize("sql", one_in(2, CASES))
def test_names_mean_what_spark_takes_them_for(sql: str, expected: dict[str, Answer], enabled: SparkSession) -> None:
    rows, _ = expected[sql]
    assert rows > 0
    assert answers(enabled, [sql]) == [expected[sql]]


@pytest.mark.parametrize("sql", SKIPPING.values(), ids=SKIPPING)
def test_names_that_are_sure_skip(sql: str, expected: dict[str, Answer], enabled: SparkSession) -> None:
    assert answers(enabled, [sql]) == [expected[sql]]
    assert skips(enabled, sql)


@pytest.mark.long
def test_generated_names(source: SparkSession, enabled: SparkSession) -> None:
    assert check(source, enabled, seed=3, count=BATCH) > 0.3


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 20))
def test_many_generated_names(source: SparkSession, enabled: SparkSession, seed: int) -> None:
    assert check(source, enabled, seed, count=400) > 0.3
