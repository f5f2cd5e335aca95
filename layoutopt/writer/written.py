"""What the tasks of a load left, put together, and the proof that it is what the source has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from layoutopt.catalog.checks import Content, TidSums
from layoutopt.catalog.storage.index_encoding import PackedIndexes, split_indexes
from layoutopt.indexes.measuring import blocks_with_indexes
from layoutopt.model.layout import Plan
from layoutopt.writer.answers import Answer


@dataclass(frozen=True)
class Written:
    """What the tasks left: the blocks, what they are to hold, and joined vectors by partition key.

    ``observed`` is the source's content as it was read, ``positions`` the sums of its values at their tids.
    ``indexes`` are those of the blocks, in parts that follow each other.
    """

    blocks: pa.Table
    indexes: tuple[PackedIndexes, ...]
    observed: Content
    joined: Mapping[str, int]
    positions: TidSums


def collected(
    plan: Plan, keys: Sequence[str], numbers: Sequence[int], answers: Iterable[Answer], observed: Content
) -> Written:
    """The tasks' answers put together, in the order of the segments.

    Args:
        plan: what they went by.
        keys: each segment's partition key.
        numbers: each segment's number in its partition.
        answers: by segments, as :func:`~layoutopt.writer.answers.answers_of` gives them.
        observed: the source's content as it was read.
    """
    empty, of_none = split_indexes(blocks_with_indexes(plan).empty_table())
    tables, indexes, joined = [empty], [of_none], dict.fromkeys(keys, 0)
    positions: dict[tuple[str, int, int], Mapping[str, int]] = {}
    for answer in answers:
        tables.append(answer.blocks)
        indexes.append(answer.indexes)
        key, number = keys[answer.segment], numbers[answer.segment]
        joined[key] = max(joined[key], answer.joined_vectors)
        for layout, sums in enumerate(answer.tid_sums):
            by_name = zip(plan.schema.names, sums, strict=True)
            positions[key, number, layout] = {name: sum for name, sum in by_name if sum is not None}
    return Written(pa.concat_tables(tables), tuple(indexes), observed, joined, positions)
