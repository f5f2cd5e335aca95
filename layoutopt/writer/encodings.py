"""Choose Parquet encodings for files of small row groups, by encoding a sample of each column.

In row groups of 700 rows a dictionary of a nearly unique column costs more than it saves, and deltas beat plain
values; which columns those are depends on the data. TPC-H denormalised, bytes a row at 700 and at 10,000 rows a row
group: 297 and 224 with pyarrow's defaults, 236 and 192 with this choice, 215 and 174 for the source in its own order
as Spark writes it. Only encodings that Spark since 3.3, DuckDB and Arrow read are tried.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.model.arrays import Ints

# 3 is a tenth more work than 1 for 2 % fewer bytes; 9 is four times the work for 4 % more.
ZSTD_LEVEL = 3
# A sample is one row in this many, within these bounds: four candidates then cost a sixth of the writing.
_SAMPLE_SHARE = 25
_FEWEST_SAMPLE_ROWS, _MOST_SAMPLE_ROWS = 2_000, 12_000
# To estimate the bytes of a file, this many blocks are encoded, for at least and at most so many rows.
_ENCODED_BLOCKS, _ENCODED_ROWS, _MOST_ENCODED_ROWS = 12, 20_000, 200_000
_LONGEST_INTEGER_DECIMAL = 18
# A column chunk's entry in the footer, without statistics of long texts; TPC-H's are 90 to 160 bytes.
_FOOTER_BYTES_A_CHUNK = 120
_DICTIONARY = "dictionary"
_INTEGER_ENCODINGS = (_DICTIONARY, "PLAIN", "DELTA_BINARY_PACKED")
_TEXT_ENCODINGS = (_DICTIONARY, "PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY")
_OTHER_ENCODINGS = (_DICTIONARY, "PLAIN")


@dataclass(frozen=True)
class Encodings:
    """The encodings of a file's columns: a dictionary, or another encoding in ``column`` (name, encoding)."""

    dictionary: tuple[str, ...]
    column: tuple[tuple[str, str], ...]

    @property
    def names(self) -> list[str]:
        """Return the names of the columns."""
        return [*self.dictionary, *(name for name, _ in self.column)]

    @property
    def as_dictionaries(self) -> Encodings:
        """Return dictionaries for the columns that have another encoding."""
        return Encodings(tuple(name for name, _ in self.column), ())

    def only(self, names: Collection[str]) -> Encodings:
        """Return the choice for some of the columns."""
        return Encodings(
            tuple(name for name in self.dictionary if name in names),
            tuple((name, encoding) for name, encoding in self.column if name in names),
        )

    def options(self, codec: str) -> dict[str, Any]:
        """Return the arguments of ``pyarrow.parquet.ParquetWriter`` for this choice and codec."""
        return {
            "compression": codec,
            "compression_level": ZSTD_LEVEL if codec == "zstd" else None,
            "use_dictionary": list(self.dictionary),
            "column_encoding": dict(self.column) or None,
            "store_decimal_as_integer": True,
            "write_page_checksum": True,
        }


def choose_encodings(table: pa.Table, offsets: Ints, codec: str) -> Encodings:
    """Return the encoding of each column that makes a sample of the blocks smallest; of equals the first tried.

    ``table`` has the rows in the order of writing, ``offsets`` where blocks begin, ``int64[n_blocks + 1]``.
    """
    return smallest_encodings(list(_sample_blocks(table, offsets)), codec)


def smallest_encodings(blocks: Sequence[pa.Table], codec: str) -> Encodings:
    """Return the encoding of each column that makes these blocks smallest; of equals the first tried."""
    return _to_encodings({name: encoding for name, (_, encoding) in _find_smallest_of_blocks(blocks, codec).items()})


