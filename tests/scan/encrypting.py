"""Searching the bytes of a table's folder for what an encrypted one must not show."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

_PARQUET = b"PAR1"


def clear_bytes(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The path of each file below a folder, and all that can be read off it without a key, decompressed too."""
    for file in sorted(folder.rglob("*")):
        if not file.is_file():
            continue
        data = file.read_bytes()
        yield str(file), str(file.relative_to(folder)).encode() + b"\n" + data + b"".join(_decompressed(data))


def _decompressed(data: bytes) -> Iterator[bytes]:
    """What is compressed in a file: all of a Parquet file's values, and what stands behind the marks of codecs."""
    if data.startswith(_PARQUET):
        for column in pq.read_table(pa.BufferReader(data)).flatten().columns:
            yield from (str(value).encode() for value in column.to_pylist())
            if pa.types.is_integer(column.type) or pa.types.is_timestamp(column.type):
                yield column.cast(pa.int64()).drop_null().to_numpy().tobytes()
    for mark, decompress in ((b"\x1f\x8b", gzip.decompress), (b"\x78", zlib.decompress), (b"\x28\xb5\x2f\xfd", _zstd)):
        at = data.find(mark)
        while at >= 0:
            with suppress(OSError, EOFError, zlib.error, pa.ArrowException):
                yield decompress(data[at:])
            at = data.find(mark, at + 1)


def _zstd(data: bytes) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        found = bytearray()
        with suppress(OSError):  # something else follows the frame
            while piece := stream.read(1 << 16):
                found += piece
        return bytes(found)


def found_in(folder: Path, markers: Iterable[bytes]) -> set[tuple[bytes, str]]:
    """Which of some byte strings stand in the clear in a folder, as (marker, kind of file)."""
    wanted = list(markers)
    found = set()
    for path, data in clear_bytes(folder):
        kind = Path(path).relative_to(folder).parts
        found |= {(each, "/".join(kind[:2]) if kind[0] == "_layoutopt" else kind[0]) for each in wanted if each in data}
    return found
