"""Generated conditions over all types: what Spark matches on the source is never skipped, and answers are the same.

Spark evaluates many conditions at once on rows that lie in no file, so nothing is pushed down there; its answers are
the truth here, and of some conditions the features that a table is built with. Each condition is then asked of that
table three times: which blocks its text leaves, which blocks Spark's plan of it leaves in an enabled session, and what
Spark answers there, to a text or to a DataFrame.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from layoutopt.model.layout import ByVectors, Layout
from layoutopt.scan.table import Table
from layoutopt.scan.table_read import TableRead
from layoutopt.spark import disable, enable, last_scans, register
from layoutopt.spark.session.enabling import plan_reads
from layoutopt.sql.scans import find_scans
from tests.effort import examples
from tests.scan.builder import Blocking, build, building, by_position, by_vector
from tests.spark.generated import CONDITIONS, SCHEMA, generated_rows
from tests.spark.settings import UNCOMPILED, compared_here, new_session

pytestmark = [pytest.mark.spark, pytest.mark.checks_texts, pytest.mark.usefixtures("each_reader")]

Bits = np.ndarray[Any, Any]
MOST_FEATURES = 6
MOST_EXACT = 0.5
"""Of the features, those by which Spark's plan skips as much as the text does: the optimiser writes some otherwise."""
ROWS = 240


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return generated_rows(ROWS)


@pytest.fixture(scope="module")
def source(spark: SparkSession, rows: pa.Table) -> SparkSession:
    """A session in which `t` lies in no file, and each text is evaluated once: compiling it would take longer."""
    session = new_session(spark)
    session.createDataFrame(rows).coalesce(1).createOrReplaceTempView("t")
    return session


@pytest.fixture(scope="module")
def enabled(spark: SparkSession) -> SparkSession:
    return spark.newSession()


def truth(source: SparkSession, conditions: Sequence[str]) -> Bits:
    """Which rows, by id, make which conditions TRUE, bool[rows, conditions]."""
    tests = ", ".join(f"coalesce(({condition}), false)" for condition in conditions)
    found = source.sql(f"SELECT id, array({tests}) AS bits FROM t").toArrow().sort_by("id")
    return np.array(found["bits"].to_pylist(), dtype=bool)


def built(
    root: Path,
    rows: pa.Table,
    conditions: Sequence[str],
    matches: Bits,
    blocking: Blocking,
    layouts: Sequence[Layout] | None = None,
) -> Table:
    """A table with a feature for each condition, whose bits are Spark's answers."""
    lists = [", ".join(map(str, np.flatnonzero(matches[:, k]))) for k in range(len(conditions))]
    made = building(SCHEMA, conditions, blocking=blocking, segment_rows=100, layouts=layouts)
    return build(root, rows, replace(made, conditions=tuple(f"id IN ({of or -1})" for of in lists)))


def exact(condition: str) -> bool:
    """Whether a condition is understood as a whole, so that its own answers are the feature's."""
    (scan,) = find_scans(f"SELECT * FROM t WHERE {condition}", {"t": SCHEMA})
    return scan.exact and bool(scan.filter.predicates)


def blocks_of(table: Table) -> Bits:
    """The block that each row, by id, lies in; int[rows]."""
    scan = table.scan("SELECT id FROM t")
    (whole,) = scan.reads[0].pruned
    of, found = whole.source.blocks, np.full(ROWS, -1)
    for path in table.files():
        content = pq.read_table(path, columns=["id", "_block"])
        found[content["id"].to_numpy()] = np.searchsorted(of.block_id, content["_block"].to_numpy())
    return found


def left_of(table: Table, condition: str) -> Bits:
    """Which blocks are read, bool[blocks]."""
    (pruned,) = table.scan(f"SELECT id FROM t WHERE {condition}").reads[0].pruned
    return pruned.read


@contextmanager
def asked(
    rows: pa.Table,
    source: SparkSession,
    enabled: SparkSession,
    conditions: Sequence[str],
    in_spark: int,
    by: Blocking,
    layouts: Callable[[int], Sequence[Layout]] | None = None,
) -> Iterator[tuple[Table, Bits, list[int]]]:
    """A table to look at, the rows that match, and which conditions are its features; Spark's answers are checked then.

    Args:
        layouts: the layouts of so many features; one of all columns where left out.
    """
    matches = truth(source, conditions)
    usable = [k for k, condition in enumerate(conditions) if exact(condition)][:MOST_FEATURES]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "t"
        made = layouts and layouts(len(usable))
        table = built(root, rows, [conditions[k] for k in usable], matches[:, usable], by, made)
        register(enabled, "t", str(root))
        enable(enabled)
        try:
            yield table, matches, usable
            chosen = list(range(len(conditions)))[-in_spark:]
            assert answers(enabled, [conditions[k] for k in chosen]) == [
                np.flatnonzero(matches[:, k]).tolist() for k in chosen
            ]
        finally:
            disable(enabled)


