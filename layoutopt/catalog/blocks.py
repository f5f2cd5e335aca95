"""The table of blocks: its Arrow schema (what a load task returns and ``blocks/<load-id>.parquet`` holds), and its reader."""

from __future__ import annotations

import pyarrow as pa

from layoutopt.catalog.statistics import statistics_type
from layoutopt.model.schema import Schema


def block_schema(schema: Schema, n_words: int) -> pa.Schema:
    """The Arrow schema of a table with one row a block.

    ``words`` holds the union vector's bit patterns as ``n_words`` int64; ``stats`` has one child ``c<i>`` for the i-th column of
    ``schema``, null where the block does not hold that column.
    """
    return pa.schema(
        [
            pa.field("file", pa.string(), nullable=False),
            pa.field("row_group", pa.int32(), nullable=False),
            pa.field("block", pa.int64(), nullable=False),
            pa.field("partition", pa.string(), nullable=False),
            pa.field("segment", pa.int32(), nullable=False),
            pa.field("layout", pa.int16(), nullable=False),
            pa.field("part", pa.int8(), nullable=False),
            pa.field("rows", pa.int64(), nullable=False),
            pa.field("bytes", pa.int64(), nullable=False),
            pa.field("tid_bytes", pa.int64(), nullable=False),
            pa.field("words", pa.list_(pa.field("element", pa.int64(), nullable=False)), nullable=False),
            pa.field("stats", statistics_type(schema), nullable=False),
        ],
        metadata={"layoutopt.words": str(n_words)},
    )
