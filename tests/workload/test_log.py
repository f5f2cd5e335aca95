"""Query logs: every format, and records that are damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from layoutopt.errors import LogError, SettingError
from layoutopt.workload.log import LogEntry, read_log


def _write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_sql_files_hold_statements(tmp_path: Path) -> None:
    text = "-- a comment;\nSELECT ';' FROM t;\n\n/* ; */ SELECT 2 -- ;\n;;\nSELECT `a;b` FROM t"
    found = list(read_log(_write(tmp_path, "log.sql", text)))
    assert [entry.sql for entry in found] == ["SELECT ';' FROM t", "SELECT 2", "SELECT `a;b` FROM t"]
    assert [entry.id for entry in found] == [0, 1, 2]


def test_one_broken_statement_costs_no_other(tmp_path: Path) -> None:
    path = _write(tmp_path, "log.sql", "SELECT 1;\nSELECT 'never closed;\nSELECT 3;\n")
    assert [entry.sql for entry in read_log(path)] == ["SELECT 1", "SELECT 'never closed", "SELECT 3"]


def test_lines_without_semicolons_are_a_statement_each(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = _write(tmp_path, "log.sql", "SELECT a FROM t -- one\n\n-- two\nSELECT b FROM t WHERE a = 1\nSELEC b FRM\n")
    found = list(read_log(path))
    assert [entry.sql for entry in found] == ["SELECT a FROM t -- one", "SELECT b FROM t WHERE a = 1", "SELEC b FRM"]
    assert "no ';' between statements; each of its 3 lines was read as one" in caplog.text


@pytest.mark.parametrize("text", ["SELECT a\nFROM t\nWHERE b = 1\n", "SELECT a\nFROM t\nWHERE (b =\n"])
def test_a_statement_over_several_lines_stays_one(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    assert [entry.sql for entry in read_log(_write(tmp_path, "log.sql", text))] == [text.strip()]
    assert not caplog.text


def test_the_dialect_decides_what_a_string_is(tmp_path: Path) -> None:
    path = _write(tmp_path, "log.sql", r"SELECT 'a\';' ; SELECT 2")
    assert [entry.sql for entry in read_log(path)] == [r"SELECT 'a\';'", "SELECT 2"]
    text = _write(tmp_path, "pg.sql", r"SELECT 'a\' ; SELECT 2")
    assert [entry.sql for entry in read_log(text, dialect="postgres")] == [r"SELECT 'a\'", "SELECT 2"]


def test_jsonl_records_carry_time_user_and_count(tmp_path: Path) -> None:
    records = [
        {"sql": "SELECT 1;", "timestamp": "2024-01-01T00:00:00Z", "user": "ann", "count": 3},
        {"sql": "SELECT 2"},
    ]
    path = _write(tmp_path, "log.jsonl", "\n".join(json.dumps(record) for record in records) + "\n\n")
    assert list(read_log(path)) == [
        LogEntry(0, "SELECT 1", "2024-01-01T00:00:00Z", "ann", 3.0),
        LogEntry(1, "SELECT 2"),
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{broken", "not JSON"),
        ("[1]", "no JSON object"),
        ('{"query": "SELECT 1"}', "no text in 'sql', it has query: give --column query"),
        ('{"sql": ""}', "no text in 'sql'"),
        ('{"sql": 5}', "no text in 'sql'"),
        ('{"sql": "SELECT 1", "count": "many"}', "'many'"),
        ('{"sql": "SELECT 1", "count": -1}', "-1"),
        ('{"sql": "SELECT 1", "count": 1e999}', "inf"),
    ],
)
def test_damaged_records_are_kept_with_their_problem(tmp_path: Path, line: str, problem: str) -> None:
    path = _write(tmp_path, "log.jsonl", f'{line}\n{{"sql": "SELECT 2"}}\n')
    damaged, sound = read_log(path)
    assert problem in damaged.problem
    assert (sound.id, sound.sql, sound.problem) == (1, "SELECT 2", "")


def test_csv_files_name_their_column(tmp_path: Path) -> None:
    text = 'at,query_text,count\n1,"SELECT a, b\nFROM t;",2\n2,SELECT 2,\n'
    path = _write(tmp_path, "log.csv", text)
    assert [(e.sql, e.count) for e in read_log(path, column="query_text")] == [
        ("SELECT a, b\nFROM t", 2.0),
        ("SELECT 2", 1.0),
    ]
    with pytest.raises(LogError, match=r"no column 'sql'.*query_text"):
        list(read_log(path))


def test_csv_texts_may_be_long(tmp_path: Path) -> None:
    long = "SELECT " + "1 + " * 50_000 + "1"
    assert [e.sql for e in read_log(_write(tmp_path, "log.csv", f"sql\n{long}\n"))] == [long]


def test_a_byte_order_mark_and_bad_bytes_stop_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log.sql"
    path.write_bytes(b"\xef\xbb\xbfSELECT 1;\nSELECT '\xff';")
    assert [entry.sql for entry in read_log(path)] == ["SELECT 1", "SELECT '�'"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("log.txt", "SELECT 1", "no .sql, .jsonl, .csv, .json or .parquet file: .*--from spark-events"),
        ("log.sql", " -- nothing\n ; ;", "holds no query"),
        ("log.jsonl", "\n", "holds no query"),
        ("log.csv", "", "holds no query"),
    ],
)
def test_unusable_logs_are_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(LogError, match=message) as caught:
        list(read_log(_write(tmp_path, name, text)))
    assert name in str(caught.value)


@pytest.mark.parametrize("text", ["{cut off", "[1]"])
def test_what_is_damaged_is_told_of_json_and_of_no_history(tmp_path: Path, text: str) -> None:
    path = _write(tmp_path, "log.json", text)
    (entry,) = read_log(path)
    assert "JSON" in entry.problem
    with pytest.raises(LogError, match=r"no record that can be read$"):
        list(read_log(path, system="snowflake"))


def test_a_folder_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="is a folder"):
        list(read_log(tmp_path))


def test_missing_logs_and_unknown_dialects(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="can't be read"):
        list(read_log(tmp_path / "none.sql"))
    with pytest.raises(SettingError, match="'klingon'"):
        list(read_log(_write(tmp_path, "log.sql", "SELECT 1"), dialect="klingon"))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("name", ["log.sql", "log.jsonl", "log.csv", "log.json"])
def test_the_byte_order_mark_names_the_encoding(tmp_path: Path, name: str, encoding: str) -> None:
    sql = "SELECT a FROM t WHERE b = 'é'"
    texts = {"log.sql": f"{sql};\n", "log.csv": f'sql\r\n"{sql}"\r\n'}
    text = texts.get(name, json.dumps([{"sql": sql}] if name.endswith(".json") else {"sql": sql}))
    mark = "\ufeff" if encoding.endswith("e") else ""  # Python writes it for the others
    (tmp_path / name).write_bytes((mark + text).encode(encoding))
    assert [entry.sql for entry in read_log(tmp_path / name)] == [sql]


@pytest.mark.parametrize("name", ["log.sql", "log.jsonl", "log.csv"])
def test_utf_16_without_a_mark_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes("SELECT a FROM t;".encode("utf-16-le"))
    with pytest.raises(LogError, match=r"looks like UTF-16 without a byte order mark; convert it, .*iconv"):
        list(read_log(tmp_path / name))
