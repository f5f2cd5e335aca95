"""What `evaluate` prints: the sums first, the worst queries, each query only when asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from layoutopt.inspect.evaluate import (
    Evaluation,
    EvaluationTotals,
    GreedyPaths,
    IndicatorMeans,
    Indicators,
    QueryEvaluation,
    WorstQuery,
)
from layoutopt.inspect.gate import GatedQuery, GateReport, SkippedGate
from layoutopt.report.inspections import print_evaluation
from layoutopt.scan.explain import Conjunct, Reason
from tests.report.printing import printed

UNKNOWN = Indicators(None, None, None, None)
COUNTS: dict[str, Any] = {
    "rows_total": 1000, "rows_scanned": 250, "rows_scanned_by_statistics": 500, "cells_scanned": 250, "tids_scanned": 0,
    "blocks_scanned": 1, "blocks_total": 4, "bytes_scanned": 1500, "footer_bytes": 0,
    "skipped_by": {}, "counted": True, "rows_matching": 11,
}  # fmt: skip
QUERY = QueryEvaluation(id=7777, columns=("a",), filtered=(), layouts=(), subsumed_by=(), indicators=UNKNOWN, **COUNTS)
TOTALS = EvaluationTotals(
    queries=1, indicators=IndicatorMeans(0, UNKNOWN), greedy_paths=GreedyPaths(0, 0, 1.0), **COUNTS
)
RESULT = Evaluation("t", 3, (QUERY,), TOTALS)


def test_an_evaluation_has_the_sums_and_a_line_a_query_if_wanted() -> None:
    said = printed(print_evaluation, RESULT, 1)
    assert all(text in said for text in ("t, snapshot 3", "25.0%", "50.0%", "1/4", "1.5 KB", "match: 11"))
    assert "1 statements could not be used" in said
    assert "7777" not in said
    assert "--all prints a line for each of the 1 queries" in said
    every = printed(print_evaluation, RESULT, 1, every=True)
    assert every.index(" all ") < every.index(" 7777 ")
    assert "--all" not in every


def test_an_empty_table_has_no_share() -> None:
    said = printed(
        print_evaluation, replace(RESULT, queries=(), totals=replace(TOTALS, rows_total=0, rows_scanned=0)), 0
    )
    assert " - " in said
    assert "--all" not in said


def a_worst(matching: int | None) -> WorstQuery:
    conjuncts = (
        Conjunct("a = 1", Reason.SKIPS, "", {"features": 1, "statistics": 3}, ()),
        Conjunct("b = 2", Reason.NO_FEATURE, "nothing", {}, ()),
    )
    return WorstQuery(2.0, "SELECT", replace(QUERY, rows_matching=matching), conjuncts)


def test_the_worst_queries_say_what_is_in_vain_only_where_that_is_known() -> None:
    known = printed(print_evaluation, RESULT, 0, [a_worst(1)])
    assert "read the most rows without a match" in known
    assert "249" in known
    assert "skips: alone it would skip 3 blocks" in known
    assert "no-feature: nothing" in known
    unknown = printed(print_evaluation, RESULT, 0, [a_worst(None)])
    assert "without match" not in unknown
    assert "--actual" in unknown
    assert "unknown" in printed(print_evaluation, RESULT, 0, [a_worst(1), a_worst(None)])


def test_failed_gates_list_what_falls_short() -> None:
    queries = tuple(GatedQuery(number, "[red]", 0.125, f"SELECT\n{number}") for number in range(12))
    gates = GateReport((SkippedGate("[red]", 0.6, 0.2, queries),), queries[:1])
    shown = printed(lambda console: print_evaluation(console, Evaluation("t", 0, (QUERY,), TOTALS), 0, gates=gates))
    assert "[red] skips 20.0% of the rows; --min-skipped requires 60.0%" in shown
    assert "skip less than 60.0%" in shown
    assert "2 more; --json lists all" in shown
    assert "new full scans" in shown
    assert "SELECT 9" in shown
    assert "SELECT 10" not in shown
