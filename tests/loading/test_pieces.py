"""A large load writes its catalog in pieces: tasks store their results, and no more than a piece is held at once."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from layoutopt.catalog.commit import commit_load
from layoutopt.catalog.paths import CATALOG
from layoutopt.catalog.snapshot import latest_snapshot
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.vacuum import vacuum
from layoutopt.errors import BoundError, CommitConflictError, ContentMismatchError
from layoutopt.inspect.verify import verify
from layoutopt.loading import load as loading
from layoutopt.scan.table import open_table
from tests.loading.days import DAYS, Days

SQL = "SELECT id, price, seen FROM t WHERE kind = 'air' AND price > 60"


@pytest.fixture
def days(tmp_path: Path) -> Days:
    return Days(tmp_path)


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece holds one partition."""
    monkeypatch.setattr(loading, "_MOST_HELD", 1)


def blocks_files(days: Days) -> dict[str, str]:
    return {entry.key: entry.blocks_file for entry in open_table(days.table).catalog.partitions}


def catalog_files(days: Days) -> set[str]:
    return {str(path.relative_to(days.table)) for path in Path(days.table, CATALOG).rglob("*") if path.is_file()}


def answer(days: Days) -> list[dict[str, Any]]:
    return sorted(open_table(days.table).scan(SQL).to_arrow().to_pylist(), key=lambda row: row["id"])


@pytest.mark.usefixtures("pieces")
def test_each_piece_has_a_blocks_file(days: Days) -> None:
    days.load()
    assert len(set(blocks_files(days).values())) == len(DAYS)
    assert days.loaded == {day: 20 + number for number, day in enumerate(DAYS)}
    assert len(days.commits) == 1
    assert not any(".tmp-" in path for path in catalog_files(days))
    table = open_table(days.table)
    assert verify(table).problems == ()
    named = {path for entry in table.catalog.partitions for path in entry.catalog_files}
    assert named <= catalog_files(days)


def test_a_table_is_the_same_by_any_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers, indexes, counts = [], [], []
    for number, most in enumerate((1, 30, 10**9)):
        (tmp_path / str(number)).mkdir()
        days = Days(tmp_path / str(number))
        monkeypatch.setattr(loading, "_MOST_HELD", most)
        report = days.load()
        catalog = open_table(days.table).catalog
        assert sum(load.blocks for load in report.loads) == sum(b.n for b, _ in catalog.blocks_by_plan().values())
        answers.append(answer(days))
        columns = ["partition", "segment", "layout", "part", "rows", "words", "stats"]
        blocks = [pq.read_table(Path(days.table, path), columns=columns) for path in set(blocks_files(days).values())]
        indexes.append(sorted(repr(row) for table in blocks for row in table.to_pylist()))
        counts.append(len(list(Path(days.table, CATALOG, "sources").iterdir())))
        assert counts[-1] == len(set(blocks_files(days).values()))
    assert answers[0] == answers[1] == answers[2] != []
    assert indexes[0] == indexes[1] == indexes[2]
    assert len(DAYS) == counts[0] > counts[1] > counts[2] == 1


@pytest.mark.usefixtures("pieces")
def test_later_loads_find_the_pieces(days: Days) -> None:
    days.load()
    assert sorted(days.load().already) == list(DAYS)
    days.write_day(DAYS[0], 50)
    days.load(partition=(DAYS[0],), replace=True)
    before = answer(days)
    vacuum(TableFiles(days.table), 1, timedelta(0))
    assert answer(days) == before
    assert sorted(days.load(replace=True).partitions) == list(DAYS)
    assert answer(days) == before
    assert verify(open_table(days.table)).problems == ()


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("raised", [ContentMismatchError("x"), CommitConflictError("x"), KeyboardInterrupt()])
def test_a_failed_load_leaves_no_piece(days: Days, monkeypatch: pytest.MonkeyPatch, raised: BaseException) -> None:
    days.load(partition=(DAYS[0],))
    before, loaded = catalog_files(days), days.loaded

    def fail(*args: Any, **options: Any) -> None:
        raise raised

    place = "commit_load" if isinstance(raised, CommitConflictError) else "_check_content"
    monkeypatch.setattr(loading, place, fail)
    with pytest.raises(type(raised)):
        days.load()
    assert (catalog_files(days), days.loaded) == (before, loaded)


@pytest.mark.usefixtures("pieces")
def test_a_crash_between_pieces_leaves_the_table(days: Days, monkeypatch: pytest.MonkeyPatch) -> None:
    days.load(partition=(DAYS[0],))
    before = answer(days)

    def die(*args: Any, at: Any = None, **options: Any) -> Any:
        raise SystemExit

    monkeypatch.setattr(loading, "remove_on_failure", lambda *args: monkeypatch.context())
    monkeypatch.setattr(loading, "commit_load", die)
    with pytest.raises(SystemExit):
        days.load()
    assert answer(days) == before
    monkeypatch.setattr(loading, "commit_load", commit_load)
    days.load()
    vacuum(TableFiles(days.table), 1, timedelta(0))
    snapshot = latest_snapshot(TableFiles(days.table))
    assert snapshot is not None
    blocks = {path for path in catalog_files(days) if "/blocks/" in path}
    assert blocks == {entry.blocks_file for entry in snapshot.partitions}
    assert verify(open_table(days.table)).problems == ()


def test_rows_are_cut_into_commits_below_the_bound(days: Days, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_MOST_ROWS", 50)
    days.load()
    assert days.loaded == {day: 20 + number for number, day in enumerate(DAYS)}
    assert list(map(len, filter(None, days.commits))) == [2, 2]
    monkeypatch.setattr(loading, "_MOST_ROWS", 20)
    with pytest.raises(BoundError, match="one load takes fewer than 20 rows, not 20"):
        days.load(partition=(DAYS[0],), replace=True)


def test_stored_results_are_those_of_the_tasks(days: Days, monkeypatch: pytest.MonkeyPatch) -> None:
    from layoutopt.writer.task_result import StoredResult, TaskResult

    monkeypatch.setattr(loading, "_MOST_HELD", 1)
    stored: list[TaskResult] = []
    read = StoredResult.read

    def note(self: StoredResult, files: TableFiles) -> TaskResult:
        stored.append(read(self, files))
        return stored[-1]

    monkeypatch.setattr(StoredResult, "read", note)
    days.load()
    assert sum(result.rows for result in stored) == sum(days.loaded.values())
    assert all(result.blocks.num_rows for result in stored)
    assert pq.read_table(Path(days.table, blocks_files(days)[DAYS[0]])).num_rows == stored[0].blocks.num_rows
