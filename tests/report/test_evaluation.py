"""What `evaluate` prints: the sums first, the worst queries, each query only when asked for."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from layoutopt.model.features_document import SkippedStatement
from layoutopt.report.inspections import print_evaluation

AMOUNTS = {
    "rows_scanned": 25,
    "rows_total": 100,
    "rows_scanned_by_statistics": 50,
    "blocks_scanned": 1,
    "blocks_total": 4,
    "bytes_scanned": 1500,
}
RESULT = {
    "table": "t",
    "snapshot": 3,
    "queries": [{"id": 7777, **AMOUNTS}],
    "totals": {**AMOUNTS, "rows_matching": 11},
}


def printed(*args: Any, **more: Any) -> str:
    out = io.StringIO()
    print_evaluation(Console(file=out, width=200), *args, **more)
    return out.getvalue()


def test_an_evaluation_has_the_sums_and_a_line_a_query_if_wanted() -> None:
    skipped = (SkippedStatement(8, "parse-error", "no", "SELEC"),)
    said = printed(RESULT, skipped)
    assert all(text in said for text in ("t, snapshot 3", "25.0%", "50.0%", "1/4", "1.5 KB", "match: 11"))
    assert "1 statements could not be used" in said
    assert "7777" not in said
    assert "--all prints a line for each of the 1 queries" in said
    every = printed(RESULT, skipped, every=True)
    assert every.index(" all ") < every.index(" 7777 ")
    assert "--all" not in every


def test_an_empty_table_has_no_share() -> None:
    totals = dict.fromkeys(AMOUNTS, 0)
    said = printed({"table": "t", "snapshot": 0, "queries": [], "totals": totals}, ())
    assert " - " in said
    assert "--all" not in said


def a_worst(wasted: int | None) -> dict[str, Any]:
    conjuncts = [
        {"text": "a = 1", "reason": "skips", "detail": "", "blocks_skipped_alone": {"features": 1, "statistics": 3}},
        {"text": "b = 2", "reason": "no-feature", "detail": "nothing", "blocks_skipped_alone": {}},
    ]
    return {"id": 5, "runs": 2.0, "rows_scanned": 300, "rows_wasted": wasted, "conjuncts": conjuncts}


def test_the_worst_queries_say_what_is_in_vain_only_where_that_is_known() -> None:
    known = printed(RESULT, (), [a_worst(299)])
    assert "read the most rows without a match" in known
    assert "299" in known
    assert "skips: alone it would skip 3 blocks" in known
    assert "no-feature: nothing" in known
    unknown = printed(RESULT, (), [a_worst(None)])
    assert "without match" not in unknown
    assert "--actual" in unknown
    assert "unknown" in printed(RESULT, (), [a_worst(299), a_worst(None)])
