"""What `verify` and `drift` print."""

from __future__ import annotations

from layoutopt.inspect.audit import AuditReport, WrongSkip
from layoutopt.inspect.drift import Drift, Regret
from layoutopt.inspect.verify import Difference, SourceCheck, VerifyReport
from layoutopt.maintenance.query_families import NEW, SAME, FamilyChange, FamilyChanges
from layoutopt.maintenance.sampling_error import Interval
from layoutopt.report.inspections import print_audit, print_drift, print_verify
from tests.report.printing import printed


def audit(by_filter: int, *losses: WrongSkip) -> str:
    report = AuditReport("t", 3, 9, 9, 9 - by_filter - 1, by_filter, ((8, "no reason"),), 1000, {"features": 7}, losses)
    return printed(print_audit, report)


def test_an_audit_says_what_it_proved_and_how() -> None:
    said = audit(0)
    assert "t, snapshot 3: no query loses a row" in said
    assert "8 of 9 queries audited over 1,000 rows; skips proved: 7 by features" in said
    assert "not audited: query 8: no reason" in said
    assert "less strictly" not in said
    assert "2 of these less strictly: their SQL needs Spark" in audit(2)


def test_an_audit_names_what_is_lost() -> None:
    said = audit(
        0, WrongSkip("features", 5, "a.parquet", tuple(range(12))), WrongSkip("layout", -1, "layout 1 of x", (3,))
    )
    assert "2 blocks are skipped wrongly" in said
    assert (
        "features: block 5 of a.parquet is skipped, but has rows of the queries 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …" in said
    )
    assert "layout: layout 1 of x lacks rows of the queries 3" in said


def test_a_check_says_what_it_compared() -> None:
    report = VerifyReport("t", 0, 2, 3, 1000, (), ("files outside the sample",))
    said = printed(print_verify, report)
    assert "2 files, 3 blocks, 1,000 rows read; no problems" in said
    assert "not checked: files outside the sample" in said
    same = report.against(SourceCheck("s", 1000, 2, 1000, 0, ()))
    assert "every row of s is there: 1,000 rows" in printed(print_verify, same)
    other = report.against(SourceCheck("s", 1000, 2, 999, 1, (Difference("source", "p1", "\x1b[2Jbad"),)))
    said = printed(print_verify, other)
    assert "the table 999: 1 differences" in said
    assert "source: p1: \\x1b[2Jbad" in said


def test_a_plan_that_fits_is_told_so() -> None:
    none = FamilyChanges((), 0.0, Interval(0.0, 0.01))

    def said(then: float, now: float) -> str:
        found = Drift("t", "0123456789abcdef", then, now, 5, 6, Interval(now, now), none)
        return printed(print_drift, found, 0.1)

    assert "The plan still fits: 5.0% less is skipped; --most allows 10.0% less" in said(0.9, 0.85)
    assert "no less is skipped" in said(0.85, 0.9)
    assert "fits" not in said(0.9, 0.5)


def test_what_has_changed_is_told_with_what_is_not_known() -> None:
    between = Interval(0.2, 0.4)
    comes = FamilyChange(("a", "b"), ("b",), 0.0, 0.3, between, NEW, "SELECT a\nFROM t WHERE b = 1")
    stays = FamilyChange(("a",), (), 1.0, 0.7, between, SAME, "SELECT a FROM t")
    regret = Regret("fedcba", full=9e6, read=5e6, fresh=1e6, share=0.5, interval=between)
    drift = Drift(
        "t", "0123456789abcdef", 0.9, 0.85, 5, 6, between, FamilyChanges((comes, stays), 0.3, between), regret
    )
    said = " ".join(printed(print_drift, drift, 0.1).split())
    assert (
        "30.0% of the statements are of families that the plan does not know (95 % confidence: 20.0% to 40.0%" in said
    )
    assert "1 families changed, 1 did not" in said
    assert "SELECT a FROM t WHERE b = 1" in said
    assert "50.0% of what the new plan saves of full scans is lost" in said
