"""Partitions that expire: which ones, what stays, and who is in the way."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.catalog import manifest_writing
from layoutopt.catalog.commit import Load, commit_load, ensure_table_root, partition_entries, restore
from layoutopt.catalog.expire import EXPIRE_POINTS, expire
from layoutopt.catalog.history import history
from layoutopt.catalog.partition_names import PartitionNames, PlainValue
from layoutopt.catalog.snapshot import Snapshot, latest_snapshot, snapshot_numbers
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.table import Catalog
from layoutopt.catalog.vacuum import vacuum
from layoutopt.cli.app import main
from layoutopt.errors import CommitConflictError, NotATableError, SettingError
from layoutopt.model.schema import Column, Schema
from layoutopt.scan.table import open_table
from tests.catalog.crash import MANIFESTS_ALWAYS, check_contents, check_nothing_is_left, commit, read
from tests.catalog.loads import NEW, ROWS, Killed, blocks_of, kill_at, plan_of


@pytest.fixture
def files(empty: TableFiles) -> TableFiles:
    """Four years of rows; 1995 is of the second of two loads."""
    commit(empty, commit(empty, None, "a", (1994, 1995)), "b", (1995, 1996, 1997))
    return empty


def empty_partitions(root: Path, type: str, values: Sequence[PlainValue]) -> TableFiles:
    """A table whose partitions have no rows; their values are those of a column of a type."""
    files = TableFiles(str(root))
    ensure_table_root(files)
    schema = Schema((Column("p", type), Column("x", "double")))
    plan = plan_of(schema, "p")
    names = PartitionNames.of(schema, "p")
    blocks = blocks_of(ROWS.rename_columns(["p", "x", "s"]).slice(0, 0), [0], plan_of()).slice(0, 0)
    entries = partition_entries(blocks, plan, "l1", {names.key(value): names.scalar(value) for value in values})
    commit_load(files, Load(NEW, plan, "l1", entries, blocks))
    return files


def keys(files: TableFiles) -> list[str]:
    snapshot = latest_snapshot(files)
    assert snapshot is not None
    return list(snapshot.by_key)


@pytest.mark.parametrize("bounds", [4096, MANIFESTS_ALWAYS])
def test_old_partitions_go_and_come_back(files: TableFiles, bounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_writing, "MOST_BOUNDS", bounds)
    before = {file.path for file in files.walk("data")}
    report = expire(files, before="1996")
    assert (report.snapshot, report.partitions, report.rows, report.left) == (2, ("1994", "1995"), 12, 2)
    assert read(files.root) == {1996: "b", 1997: "b"}
    assert history(files)[-1].operation == "expire"
    assert history(files)[-1].changed == ("1994", "1995")
    assert {file.path for file in files.walk("data")} == before
    check_contents(files.root)
    assert expire(files, before="1996").snapshot == 2  # there is nothing more to drop
    restore(files, 1)
    assert read(files.root) == {1994: "a", 1995: "b", 1996: "b", 1997: "b"}
    expire(files, before="1996")
    check_nothing_is_left(files.root)
    assert read(files.root) == {1996: "b", 1997: "b"}


def test_a_dropped_partition_can_be_loaded_again(files: TableFiles) -> None:
    expire(files, partitions=["year=1994", "1997"])
    commit(files, latest_snapshot(files), "c", (1994,))
    assert read(files.root) == {1994: "c", 1995: "b", 1996: "b"}
    check_contents(files.root)


def test_a_dry_run_changes_nothing(files: TableFiles) -> None:
    report = expire(files, before="1995", dry_run=True)
    assert (report.snapshot, report.partitions, report.dry_run) == (1, ("1994",), True)
    assert snapshot_numbers(files) == (0, 1)


def test_all_partitions_go_only_if_that_is_said(files: TableFiles) -> None:
    for dry_run in (True, False):
        with pytest.raises(SettingError, match=r"all 4 partitions .* --all"):
            expire(files, before="2000", dry_run=dry_run)
    assert expire(files, before="2000", everything=True).left == 0
    catalog = Catalog.open(files.root)
    assert (catalog.partitions, [plan.table for plan in catalog.plans.values()]) == ((), ["t"])
    assert open_table(files.root).sql("SELECT count(*) AS n FROM t")["n"].to_pylist() == [0]
    commit(files, catalog.snapshot, "c", (1998,))
    assert read(files.root) == {1998: "c"}
    check_nothing_is_left(files.root)


@pytest.mark.parametrize(("change", "year"), [("replaced", 1994), ("expired", 1994), ("replaced", 1996)])
def test_a_partition_that_changes_meanwhile_is_a_conflict(files: TableFiles, change: str, year: int) -> None:
    def at(point: str) -> None:
        if point == "before-snapshot" and len(snapshot_numbers(files)) == 2:
            if change == "replaced":
                commit(files, latest_snapshot(files), "c", (year,))
            else:
                expire(files, partitions=[str(year)])

    if year == 1996:  # another partition is in nobody's way
        expire(files, before="1996", at=at)
        assert read(files.root) == {1996: "c", 1997: "b"}
        return
    with pytest.raises(CommitConflictError, match="'1994' was changed by another commit"):
        expire(files, before="1996", at=at)
    assert 1995 in read(files.root)


def test_a_load_planned_before_conflicts_with_the_drop(files: TableFiles) -> None:
    base = latest_snapshot(files)
    expire(files, before="1995")
    with pytest.raises(CommitConflictError, match="1994"):
        commit(files, base, "c", (1994,))


@pytest.mark.parametrize("point", EXPIRE_POINTS)
def test_a_crash_drops_all_or_nothing(files: TableFiles, point: str) -> None:
    with pytest.raises(Killed):
        expire(files, before="1996", at=kill_at(point))
    done = point == "snapshot-created"
    assert keys(files) == ["1996", "1997"] if done else ["1994", "1995", "1996", "1997"]
    expire(files, before="1996")
    assert (keys(files), latest_number(files)) == (["1996", "1997"], 2)


def latest_number(files: TableFiles) -> int:
    snapshot = latest_snapshot(files)
    assert isinstance(snapshot, Snapshot)
    return snapshot.number


DAY = 86_400_000_000
# By type: values, and how a person writes one of them.
TYPES: dict[str, tuple[st.SearchStrategy[Any], Any]] = {
    "date": (st.integers(-719_000, 2_900_000), lambda value: str(np.datetime64(value, "D"))),
    "int": (st.integers(-(2**31), 2**31 - 1), str),
    "bigint": (st.integers(-(2**63), 2**63 - 1), str),
    "timestamp": (st.integers(-700_000 * DAY, 2_900_000 * DAY), lambda value: f"{np.datetime64(value, 'us')}+00:00"),
    "timestamp_ntz": (st.integers(-700_000 * DAY, 2_900_000 * DAY), lambda value: str(np.datetime64(value, "us"))),
    "decimal(9,2)": (st.decimals(-9_999_999, 9_999_999, places=2), str),
    "string": (st.text(st.characters(exclude_categories=["Cs", "Cc", "Zs"]), min_size=1, max_size=5), str),
}


@pytest.mark.parametrize("type", list(TYPES))
@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_what_is_less_goes_in_the_order_of_the_type(
    type: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    strategy, write = TYPES[type]
    values = data.draw(st.lists(strategy, min_size=1, max_size=6, unique=True))
    cutoff = data.draw(st.sampled_from(values) | strategy)
    files = empty_partitions(tmp_path_factory.mktemp("t"), type, [*values, None])
    names = PartitionNames("p", type)

    def order(value: Any) -> Any:
        return value.encode() if isinstance(value, str) else value

    expected = sorted((value for value in values if order(value) < order(cutoff)), key=order)
    report = expire(files, before=write(cutoff))
    assert report.partitions == tuple(map(names.key, expected))
    assert set(keys(files)) == {names.key(value) for value in [*values, None]} - set(report.partitions)


NOW = datetime(2026, 3, 10, 15, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("keep", "left"),
    [(0, ["2026-03-10"]), (1, ["2026-03-09", "2026-03-10"]), (2, ["2026-03-08", "2026-03-09", "2026-03-10"])],
)
def test_days_are_kept_until_their_last_hour_is_too_old(tmp_path: Path, keep: int, left: list[str]) -> None:
    first = (date(2026, 3, 8) - date(1970, 1, 1)).days
    files = empty_partitions(tmp_path / "t", "date", range(first, first + 3))
    expire(files, keep=timedelta(days=keep), now=NOW)
    assert keys(files) == left


@pytest.mark.parametrize("type", ["timestamp", "timestamp_ntz"])
def test_hours_are_kept_in_utc(tmp_path: Path, type: str) -> None:
    hours = [int(NOW.timestamp()) * 1_000_000 - 60_000_000 * minutes for minutes in (61, 60, 1)]
    files = empty_partitions(tmp_path / "t", type, hours)
    assert len(expire(files, keep=timedelta(hours=1), now=NOW).partitions) == 1
    assert expire(files, keep=timedelta(days=6_999_999), now=NOW).partitions == ()


def test_null_stays_until_it_is_named(tmp_path: Path) -> None:
    files = empty_partitions(tmp_path / "t", "date", [None, 0, 1])
    assert expire(files, before="3000-01-01").partitions == ("1970-01-01", "1970-01-02")
    assert expire(files, partitions=["p=__null__"], everything=True).partitions == ("__null__",)


@pytest.mark.parametrize(
    ("type", "values", "how", "told"),
    [
        (
            "int",
            [2024],
            {"keep": timedelta(days=1)},
            "--keep needs a partition column of dates or timestamps, but p is int",
        ),
        ("string", ["2024-01-01"], {"keep": timedelta(days=1)}, "but p is string"),
        ("int", [2024], {"before": "2024-01-01"}, "'2024-01-01' is no int"),
        ("date", [0], {"before": "2024"}, "'2024' is no date; write --before 2026-01-31"),
        ("timestamp", [0], {"before": "soon"}, "'soon' is no timestamp; write --before 2026-01-31T12:00"),
        ("timestamp_ntz", [0], {"before": "2026-01-01T00:00Z"}, "is no timestamp_ntz"),
        ("decimal(9,2)", [Decimal("1.00")], {"before": "Infinity"}, "'Infinity' is no decimal"),
        ("boolean", [True], {"before": "true"}, "boolean can't be compared with --before"),
        ("int", [2024], {"partitions": ["p=2025"]}, "the table has no partition 'p=2025'"),
        ("int", [2024], {"partitions": ["q=2024"]}, "partitioned by p, not 'q'"),
        ("int", [2024], {}, "give exactly one"),
        ("int", [2024], {"before": "2024", "partitions": ["2024"]}, "give exactly one"),
    ],
)
def test_refusals_name_the_setting(
    type: str, values: list[PlainValue], how: dict[str, Any], told: str, tmp_path: Path
) -> None:
    files = empty_partitions(tmp_path / "t", type, values)
    with pytest.raises(SettingError, match=told.replace("(", r"\(")):
        expire(files, **how)
    assert snapshot_numbers(files) == (0,)


def test_a_folder_without_partitions_is_refused(empty: TableFiles, tmp_path: Path) -> None:
    with pytest.raises(NotATableError, match="never loaded"):
        expire(empty, before="1")
    whole = plan_of(partition_by=None)
    blocks = blocks_of(ROWS, [0, 4], whole, "all")
    commit_load(empty, Load(NEW, whole, "l1", partition_entries(blocks, whole, "l1", {"all": None}), blocks))
    with pytest.raises(SettingError, match="has no partitions to expire"):
        expire(empty, before="1")


def test_a_value_may_be_written_in_several_ways(tmp_path: Path) -> None:
    files = empty_partitions(tmp_path / "t", "date", [0, 1, 2])
    assert expire(files, partitions=["p=1970-1-1", "1970-01-01"]).partitions == ("1970-01-01",)
    files = empty_partitions(tmp_path / "s", "string", ["a/b", "a%2Fb", "c"])
    assert expire(files, partitions=["p=a%2Fb"]).partitions == ("a%252Fb",)


def test_the_verb(files: TableFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["expire", files.root, "--before", "1996", "--dry-run"]) == 0
    assert "Would drop 2 partition(s), 2 stay: 1994, 1995" in capsys.readouterr().out
    assert main(["expire", files.root, "--before", "1996", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["partitions"] == ["1994", "1995"]
    assert main(["expire", files.root, "--before", "1996"]) == 0
    assert "No partition to drop; 2 stay" in capsys.readouterr().out
    assert main(["expire", files.root, "--before", "1998"]) == 2
    assert "--all" in capsys.readouterr().err
    conf = tmp_path / "nightly.toml"
    conf.write_text(f'[expire]\ntable = "{files.root}"\nkeep = "400d"\n', encoding="utf-8")
    assert main(["expire", "--conf", str(conf)]) == 2
    assert "--keep needs a partition column of dates or timestamps" in capsys.readouterr().err
    assert vacuum(files, 1, timedelta(0)).files
    assert main(["restore", files.root, "--snapshot", "1"]) == 2
