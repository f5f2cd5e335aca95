"""Manifests: entries come back as they were, commits write what they change, and damage is noticed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from math import log2
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.catalog import manifest_writing, manifests
from layoutopt.catalog.commit import APPEND, forget_superseded_entries, restore
from layoutopt.catalog.deletion_vectors import Marks, commit_deletes, pack_positions
from layoutopt.catalog.history import history
from layoutopt.catalog.load_check import Content
from layoutopt.catalog.manifests import Manifest, encode_entries, encode_manifest
from layoutopt.catalog.optimistic_commit import Change, append_snapshot, make_next_snapshot
from layoutopt.catalog.partition_entry import Bounds, Deletes, PartitionEntry
from layoutopt.catalog.paths import MANIFESTS, FileDigest, blocks_path, manifest_path, snapshot_path
from layoutopt.catalog.snapshot import (
    FORMAT_VERSION,
    Snapshot,
    latest_snapshot,
    read_head,
    read_partitions,
    read_snapshot,
    snapshot_as_of,
    snapshot_numbers,
)
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.storage.ranges import LastUsed
from layoutopt.catalog.table_root import ensure_table_root
from layoutopt.catalog.vacuum import vacuum
from layoutopt.errors import CatalogError, CommitConflictError
from layoutopt.model.schema import Column, Schema
from tests.catalog.loads import SCHEMA as LOAD_SCHEMA
from tests.catalog.loads import Killed, SmallLoad, kill_at

SCHEMA = Schema(
    tuple(
        Column(name, type)
        for name, type in [("n", "int"), ("s", "string"), ("b", "binary"), ("d", "decimal(38,0)"), ("a", "array<int>")]
    )
)
FILES = {path: FileDigest(7, "ab" * 32) for path in ("_layoutopt/blocks/l1.parquet", "_layoutopt/deletes/l2.parquet")}
COUNTS = st.integers(0, 2**63 - 1)


def ranges(keys: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, Any]]:
    return st.one_of(st.just((None, None)), st.tuples(keys, keys).map(lambda pair: tuple(sorted(pair))))


@st.composite
def entries(draw: st.DrawFn) -> PartitionEntry:
    kinds = {
        "n": ranges(st.integers(-(2**63), 2**63 - 1)),
        "s": ranges(st.text(st.characters(exclude_categories=["Cs"]), max_size=5)),
        "b": ranges(st.binary(max_size=5)),
        "d": ranges(st.integers(-(10**38) + 1, 10**38 - 1)),
        "a": st.just((None, None)),
    }
    known = SCHEMA.names[: draw(st.integers(0, len(SCHEMA.names)))]
    bounds = {name: Bounds(*draw(kinds[name]), draw(st.none() | COUNTS)) for name in known}
    sums = st.dictionaries(st.sampled_from(SCHEMA.names), COUNTS)
    rows = draw(COUNTS)
    deletes = st.builds(Deletes, st.just("_layoutopt/deletes/l2.parquet"), st.integers(0, rows), sums)
    return PartitionEntry(
        key=draw(st.sampled_from(["1994", "a%20b", "__null__", "x" * 150])),
        value=draw(st.none() | st.text(st.characters(exclude_categories=["Cs"])) | st.integers() | st.booleans()),
        plan=draw(st.sampled_from(["abc1", "f" * 64])),
        load_id=draw(st.sampled_from(["l1", "20260101t000000z-a"])),
        blocks_file="_layoutopt/blocks/l1.parquet",
        rows=rows,
        bounds=bounds,
        checksums=draw(sums),
        bytes=draw(COUNTS),
        source=draw(st.none() | st.just("ff00")),
        deletes=draw(st.none() | deletes),
        native=draw(st.booleans()),
    )


@given(st.lists(entries(), max_size=4))
def test_entries_come_back_as_they_were(written: list[PartitionEntry]) -> None:
    table = encode_entries(written, SCHEMA, FILES)
    assert table is not None
    grown = Schema((*SCHEMA.columns, Column("new", "int")))
    for schema in (SCHEMA, grown):
        manifest = Manifest.decode(encode_manifest(table, ["1990"]), schema)
        assert list(manifest.entries) == written
        assert [entry.to_json() for entry in manifest.entries] == [entry.to_json() for entry in written]
        assert manifest.keys == {"1990", *(entry.key for entry in written)}
        named = {path for entry in written for path in entry.catalog_files}
        assert manifest.files == {path: FILES[path] for path in named}


class Life:
    """A table that loads, appends, deletes and vacuums change."""

    def __init__(self, root: str) -> None:
        self.files = TableFiles(root)
        ensure_table_root(self.files)

    def change(self, number: int, kind: str, years: tuple[int, ...]) -> None:
        files, load, latest = self.files, SmallLoad(f"l{number}", years), latest_snapshot(self.files)
        if latest is None or kind == "load":
            load.commit(files, latest)
        elif kind == "append":
            load.commit(files, latest, operation=APPEND)
        elif kind == "whole":
            load.commit(files, latest, whole_table=True)
        elif kind == "delete":
            names = [entry.name for entry in latest.partitions if entry.value in years and entry.deletes is None]
            gone = {name: Content(1, dict.fromkeys(("x", "s"), 3)) for name in names}
            vectors = {1: pack_positions(np.array([0]))} if gone else {}
            if gone:
                commit_deletes(files, latest, load.load_id, Marks(gone, vectors))
        else:
            vacuum(files, 1 + years[0] % 3, timedelta(0))


def content(snapshot: Snapshot) -> object:
    """What a snapshot says of the table, wherever it stands: names of files have numbers of snapshots."""

    def unnumbered(path: str) -> str:
        return re.sub(r"_[0-9]+\.parquet$", ".parquet", path)

    entries = [
        replace(
            entry,
            blocks_file=unnumbered(entry.blocks_file),
            deletes=entry.deletes and replace(entry.deletes, file=unnumbered(entry.deletes.file)),
        )
        for entry in snapshot.partitions
    ]
    named = {path for entry in snapshot.partitions for path in entry.catalog_files}
    digests = {unnumbered(path): snapshot.files[path] for path in named}
    return snapshot.schema, entries, digests, snapshot.plans_in_order


@given(
    changes=st.lists(
        st.tuples(
            st.sampled_from(["load", "append", "append", "whole", "delete", "vacuum"]),
            st.lists(st.integers(1990, 1996), min_size=1, max_size=4, unique=True).map(tuple),
        ),
        max_size=12,
    ),
    most=st.sampled_from([-1, 14]),
)
def test_a_table_is_the_same_with_manifests_as_without(changes: list[tuple[str, tuple[int, ...]]], most: int) -> None:
    root = f"memory://{uuid4()}"
    with pytest.MonkeyPatch.context() as patch:
        plain, shared = Life(f"{root}/plain"), Life(f"{root}/shared")
        for number, (kind, years) in enumerate([("load", (1993,)), *changes]):
            for life, bound in ((plain, 10**9), (shared, most)):
                patch.setattr(manifest_writing, "MOST_BOUNDS", bound)
                life.change(number, kind, years)
            newest = [latest_snapshot(life.files) for life in (plain, shared)]
            assert content(newest[0]) == content(newest[1])  # type: ignore[arg-type]
            for kept in snapshot_numbers(shared.files):
                snapshot = read_snapshot(shared.files, kept)
                assert all(shared.files.exists(path) for path in snapshot.files)


def test_a_restore_has_the_older_content(with_manifests: None, tmp_path: Path) -> None:
    life = Life(str(tmp_path / "t"))
    for number, years in enumerate([(1994, 1995, 1996), (1995,), (1994, 1997)]):
        life.change(number, "load", years)
        for year in years:
            Path(life.files.full_path(f"data/{year}/l{number}/layout-0")).mkdir(parents=True)
            Path(life.files.full_path(f"data/{year}/l{number}/layout-0/0-a.parquet")).touch()
    first = read_snapshot(life.files, 0)
    restored = restore(life.files, 0)
    assert restored.partitions == first.partitions == read_snapshot(life.files, restored.number).partitions
    assert [entry.changed for entry in history(life.files)][-1] == ("1997",)


def many(files: TableFiles, partitions: int) -> Snapshot:
    """Load a table of so many partitions."""
    return SmallLoad("first", tuple(range(partitions))).commit(files, None)


def written_by(files: TableFiles, commit: Callable[[], object]) -> dict[str, int]:
    """The bytes of the catalog's files that a commit writes."""
    before = {file.path for file in files.walk("_layoutopt")}
    commit()
    return {file.path: file.size for file in files.walk("_layoutopt") if file.path not in before}


