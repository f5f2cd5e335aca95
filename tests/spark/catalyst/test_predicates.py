"""Conditions as Spark's optimiser leaves them: the text reader's trees, and no row of an answer left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql.functions import expr

from layoutopt.evaluation.predicates import is_matched_by_keys, matching_rows
from layoutopt.model.feature import SessionSettings
from layoutopt.model.predicates import TRUE, Node, to_sql
from layoutopt.model.schema import Column, Schema
from layoutopt.spark.catalyst.predicates import TABLE, Condition, read_condition
from layoutopt.sql.scans import find_scans
from tests.effort import long_too, one_in
from tests.spark.catalyst.generated import ROWS, TYPES, Conditions, rows_sql, usual_conditions
from tests.spark.catalyst.scans import Scans
from tests.spark.settings import UNCOMPILED, new_session
from tests.workload.semantics import CONDITIONS
from tests.workload.semantics import TYPES as USUAL_TYPES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FALSE_ROW, TRUE_ROW, NULL_ROW = 0, 1, 2
"""What EachRow.java says of a condition on a row."""

ZONES = ("UTC", "America/New_York", "Asia/Kolkata")


@pytest.fixture(scope="module")
def usual(spark: SparkSession) -> Iterator[Scans]:
    """The table of the text reader's own tests."""
    scans = Scans(new_session(spark), USUAL_TYPES)
    yield scans
    scans.close()


# Parts of conditions that are read in texts alone: constants of structs and arrays, choices of conditions, and formats.
TEXTS_ALONE = ("(i, ", "exists(array(", "coalesce(i > 1", "to_date(ts, ")


@pytest.mark.spark
@pytest.mark.parametrize("every", [8, *long_too(1)])
def test_conditions_are_read_as_their_texts_are(usual: Scans, every: int) -> None:
    different = {}
    for condition in [*CONDITIONS][::every]:
        if condition == "NULL":
            continue  # Spark takes no condition of type VOID
        (scan,) = find_scans(f"SELECT count(*) FROM t WHERE {condition}", {"t": usual.schema})
        root = usual.read(condition).root
        if condition.removeprefix("NOT ").removeprefix("(").startswith(TEXTS_ALONE) or condition.startswith(
            TEXTS_ALONE
        ):
            assert root in (TRUE, scan.filter.root), condition
        elif root != scan.filter.root:
            different[condition] = root
    # Spark computes what is compared twice once, in a projection below the filter; what it puts there reads otherwise.
    twice = "CASE WHEN s LIKE '%a_' THEN i WHEN x > f THEN y ELSE 7 END BETWEEN 1 AND 7"
    assert list(different) == [text for text in [*CONDITIONS][::every] if text == twice]


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> Any:
    """Awkward rows as a list of Java's; texts as bytes, since not all of them are UTF-8."""
    session: Any = new_session(spark, UNCOMPILED | {"spark.sql.datetime.java8API.enabled": "true"})
    frame = session.sql(rows_sql()).withColumn("s", expr("cast(s AS binary)"))
    return frame._jdf.collectAsList(), frame._jdf.schema()


class Truth:
    """Spark's own answers over the awkward rows, and those of what was read.

    Args:
        spark: the session.
        rows: Java's rows, and their schema.
    """

    def __init__(self, spark: SparkSession, rows: Any) -> None:
        java: Any = spark._jsparkSession
        self._rows = DataFrame(java.createDataFrame(*rows), spark).withColumn("s", expr("cast(s AS string)"))
        self._by_keys: pa.Table = self._rows.toArrow()
        self._evaluator = _compile_evaluator(spark._jvm)

    def losses(self, read: Sequence[tuple[str, Node, Node]]) -> list[tuple[str, str, list[int]]]:
        """Return the conditions with rows that a filter does not keep.

        Args:
            read: of each condition its text, the filter of its rows, and the filter of the rows where it is FALSE.
        """
        return [lost for text, *roots in read for lost in self._losses(text, roots)]

    def _losses(self, text: str, roots: Sequence[Node]) -> list[tuple[str, str, list[int]]]:
        filters = [to_sql(root) for root in roots]
        by_spark = [sql for sql, root in zip(filters, roots, strict=True) if not is_matched_by_keys(root)]
        answers, *columns = self._evaluate([text, *by_spark])
        kept = dict(zip(by_spark, columns, strict=True))
        lost = []
        for value, sql, root in zip((TRUE_ROW, FALSE_ROW), filters, roots, strict=True):
            if sql in kept:
                leaves_out = (kept[sql] == FALSE_ROW) | (kept[sql] == NULL_ROW)
            else:
                bits = matching_rows(root, self._by_keys)
                leaves_out = np.zeros(ROWS, bool) if bits is None else ~bits
            if ids := np.flatnonzero((answers == value) & leaves_out).tolist():
                lost.append((text if value == TRUE_ROW else f"NOT ({text})", sql, ids))
        return lost

    def _evaluate(self, conditions: Sequence[str]) -> list[np.ndarray]:
        """Return each condition's value on each row: FALSE, TRUE, NULL, or that it fails there, as ANSI mode may."""
        frame: Any = self._rows.selectExpr(*(f"({text}) AS c{number}" for number, text in enumerate(conditions)))
        values = self._evaluator.evaluate(frame._jdf.queryExecution().optimizedPlan())
        return list(np.frombuffer(values, np.uint8).reshape(ROWS, len(conditions)).T)


