"""The ends of data files: Parquet's footer, which says where everything is and what readers may skip.

Parquet has a checksum for each page but none for the footer, and a bit that flips there can shift columns, change a
type or make readers skip rows. The catalog therefore keeps each footer's digest; see SPEC.md, "Blocks".
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Collection
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.catalog.storage.kept import LastUsed

MAGIC = b"PAR1"
ENCRYPTED = b"PARE"
"""The magic bytes of files whose footer is encrypted."""
_END = 8  # the footer's length as a little-endian int32, and the magic bytes
FIRST_READ = 64 * 1024
"""Bytes of a file's end that are read first: most footers fit."""
# Pages of a text column hold codes and few texts where they have at most so many bytes a value.
_CODED_BYTES = 16
_MOST_KEPT = 32 * 2**20  # bytes of footers; decoded they take some times as many


class FooterKeeper(io.RawIOBase):
    """A file to write Parquet to, which keeps what is written once :meth:`keep` was called.

    Call that before the writer is closed: the footer is the last that it writes.
    """

    def __init__(self, file: Any) -> None:
        super().__init__()
        self._file = file
        self._kept: list[bytes] | None = None

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, data: Any) -> int:
        """Pass on, and perhaps keep, some bytes."""
        if self._kept is not None:
            self._kept.append(bytes(data))
        self._file.write(data)
        return memoryview(data).nbytes

    def flush(self) -> None:
        """Pass on."""
        if not self.closed:
            self._file.flush()

    def tell(self) -> int:
        """Where the file ends."""
        return int(self._file.tell())

    def keep(self) -> None:
        """Keep all that follows."""
        self._kept = []

    @property
    def footer(self) -> bytes:
        """The footer that was written, to the file's end.

        Raises:
            ValueError: what was kept does not end in a whole footer.
        """
        return footer_at_end(b"".join(self._kept or []))


def footer_at_end(data: bytes) -> bytes:
    """The footer with its length and magic bytes, of bytes that end where a Parquet file does.

    Raises:
        ValueError: they are no such end, or too short to hold it.

    >>> footer_at_end(b"rows" + b"foot" + (4).to_bytes(4, "little") + b"PAR1")
    b'foot\\x04\\x00\\x00\\x00PAR1'
    """
    length = footer_length(data)
    if length > len(data):
        raise ValueError(f"its footer should have {length} bytes, and only {len(data)} are left of it")
    return data[len(data) - length :]


def footer_length(data: bytes) -> int:
    """How many bytes the footer has, with its length and magic bytes, by the last bytes of a file.

    Raises:
        ValueError: they are no such end.
    """
    if len(data) < _END or data[-4:] not in (MAGIC, ENCRYPTED):
        raise ValueError("it does not end as a Parquet file does")
    return int.from_bytes(data[-_END:-4], "little") + _END


def footer_digest(footer: bytes) -> str:
    """What the catalog keeps of a footer: its SHA-256 in hexadecimal.

    >>> footer_digest(b"")[:8]
    'e3b0c442'
    """
    return hashlib.sha256(footer).hexdigest()


def read_footer(file: pa.NativeFile) -> bytes:
    """The footer of an open file.

    Raises:
        ValueError: the file does not end as a Parquet file does.
        OSError: it can't be read.
    """
    size = file.size()

    def end(length: int) -> bytes:
        file.seek(max(0, size - length))
        return bytes(file.read())

    return footer_by_end(end, FIRST_READ)


def footer_by_end(end: Callable[[int], bytes], first: int) -> bytes:
    """The footer of a file whose last bytes can be read.

    Args:
        end: so many bytes of the file's end, or all of a shorter file.
        first: how many to read at first; more are read where the footer is longer.

    Raises:
        ValueError: the file does not end as a Parquet file does.
    """
    data = end(first)
    length = footer_length(data)
    return footer_at_end(data if length <= len(data) else end(length))


def metadata_of(footer: bytes, decryption: pq.FileDecryptionProperties | None = None) -> pq.FileMetaData:
    """A footer as pyarrow has it.

    Args:
        footer: with its length and magic bytes.
        decryption: what reads an encrypted one; a plain one is then refused.

    Raises:
        pyarrow.ArrowException, OSError: it can't be understood, or opened.
    """
    return pq.read_metadata(pa.BufferReader(footer[-len(MAGIC) :] + footer), decryption_properties=decryption)


def coded_columns(
    metadata: pq.FileMetaData, names: Collection[str] | None = None, row_groups: Collection[int] | None = None
) -> list[str]:
    """Of some text columns those that some row groups have as dictionaries and codes, with few bytes a value.

    Columns and row groups are all by default.
    """
    groups = range(metadata.num_row_groups) if row_groups is None else row_groups
    named = [i for i, name in enumerate(metadata.schema.names) if names is None or name in names]
    columns = [(i, metadata.schema.column(i)) for i in named]
    texts = [(i, column) for i, column in columns if column.physical_type == "BYTE_ARRAY"]
    flat = [(i, column) for i, column in texts if column.max_repetition_level == 0 and column.max_definition_level < 2]
    return [column.path for i, column in flat if _is_coded(metadata, i, groups)]


def _is_coded(metadata: pq.FileMetaData, column: int, row_groups: Collection[int]) -> bool:
    size = values = 0
    for i in row_groups:
        chunk = metadata.row_group(i).column(column)
        encodings = set(chunk.encodings)
        if "RLE_DICTIONARY" not in encodings or encodings - {"PLAIN", "RLE", "RLE_DICTIONARY"}:
            return False
        size, values = size + chunk.total_uncompressed_size, values + chunk.num_values
    return size < _CODED_BYTES * values


class DecodedFooters:
    """Footers that were checked and decoded, the last used ones: data files never change, and decoding takes its time.

    Args:
        most: bytes of encoded footers to keep.
    """

    def __init__(self, most: int = _MOST_KEPT) -> None:
        self._kept: LastUsed[tuple[str, str], pq.FileMetaData] = LastUsed(most)

    def get(self, path: str, digest: str) -> pq.FileMetaData | None:
        """A file's footer, None where it is not kept."""
        return self._kept.get((path, digest))

    def put(
        self, path: str, digest: str, footer: bytes, decryption: pq.FileDecryptionProperties | None = None
    ) -> pq.FileMetaData:
        """Decode a checked footer, and keep it; ``decryption`` as for :func:`metadata_of`.

        Raises:
            pyarrow.ArrowException, OSError: it can't be understood.
        """
        metadata = metadata_of(footer, decryption)
        self._kept.put((path, digest), metadata, len(footer))
        return metadata
