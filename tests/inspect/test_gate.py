"""Gates fail exactly where a log skips too little, or a query family begins to scan the whole table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.cli.app import main
from layoutopt.cli.console import BAD_USAGE, DONE
from layoutopt.errors import LogError, SettingError, StalePlanError
from layoutopt.inspect.drift import skipped_share
from layoutopt.inspect.evaluate import evaluate
from layoutopt.inspect.gate import GateReport, check_gates
from layoutopt.model.query import Query
from layoutopt.scan.table import Table
from tests.inspect.replayed import LOG, query
from tests.scan.builder import build, building
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows

FULL = "SELECT price FROM t WHERE id > -5"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return build(tmp_path_factory.mktemp("t") / "t", some_rows(), building(SCHEMA, CONDITIONS, partition_by="year"))


def gates(
    table: Table, log: list[Query], required: dict[str | None, float] | None = None, baseline: Path | None = None
) -> GateReport:
    return check_gates(log, evaluate(table, log), table.catalog.snapshot.stored_rows, required or {}, baseline)


@given(st.lists(st.tuples(st.sampled_from(LOG), st.sampled_from([1.0, 2.5, 40.0]), st.sampled_from("ab")), min_size=1))
def test_shares_are_those_of_drift(table: Table, drawn: list[tuple[Query, float, str]]) -> None:
    log = [replace(scan, weight=weight, user=user) for scan, weight, user in drawn]
    for user in [None, *{scan.user for scan in log}]:
        judged = [scan for scan in log if user in (None, scan.user)]
        share = skipped_share(table, judged)
        (gate,) = gates(table, log, {user: 0.5}).skipped
        assert gate.skipped == pytest.approx(share)
        assert gate.is_met == (not gate.short)
        assert gate.is_met == (gate.skipped >= 0.5 - 1e-9)
        assert all(short.skipped < 0.5 and user in (None, short.user) for short in gate.short)
        if not gate.is_met:
            with pytest.raises(StalePlanError, match=f"less than the required 50.0%: {len(gate.short)} different"):
                GateReport((gate,), ()).check()
            each = {(scan.filter.root, scan.columns): skipped_share(table, [scan]) < 0.5 for scan in judged}
            assert len(gate.short) == np.count_nonzero(list(each.values()))


def test_the_boundary_is_met(table: Table) -> None:
    share = skipped_share(table, LOG)
    gates(table, LOG, {None: share}).check()
    with pytest.raises(StalePlanError):
        gates(table, LOG, {None: share + 1e-6}).check()


def test_the_most_costly_query_comes_first(table: Table) -> None:
    log = [query(0, FULL), replace(query(1, "SELECT id FROM t WHERE score IS NULL OR id > 0"), weight=9.0)]
    (gate,) = gates(table, log, {None: 1.0}).skipped
    assert [short.id for short in gate.short] == [1, 0]


@pytest.mark.parametrize(("log", "user"), [([], None), (LOG, "nobody")])
def test_a_gate_without_statements_is_no_success(table: Table, log: list[Query], user: str | None) -> None:
    with pytest.raises(LogError, match="the log has no statement on the table"):
        gates(table, log, {user: 0.0})


def test_only_new_families_of_full_scans_fail(table: Table, tmp_path: Path) -> None:
    baseline = tmp_path / "baseline.json"
    log = [query(0, FULL), query(1, "SELECT count(*) FROM t"), query(2, "SELECT id FROM t WHERE year = 1995")]
    baseline.write_text(json.dumps(evaluate(table, log).to_json()), encoding="utf-8")
    gates(table, log, baseline=baseline).check()
    other_constant = query(3, "SELECT price FROM t WHERE id > -90")
    began = query(4, "SELECT id FROM t WHERE year > 1900")  # its family skipped before
    new = query(5, "SELECT kind FROM t")
    report = gates(table, [*log, other_constant, began, new, replace(new, id=6)], baseline=baseline)
    assert [scan.id for scan in report.new_full_scans] == [4, 5]
    with pytest.raises(StalePlanError, match="in the baseline: 2, the first by statement 4"):
        report.check()


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"table": "t", "queries": [{"id": 3}]}', '{"table": "t", "queries": 3}', "[" * 100_000]
)
def test_other_files_are_no_baseline(table: Table, tmp_path: Path, content: str) -> None:
    baseline = tmp_path / "baseline.json"
    baseline.write_text(content, encoding="utf-8")
    with pytest.raises(SettingError, match="is no output of `evaluate --json`"):
        gates(table, LOG, baseline=baseline)
    with pytest.raises(SettingError, match="can't be read"):
        gates(table, LOG, baseline=tmp_path)
    baseline.write_text('{"table": "u", "queries": []}', encoding="utf-8")
    with pytest.raises(SettingError, match="is of the table 'u', not of 't'"):
        gates(table, LOG, baseline=baseline)


def run(arguments: list[Any], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(["evaluate", *map(str, arguments)])
    return code, *capsys.readouterr()


def test_the_verb_exits_with_5_and_lists_what_falls_short(
    table: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, root = tmp_path / "log.jsonl", table.catalog.files.full_path("")
    records = [{"sql": "SELECT id FROM t WHERE year = 1995", "user": "a=b"}, {"sql": FULL, "user": "ann"}]
    log.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    code, said, _ = run([root, log, "--json", "--min-skipped", "a=b=60%", "--min-skipped", "0.3"], capsys)
    assert code == DONE
    assert [gate["user"] for gate in json.loads(said)["gates"]["skipped"]] == ["a=b", None]
    (tmp_path / "baseline.json").write_text(said, encoding="utf-8")
    code, said, error = run([root, log, "--min-skipped", "60%"], capsys)
    assert (code, FULL in said) == (5, True)
    assert "less than the required 60.0%: 1 different queries skip less, the most costly is statement 1 (0.0%)" in error
    code, said, _ = run([root, log, "--fail-on-new-full-scan", tmp_path / "baseline.json"], capsys)
    assert code == DONE
    for wrong in ("60", "-1%", "=5%", "ann", "ann=", "ann=nan"):
        assert run([root, log, "--min-skipped", wrong], capsys)[0] == BAD_USAGE, wrong
    assert run([root, log, "--min-skipped", "a=1%", "--min-skipped", "a=2%"], capsys)[0] == BAD_USAGE


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=30))
def test_rounding_fails_no_log_whose_queries_all_skip_enough(table: Table, weights: list[float]) -> None:
    log = [replace(LOG[0], weight=weight) for weight in weights]
    gates(table, log, {None: skipped_share(table, LOG[:1])}).check()
