"""Splits and their rows, which are cut to the segment whose value and range they have."""

from __future__ import annotations

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
from layoutopt.external.snapshot import SnapshotFile
from layoutopt.model.schema import END_OF_SOURCE, POSITION, SEGMENT, Column, Schema
from layoutopt.scan.segments import FileRead
from layoutopt.sources import listing
from layoutopt.sources import shuffle as module
from layoutopt.sources import split as split_module
from layoutopt.sources.executor import Processes
from layoutopt.sources.listing import count_files
from layoutopt.sources.shuffle import (
    CutJob,
    SegmentRanges,
    ShuffledRows,
    Splits,
    cut_rows,
    read_segment_rows,
    read_split,
    write_shuffle_batches,
)
from layoutopt.sources.split import POSITION_BITS, FileSplit, Split
from layoutopt.writer.segment import pack_shuffle_batch, unpack_shuffle_batches
from tests.sources.splits import split_of

SCHEMA = Schema((Column("id", "bigint"), Column("kind", "string")))
FAR = 1 << POSITION_BITS
"""Where the next file begins."""

kinds = st.sampled_from([None, "", "a", "b", "ü"])


def source(folder: Path, *files: list[str | None]) -> list[FileSplit]:
    """Files of these kinds, each in row groups of three rows, under rising ids."""
    splits, first = [], 0
    for number, held in enumerate(files):
        path = folder / f"{number}.parquet"
        ids = pa.array(range(first, first + len(held)), pa.int64())
        pq.write_table(pa.table({"id": ids, "kind": pa.array(held, pa.string())}), path, row_group_size=3)
        splits.append(split_of(path, number * FAR))
        first += len(held)
    return splits


def cut(job: CutJob, splits: Splits, *, by_segment: bool) -> dict[int, list[tuple[int, str | None]]]:
    """Each segment's rows, as its task puts them together."""
    batches: Iterator[pa.RecordBatch] = unpack_shuffle_batches(cut_rows(job, splits))
    if by_segment:
        segments = range(len(job.ranges.values))
        batches = (batch for segment in segments for batch in read_segment_rows(job, segment, splits))
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
        patch.setattr(split_module, "_ROWS_AT_ONCE", 2)
        patch.setattr(split_module, "_BATCH_BYTES", batch)
        patch.setattr(split_module, "_BATCH_ROWS", rows)
        patch.setattr(module, "_PARCEL_BYTES", 40)
        splits = source(Path(folder), *files)
        follows = [after[1] if after[0] == before[0] else 9 * FAR for before, after in pairwise(known)]
        highs = (*follows, 9 * FAR) if known else ()
        places = SegmentRanges(tuple(kind for kind, _ in known), tuple(low for _, low in known), highs)
        job = CutJob(SCHEMA, "kind" if by_kind else None, places)
        segments = cut(job, tuple(splits[::-1]), by_segment=by_segment)
    first = 0
    for number, held in enumerate(files):
        for place, kind in enumerate(held):
            at = number * FAR + place
            taking = [i for i, (value, low) in enumerate(known) if low <= at and (value == kind or not by_kind)]
            if taking:
                expected.setdefault(taking[-1], []).append((first + place, kind))
        first += len(held)
    assert segments == expected


def test_what_folders_tell_is_a_column(tmp_path: Path) -> None:
    (split,) = source(tmp_path, ["x", "x"])
    schema = Schema((Column("day", "date"), *SCHEMA.columns))
    file = replace(split.file, stored=(None, "id", "kind"), constants={"day": "1970-01-10"})
    split = replace(split, file=file)
    job = CutJob(schema, "day", SegmentRanges((9,), (0,), (FAR,)))
    (rows,) = read_segment_rows(job, 0, (split,))
    assert rows["day"].type == pa.date32()
    assert rows["day"].cast(pa.int32()).to_pylist() == [9, 9]
    assert rows["kind"].to_pylist() == ["x", "x"]


