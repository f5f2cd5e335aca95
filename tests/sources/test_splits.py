"""Sources' files and their splits: each row is counted once, and cut to the segment whose value and range it has."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.errors import NeedsSparkError
from layoutopt.model.schema import END_OF_SOURCE, POSITION, SEGMENT, Column, Schema
from layoutopt.sources import splits as module
from layoutopt.sources.executor import Processes
from layoutopt.sources.splits import (
    CutJob,
    SegmentRanges,
    ShuffledRows,
    Split,
    check_split,
    count_files,
    cut_rows,
    estimate_rows,
    list_local_files,
    read_segment_rows,
    read_split,
    write_shuffle_batches,
)
from layoutopt.writer.segment import pack_shuffle_batch, unpack_shuffle_batches

FILES = Schema((Column("id", "int"), Column("day", "date"), Column("kind", "string")))
DAYS = [dt.date(2026, 1, 1), dt.date(2026, 1, 2), None]
FIRST = (DAYS[0] - dt.date(1970, 1, 1)).days if DAYS[0] else 0


def rows(count: int, *columns: str) -> pa.Table:
    all_columns = {
        "id": pa.array(range(count), pa.int32()),
        "day": pa.array([DAYS[i % 3] for i in range(count)], pa.date32()),
        "kind": pa.array([f"k{i % 2}" for i in range(count)], pa.string()),
    }
    return pa.table({name: all_columns[name] for name in columns or all_columns})


def written(path: Path, table: pa.Table, **how: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **how)
    return path


def test_files_of_a_folder_are_sorted_and_hidden_ones_left_out(tmp_path: Path) -> None:
    for name in ("b.parquet", "a.parquet", "_tmp.parquet", ".c.parquet"):
        written(tmp_path / name, rows(3))
    (tmp_path / "_SUCCESS").touch()
    found = list_local_files(str(tmp_path), FILES, "day")
    assert [(file.path.name, file.folder) for file in found] == [("a.parquet", None), ("b.parquet", None)]
    assert [file.path for file in list_local_files(str(tmp_path / "a.parquet"), FILES, None)] == [
        tmp_path / "a.parquet"
    ]


@pytest.mark.parametrize(
    ("partition_by", "folders", "values"),
    [
        ("day", ["2026-01-01", "2026-01-02", "__HIVE_DEFAULT_PARTITION__"], [FIRST, FIRST + 1, None]),
        ("id", ["007", "-1"], [-1, 7]),
        ("kind", ["a", "b%2Fc"], ["a", "b/c"]),
    ],
)
def test_folders_tell_of_partitions(
    tmp_path: Path, partition_by: str, folders: list[str], values: list[object]
) -> None:
    others = [name for name in FILES.names if name != partition_by]
    for number, folder in enumerate(folders):
        written(tmp_path / f"{partition_by}={folder}" / "x.parquet", rows(number + 1, *others))
    files = list_local_files(str(tmp_path), FILES, partition_by)
    assert [file.folder for file in files] == [(value,) for value in values]
    counted = count_files(files, FILES, partition_by, Processes(1))
    assert sorted(sum(held.values()) for _, held in counted) == list(range(1, len(folders) + 1))
    assert [list(held) for _, held in counted] == [[value] for value in values]


def test_what_may_be_read_otherwise_needs_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flat = str(written(tmp_path / "flat" / "x.parquet", rows(3)).parent)
    unlike = ("s3://bucket/x", "delta:x", f"{tmp_path}/f*", f"{flat}/../flat", f"{tmp_path}/none")
    refused: list[tuple[str, str | None]] = [(source, None) for source in unlike]
    for path, columns, partition_by in (
        ("deep/year=1/day=2026-01-01/x.parquet", ("id", "kind"), "day"),
        ("number/kind=1/x.parquet", ("id", "day"), "kind"),
        ("other/year=1/x.parquet", (), "kind"),
        ("kind=k0/x.parquet", (), None),
        ("mixed/x.parquet", (), "kind"),
        ("mixed/kind=a/x.parquet", ("id", "day"), "kind"),
        ("unnamed/kind=/x.parquet", ("id", "day"), "kind"),
    ):
        written(tmp_path / path, rows(3, *columns))
        refused.append((str(tmp_path / path.split("/")[0]), partition_by))
    for source, partition_by in refused:
        with pytest.raises(NeedsSparkError):
            list_local_files(source, FILES, partition_by)
    assert len(list_local_files(flat, FILES, None)) == 1
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    with pytest.raises(NeedsSparkError, match="not surely"):
        list_local_files(flat, FILES, None)


@pytest.mark.parametrize(("partition_by", "split_bytes"), [(None, 1 << 27), ("day", 1 << 27), ("day", 200), ("id", 1)])
def test_all_rows_are_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partition_by: str | None, split_bytes: int
) -> None:
    monkeypatch.setattr(module, "_SPLIT_BYTES", split_bytes)
    tables = [rows(50), rows(0), rows(7)]
    for number, table in enumerate(tables):
        written(tmp_path / f"{number}.parquet", table, row_group_size=10)
    files = list_local_files(str(tmp_path), FILES, partition_by)
    assert estimate_rows(files) == 57
    counted = count_files(files, FILES, partition_by, Processes(1))
    expected: Counter[object] = Counter()
    for table in tables:
        plain = {"day": table["day"].cast(pa.int32()), "id": table["id"], None: pa.nulls(len(table))}[partition_by]
        expected.update(plain.to_pylist())
    found: Counter[object] = Counter()
    for _, held in counted:
        found.update(held)
    assert found == expected
    job = CutJob(FILES, partition_by, SegmentRanges((), (), ()), ())
    read = [part["id"].to_pylist() for split, _ in counted for part, _ in read_split(job, split)]
    assert [value for part in read for value in part] == [*range(50), *range(7)]
    assert len(counted) == (2 if split_bytes > 1000 else 6)
    assert [split.low for split, _ in counted] == sorted(split.low for split, _ in counted)


def test_files_of_other_columns_and_none_at_all_need_spark(tmp_path: Path) -> None:
    written(tmp_path / "a.parquet", rows(3))
    written(tmp_path / "b.parquet", rows(3, "id", "day"))
    files = list_local_files(str(tmp_path), FILES, None)
    assert [counts for _, counts in count_files(files, FILES, None, Processes(1))] == [{None: 3}, {None: 3}]
    with pytest.raises(NeedsSparkError, match=r"b\.parquet' lacks the partition column 'kind'"):
        count_files(files, FILES, "kind", Processes(1))
    with pytest.raises(NeedsSparkError, match=r"a\.parquet' has other columns"):
        count_files(files, FILES.select(["id", "day"]), None, Processes(1))
    with pytest.raises(NeedsSparkError, match="no file has the column 'kind'"):
        count_files(files[1:], FILES, None, Processes(1))
    written(tmp_path / "empty" / "a.parquet", rows(0))
    assert count_files(list_local_files(str(tmp_path / "empty"), FILES, None), FILES, None, Processes(1)) == ()
    (tmp_path / "nothing").mkdir()
    for nothing in (tmp_path / "nothing", written(tmp_path / "_hidden.parquet", rows(3))):
        with pytest.raises(NeedsSparkError, match="no files"):
            list_local_files(str(nothing), FILES, None)
    bad = pa.array([b"\xff"]).cast(pa.binary()).view(pa.string())
    odd = pa.table({**{name: rows(1)[name] for name in ("id", "day")}, "kind": bad})
    with pytest.raises(NeedsSparkError, match="UTF-8"):
        count_files(
            list_local_files(str(written(tmp_path / "odd.parquet", odd)), FILES, "kind"), FILES, "kind", Processes(1)
        )
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(NeedsSparkError, match="footer"):
        estimate_rows(list_local_files(str(tmp_path / "a.parquet"), FILES, None))


SCHEMA = Schema((Column("id", "bigint"), Column("kind", "string")))
FAR = 1 << 33
"""Where Spark's next partition begins."""

