"""Query histories as systems export them, made after the systems' own documentation, with what goes wrong in them.

Each has :data:`USABLE` reads of the table ``events``, each by a text of its own dialect, and for every reason one
statement or more that is no use.
"""

from __future__ import annotations

import csv
import datetime as dt
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

USABLE = 120
BEGIN = dt.datetime(2026, 11, 1, 8, 0, tzinfo=dt.UTC)


def time_of(number: int) -> dt.datetime:
    return BEGIN + dt.timedelta(hours=5 * number, seconds=number)


def texts(today: Callable[[int], str], quote: str = '"') -> list[str]:
    """Reads in the manner of people: names quoted or qualified, several lines, comments, literals with quotes."""
    found = []
    for i in range(USABLE):
        found.append(
            [
                f"SELECT count(*) FROM analytics.events WHERE kind = 'k{i % 7}' AND day >= {today(7)}",
                f"select {quote}user_id{quote}, price\nfrom events -- of today\n"
                f"where day = {today(0)} and price > {i % 9}.5;",
                f"SELECT e.kind, sum(e.price) AS s FROM events e WHERE e.country IN ('CZ', 'it''s') "
                f"AND e.user_id BETWEEN {i} AND {i + 10} GROUP BY e.kind",
                f"WITH r AS (SELECT * FROM events WHERE day > {today(30)}) SELECT kind FROM r WHERE price < {i % 5}",
            ][i % 4]
        )
    return found


def snowflake(path: Path) -> Path:
    """`SELECT * FROM snowflake.account_usage.query_history`, as CSV."""

    def record(i: int, text: str, **other: Any) -> dict[str, Any]:
        return {
            "QUERY_ID": f"01b-{i}",
            "QUERY_TEXT": text,
            "QUERY_TYPE": "SELECT",
            "START_TIME": time_of(i).strftime("%Y-%m-%d %H:%M:%S.000 +0000"),
            "USER_NAME": "ANNA",
            "EXECUTION_STATUS": "SUCCESS",
            "BYTES_SCANNED": 1000 * (i + 1),
            "PARTITIONS_SCANNED": 3,
        } | other

    rows = [record(i, text) for i, text in enumerate(texts(lambda n: f"DATEADD(day, -{n}, CURRENT_DATE())"))]
    rows += [
        record(900, rows[0]["QUERY_TEXT"], EXECUTION_STATUS="FAIL"),
        record(901, "DROP TABLE events", QUERY_TYPE="DROP"),
        record(902, "SELECT price FROM events WHERE kind IN (" + "'k', " * 20_000, PARTITIONS_SCANNED=1),
    ]
    rows[-1]["QUERY_TEXT"] = rows[-1]["QUERY_TEXT"].ljust(100_000, "x")[:100_000]
    return _csv(path / "history.csv", rows)


def bigquery(path: Path) -> Path:
    """`SELECT * FROM region-eu.INFORMATION_SCHEMA.JOBS`, as JSON lines: numbers are texts."""

    def record(i: int, text: str, **other: Any) -> dict[str, Any]:
        return {
            "creation_time": time_of(i).isoformat(),
            "user_email": "anna@example.com",
            "job_type": "QUERY",
            "statement_type": "SELECT",
            "state": "DONE",
            "query": text,
            "total_bytes_processed": str(1000 * (i + 1)),
            "cache_hit": False,
            "error_result": None,
        } | other

    listed = texts(lambda n: f"DATE_SUB(CURRENT_DATE(), INTERVAL {n} DAY)", quote="`")
    rows = [record(i, text.replace("it''s", "it\\'s")) for i, text in enumerate(listed)]
    rows += [
        record(900, rows[0]["query"], cache_hit=True),
        record(901, rows[0]["query"], error_result={"reason": "invalidQuery", "message": "no"}),
        record(902, "DECLARE n INT64; SELECT * FROM events", statement_type="SCRIPT"),
        record(903, rows[0]["query"], state="RUNNING"),
    ]
    return _lines(path / "jobs.jsonl", rows)


