"""The queries of a log that read the most for nothing, each with the reasons why its filter skips no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from layoutopt.model.query import Query
from layoutopt.scan.table import Table
from layoutopt.scan.why_not import Conjunct, explain_conjuncts, unusable_conjunct
from layoutopt.sql.scans import scans_of

_LONGEST_SQL = 1000


def worst_queries(
    table: Table,
    queries: Sequence[Query],
    results: Sequence[Mapping[str, Any]],
    dialect: str = "spark",
    most: int = 10,
) -> list[dict[str, Any]]:
    """The questions of a log (equal filters and columns) that waste the most rows over all their runs, the worst first.

    Wasted are the rows that are read and don't match. Where the matching rows of a question are not known, its
    ``rows_wasted`` is None, and it ranks by all rows that it reads.

    Args:
        table: the table at one snapshot.
        queries: the analysed log.
        results: the queries' results of :func:`layoutopt.inspect.evaluate.evaluate`.
        dialect: the log's.
        most: how many to name.
    """
    found: dict[tuple[object, ...], dict[str, Any]] = {}
    for query, result in zip(queries, results, strict=True):
        key = (query.filter.root, query.columns, result.get("rows_matching"))
        one = found.setdefault(
            key, {"id": query.id, "sql": query.sql[:_LONGEST_SQL], "runs": 0.0, "query": query, "result": result}
        )
        one["runs"] += query.weight
    at_most = {
        key: one["result"]["rows_scanned"] - (one["result"].get("rows_matching") or 0) for key, one in found.items()
    }
    ranked = sorted(found, key=lambda key: (-at_most[key] * found[key]["runs"], found[key]["id"]))
    return [_with_reasons(table, found[key], dialect) for key in ranked[:most] if at_most[key]]


def _with_reasons(table: Table, one: Mapping[str, Any], dialect: str) -> dict[str, Any]:
    query: Query = one["query"]
    read, matching = one["result"]["rows_scanned"], one["result"].get("rows_matching")
    conjuncts = [*explain_conjuncts(table, query.filter.root)]
    conjuncts += _unusable(table, query, dialect)
    kept = ("rows_scanned", "rows_matching", "rows_total", "bytes_scanned", "indicators")
    return {
        "id": one["id"],
        "runs": one["runs"],
        "sql": one["sql"],
        "rows_wasted": None if matching is None else read - matching,
        **{name: one["result"][name] for name in kept if name in one["result"]},
        "conjuncts": [_brief(conjunct) for conjunct in conjuncts],
    }


def _unusable(table: Table, query: Query, dialect: str) -> list[Conjunct]:
    """The conditions that the query's filter leaves out; the log's analysis keeps no more than that there are some."""
    if query.exact:
        return []
    schemas = {query.table: table.schema}
    scans = scans_of(query.sql, schemas, dialect, settings=table.settings, udfs=table.udfs, any_qualifier=True)
    problems = [problem for scan in scans if scan.filter.root == query.filter.root for problem in scan.unusable]
    return [unusable_conjunct(problem) for problem in dict.fromkeys(problems)]


def _brief(conjunct: Conjunct) -> dict[str, Any]:
    return {
        "text": conjunct.text,
        "reason": conjunct.reason.value,
        "detail": conjunct.detail or conjunct.reason.sentence,
        "blocks_skipped_alone": dict(conjunct.alone),
    }
