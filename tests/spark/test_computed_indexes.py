"""Indexes of expressions that Spark computes while it loads: they skip, and never where their values may be others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import layoutopt.spark as ls
from layoutopt import open_table
from layoutopt.api.execution import use_session
from layoutopt.errors import SettingError
from layoutopt.features.selection import mine_all
from layoutopt.indexes.choosing import parse_indexes
from layoutopt.inspect.verify import verify
from layoutopt.model.feature import SessionSettings
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.layout import Plan
from layoutopt.model.predicates import Call, Col
from layoutopt.model.requests import AppendRequest
from layoutopt.model.udf import udf
from layoutopt.spark.core.functions import find_declared_udfs
from layoutopt.spark.core.source import schema_of
from layoutopt.spark.loading.load import load
from layoutopt.workload.analyze import analyze
from layoutopt.workload.log import LogEntry
from tests.spark.session.answers import scans_under
from tests.spark.settings import compared_here
from tests.spark.tables import plan_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
ROWS = 2_000
INDEXED = (
    "code % 97:value-list",
    "hour(ts):value-list",
    "substring(name, 3, 4):bloom",
    "reverse(name):prefix",
    "m['k']:gap-list",
    "last_part(name):bloom",
    "split_part(name, '-', 2):formatted",
    "regexp_extract(name, '([0-9]+)$', 1):bloom",
    "lists['a']:value-list",
)
ASKED = (
    "code % 97 = 13",
    "hour(ts) IN (3, 4)",
    "substring(name, 3, 4) = '-150'",
    "reverse(name) LIKE '051-%'",
    "m['k'] BETWEEN 300 AND 310",
    "last_part(name) = '1501'",
    "split_part(name, '-', 2) IN ('150', '1501')",
    "regexp_extract(name, '([0-9]+)$', 1) = '1501'",
    "array_contains(lists['a'], 13)",
    "NOT code % 97 <> 39 AND hour(ts) IS NOT NULL",
)


@udf("string")
def last_part(text: str | None) -> str | None:
    return None if text is None else text.rpartition("-")[2]


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    made = spark.newSession()
    ls.declare(made, last_part)
    yield made
    ls.disable(made)


def rows(session: SparkSession, first: int = 0, count: int = ROWS) -> DataFrame:
    """In each run of 50 rows the expressions have few values; columns themselves lie everywhere."""
    return session.range(first, first + count).selectExpr(
        "cast(id AS int) AS id",
        "if(id % 11 = 0, NULL, cast(id div 50 + 97 * (id % 50) AS int)) AS code",
        "timestamp'2024-01-01 00:30:00' + make_dt_interval(cast(id % 50 AS int), cast(id div 100 AS int)) AS ts",
        "if(id % 13 = 0, NULL, concat(cast(id % 2 AS string), 'x-', cast(id AS string))) AS name",
        "if(id % 7 = 0, NULL, map('k', if(id % 5 = 0, NULL, cast(id AS int)))) AS m",
        "if(id % 17 = 0, NULL, map('a', array(cast(id div 50 + 97 * (id % 50) AS int), NULL))) AS lists",
    )


def plan_for(session: SparkSession, texts: tuple[str, ...] = INDEXED) -> Plan:
    schema = schema_of(rows(session))
    queries = analyze([LogEntry(i, "SELECT id FROM t WHERE id < 0") for i in range(2)], schema, "t").queries
    zone = str(session.conf.get("spark.sql.session.timeZone"))
    features = replace(mine_all(queries, schema, threshold=1, num_features=1), settings=SessionSettings(time_zone=zone))
    document = FeaturesDocument("t", schema, features, queries)
    return replace(
        plan_of(document, block_rows=50),
        indexes=parse_indexes(texts, schema, features.settings, find_declared_udfs(session)),
    )


def answers(session: SparkSession, path: Path, *sources: Path) -> dict[str, int]:
    """Each condition's answer is that of the sources; how many blocks indexes skipped for it."""
    session.read.parquet(*map(str, sources)).createOrReplaceTempView("plain")
    ls.register(session, "t", str(path))
    ls.enable(session)
    arms = [f"SELECT {place} AS of, id FROM {{0}} WHERE {text}" for place, text in enumerate(ASKED)]
    with compared_here():
        wanted, found = (session.sql(" UNION ALL ".join(arms).format(name)).collect() for name in ("plain", "t"))
    assert sorted(found) == sorted(wanted)
    assert {row.of for row in found} == set(range(len(ASKED)))
    scans = scans_under(session, ASKED)
    assert len(scans) == len(ASKED)
    return {text: scan.skipped_by["index"].blocks for text, scan in scans.items()}


@pytest.mark.long
def test_expressions_and_functions_of_users_skip_by_their_indexes(session: SparkSession, tmp_path: Path) -> None:
    path, first, late = tmp_path / "t", tmp_path / "first", tmp_path / "late"
    rows(session).coalesce(1).write.parquet(str(first))
    load(session, str(first), str(path), plan_for(session))
    assert min(answers(session, path, first).values()) > 25  # of 40
    rows(session, ROWS, 200).coalesce(1).write.parquet(str(late))
    use_session(session).append(AppendRequest(table_path=str(path), source=str(late), batch_id="b"))
    assert min(answers(session, path, first, late).values()) > 25
    checked = verify(open_table(str(path)))
    assert checked.ok
    assert sum("only Spark can compute its values" in text for text in checked.unchecked) == len(INDEXED)
    session.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")  # half an hour from where hours were measured
    assert set(answers(session, path, first, late).values()) == {0}


def test_what_an_index_needs_is_said(session: SparkSession, spark: SparkSession, tmp_path: Path) -> None:
    plan = plan_for(session)
    with pytest.raises(SettingError, match=r"the plan needs the function last_part; name it: --udf last_part=MODULE"):
        load(spark.newSession(), rows(session), str(tmp_path / "t"), plan)
    other = IndexSpec(Call("length", (Col("name", "string"),), "bigint"), "bloom")
    with pytest.raises(SettingError, match=r"length\(name\) is int to Spark, not bigint; leave the index of it out"):
        load(session, rows(session), str(tmp_path / "u"), replace(plan, indexes=(other,)))