def test_a_commit_writes_no_more_where_partitions_are_many(with_manifests: None, tmp_path: Path) -> None:
    sizes = {}
    for partitions in (50, 800):
        files = TableFiles(str(tmp_path / f"t{partitions}"))
        ensure_table_root(files)
        base = many(files, partitions)
        assert len(base.manifests) == 1
        of_commit = written_by(files, partial(SmallLoad("second", (7,)).commit, files, base, operation=APPEND))
        assert sorted(of_commit) == [
            blocks_path("second", 1),
            manifest_path("second", 1),
            snapshot_path(1),
        ]
        sizes[partitions] = sum(of_commit.values())
        now = latest_snapshot(files)
        assert now is not None
        assert len(now.partitions) == partitions + 1
        assert [entry.load_id for entry in now.by_key["7"]] == ["first", "second"]
    assert sizes[800] < 1.02 * sizes[50]


def test_manifests_stay_few(with_manifests: None, tmp_path: Path) -> None:
    files = TableFiles(str(tmp_path / "t"))
    ensure_table_root(files)
    base = many(files, 300)
    rng = np.random.default_rng(0)
    written = changed = 0
    for number in range(120):
        years = tuple(rng.choice(330, rng.integers(1, 4), replace=False).tolist())
        base = SmallLoad(f"l{number}", years).commit(files, base)
        assert len(base.manifests) <= 2 + log2(330)
        written, changed = written + base.manifests[-1].entries, changed + len(years)
    assert written <= changed * (1 + log2(330))
    assert {entry.key for entry in base.partitions} >= {f"{year}" for year in range(300)}


