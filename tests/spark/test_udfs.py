"""Functions of the user's from the log to the answer: their features skip, and changed code never skips by old bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import layoutopt
import layoutopt.spark as ls
from layoutopt.config.files import import_udfs
from layoutopt.errors import QueryError, SettingError
from layoutopt.features.analysis import analyze_log
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.requests import AnalyzeRequest
from layoutopt.model.udf import Udf, udf
from layoutopt.spark.core.functions import check_features, find_declared_udfs
from layoutopt.spark.loading.load import load
from layoutopt.spark.session.enabling import plan_reads
from layoutopt.sql.schema import schema_from
from tests.effort import one_in
from tests.spark.tables import plan_of

pytestmark = pytest.mark.spark
ROWS = 4_000
FUNCTIONS = """
import layoutopt

PREFIX = "bot"

@layoutopt.udf("string")
def agent_name(text):
    return text.split("/")[0].lower()  # fails for NULL

@layoutopt.udf("double", implies={"<": ":a BETWEEN :b - :value AND :b + :value"})
def apart(a, b):
    return abs(a - b)

def is_bot(text) -> bool:
    return text is not None and text.lower().startswith(PREFIX)
"""
ASKED = "SELECT count(*) FROM t WHERE agent IS NOT NULL AND agent_name(agent) = 'bot7'"


@pytest.fixture(scope="module")
def udfs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Udf, ...]:
    """Of a module that no worker can import."""
    folder = tmp_path_factory.mktemp("module")
    (folder / "functions_of_a_user.py").write_text(FUNCTIONS)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        found = import_udfs(
            ["functions_of_a_user:agent_name", "functions_of_a_user:apart", "functions_of_a_user:is_bot"]
        )
        patch.syspath_prepend("")  # what was appended is taken away again
    return found


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    made = spark.newSession()
    yield made
    ls.disable(made)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows and the log."""
    here = tmp_path_factory.mktemp("udfs")
    agents = [None if i % 97 == 0 else f"{'Bot' if i % 2 else 'App'}{i * 7919 % 20}/{i}" for i in range(ROWS)]
    places = [float(i * 31 % ROWS) for i in range(ROWS)]
    pq.write_table(pa.table({"id": range(ROWS), "agent": agents, "place": places}), here / "rows.parquet")
    log = [f"SELECT id FROM t WHERE agent_name(agent) = '{kind}{i}'" for i in range(6, 9) for kind in ("bot", "app")]
    (here / "log.sql").write_text(";\n".join(log * 2 + ["SELECT id FROM t WHERE is_bot(agent)"] * 4))
    return here


@pytest.fixture(scope="module")
def document(folder: Path, udfs: tuple[Udf, ...]) -> FeaturesDocument:
    request = AnalyzeRequest(log=str(folder / "log.sql"))
    return analyze_log(request, schema_from(str(folder / "rows.parquet")), udfs).document


@pytest.fixture(scope="module")
def table(spark: SparkSession, folder: Path, udfs: tuple[Udf, ...], document: FeaturesDocument) -> str:
    loading = spark.newSession()
    ls.declare(loading, *udfs)
    plan = plan_of(document, block_rows=100, segment_rows=ROWS, max_vectors=1_000)
    load(loading, str(folder / "rows.parquet"), str(folder / "table"), plan)
    return str(folder / "table")


def test_features_of_functions_skip_in_spark(
    session: SparkSession, folder: Path, table: str, udfs: tuple[Udf, ...]
) -> None:
    ls.declare(session, *udfs)
    session.read.parquet(str(folder / "rows.parquet")).createOrReplaceTempView("plain")
    ls.register(session, "t", table)
    ls.enable(session)
    for text, most in ((ASKED, 8), ("SELECT count(*) FROM t WHERE is_bot(agent)", 25)):
        wanted = session.sql(text.replace(" t ", " plain ")).collect()
        assert session.sql(text).collect() == wanted
        (scan,) = ls.last_scans(session)
        assert scan.skipped_by["features"].blocks >= 40 - most
    opened = layoutopt.open_table(table, udfs=udfs)
    assert opened.scan(ASKED).to_spark(session).collect() == session.sql(ASKED).collect()
    assert opened.scan(ASKED).explain().reads[0].read.blocks <= 8
    assert layoutopt.open_table(table).scan(ASKED).explain().reads[0].read.blocks == 40


WRITTEN: dict[str, Callable[[DataFrame], DataFrame]] = {
    "condition": lambda t: t.where("agent IS NOT NULL AND agent_name(agent) = 'bot7'"),
    "conditions": lambda t: t.where("agent IS NOT NULL").where("agent_name(agent) = 'bot7'").where("id >= 0"),
    "column": lambda t: t.dropna().withColumn("n", F.expr("agent_name(agent)")).where("n = 'bot7'").drop("n"),
    "renamed": lambda t: t.select("id", F.col("agent").alias("a"), "place").where("a <> '' AND agent_name(a) = 'bot7'"),
    "beside another function": lambda t: t.where("agent <> '' AND agent_name(agent) = 'bot7' AND apart(id, 0) >= 0"),
    "beside what is random": lambda t: t.where("agent <> '' AND agent_name(agent) = 'bot7' AND rand() >= 0.000001"),
    "below a group": lambda t: t.where("agent <> '' AND agent_name(agent) = 'bot7'").groupBy("id", "agent", "place")
    .agg(F.lit(1)).drop("1"),
}  # fmt: skip


