"""Ranges of files in object stores: all that is wanted is asked for, by few requests, and read back as it stands."""

from __future__ import annotations

import io
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import example, given
from hypothesis import strategies as st

from layoutopt.catalog.storage.ranges import FetchedFile, Range, bytes_of_chunks, chunk_ranges, coalesce
from tests.catalog.loads import run_threads

RANGES = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 30)).map(lambda r: (r[0], r[0] + r[1])), max_size=12)


def covered(ranges: list[Range]) -> set[int]:
    return {place for start, end in ranges for place in range(start, end)}


@given(RANGES, st.integers(0, 20), st.integers(1, 300))
@example([(0, 1), (2, 2)], 1, 2)  # nothing is wanted of the second
@example([(0, 1), (3, 4)], 1, 9)  # the gap is one byte too long
def test_what_is_wanted_is_asked_for_and_gaps_alone_beside_it(ranges: list[Range], gap: int, most: int) -> None:
    asked = coalesce(ranges, gap, most)
    wanted = covered(ranges)
    assert wanted <= covered(asked)
    assert all(before[1] <= after[0] for before, after in pairwise(asked))
    for start, end in asked:
        # Each begins and ends with what is wanted, and no gap in it is longer than was said.
        here = sorted(wanted & set(range(start, end)))
        assert (here[0], here[-1] + 1) == (start, end)
        assert max(np.diff(here), default=1) - 1 <= gap


@given(RANGES, st.integers(0, 20))
def test_no_two_requests_where_one_would_do(ranges: list[Range], gap: int) -> None:
    asked = coalesce(ranges, gap, most=10_000)
    assert all(after[0] - before[1] > gap for before, after in pairwise(asked))


@given(st.binary(min_size=1, max_size=300), RANGES, st.lists(st.tuples(st.integers(0, 300), st.integers(-1, 60))))
def test_a_file_of_ranges_reads_as_the_file(data: bytes, ranges: list[Range], reads: list[tuple[int, int]]) -> None:
    here = [(s, e) for s, e in coalesce(ranges, 3, 100) if e <= len(data)]
    fetched: list[Range] = []

    def fetch(start: int, end: int) -> bytes:
        fetched.append((start, end))
        return data[start:end]

    file, plain = FetchedFile(len(data), [(each, data[slice(*each)]) for each in here], fetch), io.BytesIO(data)
    for place, size in reads:
        assert file.seek(min(place, len(data))) == plain.seek(min(place, len(data)))
        assert file.read(size) == plain.read(size)
        assert file.tell() == plain.tell()
    # What was there is not asked for again.
    assert not any(start >= s and end <= e for start, end in fetched for s, e in here)
    assert file.seek(0, io.SEEK_END) == len(data)


def test_threads_read_each_at_its_own_place() -> None:
    data = bytes(range(256)) * 40
    file = FetchedFile(len(data), [((0, len(data)), data)], lambda start, end: data[start:end])
    wrong: list[int] = []

    def read(first: int) -> None:
        for place in range(first, len(data) - 3, 7):
            file.seek(place)
            if file.read(3) != data[place : place + 3]:
                wrong.append(place)

    run_threads(read, [(first,) for first in range(6)])
    assert wrong == []


def test_chunks_lie_where_the_footer_says_nested_and_dotted_ones_too() -> None:
    rows = pa.table({"a": [1, 2, 3, 4], "s": [{"x": 1, "y": "p"}] * 4, "s.x": ["q"] * 4, "ab": [0.5] * 4})
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, row_group_size=2)
    data: bytes = sink.getvalue().to_pybytes()
    metadata = pq.read_metadata(pa.BufferReader(data))
    for names in (["a"], ["s"], ["s.x"], ["a", "ab"]):
        asked: list[Range] = []
        ranges = coalesce([r for group in (0, 1) for r in chunk_ranges(metadata, group, names)], 0, 1 << 20)

        def fetch(start: int, end: int, asked: list[Range] = asked) -> bytes:
            asked.append((start, end))
            return data[start:end]

        file = FetchedFile(bytes_of_chunks(metadata), [(r, data[slice(*r)]) for r in ranges], fetch)
        parquet = pq.ParquetFile(pa.PythonFile(file, mode="r"), metadata=metadata, pre_buffer=False)
        assert parquet.read(columns=names).equals(pq.ParquetFile(pa.BufferReader(data)).read(columns=names))
        assert asked == []
