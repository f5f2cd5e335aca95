"""Whole logs: what becomes a query, what is skipped and why."""

from __future__ import annotations

import re
from pathlib import Path
from unittest.mock import patch

import pytest

from layoutopt.errors import LogError
from layoutopt.model.predicates import TRUE, Col, InSet
from layoutopt.model.query import sampling_error
from layoutopt.model.schema import Column, Schema
from layoutopt.model.values import ValueSet
from layoutopt.sql import dialect
from layoutopt.sql.problems import STATEMENT_REASONS
from layoutopt.sql.scans import find_scans
from layoutopt.sql.schema import schemas_from
from layoutopt.workload.analyze import MOST_SKIPPED, analyze
from layoutopt.workload.log import LogEntry, read_log

SCHEMA = Schema((Column("a", "int"), Column("b", "string"), Column("c", "double")))
PUBLIC_BI = next(
    (p / "shared/data/public_bi" for p in Path(__file__).resolve().parents if (p / "shared/data/public_bi").is_dir()),
    Path("shared/data/public_bi"),
)


def entries(*texts: str) -> list[LogEntry]:
    return [LogEntry(number, text) for number, text in enumerate(texts)]


def test_each_scan_is_a_query_and_each_other_statement_has_a_reason() -> None:
    log = [
        *entries(
            "SELECT a FROM t WHERE b = 'x'",
            "SELECT a FROM (t",
            "SELECT x.a, y.c FROM t x JOIN prod.t y ON x.a = y.a WHERE y.c > 1",
            "SELECT k FROM other",
            "SELECT nope FROM t",
            "DROP TABLE t",
        ),
        LogEntry(6, "", problem="the record is not JSON"),
        LogEntry(7, "SELECT a FROM t WHERE a = 1 AND rand() > 0.5", "2024-01-01", "ann", 5.0),
    ]
    found = analyze(log, SCHEMA, "t")
    assert [(q.id, q.columns, q.exact) for q in found.queries] == [
        (0, ("a", "b"), True),
        (2, ("a",), True),
        (2, ("a", "c"), True),
        (7, ("a",), False),
    ]
    assert found.queries[-1].filter.root == InSet(Col("a", "int"), ValueSet.point(1))
    last = found.queries[-1]
    assert (last.weight, last.timestamp, last.user, last.table) == (5.0, "2024-01-01", "ann", "t")
    assert [(s.id, s.reason) for s in found.skipped] == [
        (1, "parse-error"),
        (3, "no-table"),
        (4, "unknown-column"),
        (5, "not-a-query"),
        (6, "bad-record"),
    ]
    assert {s.reason for s in found.skipped} <= set(STATEMENT_REASONS)
    assert found.counts["statements"] == 8
    assert (found.counts["used"], found.counts["skipped"], found.counts["scans"]) == (3, 5, 4)
    assert found.counts["skipped:unknown-column"] == 1
    assert found.counts["unusable:non-deterministic"] == 1


def test_each_statement_of_a_record_is_an_entry() -> None:
    log = [
        LogEntry(0, "SET x = 1; SELECT a FROM t WHERE b = ';'; SELECT c FROM t", "2024-01-01", "ann", 5.0),
        LogEntry(1, "SELECT a FROM t; SELECT a FROM t WHERE a = ?", parameters=[7]),
        LogEntry(2, "SELECT a FROM t;"),
    ]
    found = analyze(log, SCHEMA, "t")
    assert [(q.id, q.columns, q.weight, q.user) for q in found.queries] == [
        (1, ("a", "b"), 5.0, "ann"),
        (2, ("c",), 5.0, "ann"),
        (4, ("a",), 1.0, None),
    ]
    assert [(s.id, s.reason) for s in found.skipped] == [(0, "not-a-query"), (3, "several-statements")]
    assert found.counts["statements"] == 5


def test_tables_of_other_schemas_do_not_count() -> None:
    log = entries(
        "SELECT a FROM sales.t WHERE a = 1",
        "SELECT a FROM hr.t WHERE a = 2",
        "SELECT a FROM t WHERE a = 3",
        "SELECT x.a FROM prod.Sales.T x JOIN hr.t y ON x.a = y.a WHERE x.a = 4 AND y.a = 5",
    )
    for table, ids in ((None, [0, 2, 3]), ("t", [0, 2, 3]), ("sales.t", [0, 3]), ("hr.t", [1, 3])):
        assert [query.id for query in analyze(log, SCHEMA, table).queries] == ids
    assert analyze(log, SCHEMA).skipped[0].detail == "the statement does not read the table 'sales.t'"
    assert [query.table for query in analyze(log[1:3], SCHEMA).queries] == ["t", "t"]


