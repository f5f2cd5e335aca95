"""Answers of queries, printed and in files."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from layoutopt.errors import SettingError
from layoutopt.report.answers import answer_report, choose_writer, print_answer
from tests.report.printing import printed

ANSWER = pa.table({"a": [1, None, 3], "b": ["x", "[bold]y[/bold]", None]})


def test_an_answer_is_columns_and_rows() -> None:
    assert answer_report(ANSWER, None) == {
        "columns": ["a", "b"],
        "rows": [[1, "x"], [None, "[bold]y[/bold]"], [3, None]],
        "rows_total": 3,
    }


def test_a_limit_says_how_many_rows_there_are() -> None:
    assert answer_report(ANSWER, 1)["rows"] == [[1, "x"]]
    assert "1 of 3 rows" in printed(print_answer, ANSWER, 1)


def test_values_are_printed_as_they_are() -> None:
    said = printed(print_answer, ANSWER, None)
    assert "[bold]y[/bold]" in said
    assert "NULL" in said


def test_values_do_nothing_to_the_terminal() -> None:
    hostile = pa.table({"\x1b[31mred": ["\x1b[2J\x9b2J\u202etxt", "two\nlines", "ünï 😀"]})
    said = printed(print_answer, hostile, None)
    assert all(c.isprintable() or c == "\n" for c in said)
    assert "\\x1b[2J\\x9b2J\\x202etxt" in said
    assert "ünï 😀" in said
    assert "rows" not in said


def test_equal_column_names_stay_apart() -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    assert answer_report(twice, None) == {"columns": ["a", "a"], "rows": [[1, 2]], "rows_total": 1}


VALUES = {"n": [1, None], "day": [dt.date(2026, 1, 31), None], "price": [Decimal("1.50"), None], "text": ["a,\n", None]}


def test_files_have_the_values(tmp_path: Path) -> None:
    answer = pa.table(VALUES)
    choose_writer(tmp_path / "a.parquet")(answer)
    assert pq.read_table(tmp_path / "a.parquet").equals(answer)
    choose_writer(tmp_path / "a.CSV")(answer)
    assert csv.read_csv(
        tmp_path / "a.CSV", parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(column_types=answer.schema, strings_can_be_null=True),
    ).equals(answer)  # fmt: skip
    choose_writer(tmp_path / "a.jsonl")(answer)
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert lines == [
        {"n": 1, "day": "2026-01-31", "price": "1.50", "text": "a,\n"},
        {"n": None, "day": None, "price": None, "text": None},
    ]


def test_other_files_are_refused_in_time(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"\.csv, \.jsonl, \.parquet"):
        choose_writer(tmp_path / "a.xlsx")
    with pytest.raises(SettingError, match=r"can't be written to .* \.parquet or \.jsonl"):
        choose_writer(tmp_path / "a.csv")(pa.table({"tags": [[1, 2]]}))