def test_commits_of_falling_sizes_leave_few_manifests(with_manifests: None, tmp_path: Path) -> None:
    files = TableFiles(str(tmp_path / "t"))
    ensure_table_root(files)
    base, first = None, 0
    for number, size in enumerate(range(40, 0, -1)):
        base = SmallLoad(f"l{number}", tuple(range(first, first + size))).commit(files, base)
        first += size
        assert len(base.manifests) <= 1 + log2(first)


def test_small_snapshots_are_for_older_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = TableFiles(str(tmp_path / "t"))
    ensure_table_root(files)

    def version(snapshot: Snapshot) -> object:
        document = json.loads(files.read_bytes(snapshot_path(snapshot.number)))
        assert document["version"] == snapshot.format_version
        return document["version"]

    small = SmallLoad("l0", (1994,)).commit(files, None)
    monkeypatch.setattr(manifest_writing, "MOST_BOUNDS", 8)
    large = SmallLoad("l1", (1995, 1996)).commit(files, small)
    alone = SmallLoad("l2", (1995,)).commit(files, large, whole_table=True)
    assert [version(snapshot) for snapshot in (small, large, alone)] == [1, FORMAT_VERSION, 1]
    assert (len(large.manifests), len(alone.manifests)) == (1, 0)
    assert not any(path.startswith(MANIFESTS) for path in alone.files)


def test_a_crash_before_the_snapshot_leaves_the_table_and_a_retry_commits_once(
    with_manifests: None, files: TableFiles
) -> None:
    before = latest_snapshot(files)
    load = SmallLoad("l2", (1996,))
    with pytest.raises(Killed):
        load.commit(files, before, at=kill_at("before-snapshot"))
    assert latest_snapshot(files) == before
    assert load.commit(files, before) == load.commit(files, before) == latest_snapshot(files)
    assert vacuum(files, 10, timedelta(0)).files == ()


def test_a_change_is_refused_where_a_vacuum_removed_its_manifest(with_manifests: None, files: TableFiles) -> None:
    before = latest_snapshot(files)
    vacuumed: list[str] = []

    def meanwhile(point: str) -> None:
        if point == "before-snapshot" and not vacuumed:
            vacuumed.extend(vacuum(files, 1, timedelta(0)).files)

    with pytest.raises(CommitConflictError, match="a vacuum removed"):
        SmallLoad("l2", (1996,)).commit(files, before, at=meanwhile)
    assert manifest_path("l2", 1) in vacuumed


def damaged(files: TableFiles, data: bytes | None) -> str:
    """Replace the newest manifest, and return its file."""
    path = Path(files.full_path(manifest_path("l1", 0)))
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    return str(path)


@pytest.mark.parametrize("data", [None, b"", b"PAR1", b"x" * 4000])
def test_a_manifest_that_is_not_the_one_named_is_an_error(
    with_manifests: None, empty: TableFiles, data: bytes | None
) -> None:
    SmallLoad("l1", (1994, 1995)).commit(empty, None)
    damaged(empty, data)
    with pytest.raises(CatalogError, match=r"manifests/l1_0\.parquet is (missing|damaged)"):
        latest_snapshot(empty)