def databricks(path: Path) -> Path:
    """`SELECT * FROM system.query.history`, as Parquet, with parameters by name and by place."""

    def record(i: int, text: str, **other: Any) -> dict[str, Any]:
        return {
            "statement_id": f"s-{i}",
            "executed_by": "anna@example.com",
            "execution_status": "FINISHED",
            "statement_type": "SELECT",
            "statement_text": text,
            "start_time": time_of(i),
            "read_bytes": 1000 * (i + 1),
            "from_result_cache": False,
            "query_parameters": {"named_parameters": [("", "")], "pos_parameters": None},
        } | other

    rows = [
        record(i, text.replace("it''s", "it\\'s"))
        for i, text in enumerate(texts(lambda n: f"current_date() - {n}", "`"))
    ]
    rows[5] |= {
        "statement_text": "SELECT price FROM events WHERE kind = :kind AND price > :least",
        "query_parameters": {"named_parameters": [("kind", "k5"), ("least", "2")], "pos_parameters": None},
    }
    rows[6] |= {
        "statement_text": "SELECT price FROM events WHERE kind = ? AND user_id = ?",
        "query_parameters": {"named_parameters": None, "pos_parameters": ["k6", "17"]},
    }
    for row in rows:
        if row["query_parameters"]["named_parameters"] == [("", "")]:
            row["query_parameters"] = {"named_parameters": None, "pos_parameters": None}
    rows += [
        record(900, rows[0]["statement_text"], from_result_cache=True, query_parameters=None),
        record(901, rows[0]["statement_text"], execution_status="CANCELED", query_parameters=None),
        record(902, "OPTIMIZE events ZORDER BY (kind)", statement_type="OPTIMIZE", query_parameters=None),
    ]
    parameters = pa.struct(
        [("named_parameters", pa.map_(pa.string(), pa.string())), ("pos_parameters", pa.list_(pa.string()))]
    )
    fields = [(name, parameters if name == "query_parameters" else None) for name in rows[0]]
    arrays = {name: pa.array([row[name] for row in rows], type) for name, type in fields}
    pq.write_table(pa.table(arrays), path / "history.parquet")
    return path / "history.parquet"


def redshift(path: Path) -> Path:
    """SYS_QUERY_HISTORY joined with SYS_QUERY_TEXT, as CSV: texts in pieces of 4,000, in no order."""
    rows: list[dict[str, Any]] = []

    def add(i: int, text: str, **other: Any) -> None:
        for sequence, start in enumerate(range(0, len(text), 4000)):
            rows.append(
                {
                    "user_id": 100,
                    "query_id": 7000 + i,
                    "sequence": sequence,
                    "text": text[start : start + 4000],
                    "start_time": time_of(i).strftime("%Y-%m-%d %H:%M:%S.%f"),
                    "status": "success",
                    "query_type": "SELECT",
                    "result_cache_hit": "f",
                }
                | other
            )

    listed = texts(lambda n: f"CURRENT_DATE - {n}")
    listed[3] = f"SELECT price FROM events WHERE user_id IN ({', '.join(map(str, range(3000)))}) AND kind = 'k3'"
    for i, text in enumerate(listed):
        add(i, text)
    add(900, listed[0], status="failed")
    add(901, listed[0], result_cache_hit="t")
    add(902, "COPY events FROM 's3://bucket'", query_type="COPY")
    rows.reverse()
    return _csv(path / "queries.csv", rows)


def trino(path: Path) -> Path:
    """Events of the HTTP event listener, as JSON lines."""

    def record(i: int, text: str, state: str = "FINISHED", kind: str = "SELECT", **other: Any) -> dict[str, Any]:
        return {
            "metadata": {"queryId": f"20261101_0{i % 10}0000_{i:05}_abcde", "query": text, "queryState": state} | other,
            "context": {"user": "anna", "queryType": kind},
            "statistics": {"physicalInputBytes": 1000 * (i + 1)},
            "createTime": time_of(i).isoformat().replace("+00:00", "Z"),
        }

    rows = [record(i, text) for i, text in enumerate(texts(lambda n: f"current_date - INTERVAL '{n}' DAY"))]
    rows[2] = record(2, "EXECUTE q USING 'k2'", preparedQuery="SELECT price FROM events WHERE kind = 'k2'")
    rows += [
        record(900, "SELECT price FROM events", state="FAILED"),
        record(901, "DROP TABLE events", kind="DATA_DEFINITION"),
    ]
    return _lines(path / "events.json", rows)


