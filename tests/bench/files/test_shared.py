"""What sharing files costs is what a server's answers cost, and exchanges only ever save."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.bench.files.experiment import OURS_ASKED, by_ourselves
from layoutopt.bench.files.shared import Asked, asked_of, exchanged, filled, shared_bytes
from layoutopt.model.query import Query
from layoutopt.sql.scans import scans_of
from tests.scan.builder import build, building
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows


@st.composite
def asking(draw: st.DrawFn) -> Asked:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, q = draw(st.integers(1, 30)), draw(st.integers(1, 6))
    left = rng.random((q, n)) < 0.8
    size = rng.integers(1, 20, n)
    segment = np.sort(rng.integers(0, 3, n))
    return Asked(left & (rng.random((q, n)) < 0.3), left, rng.integers(1, 9, q)[:, None] * size, size, segment)


def read_by_loops(asked: Asked, file: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int:
    total = 0
    for query in range(len(asked.needed)):
        opened = {int(file[block]) for block in range(len(file)) if asked.needed[query, block]}
        for block in range(len(file)):
            if int(file[block]) in opened and asked.left[query, block]:
                total += int(asked.bytes[query, block])
    return total


@given(asked=asking(), most=st.integers(1, 60))
def test_files_are_filled_in_order_and_read_whole(asked: Asked, most: int) -> None:
    blocks = np.arange(len(asked.size))
    file = filled(blocks, asked.size, asked.segment, most)
    for number in range(int(file[-1]) + 1):
        here = np.flatnonzero(file == number)
        assert len(set(asked.segment[here].tolist())) == 1
        assert asked.size[here[:-1]].sum() < most
        is_last = here[-1] == len(file) - 1 or asked.segment[here[-1]] != asked.segment[here[-1] + 1]
        assert is_last or asked.size[here].sum() >= most
    assert asked.read(file) == read_by_loops(asked, file)
    found = shared_bytes(asked, most)
    assert found["alone"] <= min(found["written"], found["random"], found["exchanged"])
    assert found["written"] == asked.read(file)


@given(asked=asking(), most=st.integers(1, 60))
def test_exchanges_only_save_and_keep_each_files_share(asked: Asked, most: int) -> None:
    """Of whole files, without minima and maxima, that is what they go by."""
    size, segment = np.full(len(asked.size), 5), np.zeros(len(asked.size), dtype=np.int64)
    whole = Asked(
        asked.needed, np.ones_like(asked.left), np.repeat(asked.bytes[:, :1], len(size), axis=1), size, segment
    )
    before = filled(np.arange(len(size)), size, segment, most)
    weights = whole.bytes[:, 0] / 5
    after = exchanged(whole.needed, weights, size, before)
    assert np.bincount(after).tolist() == np.bincount(before).tolist()
    assert whole.read(after) <= whole.read(before)


def test_blocks_that_strayed_come_back() -> None:
    file = np.repeat(np.arange(4), 4)
    needed = np.array([file % 2 == 0, file % 2 == 1])
    strayed = file.copy()
    strayed[[0, 4]] = strayed[[4, 0]]
    after = exchanged(needed, np.ones(2), np.full(16, 3), strayed)
    assert all(len(set(needed[0, after == number].tolist())) == 1 for number in range(4))


def test_blocks_alone_are_read_as_by_our_own_reader(tmp_path: Path) -> None:
    table = build(tmp_path / "t", some_rows(), building(SCHEMA, CONDITIONS, partition_by="year", segment_rows=60))
    scans = [
        scans_of(f"SELECT id, price FROM t WHERE {condition}", {"t": SCHEMA})[0]
        for condition in ("kind = 'air' AND price > 50", "id BETWEEN 10 AND 20", "kind LIKE '%p' AND score < 0.5")
    ]
    queries = [Query(0, "t", scan.columns, scan.filter) for scan in scans]
    asked = asked_of(table, queries)
    found = shared_bytes(asked, 1)
    assert found["alone"] == found["written"] == sum(each.bytes for each in by_ourselves(table, queries)[OURS_ASKED])
    assert found["files"] == len(asked.size)
    assert shared_bytes(asked, 10**9)["files"] == len(set(asked.segment.tolist()))
