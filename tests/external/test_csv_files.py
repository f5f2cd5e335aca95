"""CSV files that queries join."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.cli.app import main
from layoutopt.cli.console import DONE
from layoutopt.errors import SourceError
from layoutopt.external.csv_files import to_parquet
from layoutopt.model.schema import Column, Schema
from tests.scan.builder import build, building, by_position

TEXT = '''id,name,since,rate,code,note,at
1,"Ann ""A""",2026-01-02,1.5,007,,10:00:00
2,,2026-02-03,2,8x,"",11:30:00
3,"a,b",,,9,,
'''


def test_types_are_those_of_all_values(tmp_path: Path) -> None:
    (tmp_path / "users.csv").write_text(TEXT, encoding="utf-8")
    rows = pq.read_table(to_parquet(str(tmp_path / "users.csv")))
    types = {field.name: str(field.type) for field in rows.schema}
    assert types == {
        "id": "int64", "name": "string", "since": "date32[day]", "rate": "double", "code": "string", "note": "string",
        "at": "string",
    }  # fmt: skip
    assert rows["name"].to_pylist() == ['Ann "A"', None, "a,b"]
    assert rows["code"].to_pylist() == ["007", "8x", "9"]
    assert rows["note"].to_pylist() == [None, "", None]


@pytest.mark.parametrize(
    ("texts", "type"),
    [
        (("12345678901234567890", "12345678901234567891", "-1"), "decimal128(38, 0)"),
        (("1" * 39,), "string"),
        (("12345678901234567890", "1.5"), "string"),
        (("9007199254740993", "0.5"), "string"),
        (("00123", "123"), "string"),
        (("00.5", "1"), "string"),
        (("0x10",), "string"),
        (("+1",), "string"),
        (("-0", "1e3", ".5", "2.", "NaN", "-inf"), "double"),
        (("-5", "0", "9223372036854775807"), "int64"),
        (("true", "FALSE"), "bool"),
        (("1", "true"), "string"),
        (("2026-01-31", "0001-01-01"), "date32[day]"),
        (("2026-02-30",), "string"),
        (("0000-01-01",), "string"),
        (("2026-01-31 10:00", "2026-01-31T10:00:00.123456", "2026-01-31"), "timestamp[us]"),
        (("2026-01-31 10:00:00.1234567",), "string"),
        (("2026-01-31T10:00:00Z", "2026-01-31 10:00:00+02:00"), "timestamp[us, tz=UTC]"),
        (("2026-01-31T10:00:00Z", "2026-01-31 10:00:00"), "string"),
    ],
)
def test_a_type_keeps_all_texts(tmp_path: Path, texts: tuple[str, ...], type: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(("v,n", *(f"{text},1" for text in texts), ",2")), encoding="utf-8")
    values = pq.read_table(to_parquet(str(path)))["v"]
    assert str(values.type) == type
    assert values.null_count == 1
    assert len(set(map(str, values.to_pylist()))) == len(texts) + 1, "different texts are different values"
    if type in ("string", "int64", "decimal128(38, 0)"):
        assert [str(value) for value in values.to_pylist()[:-1]] == list(texts)


def test_separators_and_compression_follow_the_name(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "users.tsv.gz", "wt", encoding="utf-8") as file:
        file.write("id\tname\n1\ta,b\n")
    assert pq.read_table(to_parquet(str(tmp_path / "users.tsv.gz"))).to_pylist() == [{"id": 1, "name": "a,b"}]


def test_files_that_are_no_csv_are_told(tmp_path: Path) -> None:
    (tmp_path / "broken.csv").write_text("a,b\n1\n2,3,4\n", encoding="utf-8")
    (tmp_path / "empty.csv").write_text("", encoding="utf-8")
    for name in ("broken.csv", "empty.csv"):
        with pytest.raises(SourceError, match="CSV with a header"):
            to_parquet(str(tmp_path / name))
    with pytest.raises(SourceError, match="there is no file"):
        to_parquet(str(tmp_path / "none.csv"))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"id,v\n1,\xe9\n", "bytes that are no UTF-8"),
        (b"id,\xe9\n1,2\n", "bytes that are no UTF-8"),
        (b"id,v,id\n1,2,3\n", "has two columns 'id'; rename one"),
        (b"id,ID\n1,2\n", "has two columns 'ID'; rename one"),
    ],
)
def test_files_that_no_query_can_read_are_named(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "users.csv"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=f"^'{path}' .*{sentence}"):
        to_parquet(str(path))


def test_local_names_are_those_of_other_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "users.csv").write_text("id\n1\n", encoding="utf-8")
    monkeypatch.setenv("HOME", str(tmp_path))
    for path in ("~/users.csv", f"file://{tmp_path}/users.csv"):
        assert pq.read_table(to_parquet(path)).to_pylist() == [{"id": 1}]
    with pytest.raises(SourceError, match=r"^'s3://b/users.csv' is a URL, but .* copy the file"):
        to_parquet("s3://b/users.csv")


def test_a_query_joins_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "users.csv").write_text(TEXT, encoding="utf-8")
    rows = pa.table({"user_id": pa.array([i % 4 for i in range(40)], pa.int64()), "price": range(40)})
    schema = Schema((Column("user_id", "bigint"), Column("price", "bigint")))
    build(tmp_path / "t", rows, building(schema, blocking=by_position(10)))
    pq.write_table(rows.slice(0, 3), tmp_path / "more.parquet")
    sql = (
        "SELECT u.name, count(*) AS n FROM t JOIN users u ON t.user_id = u.id JOIN more ON t.price = more.price "
        "WHERE t.price < 10 GROUP BY u.name"
    )
    given = [f"--with=users={tmp_path / 'users.csv'}", f"--with=more={tmp_path / 'more.parquet'}"]
    assert main(["query", str(tmp_path / "t"), sql, *given, "--json"]) == DONE
    answer = json.loads(capsys.readouterr().out)
    assert sorted(map(repr, answer["rows"])) == ["['Ann \"A\"', 1]", "[None, 1]"]
    assert answer["read"]["blocks"] == 3, "one block of four, and a row group of each other file"
    assert main(["explain", str(tmp_path / "t"), sql, *given]) == DONE
    assert "reads id, name of users" in capsys.readouterr().out
