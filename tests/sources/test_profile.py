"""Profiles count and bound what a look at each row does; the rows drawn are the same however files are cut."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layoutopt.catalog.partition_names import PlainValue
from layoutopt.errors import NeedsSparkError
from layoutopt.evaluation.predicates import read_word_columns
from layoutopt.model.feature import FeatureSet
from layoutopt.sources.profile import (
    COUNT,
    DRAW,
    KEY,
    ROWS,
    DrawJob,
    draw_limit,
    profile_rows,
)
from layoutopt.sources.shuffle import CutJob, SegmentRanges, Splits
from layoutopt.sources.split import POSITION_BITS, FileSplit, Split
from tests.effort import examples
from tests.scan.builder import feature_of, holds
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows
from tests.sources.splits import split_of


def tasks_over(folder: Path, rows: pa.Table, files: int) -> list[Splits]:
    """Tasks over files of the rows in row groups of ten, two files a task."""
    splits, at_once = [], -(-len(rows) // files)
    for number in range(files):
        path = folder / f"{number}.parquet"
        held = rows.slice(number * at_once, at_once)
        pq.write_table(held, path, row_group_size=10)
        splits.append(split_of(path, number << POSITION_BITS))
    return [tuple(splits[first : first + 2]) for first in range(0, files, 2)]


def plain(value: object) -> object:
    """A date as its days, as partition values are."""
    return (value - dt.date(1970, 1, 1)).days if isinstance(value, dt.date) else value


def by_rows(rows: pa.Table, by: str | None, column: str) -> dict[object, tuple[int, int, Any, Any]]:
    """Of each partition its rows, how many are no NULL, the least and greatest value; NaN is greater than all."""
    found: dict[object, list[Any]] = {}
    for row in rows.to_pylist():
        found.setdefault(None if by is None else plain(row[by]), []).append(row[column])

    def rank(value: Any) -> tuple[bool, Any]:
        return (True, 0.0) if isinstance(value, float) and math.isnan(value) else (False, value)

    of: dict[object, tuple[int, int, Any, Any]] = {}
    for key, values in found.items():
        there = [value for value in values if value is not None]
        ends = (min(there, key=rank), max(there, key=rank)) if there else (None, None)
        of[key] = len(values), len(there), *ends
    return of


@settings(max_examples=examples(40), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 90),
    conditions=st.lists(st.sampled_from(CONDITIONS), max_size=6).map(lambda some: some * 12),
    bounded=st.sets(st.sampled_from(SCHEMA.names), max_size=4),
    by=st.sampled_from([None, "year", "day", "kind"]),
)
def test_a_profile_says_what_each_row_does(
    seed: int, count: int, conditions: list[str], bounded: set[str], by: str | None
) -> None:
    rows = some_rows(count, seed)
    features = tuple(feature_of(condition, SCHEMA) for condition in conditions)
    columns = tuple(column for column in SCHEMA.columns if column.name in bounded)
    job = CutJob(SCHEMA, by, SegmentRanges((), (), ()))
    found = profile_rows(job, rows, FeatureSet(features), columns)
    words = read_word_columns(found.pairs, len(features))
    vectors = [sum(word << 64 * i for i, word in enumerate(row)) for row in words.tolist()]
    pairs = zip(zip(found.pairs[KEY].to_pylist(), vectors, strict=True), found.pairs[COUNT].to_pylist(), strict=True)
    keys = [None] * count if by is None else [plain(value) for value in rows[by].to_pylist()]
    expected = [sum(1 << i for i in np.flatnonzero(row).tolist()) for row in holds(rows, conditions)]
    assert dict(pairs) == Counter(zip(keys, expected, strict=True))
    bounds = found.bounds
    for i, column in enumerate(columns):
        of_rows = by_rows(rows, by, column.name)
        assert set(bounds[KEY].to_pylist()) == set(of_rows)
        for key, *told in zip(
            *(bounds[name].to_pylist() for name in (KEY, ROWS, f"_n{i}", f"_low{i}", f"_high{i}")), strict=True
        ):
            assert all(map(is_same, told, of_rows[key])), (key, told, of_rows[key])


def is_same(one: object, other: object) -> bool:
    """Whether two values are equal, as NaN is to itself."""
    return one == other or (one != one and other != other)


@pytest.mark.parametrize("by", [None, "year"])
def test_the_same_rows_are_drawn_however_files_are_read(tmp_path: Path, by: str | None) -> None:
    rows = some_rows(900)
    job, two_files = CutJob(SCHEMA, by, SegmentRanges((), (), ()), ("id", "year")), tasks_over(tmp_path, rows, 3)
    limits: dict[PlainValue, int] = (
        {None: draw_limit(0.2)} if by is None else {1994: draw_limit(0.2), 1996: draw_limit(1)}
    )

    def drawn(tasks: Sequence[Splits]) -> list[dict[str, Any]]:
        draws = {split.low: limits for task in tasks for split in task}
        parts = [DrawJob(job, draws).run_task(task) for task in tasks]
        return [row for part in parts if part is not None for row in part.drop_columns([DRAW]).to_pylist()]

    rows_drawn = drawn(two_files)
    assert drawn([(part,) for task in two_files for split in task for part in in_two(split)]) == rows_drawn
    years = Counter(row["year"] for row in rows_drawn)
    assert set(rows_drawn[0]) == {"id", "year"}
    if by is None:
        assert 120 < len(rows_drawn) < 240
        assert len(years) == 3
    else:
        assert years.keys() == {1994, 1996}
        assert 30 < years[1994] < 90
        assert years[1996] == 300
    assert rows_drawn == [row for row in rows.select(["id", "year"]).to_pylist() if row in rows_drawn]  # as they lie


def in_two(split: Split) -> list[FileSplit]:
    """The split cut after some of its row groups, as large files are."""
    assert isinstance(split, FileSplit)
    groups = range(len(split.read.row_groups))
    first, second = (replace(split, read=split.read.only(some)) for some in (groups[:3], groups[3:]))
    assert 0 < first.rows < split.rows
    return [first, replace(second, low=split.low + first.rows)]


def test_what_only_spark_can_tell_is_left_to_it(tmp_path: Path) -> None:
    ((split,),) = tasks_over(tmp_path, some_rows(20), 1)
    assert isinstance(split, FileSplit)
    pq.write_table(some_rows(30), split.file.path)
    with pytest.raises(NeedsSparkError, match="expected 10"):
        DrawJob(CutJob(SCHEMA, None, SegmentRanges((), (), ())), {}).run_task((split,))