def test_manifests_in_an_older_version_are_damage(with_manifests: None, empty: TableFiles) -> None:
    from layoutopt.catalog import snapshot as snapshot_json

    SmallLoad("l1", (1994,)).commit(empty, None)
    document = json.loads(empty.read_bytes(snapshot_path(0)))
    del document["checksum"]
    changes: list[dict[str, object]] = [
        {"version": 3},
        {"files": {}},
        {"manifests": [{"path": manifest_path("l1", 0), "entries": 2}]},
    ]
    for change in changes:
        changed = document | change
        changed["checksum"] = snapshot_json._checksum(changed)
        empty.replace(snapshot_path(0), json.dumps(changed).encode())
        with pytest.raises(CatalogError, match="damaged"):
            latest_snapshot(empty)


ENTRY = PartitionEntry(
    key="1994",
    value=1994,
    plan="abc1",
    load_id="l1",
    blocks_file="_layoutopt/blocks/l1.parquet",
    rows=4,
    bounds={"n": Bounds(1, 2, 0), "s": Bounds("a", "b", 0)},
    checksums={"n": 5},
    bytes=9,
    deletes=Deletes("_layoutopt/deletes/l2.parquet", 1, {"n": 1}),
)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("key", "a/b", "safe in any path"),
        ("key", None, "no key"),
        ("load_id", "L 1", "load id"),
        ("blocks_file", "../x", "inside the table"),
        ("blocks_sha256", "xyz", "hexadecimal"),
        ("rows", -1, "negative"),
        ("deleted_rows", None, "a part of an entry's deletes"),
        ("low", [3, None], "lower bound above"),
        ("low", [None, None], "without the other"),
        ("low", [1], "a part of an entry's bounds"),
        ("low_key", [None, b"\xff"], "not UTF-8"),
        ("high_key", [None, b"a\xc3"], "not UTF-8"),
        ("nulls", [-1, 0], "negative"),
        ("sums", [1] * 6, "columns that the schema lacks"),
    ],
)
def test_values_that_no_writer_writes_are_refused(column: str, value: object, message: str) -> None:
    table = encode_entries([ENTRY], SCHEMA, FILES)
    assert table is not None
    place = table.schema.get_field_index(column)
    wrong = table.set_column(place, table.schema.field(column), pa.array([value], table.schema.field(column).type))
    with pytest.raises(ValueError, match=message):
        Manifest.decode(encode_manifest(wrong, ()), SCHEMA)


@pytest.mark.parametrize("digits", [b"", b"1.5", b"1_0", b"+1", b"9" * 39, b"\xff"])
def test_a_decimal_of_other_than_digits_is_refused(digits: bytes) -> None:
    bounds = {"n": Bounds(), "s": Bounds(), "b": Bounds(b"\xff", b"\xff\x00", 0), "d": Bounds(-5, 7, 0)}
    table = encode_entries([replace(ENTRY, bounds=bounds)], SCHEMA, FILES)
    assert table is not None
    assert Manifest.decode(encode_manifest(table, ()), SCHEMA).entries[0].bounds["d"] == Bounds(-5, 7, 0)
    place = table.schema.get_field_index("low_key")
    wrong = table.set_column(
        place, table.schema.field(place), pa.array([[None, None, b"\xff", digits]], table.schema.field(place).type)
    )
    with pytest.raises(ValueError, match=r"no number|not UTF-8"):
        Manifest.decode(encode_manifest(wrong, ()), SCHEMA)


def test_decoded_manifests_are_cached_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    table = encode_entries([ENTRY], SCHEMA, FILES)
    assert table is not None
    contents = [encode_manifest(table, [f"{number}"]) for number in range(3)]
    size = Manifest.decode(contents[0], SCHEMA).bytes
    assert size > table.nbytes
    monkeypatch.setattr(manifests, "_DECODED", LastUsed(2 * size))

    def decode(number: int, schema: Schema = SCHEMA) -> Manifest:
        return manifests.decode_cached(contents[number], FileDigest.of(contents[number]), schema)

    first = decode(0)
    assert first.removed == ("0",)
    assert decode(1) is not first is decode(0)
    assert decode(0, Schema((*SCHEMA.columns, Column("new", "int")))) is not first
    assert decode(2).removed == ("2",)
    assert decode(0) is not first


def test_snapshots_that_are_only_passed_need_no_manifest(with_manifests: None, empty: TableFiles) -> None:
    base = SmallLoad("l0", (1990,)).commit(empty, None)
    for number in range(1, 5):
        SmallLoad(f"l{number}", (1990,)).commit(empty, latest_snapshot(empty))
    for number in range(4):
        empty.delete(manifest_path(f"l{number}", number))
    newest = latest_snapshot(empty)
    assert newest is not None
    assert snapshot_as_of(empty, "2999-01-01") == newest
    assert SmallLoad("l9", (1991,)).commit(empty, base).number == 5
    with pytest.raises(CatalogError, match=r"manifests/l3_3\.parquet is missing") as caught:
        snapshot_as_of(empty, read_head(empty, 3).created_at)
    assert caught.value.path == manifest_path("l3", 3)


