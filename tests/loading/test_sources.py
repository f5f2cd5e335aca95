"""Where rows came from: the source's files that each entry of a table lists."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from layoutopt.catalog.commit import REWRITES, restore
from layoutopt.catalog.expire import expire
from layoutopt.catalog.paths import SOURCES
from layoutopt.catalog.snapshot import Snapshot, latest_snapshot, read_snapshot
from layoutopt.catalog.source_lists import LoadedFile, list_source_lists, read_sources
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.vacuum import vacuum
from layoutopt.cli.app import main
from layoutopt.events import Stages
from layoutopt.inspect.verify import verify
from layoutopt.loading.append import append_locally, compact_few_rows
from layoutopt.model.requests import AppendRequest
from layoutopt.scan.table import open_table
from tests.loading.days import DAYS, Days
from tests.scan.tables import some_rows


@pytest.fixture
def days(tmp_path: Path) -> Days:
    days = Days(tmp_path)
    pq.write_table(some_rows(9).drop_columns(["day"]), days.source / f"day={DAYS[0]}" / "b.parquet")
    return days


def newest(days: Days) -> Snapshot:
    snapshot = latest_snapshot(TableFiles(days.table))
    assert snapshot is not None
    return snapshot


def listed(days: Days, number: int | None = None) -> dict[str, list[str]]:
    """The names of the files that each partition came from, as the table lists them."""
    files = TableFiles(days.table)
    snapshot = newest(days) if number is None else read_snapshot(files, number)
    names: dict[str, list[str]] = {}
    for (key, _), sources in read_sources(files, snapshot, snapshot.partitions).items():
        names.setdefault(key, []).extend(file.path.rpartition("/")[2] for file in sources)
    return names


def stored(days: Days) -> list[str]:
    return [file.path for file in TableFiles(days.table).walk(SOURCES)]


def late_rows(days: Days, name: str) -> Path:
    late = days.root / name
    rows = some_rows(5)
    pq.write_table(rows.set_column(rows.column_names.index("day"), "day", [[None] * 5]).cast(rows.schema), late)
    return late


def test_an_entry_lists_its_files_with_their_versions(days: Days) -> None:
    days.load(first=DAYS[0], last=DAYS[1], group=2)
    assert listed(days) == {DAYS[0]: ["a.parquet", "b.parquet"], DAYS[1]: ["a.parquet"]}
    (entry,) = newest(days).by_key[DAYS[1]]
    ((file,),) = read_sources(TableFiles(days.table), newest(days), [entry]).values()
    path = days.source / f"day={DAYS[1]}" / "a.parquet"
    status = path.stat()
    assert file == LoadedFile(str(days.source), f"file:{path}", status.st_size, status.st_mtime_ns // 1_000_000 * 1_000)
    assert len(stored(days)) == 1  # of both partitions of the commit


def test_lists_of_thousands_of_files_are_no_part_of_the_snapshot(days: Days, monkeypatch: pytest.MonkeyPatch) -> None:
    def size(prefix: str) -> int:
        return max(file.size for file in TableFiles(days.table).walk(prefix))

    days.load(partition=(DAYS[0],))
    before = size("_layoutopt/snapshots"), size("_layoutopt/blocks")
    many = tuple(LoadedFile("s", f"s3a://bucket/{number:05}.parquet", number, number) for number in range(5_000))
    monkeypatch.setattr("layoutopt.loading.load.list_files", lambda source, partition: many)
    days.load(partition=(DAYS[0],), replace=True)
    assert size("_layoutopt/snapshots") < before[0] + 200
    assert size("_layoutopt/blocks") < before[1] + 200
    assert len(listed(days)[DAYS[0]]) == 5_000


def test_a_vacuum_frees_lists_and_a_restore_keeps_them(days: Days) -> None:
    days.load(partition=(DAYS[0],))
    days.load(partition=(DAYS[1],))
    days.write_day(DAYS[0], 30)
    days.load(partition=(DAYS[0],), replace=True)
    files = TableFiles(days.table)
    vacuum(files, 10, timedelta(0))
    assert len(stored(days)) == 3
    restore(files, 1)
    assert listed(days)[DAYS[0]] == ["a.parquet", "b.parquet"]
    vacuum(files, 1, timedelta(0))
    assert len(stored(days)) == 2
    assert listed(days) == {DAYS[0]: ["a.parquet", "b.parquet"], DAYS[1]: ["a.parquet"]}
    expire(files, before=DAYS[1])
    vacuum(files, 1, timedelta(0))
    assert len(stored(days)) == 1
    assert verify(open_table(days.table)).ok


def test_appends_and_compaction_keep_the_files(days: Days) -> None:
    days.load(partition=(DAYS[0],))
    names = [f"late{number}.parquet" for number in range(5)]
    for name in names:
        append_locally(AppendRequest(table_path=days.table, source=str(late_rows(days, name)), keep_apart=True))
    assert listed(days) == {DAYS[0]: ["a.parquet", "b.parquet"], "__null__": names}
    assert compact_few_rows(days.table, ["__null__"], Stages()) is not None
    first, joined = newest(days).by_key["__null__"]  # the first is never joined
    assert newest(days).operation in REWRITES
    sources = read_sources(TableFiles(days.table), newest(days), [first, joined])
    assert [Path(file.path).name for file in sources[first.name]] == names[:1]
    assert [Path(file.path).name for file in sources[joined.name]] == names[1:]


def test_a_lost_or_damaged_list_loses_no_row(days: Days, capsys: pytest.CaptureFixture[str]) -> None:
    days.load(partition=(DAYS[0],))
    (path,) = stored(days)
    file = Path(TableFiles(days.table).full_path(path))
    content = file.read_bytes()
    for damaged in (content[:-9], b"", None):
        file.unlink() if damaged is None else file.write_bytes(damaged)
        assert listed(days) == {}
        assert open_table(days.table).rows == 29
        (problem,) = verify(open_table(days.table)).problems
        assert (problem.check, problem.file) == ("sources", path)
        assert main(["history", days.table, "--sources"]) == 0
        assert f"snapshot 0, partition {DAYS[0]}: from unknown files" in capsys.readouterr().out
    days.load(partition=(DAYS[1],))
    restore(TableFiles(days.table), 0)


def test_a_table_of_an_older_version_has_none(days: Days, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("layoutopt.catalog.commit.write_source_lists", lambda *_: None)
        days.load(partition=(DAYS[0],))
    assert list_source_lists(TableFiles(days.table), newest(days)) == {}
    days.load(partition=(DAYS[1],))
    assert listed(days) == {DAYS[1]: ["a.parquet"]}
    assert verify(open_table(days.table)).ok


def test_lists_of_encrypted_tables_are_sealed(days: Days, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAYOUTOPT_TEST_KEY", "00" * 16)
    days.load(partition=(DAYS[0],), encrypt="env:LAYOUTOPT_TEST_KEY")
    (path,) = stored(days)
    content = (Path(days.table) / path).read_bytes()
    assert content.startswith(b"LOE1")
    assert b"parquet" not in content
    assert listed(days) == {DAYS[0]: ["a.parquet", "b.parquet"]}


def test_history_and_explain_show_them(days: Days, capsys: pytest.CaptureFixture[str]) -> None:
    days.load(first=DAYS[0], last=DAYS[1])

    def said(*words: str) -> Any:
        assert main([*words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    first, second = said("history", days.table, "--sources")
    assert [file["path"].rpartition("/")[2] for file in first["sources"][DAYS[0]]] == ["a.parquet", "b.parquet"]
    assert list(second["sources"]) == [DAYS[1]]
    assert "sources" not in said("history", days.table)[0]
    (entry,) = said("explain", days.table, f"day = DATE'{DAYS[1]}'")["entries"]
    assert (entry["partition"], entry["load_id"]) == (DAYS[1], second["load_id"])
    assert (entry["blocks"] > 0, entry["sources"]) == (True, second["sources"][DAYS[1]])
    assert main(["history", days.table, "--sources"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"snapshot 0, partition {DAYS[0]}: 2 files of {days.source}" in shown
