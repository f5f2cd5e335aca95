"""Statements and chains over an optimised table: answers are those over the source, and less is read."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from layoutopt.errors import LayoutoptError
from layoutopt.scan.prune import PruneOutcome
from layoutopt.scan.table import Table, open_table
from layoutopt.spark import disable, enable, last_scans, register
from tests.effort import long_too, one_in
from tests.scan.builder import build, building, by_position
from tests.scan.layouts import GROUPS
from tests.scan.tables import CONDITIONS as FEATURES
from tests.scan.tables import SCHEMA, some_rows
from tests.spark.session.answers import answer
from tests.spark.session.statements import CHAINS, CONDITIONS, NEWER, SQL, filled
from tests.spark.settings import compared_here, new_session
from tests.versions import has_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.unshadowed("whose answers are compared with those over the source")]
PAIRS = [(name, number % len(CONDITIONS)) for number, name in enumerate([*SQL, *CHAINS])]
OTHERS = [pair for pair in product([*SQL, *CHAINS], range(len(CONDITIONS))) if pair not in PAIRS]


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return some_rows()


@pytest.fixture(scope="module", params=["sop", *long_too("gsop")])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, rows: pa.Table) -> Table:
    root, layouts = tmp_path_factory.mktemp("statements"), GROUPS if request.param == "gsop" else None
    build(root / "u", rows.sort_by("id"), building(SCHEMA, FEATURES, blocking=by_position(30)))
    return build(root / "t", rows, building(SCHEMA, FEATURES, partition_by="year", segment_rows=60, layouts=layouts))


@pytest.fixture(scope="module")
def source(spark: SparkSession, rows: pa.Table) -> SparkSession:
    """A session in which t and u are the source, which lies in no file."""
    session = new_session(spark)
    for name in ("t", "u"):
        session.createDataFrame(rows).coalesce(1).createOrReplaceTempView(name)
    prepare(session)
    return session


@pytest.fixture(scope="module")
def enabled(spark: SparkSession, table: Table) -> Iterator[SparkSession]:
    session, root = new_session(spark), Path(table.catalog.files.root)
    register(session, "t", str(root))
    register(session, "u", str(root.with_name("u")))
    enable(session)
    prepare(session)
    with compared_here():
        yield session
    disable(session)


def prepare(session: SparkSession) -> None:
    kinds = [("air", 1), ("ship", 2), (None, 3), ("no such kind", 4)]
    session.createDataFrame(kinds, "kind string, n int").coalesce(1).createOrReplaceTempView("dim")
    session.sql("CREATE TEMPORARY VIEW all_of_t AS SELECT * FROM t")
    session.sql("CREATE OR REPLACE GLOBAL TEMPORARY VIEW global_t AS SELECT * FROM t")
    session.sql("CREATE TEMPORARY FUNCTION is_wanted(b BOOLEAN) RETURNS BOOLEAN RETURN b")
    columns = "id INT, kind STRING, price DECIMAL(15,2), year INT"
    returned = "RETURN SELECT id, kind, price, year FROM t"
    session.sql(f"CREATE TEMPORARY FUNCTION of_table() RETURNS TABLE ({columns}) {returned}")
    session.sql("DECLARE OR REPLACE VARIABLE least_id = 5")


def asked(session: SparkSession, name: str, condition: str) -> DataFrame:
    if name in SQL:
        args = {"least": 5} if name == "parameters" else None
        return session.sql(filled(SQL[name], condition), args=args)
    return CHAINS[name](session.table("t"), session.table("dim"), condition)


@pytest.mark.usefixtures("each_reader")
@pytest.mark.parametrize(("name", "number"), [*one_in(2, PAIRS), *long_too(*OTHERS)])
def test_answers_are_those_over_the_source(name: str, number: int, enabled: SparkSession, source: SparkSession) -> None:
    if not has_spark(NEWER.get(name, "0.0")):
        pytest.skip(f"Spark before {NEWER[name]} does not run: {name}")
    condition = CONDITIONS[number]
    expected = answer(asked(source, name, condition))
    assert answer(asked(enabled, name, condition)) == expected


@pytest.mark.usefixtures("each_reader")
@pytest.mark.parametrize("number", [0, *long_too(1, 2, 3)])
def test_what_can_be_skipped_is(number: int, enabled: SparkSession, table: Table) -> None:
    """Of the statements for which `evaluate` finds blocks to skip, nearly all skip: here all but those named."""
    asked_for, missed = [], []
    opened = open_table(table.catalog.files.root)
    for name in SQL:
        if not has_spark(NEWER.get(name, "0.0")):
            continue
        text = filled(SQL[name], CONDITIONS[number])
        try:
            reads = opened.scan(text).reads
        except LayoutoptError:  # what `evaluate` can't read
            continue
        outcomes = {int(outcome) for read in reads for plan in read.pruned for outcome in plan.outcome}
        if name == "parameters" or outcomes <= {PruneOutcome.READ, PruneOutcome.OTHER_LAYOUT}:
            continue
        asked_for.append(name)
        asked(enabled, name, CONDITIONS[number]).explain()
        if not any(scan.skipped.blocks for scan in last_scans(enabled)):
            missed.append(name)
    assert len(asked_for) > 50 or "where" not in asked_for  # of several layouts one condition skips no block at all
    assert len(missed) <= len(asked_for) // 20, missed