def test_without_a_name_the_most_read_table_is_meant() -> None:
    log = entries("SELECT k FROM other", "SELECT a FROM big", "WITH q AS (SELECT a FROM BIG) SELECT * FROM q JOIN q z")
    found = analyze(log, SCHEMA)
    assert found.table == "big"
    assert [q.id for q in found.queries] == [1, 2]


@pytest.mark.parametrize(
    ("texts", "table", "message"),
    [
        (["SELECT nope FROM t"], "t", "nope"),
        (["SELECT 1", "SELEC"], None, "no statement of the log reads a table"),
        ([], "t", "no statement of the log can be used on the table 't'"),
    ],
)
def test_a_log_without_any_usable_query_is_an_error(texts: list[str], table: str | None, message: str) -> None:
    with pytest.raises(LogError, match=message):
        analyze(entries(*texts), SCHEMA, table)


@pytest.mark.parametrize("table", ["t", None])
def test_a_log_that_nothing_parses_of_names_a_dialect_that_does(table: str | None) -> None:
    log = entries("SELECT TOP 5 [a] FROM [t]", "SELECT [b] FROM [t] WHERE [a] = 1", "SELECT (")
    with pytest.raises(LogError, match="3 can't be read in the dialect spark: --dialect tsql reads them"):
        analyze(log, SCHEMA, table)
    with pytest.raises(LogError, match="1 can't be read in the dialect spark: name the log's own with --dialect"):
        analyze(entries("SELECT ("), SCHEMA, table)
    assert len(analyze(log, SCHEMA, table, "tsql").queries) == 2


def test_analysis_does_not_depend_on_the_dialect_for_meaning() -> None:
    spark = analyze(entries("SELECT a FROM t WHERE b LIKE 'x%' AND a = '5'"), SCHEMA, "t")
    other = analyze(entries("""SELECT "a" FROM "t" WHERE "b" LIKE 'x%' AND "a" = '5'"""), SCHEMA, "t", "postgres")
    assert [q.filter for q in spark.queries] == [q.filter for q in other.queries]


# A collation that no log names orders the texts of PostgreSQL.
_TEXT_RANGE = re.compile(r"[<>]=? '[A-Za-z]")


@pytest.mark.long
@pytest.mark.skipif(not PUBLIC_BI.is_dir(), reason="the Public BI workloads are not beside the project")
def test_public_bi_is_analysed_and_every_other_query_has_a_reason() -> None:
    statements = used = exact = with_condition = with_filter = 0
    for folder in sorted(path for path in PUBLIC_BI.iterdir() if path.is_dir()):
        schemas = schemas_from((folder / "schema.sql").read_text(encoding="utf-8"))
        log = list(read_log(folder / "queries.sql", dialect="postgres"))
        statements += len(log)
        for table, readers in _readers(log, schemas).items():
            found = analyze(readers, schemas[table], table, "postgres")
            used += len({q.id for q in found.queries})
            filtered = [q for q in found.queries if " WHERE " in q.sql]
            with_condition += len(filtered)
            with_filter += sum(q.filter.root != TRUE for q in filtered)
            assert found.skipped == ()
            exact += sum(q.exact for q in found.queries)
            assert all(q.exact or _TEXT_RANGE.search(q.sql) for q in found.queries)
    assert statements == 421
    assert exact >= 0.93 * used
    assert used >= 0.95 * statements
    assert with_filter >= 0.95 * with_condition


def _readers(log: list[LogEntry], schemas: dict[str, Schema]) -> dict[str, list[LogEntry]]:
    """The statements that read each table; every statement must be analysable."""
    readers: dict[str, list[LogEntry]] = {}
    for entry in log:
        for table in sorted({scan.table for scan in find_scans(entry.sql, schemas, "postgres")}):
            readers.setdefault(table, []).append(entry)
    return readers


def test_unreadable_statements_are_counted_each() -> None:
    texts = [f"SELECT TOP {number} [a] FROM [t] WHERE [a] = {number}" for number in range(1, 8)]
    with pytest.raises(LogError, match="7 can't be read in the dialect spark"):
        analyze(entries(*texts), SCHEMA)


def periodic_log(times: int) -> list[LogEntry]:
    """Ten statements that follow one another again and again, with other constants and counts."""
    shapes = [f"SELECT a FROM t WHERE a > {{0}} AND c < {limit}.5" for limit in range(6)] + [
        "SELECT x.a FROM t x JOIN t y ON x.a = y.a WHERE y.c > {0}.5",
        "SELECT a FROM t WHERE a = {0} AND rand() > 0.5",
        "SELECT k FROM other WHERE k = {0} AND day > CURRENT_DATE - 7",
        "SELECT nope{0} FROM t",
    ]
    texts = [shape.format(number) for number in range(times) for shape in shapes]
    return [
        LogEntry(number, text, f"2026-11-{1 + number % 28:02}T10:00:00", count=1.0 + number % 3)
        for number, text in enumerate(texts)
    ]


