"""Query histories of systems: every read of a usable statement is used, and every other record has a reason."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from pathlib import Path

import pytest

from layoutopt.errors import LogError
from layoutopt.model.predicates import Col, InSet
from layoutopt.model.query import Query
from layoutopt.model.schema import Column, Schema
from layoutopt.model.values import compare
from layoutopt.workload.analyze import Analysis, analyze
from layoutopt.workload.history import SYSTEMS, read_entries
from layoutopt.workload.log import read_log
from tests.workload.histories import HISTORIES, USABLE

SCHEMA = Schema(
    (
        Column("kind", "string"),
        Column("user_id", "bigint"),
        Column("price", "double"),
        Column("country", "string"),
        Column("day", "date"),
    )
)
SKIPPED = {
    "snowflake": {"failed": 1, "no-read": 1, "cut-off": 1},
    "bigquery": {"cached": 1, "failed": 2, "no-read": 1},
    "databricks": {"cached": 1, "failed": 1, "no-read": 1},
    "redshift": {"cached": 1, "failed": 1, "no-read": 1},
    "trino": {"failed": 1, "no-read": 1},
    "athena": {"cached": 1, "failed": 1, "no-read": 1},
    "spark-events": {"bad-record": 1},
    "duckdb": {},
}


def analysed(path: Path, system: str | None = None) -> Analysis:
    return analyze(read_log(path, system=system), SCHEMA)


def test_every_system_has_a_sample() -> None:
    assert set(HISTORIES) == set(SYSTEMS) == set(SKIPPED)


@pytest.mark.parametrize("guessed", [True, False])
@pytest.mark.parametrize("system", HISTORIES)
def test_all_reads_are_used_and_all_else_has_a_reason(tmp_path: Path, system: str, guessed: bool) -> None:
    path = HISTORIES[system](tmp_path)
    if guessed and not path.suffix:
        path = path.rename(path.with_suffix(".jsonl"))
    found = analysed(path, None if guessed else system)
    assert found.table == "events"
    assert (found.counts["used"], found.counts["skipped"]) == (USABLE, sum(SKIPPED[system].values()))
    assert Counter(skipped.reason for skipped in found.skipped) == SKIPPED[system]
    # what people ask for is understood, not only read
    assert not any(name.startswith("unusable:") for name in found.counts), found.counts
    assert all(query.filter.predicates for query in found.queries)


@pytest.mark.parametrize(
    ("system", "kind", "sql"),
    [
        (
            "snowflake",
            "MERGE",
            "MERGE INTO o USING events e ON o.k = e.user_id AND e.price > 1 WHEN MATCHED THEN DELETE",
        ),
        ("bigquery", "CREATE_TABLE_AS_SELECT", "CREATE TABLE x AS SELECT user_id FROM events WHERE price > 1"),
        ("athena", "INSERT", "INSERT INTO x SELECT user_id FROM events WHERE price > 1"),
        ("trino", "DELETE", "DELETE FROM o WHERE k IN (SELECT user_id FROM events WHERE price > 1)"),
    ],
)
def test_changes_of_other_tables_are_reads_of_this_one(system: str, kind: str, sql: str) -> None:
    description = SYSTEMS[system]
    record = {description.text[0]: sql, description.kind[0]: kind.lower()}
    record[description.state[0][0]] = min(description.state[1])
    (query,) = analyze(read_entries([record], system), SCHEMA, "events").queries
    assert (query.columns, query.exact) == (("user_id", "price"), True)
    assert "price" in repr(query.filter)


@pytest.mark.parametrize("system", ["snowflake", "bigquery", "databricks", "redshift", "trino", "athena", "duckdb"])
def test_today_is_the_day_of_the_statement(tmp_path: Path, system: str) -> None:
    """Every fourth asks for the last seven days, each time for others."""
    queries = analysed(HISTORIES[system](tmp_path), system).queries
    first = min(queries, key=lambda query: str(query.timestamp)).filter.root
    assert is_value("day", ">=", "2026-10-25") in getattr(first, "children", (first,))
    assert len({query.filter for query in queries if "count(*)" in query.sql}) == USABLE // 4


def is_value(column: str, operator: str, value: str) -> InSet:
    type = SCHEMA.find(column).type
    return InSet(Col(column, type), compare(operator, dt.date.fromisoformat(value), type))


def by_text(queries: tuple[Query, ...], part: str) -> Query:
    (found,) = [query for query in queries if part in query.sql]
    return found


def test_parameters_have_the_values_of_the_run(tmp_path: Path) -> None:
    found = analysed(HISTORIES["databricks"](tmp_path)).queries
    assert "k5" in repr(by_text(found, ":kind").filter)
    assert "k6" in repr(by_text(found, "kind = ?").filter)
    assert "k9" in repr(by_text(analysed(HISTORIES["athena"](tmp_path)).queries, "kind = ?").filter)
    prepared = by_text(analysed(HISTORIES["trino"](tmp_path)).queries, "price FROM events WHERE kind = 'k2'")
    assert "k2" in repr(prepared.filter)


def test_pieces_are_put_together_in_their_order(tmp_path: Path) -> None:
    entries = list(read_log(HISTORIES["redshift"](tmp_path)))
    longest = max(entries, key=lambda entry: len(entry.sql))
    assert longest.sql.endswith("2998, 2999) AND kind = 'k3'")
    assert not longest.problem


@pytest.mark.parametrize("system", ["snowflake", "bigquery", "databricks", "trino", "athena"])
def test_statements_may_weigh_what_they_scanned(tmp_path: Path, system: str) -> None:
    path = HISTORIES[system](tmp_path)
    entries = [entry for entry in read_log(path, weigh="bytes") if not entry.problem]
    assert entries[-1].count / entries[0].count == pytest.approx(USABLE)
    assert {entry.count for entry in read_log(path)} == {1.0}


def test_who_says_no_bytes_is_not_weighed_by_them(tmp_path: Path) -> None:
    plain = tmp_path / "queries.sql"
    plain.write_text("SELECT 1 FROM events WHERE kind = 'k1';", encoding="utf-8")
    for path in (plain, HISTORIES["duckdb"](tmp_path)):
        with pytest.raises(LogError, match="leave --weigh out"):
            list(read_log(path, weigh="bytes"))


def test_time_and_user_are_kept(tmp_path: Path) -> None:
    for system in ("snowflake", "bigquery", "databricks", "trino", "athena", "duckdb"):
        entry = next(iter(read_log(HISTORIES[system](tmp_path))))
        assert entry.timestamp is not None
        assert entry.timestamp.startswith("2026-11-01T08:00:00")
        assert entry.dialect == SYSTEMS[system].dialect


def test_a_history_of_another_system_is_said_so(tmp_path: Path) -> None:
    path = HISTORIES["snowflake"](tmp_path)
    with pytest.raises(LogError, match=r"is no history of bigquery, .* it looks like one of snowflake"):
        list(read_log(path, system="bigquery"))


def test_damaged_records_are_told_and_do_not_stop_the_others(tmp_path: Path) -> None:
    path = HISTORIES["bigquery"](tmp_path)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, "{cut off", "[1]", json.dumps({"query": "  ", "creation_time": 1e300})]))
    found = analysed(path, "bigquery")
    assert found.counts["used"] == USABLE
    assert found.counts["skipped:bad-record"] == 3


def test_plain_records_are_read_from_json_and_parquet_too(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text(json.dumps([{"SQL": "SELECT kind FROM events WHERE price > 1", "count": 3}, {"sql": ""}]))
    good, bad = read_log(path)
    assert (good.sql, good.count, good.dialect) == ("SELECT kind FROM events WHERE price > 1", 3.0, None)
    assert bad.problem == "the record has no text in 'sql'"