@cache
def _compile_evaluator(jvm: Any) -> Any:
    """Return an object of ``EachRow.java``; once, since Py4J keeps methods by the names of their classes."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(Path(__file__).with_name("EachRow.java").read_text(encoding="utf-8"))
    return compiler.getClassLoader().loadClass("layoutopt.tests.EachRow").newInstance()


def _session(spark: SparkSession, ansi: bool, zone: str) -> SparkSession:
    settings = {"spark.sql.ansi.enabled": str(ansi).lower(), "spark.sql.session.timeZone": zone}
    unchanged = {
        "spark.sql.datetime.java8API.enabled": "true",
        # the rows stay below the conditions, which EachRow evaluates
        "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation",
    }
    return new_session(spark, UNCOMPILED | settings | unchanged)


def _hunt(spark: SparkSession, rows: Any, ansi: bool, zone: str, seed: int, count: int) -> tuple[int, list[Any]]:
    """Read so many conditions; return how many say something of rows, and those that lose rows."""
    session = _session(spark, ansi, zone)
    scans, truth, generated = Scans(session, TYPES), Truth(session, rows), Conditions(seed)
    read: list[tuple[str, Node, Node]] = []
    try:
        while 2 * len(read) < count:
            text = generated.next()
            try:
                tree = scans.tree(text)
            except Exception:  # Spark refuses to compare such types
                continue
            settings = SessionSettings(zone, ansi)
            found = read_condition(tree, scans.schema, settings, {})
            assert found.settings == settings
            opposite = read_condition(["Not", "boolean", [tree], {}], scans.schema, settings, {})
            read.append((text, found.root, opposite.root))
    finally:
        scans.close()
    return sum(root != TRUE for _, *roots in read for root in roots), truth.losses(read)


@pytest.mark.spark
@pytest.mark.parametrize("every", [8, *long_too(1)])
def test_each_test_of_each_column_keeps_its_rows_and_so_does_its_negation(
    spark: SparkSession, rows: Any, every: int
) -> None:
    """Spark's optimiser rewrites most negations, so each is made of the condition that it left."""
    session = _session(spark, ansi=False, zone="UTC")
    scans, truth = Scans(session, TYPES), Truth(session, rows)
    read: list[tuple[str, Node, Node]] = []
    try:
        for condition in usual_conditions()[::every]:
            tree = scans.tree(condition)
            root, opposite = (
                read_condition(part, scans.schema, SessionSettings(ansi=False), {}).root
                for part in (tree, ["Not", "boolean", [tree], {}])
            )
            read += [(condition, root, opposite), (condition, root, scans.read(f"NOT ({condition})").root)]
    finally:
        scans.close()
    assert truth.losses(read) == []
    roots = [root for _, *roots in read for root in roots]
    assert sum(root != TRUE for root in roots) > 0.9 * len(roots)


@pytest.mark.spark
def test_a_test_that_is_null_chooses_the_other_branch(spark: SparkSession, rows: Any) -> None:
    """Spark replaces ``right(num, 0)`` by a constant, NULL where ``num`` is; hunt 101 lost rows by it."""
    session = _session(spark, ansi=False, zone="UTC")
    scans, truth = Scans(session, TYPES), Truth(session, rows)
    texts = [
        "if(right(num, 0) LIKE ANY ('%b', 'a_%'), s NOT LIKE '50%', round(sm, 1) IN (1, 7, 5))",
        "CASE WHEN right(num, 0) LIKE 'a_%b' THEN i = 1 WHEN num LIKE '_' THEN i = 2 ELSE sm < 5 END",
    ]
    try:
        read = [(text, scans.read(text).root, scans.read(f"NOT ({text})").root) for text in texts]
    finally:
        scans.close()
    assert truth.losses(read) == []


