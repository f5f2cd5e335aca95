"""`up`: one command from a table and its log to a loaded table and a report, which continues where it stopped."""

from __future__ import annotations

import datetime as dt
import json
import tomllib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from layoutopt.api.up import guess_partition_column, list_row_groups
from layoutopt.cli import up as going_up
from layoutopt.cli.app import main
from layoutopt.cli.console import BAD_USAGE, DONE
from layoutopt.cli.up import to_toml
from layoutopt.config.files import VERBS, read_values
from layoutopt.external import listing
from layoutopt.external.listing import Listing
from layoutopt.scan.table import open_table

DAYS, ROWS = 3, 18_000
LOG = ["kind = 'buy'", "n > 900", "kind = 'view' AND n < 50"]


def some_rows(days: int = DAYS, rows: int = ROWS) -> pa.Table:
    first = dt.date(2026, 1, 1)
    return pa.table(
        {
            "day": pa.array([first + dt.timedelta(days=i * days // rows) for i in range(rows)], pa.date32()),
            "kind": [("buy", "view", "click", "scroll")[i % 7 % 4] for i in range(rows)],
            "n": pa.array([i * 37 % 1000 for i in range(rows)], pa.int64()),
        }
    )


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    pq.write_table(some_rows(), tmp_path / "events.parquet")
    write_log(tmp_path, 12)
    return tmp_path


def write_log(folder: Path, times: int) -> None:
    statements = [f"SELECT count(*) FROM events WHERE {where};\n" for where in LOG * times]
    (folder / "log.sql").write_text("".join(statements))


def up(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(["up", "events.parquet", "log.sql", "--executor", "local", "--json", *words]) == DONE
    return json.loads(capsys.readouterr().out)


def guess(source: str) -> str | None:
    return guess_partition_column(source, list_row_groups(source))


def describe(source: str) -> object:
    return going_up.describe_source(source, list_row_groups(source))


def test_a_table_a_report_and_settings_are_written_once(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = up(capsys, "--quick")
    assert list(first) == ["analyze", "plan", "load", "evaluate", "written"]
    assert first["plan"]["partition_by"] == "day"
    assert first["load"]["rows"] == ROWS
    folder = here / "layoutopt-events"
    assert open_table(str(folder / "table")).sql("SELECT count(*) AS n FROM events").to_pylist() == [{"n": ROWS}]
    assert "<html" in (folder / "report.html").read_text()

    again = up(capsys, "--quick")
    assert [again[step] for step in ("analyze", "plan", "load")] == [None, None, None]
    assert again["evaluate"] == first["evaluate"]

    write_log(here, 15)
    later = up(capsys, "--quick")
    assert None not in later.values()
    assert later["load"]["snapshot"] == 1


def test_each_verb_can_go_on_with_the_written_settings(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    up(capsys, "--quick")
    conf = here / "layoutopt-events" / "layoutopt.toml"
    verbs = tomllib.loads(conf.read_text())
    assert list(verbs) == ["analyze", "plan", "load", "evaluate"]
    for verb in verbs:
        assert read_values(conf, VERBS[verb])
    assert main(["evaluate", "--conf", str(conf)]) == DONE
    assert main(["load", "--conf", str(conf)]) == DONE
    assert "day=" not in capsys.readouterr().err


@pytest.mark.long
def test_the_best_method_is_loaded_if_it_saves_enough(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = up(capsys)
    assert "better plan" in found
    assert "better load" not in found or found["better load"]["snapshot"] == 1
    for worth, loaded in ((0.0, False), (1e9, True)):
        monkeypatch.setattr("layoutopt.cli.up.WORTH_LOADING", worth)
        (here / "layoutopt-events" / "up.json").write_text("{}")
        again = up(capsys)
        assert ("better load" in again) == loaded
        assert again["evaluate"]["totals"]["rows_total"] == ROWS * len(LOG) * 12
    conf = here / "layoutopt-events" / "layoutopt.toml"
    assert tomllib.loads(conf.read_text())["load"]["plan"].endswith("/better.json")
    assert main(["load", "--conf", str(conf)]) == DONE
    capsys.readouterr()
    up(capsys, "--quick")  # the table keeps its plan
    assert main(["load", "--conf", str(conf)]) == DONE


def test_a_source_is_listed_once(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []

    def list_source(source: str) -> Listing:
        listed.append(source)
        return list_files(source)

    list_files = listing.list_source
    monkeypatch.setattr(listing, "list_source", list_source)
    up(capsys, "--quick")
    assert listed == [str(here / "events.parquet")]


def test_an_answer_says_what_was_read_and_may_go_to_a_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    up(capsys, "--quick")
    ask = ["query", "layoutopt-events/table", "SELECT day, n FROM events WHERE n > 990"]
    assert main(ask) == DONE
    assert " blocks, " in capsys.readouterr().out.splitlines()[-1]
    assert main([*ask, "-o", "answer.parquet", "--json"]) == DONE
    said = json.loads(capsys.readouterr().out)
    assert said["rows_total"] == pq.read_metadata(here / "answer.parquet").num_rows == ROWS * 9 // 1000
    assert 0 < said["read"]["blocks"] <= said["read"]["blocks_total"] == DAYS


def test_people_get_a_sentence_a_step(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "events.parquet", "log.sql", "--executor", "local", "--quick", "--into", "there"]) == DONE
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in said] == [
        "analyze", "plan", "load", "evaluate", "table", "report", "settings"
    ]  # fmt: skip
    assert f"{ROWS:,} rows" in said[2]
    assert str(here / "there" / "table") in said[4]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["nothing.parquet", "log.sql"], "nothing.parquet"),
        (["events.parquet", "nothing.sql"], "nothing.sql"),
        (["events.parquet", "log.sql", "--partition-by", "dya"], "dya"),
        (["events.parquet", "log.sql", "--into", "events.parquet/x"], "--into"),
    ],
)
def test_mistakes_are_told_before_anything_is_done(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], named: str
) -> None:
    assert main(["up", *words]) == BAD_USAGE
    said = capsys.readouterr().err
    assert named in said
    assert said.count("\n") == 1
    assert not list(here.glob("layoutopt-*/table"))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (some_rows(), "day"),
        (some_rows(days=3, rows=300), None),
        (some_rows().drop(["day"]), None),
    ],
    ids=["few days", "few rows a day", "no date"],
)
def test_a_date_column_of_few_days_is_guessed(tmp_path: Path, rows: pa.Table, expected: str | None) -> None:
    pq.write_table(rows, tmp_path / "rows.parquet")
    assert guess(str(tmp_path)) == expected


def test_sources_of_any_name_and_format_are_described(tmp_path: Path) -> None:
    folder = tmp_path / "a@b 😀"
    folder.mkdir()
    pq.write_table(some_rows(), folder / "x.parquet")
    assert guess(str(folder)) == "day"
    assert describe(str(folder)) == describe(str(folder))
    orc.write_table(some_rows().slice(0, 10), folder / "x.orc")
    described = describe(f"orc:{folder}")
    orc.write_table(some_rows().slice(0, 20), folder / "x.orc")
    assert describe(f"orc:{folder}") != described
    assert guess(f"orc:{folder}") is None
    values = {"load": {"source": str(folder)}}
    assert tomllib.loads(to_toml(values)) == values


def test_the_column_of_folders_is_guessed(tmp_path: Path) -> None:
    pq.write_to_dataset(some_rows(rows=30), tmp_path / "rows", partition_cols=["kind"])
    assert guess(str(tmp_path / "rows")) == "kind"
