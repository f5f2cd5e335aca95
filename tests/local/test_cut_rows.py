"""Rows cut by segment: each goes once, in order, to the segment whose value and range it has."""

from __future__ import annotations

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
from layoutopt.local import splits as cutting
from layoutopt.local.splits import CutJob, SegmentRanges, Split, check_split, cut_rows, read_segment_rows
from layoutopt.model.schema import POSITION, SEGMENT, Column, Schema
from layoutopt.writer.segment import unpack_shuffle_batches

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
    batches = read_segment_rows(job, [numbers]) if job.by_segment else unpack_shuffle_batches(cut_rows(job, [numbers]))
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
        patch.setattr(cutting, "_ROWS_AT_ONCE", 2)
        patch.setattr(cutting, "_BATCH_BYTES", batch)
        patch.setattr(cutting, "_BATCH_ROWS", rows)
        patch.setattr(cutting, "_PARCEL_BYTES", 40)
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
    (rows,) = read_segment_rows(job, [pa.record_batch([pa.array([0])], ["id"])])
    assert rows["day"].type == pa.date32()
    assert rows["day"].cast(pa.int32()).to_pylist() == [9, 9]
    assert rows["kind"].to_pylist() == ["x", "x"]


def test_a_batch_takes_what_its_rows_take_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the footer says: a dictionary's text is there once in the file, and once a row in memory."""
    (split,) = source(tmp_path, ["x" * 1000] * 300)
    monkeypatch.setattr(cutting, "_ROWS_AT_ONCE", 10)
    monkeypatch.setattr(cutting, "_BATCH_BYTES", 50_000)
    job = CutJob(SCHEMA, None, SegmentRanges((None,), (0,), (FAR,)), ((split,),))
    assert max(rows.nbytes for rows, _ in cutting._read(job, split, 0, FAR)) < 70_000


def test_each_row_group_belongs_to_one_split(tmp_path: Path) -> None:
    (whole,) = source(tmp_path, [str(i) for i in range(30)])
    ends = np.linspace(0, whole.stop, 7).astype(int).tolist()
    footer = pq.read_metadata(whole.path)
    parts = [replace(whole, start=start, stop=stop) for start, stop in pairwise(ends)]
    groups = [cutting._select_row_groups(footer, part) for part in parts]
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