@pytest.mark.spark
def test_dates_beyond_the_timestamps_keep_their_rows(spark: SparkSession, rows: Any) -> None:
    """Spark's optimiser takes ``try_cast(ts AS date) <= date`` for NULL there; hunt 101 lost rows by it."""
    session = _session(spark, ansi=True, zone="Asia/Kolkata")
    scans, truth = Scans(session, TYPES), Truth(session, rows)
    texts = ["NOT (year(ts - INTERVAL 1 MONTH) <=> 5881580)", "year(cast(n AS timestamp)) BETWEEN -200 AND 5881580"]
    try:
        read = [(text, scans.read(text).root, scans.read(f"NOT ({text})").root) for text in texts]
    finally:
        scans.close()
    assert truth.losses(read) == []
    assert all("unix_date" in to_sql(root) for _, root, _ in read)


@pytest.mark.spark
@pytest.mark.parametrize(("zone", "ansi"), one_in(2, zip(2 * ZONES, [True, False] * 3, strict=True)))
def test_no_row_of_an_answer_is_left_out(spark: SparkSession, rows: Any, ansi: bool, zone: str) -> None:
    understood, lost = _hunt(spark, rows, ansi, zone, seed=ZONES.index(zone) * 2 + ansi, count=50)
    assert lost == []
    assert understood >= 20


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 150))  # 100,000 conditions
def test_no_row_of_an_answer_is_left_out_long(spark: SparkSession, rows: Any, seed: int) -> None:
    _, lost = _hunt(spark, rows, seed % 4 != 3, ZONES[seed % 3], seed, count=2_000)
    assert not lost, "\n".join(f"{condition}\n  is read as {root}\n  without {ids}" for condition, root, ids in lost)


COLUMN = ["AttributeReference", "int", [], {"name": "i"}]
NARROW = Schema((Column("i", "int"), Column("ts", "timestamp"), Column("n", "timestamp_ntz")))


def _read(tree: Any, settings: SessionSettings = SessionSettings()) -> Condition:  # noqa: B008 - frozen
    return read_condition(tree, NARROW, settings, {})


@pytest.mark.parametrize(
    "tree",
    [
        None,
        [],
        ["And"],
        ["And", "boolean", [], {}],
        ["And", "boolean", [COLUMN], {}],
        ["Literal", "boolean", [], {}],
        ["EqualTo", "boolean", [COLUMN], {}],
        ["EqualTo", "boolean", [COLUMN, ["Literal", "int", [], {"value": {}}]], {}],
        ["In", "boolean", [], {}],
        ["CaseWhen", "boolean", [], {}],
        ["Mystery", "boolean", [COLUMN], {}],
        ["EqualTo", "boolean", [["AttributeReference", "int", [], {}], ["Literal", "int", [], {"value": 1}]], {}],
        ["Like", "boolean", [COLUMN, COLUMN], {}],
        ["AtLeastNNonNulls", "boolean", [COLUMN], {"n": "x"}],
        ["InSet", "boolean", [COLUMN], {}],
        ["ScalarSubquery", "boolean", [], {}],
        ["NonDeterministic", "boolean", [], {}],
        ["Not", "boolean", [5], {}],
        *[[name, "boolean", [], {}] for name in TABLE],
        *[[name, "boolean", [COLUMN, COLUMN, COLUMN], {}] for name in TABLE],
        *[[name, "boolean", [["Literal", "int", [], {"value": {"text": 5}}]], {}] for name in TABLE],
    ],
)
def test_no_tree_makes_it_fail(tree: Any) -> None:
    assert _read(tree).settings == SessionSettings()


def test_a_deep_tree_might_match() -> None:
    tree: list[Any] = COLUMN
    for _ in range(5_000):
        tree = ["Not", "boolean", [tree], {}]
    assert _read(tree).root == TRUE


def _hour(name: str, zone: str) -> list[Any]:
    column: list[Any] = ["AttributeReference", "timestamp" if name == "ts" else "timestamp_ntz", [], {"name": name}]
    hour = ["Hour", "int", [column], {"timeZoneId": zone}]
    return ["EqualTo", "boolean", [hour, ["Literal", "int", [], {"value": 5}]], {}]


def test_the_zone_is_that_of_the_parts_that_depend_on_one() -> None:
    assert _read(_hour("ts", "Asia/Tokyo")).settings.time_zone == "Asia/Tokyo"
    assert _read(_hour("ts", "Etc/UTC"), SessionSettings("Asia/Tokyo")).settings.time_zone == "UTC"
    assert _read(_hour("n", "Asia/Tokyo")).settings.time_zone == "UTC"


def test_of_two_zones_the_sessions_counts() -> None:
    both = ["And", "boolean", [_hour("ts", "Asia/Tokyo"), _hour("ts", "UTC")], {}]
    found = _read(both)
    assert found.settings.time_zone == "UTC"
    assert found.root == _read(_hour("ts", "UTC")).root
    assert len(found.unusable) == 1
