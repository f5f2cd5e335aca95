"""Conditions as Spark's optimiser leaves them: the text reader's trees, and no row of an answer left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from layoutopt.model.feature import Settings
from layoutopt.model.predicates import FALSE, TRUE, Filter, InSet, Node, to_sql
from layoutopt.model.predicates.subsume import subsumes
from layoutopt.model.schema import Column, Schema
from layoutopt.model.udf import Udf, udf
from layoutopt.model.values import ValueSet
from layoutopt.spark.catalyst.predicates import TABLE, Condition, read_condition
from layoutopt.sql.scans import scans_of
from layoutopt.writer.matching import is_matched_by_keys, matching_rows
from tests.spark.catalyst.generated import ROWS, TYPES, Conditions, rows_sql
from tests.spark.catalyst.scans import Scans
from tests.spark.settings import UNCOMPILED, new_session
from tests.workload.test_spark_semantics import CONDITIONS
from tests.workload.test_spark_semantics import TYPES as USUAL_TYPES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ZONES = ("UTC", "America/New_York", "Asia/Kolkata")
REWRITTEN = {
    # Spark computes what is compared twice once, in a projection below the filter, which is no longer the scan's.
    "CASE WHEN s LIKE '%a_' THEN i WHEN x > f THEN y ELSE 7 END BETWEEN 1 AND 7": TRUE,
}
"""Conditions of which Spark's optimiser leaves something else at the scan."""


@pytest.fixture(scope="module")
def usual(spark: SparkSession) -> Iterator[Scans]:
    """The table of the text reader's own tests."""
    scans = Scans(new_session(spark), USUAL_TYPES)
    yield scans
    scans.close()


@pytest.mark.spark
def test_conditions_are_read_as_their_texts_are(usual: Scans) -> None:
    different = {}
    for condition in CONDITIONS:
        if condition == "NULL":
            continue  # Spark takes no condition of type VOID
        (scan,) = scans_of(f"SELECT count(*) FROM t WHERE {condition}", {"t": usual.schema})
        root = usual.read(condition).root
        if root != scan.filter.root:
            different[condition] = root
    assert different == REWRITTEN


@pytest.fixture(scope="module")
def rows(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Parquet file of awkward rows."""
    path = str(tmp_path_factory.mktemp("rows") / "rows")
    session = new_session(spark, UNCOMPILED | {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"})
    session.sql(rows_sql()).coalesce(1).write.parquet(path)
    return path


class Truth:
    """Spark's own answers over the awkward rows, and those of what was read.

    Args:
        spark: the session.
        path: of the rows.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._rows = spark.read.parquet(path).coalesce(1)
        self._by_keys: pa.Table = self._rows.toArrow().sort_by("id")

    def losses(self, read: Sequence[tuple[str, Node]]) -> list[tuple[str, str, list[int]]]:
        """Return the conditions with rows for which Spark says TRUE and the filter does not."""
        lost = []
        for start in range(0, len(read), 25):
            lost += self._losses(read[start : start + 25], 0, ROWS)
        return lost

    def _losses(self, read: Sequence[tuple[str, Node]], first: int, stop: int) -> list[tuple[str, str, list[int]]]:
        pairs = [
            f"array(coalesce(({condition}), false), coalesce(({to_sql(root)}), false)) AS c{number}"
            for number, (condition, root) in enumerate(read)
        ]
        try:
            found = self._rows.where(f"id >= {first} AND id < {stop}").selectExpr("id", *pairs).collect()
        except Exception:  # the condition fails on some row in ANSI mode, and then it has no answer there
            if len(read) > 1:
                middle = len(read) // 2
                return self._losses(read[:middle], first, stop) + self._losses(read[middle:], first, stop)
            if stop - first <= 8:
                return []
            middle = (first + stop) // 2
            return self._losses(read, first, middle) + self._losses(read, middle, stop)
        lost = []
        for number, (condition, root) in enumerate(read):
            true = {row["id"] for row in found if row[f"c{number}"][0]}
            kept = {row["id"] for row in found if row[f"c{number}"][1]}
            kept &= set(self._kept_by_keys(root, first, stop))
            if true - kept:
                lost.append((condition, to_sql(root), sorted(true - kept)))
        return lost

    def _kept_by_keys(self, root: Node, first: int, stop: int) -> list[int]:
        bits = matching_rows(root, self._by_keys) if is_matched_by_keys(root) else None
        return [number for number in range(first, stop) if bits is None or bits[number]]


def _session(spark: SparkSession, ansi: bool, zone: str) -> SparkSession:
    settings = {"spark.sql.ansi.enabled": str(ansi).lower(), "spark.sql.session.timeZone": zone}
    return new_session(spark, UNCOMPILED | settings)


def _hunt(spark: SparkSession, rows: str, ansi: bool, zone: str, seed: int, count: int) -> tuple[int, list[Any]]:
    """Read so many conditions; return how many say something of rows, and those that lose rows."""
    session = _session(spark, ansi, zone)
    scans, truth, generated = Scans(session, TYPES), Truth(session, rows), Conditions(seed)
    read: list[tuple[str, Node]] = []
    try:
        while len(read) < count:
            text = generated.next()
            try:
                found = scans.read(text)
            except Exception:  # Spark refuses to compare such types
                continue
            assert found.settings == Settings(zone, found.settings.ansi)
            read.append((text, found.root))
    finally:
        scans.close()
    return sum(root != TRUE for _, root in read), truth.losses(read)


@pytest.mark.spark
@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("ansi", [True, False])
def test_no_row_of_an_answer_is_left_out(spark: SparkSession, rows: str, ansi: bool, zone: str) -> None:
    understood, lost = _hunt(spark, rows, ansi, zone, seed=ZONES.index(zone) * 2 + ansi, count=60)
    assert lost == []
    assert understood >= 30


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 130))
def test_no_row_of_an_answer_is_left_out_long(spark: SparkSession, rows: str, seed: int) -> None:
    _, lost = _hunt(spark, rows, seed % 4 != 3, ZONES[seed % 3], seed, count=1_000)
    assert lost == []
