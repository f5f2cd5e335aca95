"""What a query would read, told from the catalog alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import layoutopt
from layoutopt.cli.app import main
from layoutopt.cli.console import DONE
from layoutopt.inspect.cost import dry_run
from tests.scan.builder import build, building
from tests.scan.layouts import GROUPS
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows

SQL = "SELECT id FROM t WHERE kind = 'air'"


def test_bytes_are_those_of_the_column_chunks(tmp_path: Path) -> None:
    table = build(tmp_path, some_rows(), building(SCHEMA, CONDITIONS))
    found = dry_run(table.scan(SQL))
    (fragment,) = table.scan(SQL).to_dataset().get_fragments()
    metadata = pq.read_metadata(fragment.path)
    chunks = [metadata.row_group(i).column(place) for i in range(metadata.num_row_groups) for place in (0, 2)]
    assert {chunk.path_in_schema for chunk in chunks} == {"id", "kind"}
    assert found.bytes_total == sum(chunk.total_compressed_size for chunk in chunks)
    kept = [metadata.row_group(group.id).column(place) for group in fragment.row_groups for place in (0, 2)]
    assert 0 < found.bytes == sum(chunk.total_compressed_size for chunk in kept) < found.bytes_total
    assert found.to_json()["bytes"] == found.bytes


@pytest.mark.unshadowed("data files are gone")
def test_no_data_file_is_opened(tmp_path: Path) -> None:
    build(tmp_path, some_rows(), building(SCHEMA, CONDITIONS, layouts=GROUPS))
    shutil.rmtree(tmp_path / "data")
    found = dry_run(layoutopt.open_table(str(tmp_path)).scan(SQL))
    assert 0 < found.bytes < found.bytes_total


def test_every_mention_counts(tmp_path: Path) -> None:
    table = build(tmp_path, some_rows(), building(SCHEMA, CONDITIONS))
    one = dry_run(table.scan("SELECT id FROM t"))
    two = dry_run(table.scan("SELECT a.id FROM t a JOIN t b ON a.id = b.id"))
    assert (two.bytes, two.blocks, two.rows) == (2 * one.bytes, 2 * one.blocks, 2 * one.rows)
    assert dry_run(table.scan("SELECT count(*) FROM t")).bytes == 0


def test_nothing_of_an_empty_table(tmp_path: Path) -> None:
    table = build(tmp_path, pa.table(some_rows()).slice(0, 0), building(SCHEMA, CONDITIONS))
    assert dry_run(table.scan(SQL)).bytes_total == 0


def test_the_command_line_prints_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = build(tmp_path, some_rows(), building(SCHEMA, CONDITIONS))
    found = dry_run(table.scan(SQL))
    assert main(["explain", str(tmp_path), SQL, "--bytes"]) == DONE
    assert capsys.readouterr().out.startswith(f"{found.bytes:,} of {found.bytes_total:,} bytes")
    assert main(["explain", str(tmp_path), SQL, "--bytes", "--json"]) == DONE
    assert json.loads(capsys.readouterr().out) == found.to_json()
