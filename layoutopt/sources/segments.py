"""Cut the rows of a source into segments: each partition along the source's own order, which ``input-order`` keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from layoutopt.catalog.partition_names import PlainValue, null_first_key
from layoutopt.model.schema import END_OF_SOURCE
from layoutopt.sources.shuffle import SegmentRanges

# Rows are counted in chunks, between which segments are cut; chunks are smaller where segments are small.
_LARGEST_CHUNK = 1 << 16
_CHUNKS_A_SEGMENT = 16


@dataclass(frozen=True, slots=True)  # there may be millions
class Segment:
    """Rows that one task partitions and writes.

    Attributes:
        id: number in the load, from 0.
        value: the partition column's plain value; None for NULL, or in a table without partitions.
        number: number in its partition, from 0.
        low, high: positions in the source of its rows, ``[low, high)``.
        rows: how many were counted.
    """

    id: int
    value: PlainValue
    number: int
    low: int
    high: int
    rows: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Neighbouring rows of one partition: ``rows`` of them from position ``low`` on."""

    value: PlainValue
    low: int
    rows: int


def cut_in_input_order(rows: Sequence[int], segment_rows: int) -> list[int]:
    """Return the segment of each chunk of a partition, from 0, given the chunks' rows.

    Segments are of nearly equal size along the source's order, above ``segment_rows`` only where one chunk is.

    >>> cut_in_input_order([4, 4, 4, 4], segment_rows=12)
    [0, 0, 1, 1]
    """
    fewest = -(-sum(rows) // segment_rows) or 1
    target = min(segment_rows, -(-sum(rows) // fewest))
    cut = _fill_segments(rows, target)
    # Where whole chunks do not fit into equal shares, segments are filled up to the bound.
    return cut if cut[-1] < fewest else _fill_segments(rows, segment_rows)


def _fill_segments(rows: Sequence[int], most: int) -> list[int]:
    segments, filled = [0], 0
    for n in rows:
        is_full = filled > 0 and filled + n > most
        filled = n if is_full else filled + n
        segments.append(segments[-1] + is_full)
    return segments[1:] or [0]


def chunk_bits(segment_rows: int) -> int:
    """Return the number of last bits in which positions of one chunk differ.

    >>> chunk_bits(1_000_000), chunk_bits(100)
    (15, 2)
    """
    return int(np.log2(min(_LARGEST_CHUNK, max(1, segment_rows // _CHUNKS_A_SEGMENT))))


def chunks_from_counts(counts: Mapping[PlainValue, int | None], segment_rows: int) -> list[Chunk] | None:
    """Return partitions of known rows as a chunk each; None if rows are unknown, or to be cut, or there are none.

    Without a chunk no task would read the source, which might have rows after all.

    >>> chunks_from_counts({1994: 7, 1995: 0}, 10)
    [Chunk(value=1994, low=0, rows=7)]
    >>> chunks_from_counts({1994: 11}, 10), chunks_from_counts({1994: None}, 10), chunks_from_counts({1994: 0}, 10)
    (None, None, None)
    """
    if any(rows is None or rows > segment_rows for rows in counts.values()):
        return None
    return [Chunk(value, 0, rows) for value, rows in counts.items() if rows] or None


def cut_segments(chunks: Iterable[Chunk], segment_rows: int) -> tuple[Segment, ...]:
    """Cut chunks, in the source's order, into segments numbered by partition value (NULL first) and then position."""
    by_value: dict[PlainValue, list[Chunk]] = {}
    for chunk in chunks:
        by_value.setdefault(chunk.value, []).append(chunk)
    segments: list[Segment] = []
    for value in sorted(by_value, key=null_first_key):
        cut = cut_in_input_order([chunk.rows for chunk in by_value[value]], segment_rows)
        for number in range(cut[-1] + 1):
            members = [chunk for chunk, segment in zip(by_value[value], cut, strict=True) if segment == number]
            low = members[0].low if number else 0
            if number:
                segments[-1] = replace(segments[-1], high=low)
            rows = sum(chunk.rows for chunk in members)
            segments.append(Segment(len(segments), value, number, low, END_OF_SOURCE, rows))
    return tuple(segments)


def segment_ranges(segments: Sequence[Segment]) -> SegmentRanges:
    """Return the values and ranges of segments."""
    return SegmentRanges(
        tuple(segment.value for segment in segments),
        tuple(segment.low for segment in segments),
        tuple(segment.high for segment in segments),
    )