def athena(path: Path) -> Path:
    """`aws athena batch-get-query-execution`, as JSON: one object with a list."""

    def record(i: int, text: str, **other: Any) -> dict[str, Any]:
        return {
            "QueryExecutionId": f"q-{i}",
            "Query": text,
            "StatementType": "DML",
            "SubstatementType": "SELECT",
            "WorkGroup": "primary",
            "Status": {"State": "SUCCEEDED", "SubmissionDateTime": time_of(i).isoformat()},
            "Statistics": {
                "DataScannedInBytes": 1000 * (i + 1),
                "ResultReuseInformation": {"ReusedPreviousResult": False},
            },
        } | other

    rows = [record(i, text) for i, text in enumerate(texts(lambda n: f"current_date - INTERVAL '{n}' DAY"))]
    rows[9] = record(9, "SELECT price FROM events WHERE kind = ? AND user_id = ?", ExecutionParameters=["'k9'", "5"])
    reused = {"DataScannedInBytes": 0, "ResultReuseInformation": {"ReusedPreviousResult": True}}
    rows += [
        record(900, rows[0]["Query"], Status={"State": "FAILED", "SubmissionDateTime": time_of(900).isoformat()}),
        record(901, rows[0]["Query"], Statistics=reused),
        record(902, "CREATE TABLE y (kind string)", SubstatementType="CREATE_TABLE"),
    ]
    (path / "executions.json").write_text(json.dumps({"QueryExecutions": rows, "UnprocessedQueryExecutionIds": []}))
    return path / "executions.json"


def spark_events(path: Path) -> Path:
    """The event log of an application: most executions have a call site for a description, and only filters."""

    def record(i: int, description: str, plan: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return {
            "Event": "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart",
            "executionId": i,
            "description": description,
            "details": "org.apache.spark.sql.Dataset.collect",
            "physicalPlanDescription": "== Physical Plan == ...",
            "sparkPlanInfo": plan or {"nodeName": "WholeStageCodegen", "children": [], "metadata": {}},
            "time": int(time_of(i).timestamp() * 1000),
        }

    def scan(filters: str, partitions: str = "[]") -> dict[str, Any]:
        metadata = {
            "Location": "InMemoryFileIndex(1 paths)[file:/data/events]",
            "ReadSchema": "struct<kind:string,price:double,user_id:bigint>",
            "Format": "Parquet",
            "Batched": "true",
            "PartitionFilters": partitions,
            "PushedFilters": filters,
            "DataFilters": "[isnotnull(price#1), (price#1 > 2.0)]",
        }
        leaf = {"nodeName": "Scan parquet spark_catalog.default.events", "children": [], "metadata": metadata}
        return {"nodeName": "HashAggregate", "metadata": {}, "children": [{"nodeName": "Project", "children": [leaf]}]}

    rows: list[Mapping[str, Any]] = [{"Event": "SparkListenerApplicationStart", "App Name": "nightly"}]
    listed = texts(lambda n: f"current_date() - {n}", "`")
    for i, text in enumerate(listed):
        if i % 2:
            rows.append(record(i, text.replace("it''s", "it\\'s")))
        else:
            filters = (
                f"[IsNotNull(price), GreaterThan(price,{i % 9}.5), In(kind, [k1,k{i % 7}])]",
                f"[Not(EqualTo(kind,k{i % 7})), Or(LessThan(user_id,{i}),StringStartsWith(country,C))]",
            )[i % 4 // 2]
            rows.append(record(i, f"collect at nightly.py:{i}", scan(filters)))
    rows.append(record(900, "save at nightly.py:9"))
    rows.append({"Event": "SparkListenerApplicationEnd", "Timestamp": 1})
    return _lines(path / "app-20261101-0001", rows)


def duckdb(path: Path) -> Path:
    """`SELECT * FROM duckdb_logs`, as CSV."""
    listed = texts(lambda n: f"current_date - {n}")
    rows = [
        {"context_id": i, "timestamp": time_of(i).isoformat(), "type": "QueryLog", "log_level": "INFO", "message": text}
        for i, text in enumerate(listed)
    ]
    rows.append(rows[0] | {"type": "FileSystem", "message": '{"fs":"LocalFileSystem","op":"OPEN"}'})
    return _csv(path / "logs.csv", rows)


HISTORIES: dict[str, Callable[[Path], Path]] = {
    "snowflake": snowflake, "bigquery": bigquery, "databricks": databricks, "redshift": redshift, "trino": trino,
    "athena": athena, "spark-events": spark_events, "duckdb": duckdb,
}  # fmt: skip


def _csv(path: Path, rows: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    return path


def _lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path