kinds = st.sampled_from([None, "", "a", "b", "ü"])


def source(folder: Path, *files: list[str | None]) -> list[Split]:
    """Files of these kinds, each in row groups of three rows, under rising ids."""
    splits, first = [], 0
    for number, held in enumerate(files):
        path = folder / f"{number}.parquet"
        ids = pa.array(range(first, first + len(held)), pa.int64())
        pq.write_table(pa.table({"id": ids, "kind": pa.array(held, pa.string())}), path, row_group_size=3)
        splits.append(Split(str(path), 0, path.stat().st_size, number * FAR, len(held), None))
        first += len(held)
    return splits


def cut(job: CutJob) -> dict[int, list[tuple[int, str | None]]]:
    """Each segment's rows, as its task puts them together."""
    numbers = pa.record_batch([pa.array(range(len(job.tasks)), pa.int64())], ["id"])
    batches = (
        read_segment_rows(job, numbers.column(0).to_pylist())
        if job.by_segment
        else unpack_shuffle_batches(cut_rows(job, [numbers]))
    )
    found: dict[int, list[tuple[int, str | None]]] = {}
    for row in sorted((row for batch in batches for row in batch.to_pylist()), key=lambda row: row[POSITION]):
        found.setdefault(row[SEGMENT], []).append((row["id"], row["kind"]))
    return found


