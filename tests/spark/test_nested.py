"""Parts of nested columns: conditions mean what they mean to Spark, features and indexes of them skip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import layoutopt
from layoutopt.features.selection import mine_all
from layoutopt.indexes.choosing import parse_indexes
from layoutopt.inspect.verify import verify
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.predicates import TRUE, to_sql
from layoutopt.spark import disable, enable, register
from layoutopt.spark.core.source import schema_of
from layoutopt.spark.loading.load import load
from layoutopt.sql.scans import find_scans
from layoutopt.workload.analyze import analyze
from layoutopt.workload.log import LogEntry
from tests.spark.session.answers import scans_under
from tests.spark.settings import compared_here
from tests.spark.tables import compared, plan_of

pytestmark = pytest.mark.spark
ROWS = 800
TYPE = """
    id int, st struct<a: int, deep: struct<word: string, d: double>>, m map<string, int>, arr array<int>,
    words array<string>, byid map<int, struct<a: string>>, xd array<double>
"""
CONDITIONS = [
    "st.a = 3", "st.a <> 3", "NOT st.a > 3", "st.a IS NULL", "st.deep.word LIKE 'w1%'", "st['deep'].d > 0.5",
    "isnan(st.deep.d)", "st.deep.word IS NULL AND st.a > 1", "m['k'] = 4", "m['z'] IS NULL",
    "m['k'] <> 4 OR st.a < 2",
    "array_contains(arr, 3)", "NOT array_contains(arr, 3)", "array_contains(words, 'w2')", "byid[1].a = 'x1'",
    "byid[1].a IS NOT NULL", "element_at(m, 'k') IN (1, 2)", "try_element_at(arr, 2) = 4",
    "arrays_overlap(arr, array(3, 7))", "NOT arrays_overlap(arr, array(3, 7))", "exists(words, x -> x IN ('w1', 'w2'))",
    "NOT exists(arr, x -> x IN (3, 7))", "map_contains_key(m, 'k')", "NOT map_contains_key(m, 'k')",
    "array_contains(map_values(m), 4)", "NOT array_contains(map_values(m), 3)", "exists(map_values(m), ID -> 6 < id)",
    "exists(words, x -> x LIKE '%1')", "exists(words, x -> x LIKE 'w1%' OR X LIKE '%w_2' OR x = 'w7')",
    "exists(arr, x -> x > '7')", "exists(arr, x -> x < 0.5)", "exists(map_keys(m), k -> k LIKE 'z%')",
    "exists(arr, x -> x BETWEEN 9 AND 10)",
    "array_contains(xd, 0.0D)", "exists(xd, x -> x = -0.0D)", "NOT array_contains(xd, 0.25D)",
    "arrays_overlap(array(-1D, 0.25D), xd)",
]  # fmt: skip

OF_ELEMENTS = ("arr:value-list", "words:bloom", "map_keys(m):value-list", "map_values(m):gap-list", "xd:hybrid")
UNSEEN = ["array_contains(arr, 77)", "exists(words, x -> x = 'none')", "m['none'] = 1", "m['k'] = 77",
          "arrays_overlap(words, array('no', 'none'))", "array_contains(xd, 77D)"]  # fmt: skip


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    def row(i: int) -> tuple[object, ...]:
        deep = (
            None if i % 13 == 0 else (None if i % 7 == 0 else f"w{i % 30}", [float("nan"), None, i / 100, -0.0][i % 4])
        )
        struct = None if i % 17 == 0 else (None if i % 5 == 0 else i // 40, deep)
        held = None if i % 19 == 0 else {"k": None if i % 6 == 0 else i % 9, "z": 1} if i % 3 else {}
        numbers = None if i % 23 == 0 else [None, i % 11] if i % 2 else [i % 5, 4]
        words, of_id = [f"w{i % 8}"] if i % 9 else None, {i % 3: (f"x{i % 4}",)} if i % 2 else {}
        doubles = [[float("nan")], [-0.0, None], [0.25, 0.0], [], None, [float("inf")]][i % 6]
        return i, struct, held, numbers, words, of_id, doubles

    return spark.createDataFrame([row(i) for i in range(ROWS)], TYPE).coalesce(1)


def test_conditions_mean_what_they_mean_to_spark(rows: DataFrame) -> None:
    schema = schema_of(rows)
    read = [find_scans(f"SELECT id FROM t WHERE {text}", {"t": schema})[0] for text in CONDITIONS]
    assert not [text for text, scan in zip(CONDITIONS, read, strict=True) if scan.unusable or scan.filter.root == TRUE]
    differing, matching = compared(rows, CONDITIONS, read)
    assert differing == [0] * len(CONDITIONS)
    matches = dict(zip(CONDITIONS, matching, strict=True))
    assert not {text: n for text, n in matches.items() if not 0 < n < ROWS}


def test_features_and_indexes_of_parts_skip(spark: SparkSession, rows: DataFrame, tmp_path: Path) -> None:
    schema = schema_of(rows)
    log = [LogEntry(i, f"SELECT id FROM t WHERE {text}") for i, text in enumerate(CONDITIONS * 2)]
    found = analyze(log, schema, "t")
    features = mine_all(found.queries, schema, threshold=2, num_features=30)
    document = FeaturesDocument("t", schema, features, found.queries)
    assert any("array_contains" in to_sql(feature.node) for feature in features)
    plan = plan_of(document, block_rows=50)
    asked = ("st.a:gap-list", "st.deep.word:value-list", "lower(st.deep.word):bloom", *OF_ELEMENTS)
    indexes = parse_indexes(asked, document.schema)
    load(spark, rows, str(tmp_path / "t"), replace(plan, indexes=indexes))
    table = layoutopt.open_table(str(tmp_path / "t"))
    checked = verify(table)
    assert checked.problems == ()
    assert [text for text in checked.unchecked if "(" not in text] == []
    session = spark.newSession()
    register(session, "t", str(tmp_path / "t"))
    enable(session)
    rows.createOrReplaceTempView("nested_rows")
    blocks = -(-ROWS // 50)
    try:
        with compared_here():
            assert session.sql(many(UNSEEN, "t")).collect() == []
            unseen = scans_under(session, UNSEEN)
            assert [*unseen] == UNSEEN
            for text, scan in unseen.items():
                assert scan.skipped_by["index"].blocks >= blocks - 1, text
            seen = [*CONDITIONS[::3], "st.a = 11", "st.a BETWEEN 300 AND 400", "lower(st.deep.word) = 'zzz'"]
            answer = session.sql(many(seen, "t")).collect()
            assert sorted(answer) == sorted(spark.sql(many(seen, "nested_rows")).collect())
            of_frames = [session.table("t").where(text).select(F.lit(n), "id") for n, text in enumerate(seen)]
            assert sorted(reduce(DataFrame.unionAll, of_frames).collect()) == sorted(answer)
            scans = scans_under(session, seen).values()
            assert len(scans) == len(seen)
    finally:
        disable(session)
    assert sum(scan.skipped_by["features"].blocks for scan in scans) > 30
    assert sum(scan.skipped_by["index"].blocks for scan in scans) > 20


def many(conditions: Sequence[str], table: str) -> str:
    """One query for the rows of each condition."""
    return " UNION ALL ".join(f"SELECT {n} AS of, id FROM {table} WHERE {text}" for n, text in enumerate(conditions))
