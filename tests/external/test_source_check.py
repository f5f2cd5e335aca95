"""A source is checked before Spark starts, by a few footers."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.errors import SchemaError
from layoutopt.external import source_check
from layoutopt.external.source_check import check_source
from layoutopt.model.schema import Column, Schema
from layoutopt.sql import schema as reading

FILES = 100


def test_some_footers_are_read_of_files_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for day in range(FILES):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(pa.table({"a": [day]}), tmp_path / f"day={day}" / "rows.parquet")
    read, listed = [], []

    def read_metadata(path: Path) -> pq.FileMetaData:
        read.append(path)
        return metadata_of(path)

    def list_files(root: Path) -> list[Path]:
        listed.append(root)
        return files_of(root)

    metadata_of, files_of = pq.read_metadata, reading.list_files
    monkeypatch.setattr(pq, "read_metadata", read_metadata)
    for module in (reading, source_check):
        monkeypatch.setattr(module, "list_files", list_files)
    for name in source_check._INSTALLATIONS:
        monkeypatch.delenv(name, raising=False)
    wanted = Schema((Column("a", "bigint"), Column("day", "int")))
    assert check_source(str(tmp_path), wanted, "the plan") == wanted
    assert 0 < len(read) < FILES // 4
    assert listed == [tmp_path]
    with pytest.raises(SchemaError, match=r"'a' is bigint in the source .* but string in the plan"):
        check_source(str(tmp_path), Schema((Column("a", "string"), Column("day", "int"))), "the plan")