@given(
    files=st.lists(st.lists(kinds, max_size=12), min_size=1, max_size=4),
    ranges=st.dictionaries(kinds, st.lists(st.integers(1, 3 * FAR), max_size=2, unique=True), max_size=4),
    by_kind=st.booleans(),
    by_segment=st.booleans(),
    batch=st.sampled_from([1, 1 << 26]),
    rows=st.sampled_from([3, 1 << 20]),
)
def test_each_row_goes_to_the_segment_of_its_value_and_place(
    files: list[list[str | None]],
    ranges: dict[str | None, list[int]],
    by_kind: bool,
    by_segment: bool,
    batch: int,
    rows: int,
) -> None:
    known = [
        (kind, low) for kind, lows in (ranges if by_kind else {None: [9, FAR]}).items() for low in [0, *sorted(lows)]
    ]
    expected: dict[int, list[tuple[int, str | None]]] = {}
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_ROWS_AT_ONCE", 2)
        patch.setattr(module, "_BATCH_BYTES", batch)
        patch.setattr(module, "_BATCH_ROWS", rows)
        patch.setattr(module, "_PARCEL_BYTES", 40)
        splits = source(Path(folder), *files)
        follows = [after[1] if after[0] == before[0] else 9 * FAR for before, after in pairwise(known)]
        highs = (*follows, 9 * FAR) if known else ()
        places = SegmentRanges(tuple(kind for kind, _ in known), tuple(low for _, low in known), highs)
        tasks = (tuple(splits[::-1]),) * (len(known) if by_segment else 1)
        found = cut(CutJob(SCHEMA, "kind" if by_kind else None, places, tasks, by_segment))
    first = 0
    for number, held in enumerate(files):
        for place, kind in enumerate(held):
            at = number * FAR + place
            taking = [i for i, (value, low) in enumerate(known) if low <= at and (value == kind or not by_kind)]
            if taking:
                expected.setdefault(taking[-1], []).append((first + place, kind))
        first += len(held)
    assert found == expected


def test_what_folders_tell_is_a_column(tmp_path: Path) -> None:
    (split,) = source(tmp_path, ["x", "x"])
    schema = Schema((Column("day", "date"), *SCHEMA.columns))
    job = CutJob(schema, "day", SegmentRanges((9,), (0,), (FAR,)), ((replace(split, folder=(9,)),),), True)
    (rows,) = read_segment_rows(job, [0])
    assert rows["day"].type == pa.date32()
    assert rows["day"].cast(pa.int32()).to_pylist() == [9, 9]
    assert rows["kind"].to_pylist() == ["x", "x"]


def test_a_batch_takes_what_its_rows_take_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the footer says: a dictionary's text is there once in the file, and once a row in memory."""
    (split,) = source(tmp_path, ["x" * 1000] * 300)
    monkeypatch.setattr(module, "_ROWS_AT_ONCE", 10)
    monkeypatch.setattr(module, "_BATCH_BYTES", 50_000)
    job = CutJob(SCHEMA, None, SegmentRanges((None,), (0,), (FAR,)), ((split,),))
    assert max(rows.nbytes for rows, _ in module._read(job, split, 0, FAR)) < 70_000