def check(
    rows: pa.Table, source: SparkSession, enabled: SparkSession, conditions: Sequence[str], in_spark: int, by: Blocking
) -> None:
    with asked(rows, source, enabled, conditions, in_spark, by) as (table, matches, usable):
        block_of, least = blocks_of(table), 0
        for k, condition in enumerate(conditions):
            left = left_of(table, condition)
            needed = np.zeros(len(left), dtype=bool)
            needed[block_of[matches[:, k]]] = True
            assert not (needed & ~left).any(), f"{condition} skips rows that it matches"
            # A condition that is a feature of the plan is left with no block but those that hold a match.
            assert k not in usable or (left == needed).all(), f"{condition} reads more than it must"
            in_spark_left = left_in_spark(enabled, condition, len(left))
            assert not (needed & ~in_spark_left).any(), f"{condition} skips rows that it matches in Spark"
            least += k in usable and bool((in_spark_left == needed).all())
        assert least >= MOST_EXACT * len(usable), f"{least} of {len(usable)} features skip all that they could in Spark"


def planned(enabled: SparkSession, condition: str, *columns: str) -> TableRead | None:
    """The scan of a DataFrame under a condition; None where Spark knows that no row matches."""
    reads = plan_reads(enabled.table("t").where(F.expr(condition)).selectExpr(*columns))
    return reads[0] if reads else None


def left_in_spark(enabled: SparkSession, condition: str, blocks: int) -> Bits:
    """Which blocks Spark's plan of a DataFrame leaves, bool[blocks]."""
    read = planned(enabled, condition, "id")
    return np.zeros(blocks, dtype=bool) if read is None else read.pruned[0].read


def answers(enabled: SparkSession, conditions: Sequence[str], noted: bool = False) -> list[list[int]]:
    """The ids that each condition matches, by an enabled session: one query, of texts and DataFrames."""
    rows, frames = enabled.table("t"), list[DataFrame]()
    for k, condition in enumerate(conditions):
        frame = enabled.sql(f"SELECT {k} AS q, id FROM t WHERE {condition}")
        frames.append(rows.where(F.expr(condition)).select(F.lit(k).alias("q"), "id") if k % 2 else frame)
    with compared_here():
        found = reduce(DataFrame.unionAll, frames).toArrow()
    assert noted or not any(scan.note for scan in last_scans(enabled))
    pairs = sorted(zip(found["q"].to_pylist(), found["id"].to_pylist(), strict=True))
    return [[id for q, id in pairs if q == k] for k in range(len(conditions))]


BLOCKINGS = st.sampled_from([by_vector, by_position(7), by_position(30)])
QUIET = settings(suppress_health_check=list(HealthCheck), phases=[Phase.generate], deadline=None, database=None)


@settings(QUIET, max_examples=1, derandomize=True)
@given(st.lists(CONDITIONS, min_size=60, max_size=60), BLOCKINGS)
def test_generated_conditions(
    rows: pa.Table, source: SparkSession, enabled: SparkSession, conditions: list[str], blocking: Blocking
) -> None:
    check(rows, source, enabled, conditions, 6, blocking)


@pytest.mark.long
@settings(QUIET, max_examples=examples(60))
@given(st.lists(CONDITIONS, min_size=80, max_size=80), BLOCKINGS)
def test_many_generated_conditions(
    rows: pa.Table, source: SparkSession, enabled: SparkSession, conditions: list[str], blocking: Blocking
) -> None:
    check(rows, source, enabled, conditions, 20, blocking)


def check_groups(
    rows: pa.Table, source: SparkSession, enabled: SparkSession, conditions: Sequence[str], in_spark: int, by: Blocking
) -> None:
    """The same of rows that are put together from column groups, where rows are left out before Spark sees them."""
    with asked(rows, source, enabled, conditions, in_spark, by, groups) as (table, matches, _):
        for k, condition in enumerate(conditions):
            (read,) = table.scan(f"SELECT id, hash(*) FROM t WHERE {condition}").reads
            given = {id for batch in read.batches() for id in batch["id"].to_pylist()}
            assert set(np.flatnonzero(matches[:, k])) <= given, f"{condition} leaves rows out that it matches"
            in_spark_read = planned(enabled, condition, "id", "hash(*)")
            batches = in_spark_read.batches() if in_spark_read is not None else ()
            given = {id for batch in batches for id in batch["id"].to_pylist()}
            assert set(np.flatnonzero(matches[:, k])) <= given, f"{condition} leaves rows out that it matches in Spark"


