"""Tables on S3, against a server of the same interface that runs in this process."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from layoutopt.catalog.commit import ensure_table_root, restore
from layoutopt.catalog.snapshot import latest_snapshot, snapshot_numbers
from layoutopt.catalog.storage import filesystem
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.storage.footers import DecodedFooters
from layoutopt.catalog.vacuum import vacuum
from layoutopt.errors import CatalogError, CommitConflictError, StoreError
from layoutopt.scan.table import open_table
from tests.catalog.crash import check_contents, commit, read
from tests.catalog.loads import run_threads, write_at_once
from tests.s3 import run_s3
from tests.scan.builder import build, building, by_position
from tests.scan.tables import CONDITIONS, SCHEMA, expected, same, some_rows

s3fs: Any = pytest.importorskip("s3fs", reason="needs the extra s3")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with run_s3("tables") as variables:
        yield variables["AWS_ENDPOINT_URL"]


@pytest.fixture
def files(endpoint: str, tmp_path: Path) -> TableFiles:
    return TableFiles(f"s3://tables/{tmp_path.name}/events")


def test_files_are_created_once(files: TableFiles) -> None:
    files.write_new("a/b/1.json", b"first")
    with pytest.raises(FileExistsError):
        files.write_new("a/b/1.json", b"second")
    assert files.read_bytes("a/b/1.json") == b"first"
    assert files.list("a/b") == ("1.json",)
    assert [(file.path, file.size) for file in files.walk("a")] == [("a/b/1.json", 5)]


def test_of_many_writers_one_succeeds(files: TableFiles) -> None:
    assert write_at_once(files) == [files.read_bytes("f")]


def test_loads_queries_restores_and_vacuums(files: TableFiles) -> None:
    base = ensure_table_root(files)
    base = commit(files, base, "a", (1994, 1995))
    base = commit(files, base, "b", (1995,))
    assert read(files.root) == {1994: "a", 1995: "b"}
    check_contents(files.root)
    restore(files, 0)
    assert read(files.root) == {1994: "a", 1995: "a"}
    assert vacuum(files, 1, timedelta(days=1)).snapshots == ()
    report = vacuum(files, 1, timedelta(0))
    assert (report.snapshots, len(report.files)) == ((0, 1), 2)
    assert open_table(files.root).sql("SELECT count(*) FROM t").to_pylist()[0].popitem()[1] == 12


def test_loaders_at_once(files: TableFiles) -> None:
    base = commit(files, ensure_table_root(files), "l0", (1990,))
    results: dict[str, str] = {}

    def load(load_id: str, year: int) -> None:
        try:
            commit(files, base, load_id, (year,))
            results[load_id] = "done"
        except CommitConflictError:
            results[load_id] = "conflict"

    run_threads(load, [(f"l{i}", 1991 + i % 3) for i in range(1, 7)])
    assert sorted(results.values()) == ["conflict"] * 3 + ["done"] * 3
    winners = {load_id for load_id, result in results.items() if result == "done"}
    assert set(read(files.root).values()) == {"l0", *winners}
    assert snapshot_numbers(files) == (0, 1, 2, 3)


class AnswerError(Exception):
    """What boto raises: the server's answer."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status}, "Error": {"Code": str(status)}}


def test_other_answers_of_stores_are_understood(files: TableFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [409, 409, 412]

    def pipe_file(path: str, value: bytes, mode: str) -> None:
        raise OSError("refused") from AnswerError(answers.pop(0))

    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr(files._store[0], "pipe_file", pipe_file)
    with pytest.raises(FileExistsError):
        files.write_new("f", b"x")
    answers[:] = [501]
    with pytest.raises(CatalogError, match="use another store for tables"):
        files.write_new("f", b"x")
    for status in (403, 409):
        answers[:] = [status] * 20
        with pytest.raises(StoreError, match=rf"refused 's3://\S+/f' \({status}: ") as caught:
            files.write_new("f", b"x")
        assert caught.value.status == status


def test_a_store_that_ignores_conditions_is_refused(files: TableFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    put = files._store[0].pipe_file
    monkeypatch.setattr(files._store[0], "pipe_file", lambda path, value, mode: put(path, value))
    with pytest.raises(CatalogError, match="overwrites"):
        ensure_table_root(files)


def test_a_commit_whose_answer_is_lost_is_one_commit(files: TableFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver repeats a request that it got no answer to; the repeated one finds the file there."""
    base = ensure_table_root(files)
    put = files._store[0].pipe_file

    def twice(path: str, value: bytes, mode: str) -> None:
        put(path, value, mode=mode)
        put(path, value, mode=mode)

    monkeypatch.setattr(files._store[0], "pipe_file", twice)
    assert commit(files, base, "a", (1994,)).number == 0
    newest = latest_snapshot(files)
    assert newest is not None
    assert newest.number == 0


def test_a_query_sends_few_requests(files: TableFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = some_rows(240)
    made = building(SCHEMA, CONDITIONS, partition_by="year", blocking=by_position(8), footers=True)
    build(tmp_path / "built", rows, made)
    s3fs.S3FileSystem().put(str(tmp_path / "built"), files.root.removeprefix("s3://"), recursive=True)
    # Other tests have read the same footers in this process.
    monkeypatch.setattr(filesystem, "_FOOTERS", DecodedFooters())
    sent: list[tuple[str, str]] = []
    send = s3fs.S3FileSystem._call_s3

    async def noting(self: Any, method: str, *arguments: Any, **named: Any) -> Any:
        sent.append((method, named.get("Key", "")))
        return await send(self, method, *arguments, **named)

    def of_data() -> list[str]:
        found = [method for method, key in sent if "/data/" in key]
        sent.clear()
        return found

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", noting)
    monkeypatch.setattr(filesystem, "_FOOTERS", DecodedFooters())  # other tests have files that are the same
    table = open_table(files.root)
    assert same(table.sql("SELECT * FROM t").to_pylist(), expected("SELECT * FROM t", rows))
    assert of_data() == ["get_object"] * 2 * len(table.files())  # of each file its end, and all column chunks at once
    open_table(files.root).sql("SELECT * FROM t")
    assert not [key for _, key in sent if "/plans/" in key or "/blocks/" in key]
    assert of_data() == ["get_object"] * len(table.files())