def test_contradictory_keys_are_unknown() -> None:
    bounds = {"n": Bounds(1, 2, 0), "s": Bounds("b", "a", 3), "b": Bounds(), "d": Bounds(10**30, 10**20, 0)}
    table = encode_entries([replace(ENTRY, bounds=bounds)], SCHEMA, FILES)
    assert table is not None
    (entry,) = Manifest.decode(encode_manifest(table, ()), SCHEMA).entries
    assert dict(entry.bounds) == {"n": Bounds(1, 2, 0), "s": Bounds(nulls=3), "b": Bounds(), "d": Bounds(nulls=0)}


def test_bounds_of_later_columns_alone_stay_in_the_snapshot(with_manifests: None) -> None:
    assert encode_entries([replace(ENTRY, bounds={"s": Bounds("a", "b", 0)})], SCHEMA, FILES) is None


def test_other_columns_than_a_manifests_are_refused() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"key": ["1994"]}), sink)
    with pytest.raises(ValueError, match="it has the columns"):
        Manifest.decode(sink.getvalue().to_pybytes(), SCHEMA)


def test_entries_travel_to_tasks_as_plain_values(with_manifests: None, files: TableFiles) -> None:
    import pickle

    snapshot = latest_snapshot(files)
    assert snapshot is not None
    (first, *_) = snapshot.partitions
    there = pickle.loads(pickle.dumps(first))
    assert there == first
    assert type(there.bounds) is dict
    assert read_partitions(files, replace(snapshot, partitions=())).partitions == snapshot.partitions


def stored_keys(files: TableFiles) -> set[str]:
    """The partitions of which any stored manifest says something, each with the loads of its entries there."""
    manifests = [
        Manifest.decode(files.read_bytes(f"{MANIFESTS}/{name}"), LOAD_SCHEMA) for name in files.list(MANIFESTS)
    ]
    entries = {f"{entry.key} by {entry.load_id}" for manifest in manifests for entry in manifest.entries}
    return entries | {key for manifest in manifests for key in manifest.removed}


def test_nothing_is_left_of_superseded_entries_once_they_are_forgotten(with_manifests: None, files: TableFiles) -> None:
    SmallLoad("l2", tuple(range(1996, 2020))).commit(files, latest_snapshot(files))
    base = SmallLoad("l3", (1995,)).commit(files, latest_snapshot(files))
    gone = replace(base, partitions=tuple(entry for entry in base.partitions if entry.key != "1997"))
    change = Change("l4", base, frozenset(), lambda latest: make_next_snapshot(latest, gone, "delete", "l4"))
    before = append_snapshot(files, change)
    vacuum(files, 1, timedelta(0))
    assert stored_keys(files) >= {"1995 by l1", "1995 by l3", "1997 by l2", "1997"}
    for _ in range(2):
        forget_superseded_entries(files, "delete")
        after = latest_snapshot(files)
        assert after is not None
        assert (after.number, after.operation, len(after.manifests)) == (before.number + 2, "delete", 1)
        assert content(after) == content(before)
    vacuum(files, 1, timedelta(0))
    assert stored_keys(files) == {f"{entry.key} by {entry.load_id}" for entry in before.partitions}
    assert history(files)[-2].changed == ()


def test_small_snapshots_have_nothing_to_forget(files: TableFiles) -> None:
    before = latest_snapshot(files)
    forget_superseded_entries(files, "delete")
    assert latest_snapshot(files) == before


def test_each_attempt_of_a_commit_writes_one_manifest_under_a_name_of_its_own(
    with_manifests: None, tmp_path: Path
) -> None:
    files = TableFiles(str(tmp_path / "t"))
    ensure_table_root(files)
    base = SmallLoad("l0", (1990,)).commit(files, None)
    others = iter(range(10))

    def come_before(point: str) -> None:
        if point == "before-snapshot" and (number := next(others, None)) is not None:
            SmallLoad(f"other{number}", (2000 + number,)).commit(files, latest_snapshot(files))

    with patch.object(TableFiles, "write_new", autospec=True, side_effect=TableFiles.write_new) as write:
        SmallLoad("l1", (1991,)).commit(files, base, at=come_before)
    written = [call.args[1] for call in write.call_args_list if "manifests/l1" in call.args[1]]
    assert len(written) == len(set(written)) == 11