@pytest.mark.parametrize("name", one_in(2, WRITTEN.keys()))
def test_they_skip_however_they_are_written(
    name: str, session: SparkSession, folder: Path, table: str, udfs: tuple[Udf, ...]
) -> None:
    ls.declare(session, *udfs)
    ls.register(session, "t", table)
    ls.enable(session)
    wanted = sorted(map(tuple, WRITTEN[name](session.read.parquet(str(folder / "rows.parquet"))).collect()))
    assert sorted(map(tuple, WRITTEN[name](session.table("t")).collect())) == wanted != []
    (scan,) = ls.last_scans(session)
    assert scan.skipped_by["features"].blocks >= 30


def test_what_stands_above_a_limit_skips_nothing(session: SparkSession, table: str, udfs: tuple[Udf, ...]) -> None:
    ls.declare(session, *udfs)
    ls.register(session, "t", table)
    ls.enable(session)
    found = session.table("t").dropna().limit(ROWS).where("agent_name(agent) = 'bot7'")
    assert found.count() == sum(1 for i in range(ROWS) if i % 97 and i % 2 and i * 7919 % 20 == 7)
    assert ls.last_scans(session)[0].skipped.blocks == 0


def test_what_a_function_implies_skips_by_statistics(session: SparkSession, table: str, udfs: tuple[Udf, ...]) -> None:
    text = "SELECT id FROM t WHERE apart(id, 100) < 5 AND apart(place, 3100) < 1000"
    opened = layoutopt.open_table(table, udfs=udfs)
    without = layoutopt.open_table(table, udfs=[replace(each, implies={}) for each in udfs])
    assert opened.scan(text).reads[0].scan.filter != without.scan(text).reads[0].scan.filter
    rows = opened.scan(text).to_spark(session).collect()
    assert sorted(row["id"] for row in rows) == list(range(96, 105))


def test_spark_reads_what_a_function_implies(session: SparkSession, table: str, udfs: tuple[Udf, ...]) -> None:
    text = "SELECT id FROM t WHERE apart(id, 100) < 5"
    opened = layoutopt.open_table(table, udfs=udfs)
    (read,) = plan_reads(opened.scan(text).to_spark(session))
    assert read.scan.filter == opened.scan(text).reads[0].scan.filter


def test_the_embedded_engine_calls_them_too(table: str, udfs: tuple[Udf, ...]) -> None:
    opened = layoutopt.open_table(table, udfs=udfs)
    wanted = sum(1 for i in range(ROWS) if i % 97 and i % 2 and i * 7919 % 20 == 7)
    assert opened.sql(ASKED)[0].to_pylist() == [wanted]
    rows = opened.sql("SELECT id, apart(place, 100) AS far FROM t WHERE apart(place, 100) < 3 ORDER BY far, id")
    assert rows.to_pylist() == [
        {"id": i, "far": abs(place - 100.0)}
        for i, place in sorted(
            ((i, i * 31 % ROWS) for i in range(ROWS)), key=lambda each: (abs(each[1] - 100), each[0])
        )
        if abs(place - 100) < 3
    ]
    with pytest.raises(QueryError, match=r"agent_name\(None\) failed \(AttributeError: .*; fix the function"):
        opened.sql("SELECT agent_name(agent) FROM t")
    with pytest.raises(QueryError, match="might mean something else to DuckDB"):
        layoutopt.open_table(table).sql(ASKED)


def test_changed_code_never_skips_by_old_bits(session: SparkSession, table: str, udfs: tuple[Udf, ...]) -> None:
    changed = udf("string", name="agent_name", version="2")(lambda text: "bot7")
    ls.declare(session, changed)
    ls.register(session, "t", table)
    ls.enable(session)
    assert session.sql(ASKED).collect()[0][0] == ROWS - len(range(0, ROWS, 97))
    assert ls.last_scans(session)[0].skipped.blocks == 0
    opened = layoutopt.open_table(table, udfs=udfs)  # the old code, where the session has the new
    assert opened.scan(ASKED).to_spark(session).collect() == session.sql(ASKED).collect()


def test_a_name_that_means_something_else_by_now_skips_nothing(
    session: SparkSession, table: str, udfs: tuple[Udf, ...]
) -> None:
    ls.declare(session, *udfs)
    ls.register(session, "t", table)
    ls.enable(session)
    session.sql(ASKED).collect()
    assert ls.last_scans(session)[0].skipped.blocks
    session.udf.register("agent_name", lambda text: "bot7", "string")
    assert set(find_declared_udfs(session)) == {"apart", "is_bot"}
    assert session.sql(ASKED).collect()[0][0] == ROWS - len(range(0, ROWS, 97))
    assert ls.last_scans(session)[0].skipped.blocks == 0


def test_features_need_the_function_that_they_were_made_with(
    session: SparkSession, udfs: tuple[Udf, ...], document: FeaturesDocument
) -> None:
    with pytest.raises(SettingError, match=r"the plan needs the function \w+; name it: --udf"):
        check_features(session, document.features, "the plan")
    ls.declare(session, *udfs, udf("string", name="agent_name2", version="2")(len))
    check_features(session, document.features, "the plan")
    ls.declare(session, udf("string", name="agent_name", version="2")(lambda text: text))
    with pytest.raises(SettingError, match="agent_name is not the one that the plan was made with"):
        check_features(session, document.features, "the plan")


def test_functions_of_sparks_own_can_not_be_declared(session: SparkSession) -> None:
    with pytest.raises(SettingError, match="'soundex' is a function of Spark's own"):
        ls.declare(session, udf("string", name="soundex", version="1")(lambda text: text))
