"""What a server keeps of the tables that it serves: no more than the last ones, however many come and go."""

from __future__ import annotations

import gc
import shutil
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pyarrow as pa
import pytest

from layoutopt.serve import tables
from layoutopt.serve.tables import ServedSource, ServedTable, Tables
from tests.external.folders import index, write
from tests.scan.builder import build, building, by_position
from tests.scan.tables import SCHEMA, some_rows


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> WeakSet[Any]:
    """The tables and sources that a server keeps."""
    made: WeakSet[Any] = WeakSet()

    def noted(make: Any, *given: Any) -> Any:
        one = make(*given)
        made.add(one)
        return one

    for make in (ServedTable, ServedSource):
        monkeypatch.setattr(tables, make.__name__, partial(noted, make))
    return made


def roots(kept: WeakSet[Any]) -> list[str]:
    gc.collect()
    return sorted(Path(one.root).name for one in kept)


def test_tables_asked_for_last_are_kept(tmp_path: Path, kept: WeakSet[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_MOST_TABLES", 2)
    for name in "abc":
        build(tmp_path / name, some_rows(3), building(SCHEMA, []))
    served = Tables({}, str(tmp_path))
    for name in "abac":
        assert served.find(("default",), name).table.catalog.snapshot.rows == 3
    assert roots(kept) == ["a", "c"]
    assert len(served.names()) == 3


def test_files_too_large_to_be_skipped_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(tmp_path / "a", some_rows(90), building(SCHEMA, [], blocking=by_position(10)))
    served = Tables({(("sales",), "a"): str(tmp_path / "a"), (("sales",), "gone"): str(tmp_path / "gone")})
    assert served.notes() == []
    monkeypatch.setattr("layoutopt.catalog.file_sizes.LEAST_BYTES", 1)
    (note,) = served.notes()
    assert note.startswith("sales.a: all rows are in one file")


@pytest.mark.long
def test_a_source_is_kept_while_it_is_there(tmp_path: Path, kept: WeakSet[Any]) -> None:
    """What clients were told of its columns holds for as long."""
    write(tmp_path / "rows" / "a.parquet", pa.table({"id": [1]}))
    index(tmp_path / "rows", tmp_path / "lake" / "i", ["id:bloom"])
    build(tmp_path / "lake" / "t", some_rows(3), building(SCHEMA, []))
    served = Tables({}, str(tmp_path / "lake"))
    for _ in range(2):
        assert [name for _, name in served.names()] == ["i", "t"]
        assert roots(kept) == ["i", "t"]
    shutil.rmtree(tmp_path / "lake" / "i")
    assert [name for _, name in served.names()] == ["t"]
    assert roots(kept) == ["t"]
