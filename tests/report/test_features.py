"""What `analyze` prints of a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from layoutopt.cli.app import main
from layoutopt.cli.console import BAD_USAGE, DONE

DDL = "CREATE TABLE t (a INT, b INT, c INT)"


def said(tmp_path: Path, capsys: pytest.CaptureFixture[str], *statements: str, code: int = DONE) -> str:
    (tmp_path / "log.sql").write_text(";\n".join(statements) + ";", encoding="utf-8")
    words = ["analyze", str(tmp_path / "log.sql"), "--schema", DDL, "-o", str(tmp_path / "features.json")]
    assert main(words) == code
    out, err = capsys.readouterr()
    return out if code == DONE else err


def test_statements_of_which_parts_are_left_out_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    half = "SELECT a FROM t WHERE a = 1 AND rand() < 0.5 AND rand() > 0.1"
    out = said(tmp_path, capsys, half, half, "SELECT a FROM t WHERE a = 1")
    assert "3 of 3 statements used, 2 of them in part, T = 2" in out
    assert "Parts of their filters that cannot skip anything: 4 non-deterministic" in out
    assert "in part" not in said(tmp_path, capsys, *["SELECT a FROM t WHERE a = 1"] * 3)


def test_alternatives_among_conditions_stand_in_brackets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = said(tmp_path, capsys, *["SELECT a FROM t WHERE a = 1 AND (b = 2 OR c = 3)"] * 3)
    assert "a = 1 AND (b = 2 OR c = 3)" in out


def test_what_can_not_be_parsed_hints_at_the_dialect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = "SELECT a FROM t WHERE a = = 1"
    assert "--dialect" in said(tmp_path, capsys, odd, *["SELECT a FROM t WHERE a = 1"] * 2)
    assert "--dialect" in said(tmp_path, capsys, odd, odd, code=BAD_USAGE)