def test_a_sample_keeps_counts_weight_and_shares_also_of_periodic_logs() -> None:
    log = periodic_log(200)
    every, sampled = analyze(log, SCHEMA, "t"), analyze(log, SCHEMA, "t", sample=500)
    counts = {
        key: count for key, count in sampled.counts.items() if key not in ("sampled", "unusable:non-deterministic")
    }
    assert counts == {key: every.counts[key] for key in counts}
    assert sampled.counts["sampled"] == len(sampled.queries) <= 500
    assert sampled.counts["unusable:non-deterministic"] == pytest.approx(200, rel=0.3)
    assert sum(query.weight for query in sampled.queries) == pytest.approx(sum(query.weight for query in every.queries))
    error, total = sampling_error(500, 9), sum(query.weight for query in every.queries)
    for shape in range(10):
        weights = [
            sum(query.weight for query in result.queries if query.id % 10 == shape) / total
            for result in (every, sampled)
        ]
        assert weights[1] == pytest.approx(weights[0], abs=error)
    filters = {(query.id, query.filter) for query in every.queries}
    assert {(query.id, query.filter) for query in sampled.queries} <= filters


def test_only_the_first_skipped_statements_are_kept() -> None:
    log = periodic_log(MOST_SKIPPED)
    result = analyze(log, SCHEMA, "t", sample=100)
    assert len(result.skipped) == MOST_SKIPPED
    assert result.counts["skipped"] == 2 * MOST_SKIPPED
    assert result.reasons == {"no-table": MOST_SKIPPED, "unknown-column": MOST_SKIPPED}


def test_skipped_statements_show_their_own_texts() -> None:
    log = entries(*[f"DELETE FROM t WHERE a = {number}" for number in range(2_000)], "SELECT a FROM t")
    with patch.object(dialect, "_parse", wraps=dialect._parse) as parse:
        result = analyze(log, SCHEMA, "t")
    assert result.reasons == {"not-a-query": 2_000}
    assert [f"a = {statement.id}'" in statement.detail for statement in result.skipped] == [True] * MOST_SKIPPED
    assert parse.call_count < MOST_SKIPPED + 20


def test_a_sample_limits_the_scans_of_joins_too() -> None:
    log = entries(*[f"SELECT x.a FROM t x JOIN t y ON x.a = y.a WHERE x.c > {number}" for number in range(5)])
    result = analyze(log, SCHEMA, "t", sample=5)
    assert (len(result.queries), result.counts["scans"], result.counts["sampled"]) == (5, 10, 5)
    assert analyze(log, SCHEMA, "t", sample=10).queries == analyze(log, SCHEMA, "t").queries


def test_a_column_like_a_function_is_bound_in_samples_as_in_whole_logs() -> None:
    schema = Schema((*SCHEMA.columns, Column("current_date", "date")))
    texts = [f"SELECT a FROM t WHERE a > {number} AND d < CURRENT_DATE" for number in range(20)]
    log = [LogEntry(number, text.replace(" d ", " b "), "2026-11-22T10:00:00") for number, text in enumerate(texts)]
    every, sampled = analyze(log, schema, "t"), analyze(log, schema, "t", sample=10)
    assert sampled.counts["used"] == every.counts["used"] == 20


def test_scans_that_constants_fold_away_leave_their_weight_to_others() -> None:
    inner = "a IN (SELECT a FROM t WHERE b = '{0}')"
    log = [
        LogEntry(number, f"SELECT a FROM t WHERE a > {number} AND ({late} OR {inner})".format(number), day)
        for number in range(20)
        for late in ("CURRENT_DATE > DATE '2020-01-01'", "CURRENT_DATE > DATE '2030-01-01'")
        for day in ("2026-11-22T10:00:00",)
    ]
    sampled = analyze(log, SCHEMA, "t", sample=15)
    assert sum(query.weight for query in sampled.queries) == pytest.approx(sampled.counts["scans"])


def test_all_unreadable_statements_are_counted() -> None:
    log = entries(*[f"SELECT TOP {number} [a] FROM [t] WHERE [a] = {number}" for number in range(MOST_SKIPPED + 200)])
    with pytest.raises(LogError, match=f"{MOST_SKIPPED + 200} can't be read in the dialect spark"):
        analyze(log, SCHEMA, "t")