def test_each_row_group_belongs_to_one_split(tmp_path: Path) -> None:
    (whole,) = source(tmp_path, [str(i) for i in range(30)])
    ends = np.linspace(0, whole.stop, 7).astype(int).tolist()
    footer = pq.read_metadata(whole.path)
    parts = [replace(whole, start=start, stop=stop) for start, stop in pairwise(ends)]
    groups = [module._select_row_groups(footer, part) for part in parts]
    assert sorted(group for held in groups for group in held) == list(range(10))


@pytest.mark.parametrize("rows", [4, 6])
def test_rows_that_spark_did_not_count_are_left_to_it(tmp_path: Path, rows: int) -> None:
    (split,) = source(tmp_path, ["a"] * 5)
    job = CutJob(SCHEMA, None, SegmentRanges((None,), (0,), (FAR,)), ())
    with pytest.raises(NeedsSparkError, match="other rows than were counted"):
        check_split(job, replace(split, rows=rows))


def test_what_can_not_be_read_is_carried_to_the_driver(tmp_path: Path) -> None:
    (split,) = source(tmp_path, ["a"] * 5)
    Path(split.path).write_bytes(b"PAR1")
    job = CutJob(SCHEMA, None, SegmentRanges((None,), (0,), (FAR,)), ((split,),))
    with pytest.raises(RuntimeError, match=r"NeedsSparkError.*can't be read"):
        cut(job)


KINDS = Schema((Column("id", "int"), Column("kind", "int")))


def test_each_segment_gets_its_rows_and_further_parcels_go_with_them(tmp_path: Path) -> None:
    path, folder = tmp_path / "x.parquet", tmp_path / "parcels"
    folder.mkdir()
    rows = pa.table({"id": pa.array(range(20), pa.int32()), "kind": pa.array([i % 3 for i in range(20)], pa.int32())})
    pq.write_table(rows, path, row_group_size=10)
    first, second = pq.read_metadata(path).row_group(0).total_byte_size, path.stat().st_size
    splits = (Split(str(path), 0, first, 0, 10, None), Split(str(path), first, second, 1000, 10, None))
    places = SegmentRanges((0, 2), (0, 0), (END_OF_SOURCE, 1005))  # of kind 2 the rows before position 1005
    job = CutJob(KINDS, "kind", places, tuple((split,) for split in splits), compressed=False)

    def also(split: Split, rows: pa.Table, low: int) -> Iterator[pa.RecordBatch]:
        yield pack_shuffle_batch(7, low, rows.slice(0, 1))

    written = [write_shuffle_batches(job, also, str(folder), number) for number in range(2)]
    shuffled = ShuffledRows.of(str(folder), written)
    found = {segment: pa.Table.from_batches(shuffled.read(segment, 10 + segment)) for segment in (0, 1, 7)}
    assert found[0]["id"].to_pylist() == [0, 3, 6, 9, 12, 15, 18]
    assert found[1]["id"].to_pylist() == [2, 5, 8, 11, 14]
    assert found[7]["id"].to_pylist() == [0, 10]
    for segment, table in found.items():
        positions = table[POSITION].to_pylist()
        assert positions == sorted(set(positions))
        assert table[SEGMENT].unique().to_pylist() == [10 + segment]
    assert list(shuffled.read(2, 12)) == []


@given(
    low=st.integers(0, 60),
    rows=st.integers(1, 40),
    cuts=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 30)), max_size=10),
    values=st.sets(st.integers(0, 4)),
)
def test_segments_of_a_split_are_found_by_value_and_position(
    low: int, rows: int, cuts: list[tuple[int, int]], values: set[int]
) -> None:
    segments: list[tuple[int, int, int]] = []
    for value, length in sorted(cuts, key=lambda cut: cut[0]):
        start = segments[-1][2] if segments and segments[-1][0] == value else 0
        segments.append((value, start, start + length))
    ranges = SegmentRanges(*map(tuple, zip(*segments, strict=True))) if segments else SegmentRanges((), (), ())
    expected = [
        number
        for number, (value, first, stop) in enumerate(segments)
        if value in values and first < low + rows and low < stop
    ]
    assert sorted(ranges.overlapping(Split("x", 0, 1, low, rows, None), values)) == expected
