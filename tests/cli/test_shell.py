"""The shell: statements from a pipe, and typed ones with history and completion."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from layoutopt.cli import shell
from layoutopt.cli.app import main
from layoutopt.cli.console import BAD_USAGE, DONE
from layoutopt.model.schema import Column, Schema
from layoutopt.scan.table import open_table
from tests.scan.builder import build, building, by_position

Ask = Callable[..., int]


class Terminal(io.StringIO):
    """Standard input of which the shell believes that somebody types there."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    rows = pa.table({"user": pa.array([i % 4 for i in range(40)], pa.int64()), "price": range(40)})
    build(
        tmp_path / "t",
        rows,
        building(Schema((Column("user", "bigint"), Column("price", "bigint"))), blocking=by_position(10)),
    )
    (tmp_path / "users.csv").write_text("id,name\n1,Ann\n2,Bob\n", encoding="utf-8")
    monkeypatch.setenv("HOME", str(tmp_path))
    return str(tmp_path / "t")


@pytest.fixture
def pipe(table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    def ask(text: str, *options: str) -> int:
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        return main(["shell", table, "--with", f"users={tmp_path / 'users.csv'}", *options])

    return ask


@pytest.fixture
def type_in(table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ask]:
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):

        def ask(text: str) -> int:
            monkeypatch.setattr("sys.stdin", Terminal())
            keys.send_text(text)
            return main(["shell", table, "--with", f"users={tmp_path / 'users.csv'}"])

        yield ask


def test_statements_of_a_pipe_run_in_turn(pipe: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        "SELECT name, sum(price) AS paid FROM t JOIN users ON user = id\n  WHERE price < 10 GROUP BY name;\n"
        "show tables; -- a comment; with a semicolon\nDescribe users; EXPLAIN SELECT * FROM t WHERE price > 35"
    )
    assert pipe(text) == DONE
    said = capsys.readouterr().out
    assert "Ann" in said
    assert "read 2 of 5 blocks" in said
    assert "t: 40 rows\nusers: 2 rows\n" in said
    assert "id bigint\nname string\n" in said
    assert "skipped by statistics       3" in said


def test_a_pipe_ends_at_the_first_statement_that_fails(pipe: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    assert pipe("SELECT count(*) AS n FROM t; SELECT colour FROM t; SHOW TABLES;") == 2
    said = capsys.readouterr()
    assert "40" in said.out
    assert "users: 2 rows" not in said.out
    assert said.err.startswith("layoutopt: ")
    assert "colour" in said.err
    for text in ("DESCRIBE nothing", "DESCRIBE `nothing`"):
        assert pipe(text) == BAD_USAGE
        assert capsys.readouterr().err == "layoutopt: there is no table 'nothing'; SHOW TABLES lists them\n"
    assert pipe("SELECT * FROM t JOIN paid ON true") == BAD_USAGE
    assert capsys.readouterr().err.endswith("; add it by --with paid=PATH\n")


def test_a_pipe_may_end_by_a_word_and_quote_names(pipe: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    assert pipe("DESC TABLE `Users`;\nexit;\nSHOW TABLES;") == DONE
    assert capsys.readouterr().out == "id bigint\nname string\n"


@pytest.mark.spark
def test_the_advice_to_use_spark_can_be_followed(pipe: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    sql = "SELECT upper(name) AS n, hash(id) AS h FROM users WHERE id = 1"
    assert pipe(sql) == BAD_USAGE
    assert "--engine spark" in capsys.readouterr().err
    assert pipe(f"{sql}; SHOW TABLES", "--engine", "spark", "--json") == DONE
    answer, tables = map(json.loads, capsys.readouterr().out.splitlines())
    assert (answer["rows"][0][0], len(tables)) == ("ANN", 2)


def test_answers_are_json_lines_if_asked(pipe: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert pipe("SELECT count(*) AS n FROM t; SHOW TABLES", "--json") == DONE
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["rows"] == [[40]]
    assert second == {"t": "40 rows", "users": "2 rows"}


def test_typed_statements_may_take_lines_and_errors_do_not_end_it(
    type_in: Ask, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = (
        "SELECT count(*) AS n\rFROM t\rWHERE price < 7;\rSELECT colour FROM t;\rSELECT max(price) AS m FROM t; \rexit\r"
    )
    assert type_in(typed) == DONE
    said = capsys.readouterr()
    assert " 7 " in said.out
    assert " 39 " in said.out
    assert "colour" in said.err
    assert "+SELECT max(price) AS m FROM t;" in (tmp_path / shell.HISTORY).read_text(encoding="utf-8")


def test_the_end_of_input_ends_it(type_in: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    assert type_in("SELECT max(price) AS m FROM t;\r\x04") == DONE
    assert " 39 " in capsys.readouterr().out


def test_tables_and_columns_are_completed(table: str) -> None:
    assert shell.list_words({"t": open_table(table)})[-3:] == ["price", "t", "user"]
