"""The verbs that go back in time, as users type them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from layoutopt.catalog.commit import ensure_table_root
from layoutopt.catalog.snapshot import read_snapshot, snapshot_numbers
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.cli.app import main
from tests.catalog.crash import commit, read

LOADS = "SELECT DISTINCT year, load FROM t ORDER BY year"


@pytest.fixture
def table(tmp_path: Path) -> str:
    files = TableFiles(str(tmp_path / "table"))
    base = ensure_table_root(files)
    for load_id, years in [("a", (1994, 1995)), ("b", (1995,))]:
        base = commit(files, base, load_id, years)
    return files.root


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*words: str) -> Any:
        assert main([*words, "--json"]) == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out)

    return run


def test_a_query_reads_an_older_snapshot_by_number_or_time(table: str, run: Any) -> None:
    time = read_snapshot(TableFiles(table), 0).created_at
    assert run("query", table, LOADS)["rows"] == [[1994, "a"], [1995, "b"]]
    for chosen in (["--snapshot", "0"], ["--as-of", time]):
        assert run("query", table, LOADS, *chosen)["rows"] == [[1994, "a"], [1995, "a"]]
        assert run("verify", table, *chosen)["snapshot"] == 0
        assert run("explain", table, LOADS, *chosen)
        (Path(table) / "log.sql").write_text(LOADS)
        assert run("evaluate", table, f"{table}/log.sql", *chosen)["snapshot"] == 0


def test_both_a_number_and_a_time_are_bad_usage(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", table, LOADS, "--snapshot", "0", "--as-of", "2026-01-01"]) == 2
    assert "give one of them" in capsys.readouterr().err
    assert main(["query", table, LOADS, "--snapshot", "9"]) == 2
    assert "no snapshot 9" in capsys.readouterr().err
    assert main(["query", table, LOADS, "--as-of", "2020-01-01"]) == 2
    assert main(["restore", table, "--snapshot", "9"]) == 2


def test_restoring(table: str, run: Any) -> None:
    assert run("restore", table, "--snapshot", "0") == {"snapshot": 2, "restored": 0, "partitions": 2, "rows": 12}
    assert read(table) == {1994: "a", 1995: "a"}


def test_vacuuming(table: str, run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--retain-snapshots", "1", "--older-than", "0s"]
    assert run("vacuum", table)["snapshots"] == []
    assert run("vacuum", table, *flags, "--dry-run")["snapshots"] == [0]
    assert snapshot_numbers(TableFiles(table)) == (0, 1)
    assert main(["vacuum", table, *flags]) == 0
    assert "Removed 1 files" in capsys.readouterr().out
    assert snapshot_numbers(TableFiles(table)) == (1, 2)
    assert read(table) == {1994: "a", 1995: "b"}


@pytest.mark.parametrize("age", ["7", "a week", "-1d", "d", "99999999d", "1.5h"])
def test_an_age_that_is_none_is_bad_usage(table: str, age: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["vacuum", table, f"--older-than={age}"]) == 2
    assert age in capsys.readouterr().err