def bytes_per_row(table: pa.Table, offsets: Ints, codec: str) -> dict[str, float]:
    """Return about the compressed bytes of each column for one row, with its share of the footer."""
    blocks = list(_sample_blocks(table, offsets))
    sampled = sum(block.num_rows for block in blocks)
    footer = _FOOTER_BYTES_A_CHUNK * len(blocks)
    smallest = _find_smallest_of_blocks(blocks, codec)
    return {name: (size + footer) / max(sampled, 1) for name, (size, _) in smallest.items()}


def blocks_to_encode(offsets: Ints) -> Ints:
    """Return the blocks that :func:`estimate_sizes` encodes, ascending, ``int64[e]``."""
    return np.union1d(_sample_block_ids(offsets), _measured_block_ids(offsets))


def estimate_sizes(rows: pa.Table, offsets: Ints, codec: str) -> dict[str, Ints]:
    """Return about the compressed bytes of each column's chunks, ``int64[n_blocks]``.

    Some blocks are encoded as they would be written; the rest take as many bytes a row as the nearest of these, since
    neighbouring blocks are similar (:mod:`layoutopt.partitioning.ordered_blocks`).

    Args:
        rows: the rows of the blocks of :func:`blocks_to_encode`, concatenated.
        offsets: where all blocks begin, ``int64[n_blocks + 1]``.

    Raises:
        ValueError: the number of rows differs.
    """
    n_blocks, sizes = len(offsets) - 1, np.diff(offsets)
    block_ids = blocks_to_encode(offsets)
    stops = np.cumsum(sizes[block_ids])
    if stops[-1] != rows.num_rows:
        raise ValueError(f"got {rows.num_rows} rows: expected the {stops[-1]} rows of the blocks to encode")
    blocks = {
        block: rows.slice(int(stop - sizes[block]), int(sizes[block]))
        for block, stop in zip(block_ids.tolist(), stops.tolist(), strict=True)
    }
    chosen = smallest_encodings([blocks[block] for block in _sample_block_ids(offsets).tolist()], codec)
    encoded = _measured_block_ids(offsets)
    bytes_by_column = encoded_bytes([blocks[block] for block in encoded.tolist()], chosen, codec)
    nearest = np.abs(np.arange(n_blocks)[:, None] - encoded).argmin(axis=1)
    return {
        name: np.rint(sizes * (bytes_encoded / np.maximum(sizes[encoded], 1))[nearest]).astype(np.int64)
        for name, bytes_encoded in bytes_by_column.items()
    }


def _measured_block_ids(offsets: Ints) -> Ints:
    mean = _mean_rows(offsets)
    return _spread_evenly(
        len(offsets) - 1, min(max(_ENCODED_BLOCKS, _ENCODED_ROWS / mean), max(2.0, _MOST_ENCODED_ROWS / mean))
    )


def _mean_rows(offsets: Ints) -> float:
    return max(1.0, float(offsets[-1]) / max(len(offsets) - 1, 1))


def _spread_evenly(n_blocks: int, wanted: float) -> Ints:
    count = max(1, min(n_blocks, round(wanted)))
    return (np.arange(count) * 2 + 1) * n_blocks // (2 * count)


def _find_smallest_of_blocks(blocks: Sequence[pa.Table], codec: str) -> dict[str, tuple[int, str]]:
    schema = blocks[0].schema
    tried: dict[str, list[tuple[int, str]]] = {name: [] for name in schema.names}
    for place in range(max(map(len, (_INTEGER_ENCODINGS, _TEXT_ENCODINGS, _OTHER_ENCODINGS)))):
        candidates = {
            field.name: encodings[place] for field in schema if place < len(encodings := _encodings_for(field.type))
        }
        if not candidates:
            break
        sizes = encoded_bytes([block.select(list(candidates)) for block in blocks], _to_encodings(candidates), codec)
        for name, encoding in candidates.items():
            tried[name].append((int(sizes[name].sum()), encoding))
    return {name: min(options, key=lambda option: option[0]) for name, options in tried.items()}