def test_a_batch_takes_what_its_rows_take_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the footer says: a dictionary's text is there once in the file, and once a row in memory."""
    (split,) = source(tmp_path, ["x" * 1000] * 300)
    monkeypatch.setattr(split_module, "_ROWS_AT_ONCE", 10)
    monkeypatch.setattr(split_module, "_BATCH_BYTES", 50_000)
    job = CutJob(SCHEMA, None, SegmentRanges((None,), (0,), (FAR,)))
    assert max(rows.nbytes for rows, _ in read_split(job, split)) < 70_000


def test_each_row_group_is_in_one_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (whole,) = source(tmp_path, [str(i) for i in range(30)])
    monkeypatch.setattr(listing, "_SPLIT_BYTES", 100)
    splits = [split for split, _ in count_files([SnapshotFile(whole.file.path, ())], SCHEMA, None, Processes(1))]
    assert len(splits) > 1
    assert [group for split in splits for group in split.read.row_groups] == list(range(10))
    assert [split.low for split in splits] == [0, *np.cumsum([split.rows for split in splits])[:-1]]


@given(deleted=st.sets(st.integers(0, 29)), first=st.integers(0, 30), stop=st.integers(0, 30))
def test_deleted_rows_are_left_out_and_have_no_position(deleted: set[int], first: int, stop: int) -> None:
    live = [place for place in range(30) if place not in deleted]
    with TemporaryDirectory() as folder:
        (whole,) = source(Path(folder), [str(i) for i in range(30)])
        split = split_of(Path(whole.file.path), 1000, deleted=sorted(deleted))
        assert split.rows == len(live)
        found: dict[int, int] = {}
        for rows, low in split.read_rows(SCHEMA, ["id"], (1000 + first, 1000 + stop)):
            found |= {low - 1000 + place: id for place, id in enumerate(rows["id"].to_pylist())}
    assert found.items() <= dict(enumerate(live)).items()
    assert {place for place in range(len(live)) if first <= place < stop} <= found.keys()


def test_rows_that_were_not_counted_are_left_to_spark(tmp_path: Path) -> None:
    (split,) = source(tmp_path, ["a"] * 5)
    job = CutJob(SCHEMA, None, SegmentRanges((None,), (0,), (FAR,)))
    (other,) = source(tmp_path, ["a"] * 4)
    with pytest.raises(NeedsSparkError, match="expected 2"):
        list(read_split(job, replace(split, file=other.file)))


def test_what_can_not_be_read_is_left_to_spark(tmp_path: Path) -> None:
    (split,) = source(tmp_path, ["a"] * 5)
    Path(split.file.path).write_bytes(b"PAR1")
    job = CutJob(SCHEMA, None, SegmentRanges((None,), (0,), (FAR,)))
    with pytest.raises(NeedsSparkError, match="can't be read"):
        cut(job, (split,), by_segment=False)


KINDS = Schema((Column("id", "int"), Column("kind", "int")))


def test_each_segment_gets_its_rows_and_further_parcels_go_with_them(tmp_path: Path) -> None:
    path, folder = tmp_path / "x.parquet", tmp_path / "parcels"
    folder.mkdir()
    rows = pa.table({"id": pa.array(range(20), pa.int32()), "kind": pa.array([i % 3 for i in range(20)], pa.int32())})
    pq.write_table(rows, path, row_group_size=10)
    splits = (split_of(path, 0, [0]), split_of(path, 1000, [1]))
    places = SegmentRanges((0, 2), (0, 0), (END_OF_SOURCE, 1005))  # of kind 2 the rows before position 1005
    job = CutJob(KINDS, "kind", places, compressed=False)

    def also(split: Split, rows: pa.Table, low: int) -> Iterator[pa.RecordBatch]:
        yield pack_shuffle_batch(7, low, rows.slice(0, 1))

    written = [write_shuffle_batches(job, also, str(folder), (number, (split,))) for number, split in enumerate(splits)]
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
    assert (
        sorted(ranges.overlapping(FileSplit(SnapshotFile("x", ()), FileRead("x", (0,), (rows,)), low, 1), values))
        == expected
    )
