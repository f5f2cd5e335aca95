"""Queries above a limit of bytes are refused by the catalog alone, with ways to narrow them."""

from __future__ import annotations

import io
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from layoutopt.cli.app import main
from layoutopt.cli.console import BAD_USAGE, DONE
from layoutopt.errors import CostLimitError, SettingError
from layoutopt.inspect.cost import dry_run
from layoutopt.scan.table import Table, open_table
from tests.scan.builder import build, building, by_position
from tests.scan.tables import CONDITIONS, SCHEMA


def refusal(table: Table, sql: str, limit: int = 0) -> str:
    with pytest.raises(CostLimitError) as refused:
        table.scan(sql, max_bytes=limit)
    return str(refused.value)


@pytest.mark.parametrize("condition", ["TRUE", *CONDITIONS, " AND ".join(CONDITIONS)])
@pytest.mark.parametrize("columns", ["id", "*", "count(*)"])
def test_the_limit_is_what_the_query_would_read(condition: str, columns: str, by_year: Table) -> None:
    sql = f"SELECT {columns} FROM t WHERE {condition}"
    size = dry_run(by_year.scan(sql)).bytes
    assert by_year.scan(sql, max_bytes=size).reads
    if size:
        assert f"would read {size:,} bytes of 't', more than the limit of {size - 1:,}" in refusal(
            by_year, sql, size - 1
        )


@pytest.mark.unshadowed("counts on reading no file")
def test_nothing_is_read(tmp_path: Path, rows: pa.Table) -> None:
    build(tmp_path / "t", rows, building(SCHEMA, CONDITIONS, blocking=by_position(20)))
    table = open_table(str(tmp_path / "t"))
    shutil.rmtree(tmp_path / "t" / "data")
    with pytest.raises(CostLimitError):
        table.sql("SELECT * FROM t WHERE kind = 'air'", max_bytes="10B")


def test_mentions_and_tables_add_up(by_year: Table) -> None:
    sql = "SELECT a.id FROM t a JOIN t b ON a.id = b.id JOIN u ON u.id = a.id WHERE b.kind = 'air'"
    scan = by_year.scan(sql, tables={"u": by_year})
    assert len(scan.reads) == 3
    size = dry_run(scan).bytes
    assert by_year.sql(sql, {"u": by_year}, max_bytes=size).num_rows
    with pytest.raises(CostLimitError):
        by_year.sql(sql, {"u": by_year}, max_bytes=size - 1)


def test_ways_to_narrow_are_those_that_skip(by_year: Table) -> None:
    everything = refusal(by_year, "SELECT * FROM t")
    assert "filter by 'year' (the partition column) or 'kind' or" in everything
    assert "(in features), leave out columns like '" in everything
    narrower = refusal(by_year, "SELECT id FROM t WHERE year = 1995 AND kind = 'air'")
    assert "partition column" not in narrower
    assert not re.search(r"filter by [^(]*'kind'", narrower)
    assert "or raise the limit" in narrower


@pytest.mark.parametrize("limit", ["much", "-1", "5 parsecs", ""])
def test_other_limits_are_refused(limit: str, by_year: Table) -> None:
    with pytest.raises(SettingError, match="write it like 500MB"):
        by_year.scan("SELECT id FROM t", max_bytes=limit)


@pytest.mark.parametrize("verb", ["query", "shell"])
def test_verbs_refuse_with_the_code_of_bad_input(
    verb: str, tmp_path: Path, rows: pa.Table, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    build(tmp_path / "t", rows, building(SCHEMA, CONDITIONS, partition_by="year"))
    sql = "SELECT id FROM t WHERE kind = 'air'"
    arguments = [verb, str(tmp_path / "t"), *([sql] if verb == "query" else [])]
    for limit, code in (("10KiB", DONE), ("1B", BAD_USAGE), ("lots", BAD_USAGE)):
        monkeypatch.setattr("sys.stdin", io.StringIO(sql))
        assert main([*arguments, "--max-bytes", limit]) == code, limit
    assert "more than the limit of 1; filter by 'year' (the partition column)" in capsys.readouterr().err
