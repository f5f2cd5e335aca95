"""Columns, fields of structs, aliases and keys that share names: what Spark takes a name for is what is skipped by."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

from layoutopt.spark import disable, enable, last_scans, register
from tests.scan.builder import build, building, by_position
from tests.spark.named import SCHEMAS, Texts, named_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

_QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
BATCH = 20


@pytest.fixture(scope="module")
def source(spark: SparkSession) -> SparkSession:
    """A session in which the tables lie in no file."""
    return _session(spark, "tuv")


@pytest.fixture(scope="module")
def enabled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session in which t and u are laid out in blocks of six rows."""
    session, root = _session(spark, "v"), tmp_path_factory.mktemp("named")
    for name in "tu":
        build(root / name, named_rows(name), building(SCHEMAS[name], blocking=by_position(6)))
        register(session, name, str(root / name))
    enable(session)
    yield session
    disable(session)


def _session(spark: SparkSession, views: str) -> SparkSession:
    session = spark.newSession()
    for key, value in _QUICK.items():
        session.conf.set(key, value)
    for name in views:
        session.createDataFrame(named_rows(name)).coalesce(1).createOrReplaceTempView(name)
    return session


Answer = tuple[int, object]
"""How many rows, and the sum of their hashes."""


def answers(session: SparkSession, texts: Sequence[str]) -> list[Answer]:
    """The answers to several texts, in one query: each is few rows, and most of the time goes into starting."""
    summed = "count(*) AS n, sum(cast(xxhash64(*) AS decimal(38, 0))) AS h"
    arms = [f"SELECT {place} AS q, {summed} FROM ({text}) AS z" for place, text in enumerate(texts)]
    found = sorted((row.q, row.n, row.h) for row in session.sql(" UNION ALL ".join(arms)).collect())
    return [(n, h) for _, n, h in found]


def skips(session: SparkSession, text: str) -> bool:
    session.sql(text)
    return any(scan.skipped.blocks for scan in last_scans(session))


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


def test_generated_names(source: SparkSession, enabled: SparkSession) -> None:
    assert check(source, enabled, seed=1, count=100) > 0.3


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 12))
def test_many_generated_names(source: SparkSession, enabled: SparkSession, seed: int) -> None:
    assert check(source, enabled, seed, count=400) > 0.3