def _sample_blocks(table: pa.Table, offsets: Ints) -> Iterator[pa.Table]:
    """Yield whole blocks spread evenly over the table, at least one."""
    for block in _sample_block_ids(offsets).tolist():
        yield table.slice(int(offsets[block]), int(offsets[block + 1] - offsets[block]))


def _sample_block_ids(offsets: Ints) -> Ints:
    rows = min(max(int(offsets[-1]) // _SAMPLE_SHARE, _FEWEST_SAMPLE_ROWS), _MOST_SAMPLE_ROWS)
    return _spread_evenly(len(offsets) - 1, rows / _mean_rows(offsets))


def _encodings_for(type: pa.DataType) -> tuple[str, ...]:
    if pa.types.is_nested(type) or pa.types.is_null(type):
        return (_DICTIONARY,)
    if pa.types.is_boolean(type):
        return ("PLAIN",)
    if pa.types.is_string(type) or pa.types.is_binary(type):
        return _TEXT_ENCODINGS
    if pa.types.is_large_string(type) or pa.types.is_large_binary(type):
        return _TEXT_ENCODINGS
    if pa.types.is_floating(type) or (pa.types.is_decimal(type) and type.precision > _LONGEST_INTEGER_DECIMAL):
        return _OTHER_ENCODINGS
    # Everything else is an integer in Parquet; those of 8 and 16 bits are stored in 32.
    return _INTEGER_ENCODINGS


def _to_encodings(chosen: dict[str, str]) -> Encodings:
    return Encodings(
        tuple(name for name, encoding in chosen.items() if encoding == _DICTIONARY),
        tuple((name, encoding) for name, encoding in chosen.items() if encoding != _DICTIONARY),
    )


def encoded_bytes(blocks: Sequence[pa.Table], encodings: Encodings, codec: str) -> dict[str, Ints]:
    """Return the compressed bytes of each column's chunks when these blocks are written so, ``int64[blocks]``."""
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, blocks[0].schema, **encodings.options(codec)) as writer:
        for block in blocks:
            writer.write_table(block, row_group_size=max(1, block.num_rows))
    return column_bytes(list_chunks(pq.read_metadata(io.BytesIO(sink.getvalue()))), blocks[0].schema)


def list_chunks(metadata: pq.FileMetaData) -> Ints:
    """Return where each column chunk begins, and its compressed bytes, ``int64[row groups, Parquet columns, 2]``."""
    chunks = np.zeros((metadata.num_row_groups, metadata.num_columns, 2), dtype=np.int64)
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        leaves = [row_group.column(leaf) for leaf in range(metadata.num_columns)]
        chunks[group, :, 0] = [chunk.dictionary_page_offset or chunk.data_page_offset for chunk in leaves]
        chunks[group, :, 1] = [chunk.total_compressed_size for chunk in leaves]
    return chunks


def column_bytes(chunks: Ints, schema: pa.Schema) -> dict[str, Ints]:
    """Return the compressed bytes by column from :func:`list_chunks`, ``int64[row groups]`` each."""
    leaves = [_count_leaves(field.type) for field in schema]
    last = np.cumsum(leaves).tolist()
    return {
        field.name: chunks[:, stop - count : stop, 1].sum(axis=1)
        for field, count, stop in zip(schema, leaves, last, strict=True)
    }


def row_group_starts(chunks: Ints) -> list[int | None]:
    """Return where each row group begins, from :func:`list_chunks`; None if its chunks have gaps."""
    starts, ends = chunks[:, :, 0], chunks.sum(axis=2)
    has_gap = (starts[:, 1:] != ends[:, :-1]).any(axis=1)
    return [None if gap else int(start) for gap, start in zip(has_gap, starts[:, 0], strict=True)]


def _count_leaves(type: pa.DataType) -> int:
    if not pa.types.is_nested(type):
        return 1
    if pa.types.is_map(type):
        return _count_leaves(type.key_type) + _count_leaves(type.item_type)
    return sum(_count_leaves(type.field(i).type) for i in range(type.num_fields))
