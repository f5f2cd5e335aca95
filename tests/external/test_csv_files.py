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
    assert rows["code"].to_pylist() == ["007", "8x", "9"], "zeros in front are kept where texts are"
    assert rows["note"].to_pylist() == [None, "", None]


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