def groups(features: int) -> list[Layout]:
    """The columns dealt out to three layouts, the features too."""
    dealt = [(SCHEMA.names[k::3], tuple(range(features))[k::3]) for k in range(3)]
    return [Layout(names, local, names, ByVectors()) for names, local in dealt]


@settings(QUIET, max_examples=1, derandomize=True)
@given(st.lists(CONDITIONS, min_size=30, max_size=30), BLOCKINGS)
def test_generated_conditions_over_column_groups(
    rows: pa.Table, source: SparkSession, enabled: SparkSession, conditions: list[str], blocking: Blocking
) -> None:
    check_groups(rows, source, enabled, conditions, 4, blocking)


@pytest.mark.long
@settings(QUIET, max_examples=examples(30))
@given(st.lists(CONDITIONS, min_size=60, max_size=60), BLOCKINGS)
def test_many_generated_conditions_over_column_groups(
    rows: pa.Table, source: SparkSession, enabled: SparkSession, conditions: list[str], blocking: Blocking
) -> None:
    check_groups(rows, source, enabled, conditions, 20, blocking)


OTHER_SETTINGS = {
    "without ANSI": {"spark.sql.ansi.enabled": "false"},
    "another zone": {"spark.sql.session.timeZone": "America/New_York"},
    "older Spark": {"spark.sql.legacy.sizeOfNull": "false", "spark.sql.ansi.enabled": "false"},
}


def check_under(
    spark: SparkSession,
    rows: pa.Table,
    source: SparkSession,
    other: dict[str, str],
    conditions: Sequence[str],
    by: Blocking,
    in_spark: int,
) -> float:
    """Ask a table of sessions with other settings than its features were measured under; the share that skips."""
    elsewhere, enabled = (new_session(spark, {**UNCOMPILED, **other}) for _ in range(2))
    elsewhere.createDataFrame(rows).coalesce(1).createOrReplaceTempView("t")
    matches, usable = truth(elsewhere, conditions), [k for k, each in enumerate(conditions) if exact(each)]
    chosen = usable[:MOST_FEATURES]
    measured = truth(source, conditions)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "t"
        table = built(root, rows, [conditions[k] for k in chosen], measured[:, chosen], by)
        register(enabled, "t", str(root))
        enable(enabled)
        block_of, skipping = blocks_of(table), 0
        for k, condition in enumerate(conditions):
            left = left_in_spark(enabled, condition, int(block_of.max()) + 1)
            needed = np.zeros(len(left), dtype=bool)
            needed[block_of[matches[:, k]]] = True
            assert not (needed & ~left).any(), f"{condition} skips rows that it matches under {other}"
            skipping += not left.all()
        last = list(range(len(conditions)))[-in_spark:]
        found = answers(enabled, [conditions[k] for k in last], noted="legacy" in str(other))
        assert found == [np.flatnonzero(matches[:, k]).tolist() for k in last]
        disable(enabled)
    return skipping / len(conditions)


@pytest.mark.parametrize("name", OTHER_SETTINGS)
@settings(QUIET, max_examples=1, derandomize=True)
@given(st.lists(CONDITIONS, min_size=40, max_size=40), BLOCKINGS)
def test_generated_conditions_under_other_settings(
    spark: SparkSession, rows: pa.Table, source: SparkSession, name: str, conditions: list[str], blocking: Blocking
) -> None:
    assert check_under(spark, rows, source, OTHER_SETTINGS[name], conditions, blocking, 4) > 0.2


@pytest.mark.long
@pytest.mark.parametrize("name", OTHER_SETTINGS)
@settings(QUIET, max_examples=examples(20))
@given(st.lists(CONDITIONS, min_size=80, max_size=80), BLOCKINGS)
def test_many_generated_conditions_under_other_settings(
    spark: SparkSession, rows: pa.Table, source: SparkSession, name: str, conditions: list[str], blocking: Blocking
) -> None:
    check_under(spark, rows, source, OTHER_SETTINGS[name], conditions, blocking, 10)
