"""Parquet files as other writers make them, and Arrow does not."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def write_enums(file: Path, rows: pa.Table) -> Path:
    """Write a file whose texts are of Parquet's type ENUM, which Arrow reads as bytes and Spark as texts."""
    pq.write_table(rows, file, store_schema=False)
    # The converted type UTF8 and the logical type STRING, as Thrift encodes these two fields; ENUM has other numbers.
    return _change_footer(file, b"\x25\x00\x4c\x1c\x00\x00", b"\x25\x08\x4c\x4c\x00\x00")


def write_without_repetition(file: Path) -> Path:
    """Write a file whose schema does not say that its column ``id`` is required: Arrow reads it, Spark fails."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    pq.write_table(pa.table({"id": [1, 2]}, schema), file, store_schema=False)
    # The column's type, its repetition, and its name, whose field is numbered from the one before.
    return _change_footer(file, b"\x15\x04\x25\x00\x18\x02id", b"\x15\x04\x38\x02id")


def _change_footer(file: Path, old: bytes, new: bytes) -> Path:
    data = file.read_bytes()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = data[start:-8].replace(old, new)
    assert footer != data[start:-8]
    file.write_bytes(data[:start] + footer + len(footer).to_bytes(4, "little") + data[-4:])
    return file


def shorten_row_group(path: Path) -> None:
    """Let the footer say that the row group has fewer rows than the file."""
    data = bytearray(path.read_bytes())
    place = data.rindex(b"\x26\x08\x16") - 2  # of the last byte of num_rows, which is before the two fields
    data[place] ^= 0x01
    path.write_bytes(data)
