"""A load counts the rows of partitions that it needs, and loads what one that counts all would load."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.config.documents import read_plan
from layoutopt.errors import AlreadyLoadedError, CommitConflictError, PartitionsFailedError
from layoutopt.external.snapshot import SnapshotFile
from layoutopt.loading.load import run_load
from layoutopt.loading.local_source import open_door
from layoutopt.model.requests import LoadRequest
from layoutopt.scan.table import open_table
from layoutopt.sources import listing
from tests.effort import examples
from tests.loading.days import DAYS, Days
from tests.scan.tables import some_rows

CHANGES = ("none", "add", "rewrite", "touch", "remove", "empty", "exchange")
# Requests, each with the days that it names.
REQUESTS: tuple[tuple[dict[str, Any], tuple[str, ...]], ...] = (
    ({}, DAYS),
    ({"replace": True}, DAYS),
    ({"partition": (DAYS[0],)}, DAYS[:1]),
    ({"partition": (f"day={DAYS[1]}", DAYS[2]), "replace": True}, DAYS[1:3]),
    ({"first": DAYS[1], "last": DAYS[2]}, DAYS[1:3]),
    ({"last": DAYS[0], "replace": True, "allow_empty": True}, DAYS[:1]),
)


def change(folder: Path, kind: str, night: int) -> None:
    """Change the files of a day; rows and times of files differ from night to night."""
    files = sorted(folder.glob("*.parquet"))
    rows = some_rows(10 + night, night).drop_columns(["day"])
    if kind == "add":
        pq.write_table(rows, folder / f"{night}.parquet")
    elif kind == "empty":
        pq.write_table(rows.slice(0, 0), folder / f"{night}.parquet")
    elif kind == "rewrite":
        pq.write_table(rows, files[0])
    elif kind == "touch":
        os.utime(files[0], (night, night))
    elif kind == "remove" and len(files) > 1:
        files[0].unlink()
    elif kind == "exchange":  # other rows under a new name
        pq.write_table(rows, folder / f"x{night}.parquet")
        files[0].unlink()


def load(days: Days, table: str, request: dict[str, Any], *, counts_all: bool) -> tuple[object, ...]:
    """Load into a table, and return what became of it; raises where a single partition fails, or all do."""
    names = LoadRequest(source=str(days.source), table_path=table, plan=days.root / "plan.json", **request)
    try:
        report = run_load((lambda source, plan, is_needed: open_door(source, plan)) if counts_all else open_door, names)
    except PartitionsFailedError as error:
        return sorted(failure.partition for failure in error.report.failed), error.report.partitions
    except AlreadyLoadedError:
        return ("refused",)
    return sorted(report.partitions), report.already, report.empty


def count_rows(folder: Path) -> int:
    return sum(pq.read_metadata(path).num_rows for path in folder.glob("*.parquet"))


@settings(max_examples=examples(30), deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(st.sampled_from(CHANGES), min_size=3, max_size=3), st.sampled_from(REQUESTS)),
        min_size=1,
        max_size=4,
    )
)
def test_no_new_file_is_missed(nights: list[tuple[list[str], tuple[dict[str, Any], tuple[str, ...]]]]) -> None:
    with TemporaryDirectory() as root:
        days = Days(Path(root))
        tables = {False: str(Path(root, "some")), True: str(Path(root, "all"))}
        for night, (changes, (request, chosen)) in enumerate([(["none"] * 3, REQUESTS[0]), *nights]):
            for day, kind in zip(DAYS, changes, strict=False):
                change(days.source / f"day={day}", kind, night + 1)
            outcome, expected = (load(days, table, request, counts_all=counts) for counts, table in tables.items())
            assert outcome == expected
            some, all_counted = (open_table(table).catalog.partitions for table in tables.values())
            assert [(e.key, e.live_rows, e.checksums) for e in some] == [
                (e.key, e.live_rows, e.checksums) for e in all_counted
            ]
            if len(outcome) == 3:  # nothing failed
                loaded = {entry.key: entry.live_rows for entry in some}
                assert [loaded[day] for day in chosen] == [count_rows(days.source / f"day={day}") for day in chosen]


@contextmanager
def reading_footers() -> Iterator[set[str]]:
    """Note the days of which files are counted."""
    read: set[str] = set()
    count = listing._count_file

    def noted(file: SnapshotFile, *more: Any) -> Any:
        read.add(str(file.constants["day"]))
        return count(file, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listing, "_count_file", noted)
        yield read


def test_only_days_with_new_files_are_counted(tmp_path: Path) -> None:
    days = Days(tmp_path)
    with reading_footers() as read:
        days.load(partition=(DAYS[1],))
        assert read == {DAYS[1]}
        days.load(first=DAYS[0], last=DAYS[1])
        assert read == {DAYS[0], DAYS[1]}
        days.load()
        assert read == set(DAYS)
        read.clear()
        assert days.load().already == DAYS
        assert read == set()
        days.write_day(DAYS[2], 90)
        assert days.load(replace=False, partition=(DAYS[0],)).already == (DAYS[0],)
        assert read == set()
        days.load(replace=True, partition=(DAYS[2],))
        assert read == {DAYS[2]}
    assert days.loaded[DAYS[2]] == 90


def test_a_table_that_changes_meanwhile_is_noticed(tmp_path: Path) -> None:
    """A partition that was there when the load began is not counted, so it can't be loaded."""
    days = Days(tmp_path)
    days.load()
    opened = open_door(str(days.source), read_plan(days.root / "plan.json"), lambda partition: False)
    source = opened.source
    assert [partition.rows for partition in source.partitions] == [0] * len(DAYS)
    with pytest.raises(CommitConflictError, match="was changed since; load again"):
        source.check_rows(source.partitions[:1])
    with pytest.raises(CommitConflictError):
        source.check_rows(None)
