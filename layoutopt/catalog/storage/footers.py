"""Parquet footers: their digests, their decoding, and small footers made from the catalog.

Parquet has a checksum for each page but none for the footer, and a flipped bit there can shift columns, change a type
or make readers skip rows. The catalog therefore keeps each footer's digest; see SPEC.md, "Blocks".

A footer describes every column of every row group, so decoding that of a file of many small row groups takes longer
than decoding a query's few chunks. The catalog knows the offsets and sizes of each block's chunks. The rest (the
columns' types and the codec) stands at the beginning of a footer. :class:`FooterTemplate` writes a small footer from
these for Arrow's reader. Readers read a chunk's pages in order, so the end of its dictionary is not needed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.catalog.storage.ranges import LastUsed
from layoutopt.model.arrays import Ints

MAGIC = b"PAR1"
# The magic bytes of files whose footer is encrypted.
ENCRYPTED = b"PARE"
_END = 8  # the footer's length as a little-endian int32, and the magic bytes
# Bytes of a file's end that are read first: most footers fit.
FIRST_READ = 64 * 1024
# Pages of a text column mostly hold dictionary codes where they take at most so many bytes a value.
_CODED_BYTES = 16
_MOST_KEPT = 32 * 2**20  # bytes of footers; decoded they take some times as many


class FooterKeeper(io.RawIOBase):
    """A file for a Parquet writer, which records what is written after :meth:`keep` was called.

    Call that before the writer is closed: the footer is written last.
    """

    def __init__(self, file: Any) -> None:
        super().__init__()
        self._file = file
        self._kept: list[bytes] | None = None

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Write bytes, and record them after :meth:`keep`."""
        if self._kept is not None:
            self._kept.append(bytes(data))
        self._file.write(data)
        return memoryview(data).nbytes

    def flush(self) -> None:
        """Flush the file."""
        if not self.closed:
            self._file.flush()

    def tell(self) -> int:
        """Return the file's current size."""
        return int(self._file.tell())

    def keep(self) -> None:
        """Record all bytes from now on."""
        self._kept = []

    @property
    def footer(self) -> bytes:
        """Return the written footer, to the file's end; raise ValueError if it is incomplete."""
        return footer_at_end(b"".join(self._kept or []))


def footer_at_end(data: bytes) -> bytes:
    r"""Return the footer with its length and magic bytes, from the last bytes of a Parquet file, else raise ValueError.

    >>> footer_at_end(b"rows" + b"foot" + (4).to_bytes(4, "little") + b"PAR1")
    b'foot\x04\x00\x00\x00PAR1'
    """
    length = footer_length(data)
    if length > len(data):
        raise ValueError(f"its footer should have {length} bytes, but only {len(data)} are there")
    return data[len(data) - length :]


def footer_length(data: bytes) -> int:
    """Return the size of a footer with its length and magic bytes, from a file's last bytes, else raise ValueError."""
    if len(data) < _END or data[-4:] not in (MAGIC, ENCRYPTED):
        raise ValueError("it does not end as a Parquet file does")
    return int.from_bytes(data[-_END:-4], "little") + _END


def footer_digest(footer: bytes) -> str:
    """Return the SHA-256 of a footer in hexadecimal, as the catalog keeps it.

    >>> footer_digest(b"")[:8]
    'e3b0c442'
    """
    return hashlib.sha256(footer).hexdigest()


def read_footer(file: pa.NativeFile) -> bytes:
    """Read the footer of an open file; raise ValueError if it does not end as a Parquet file does."""
    size = file.size()

    def end(length: int) -> bytes:
        file.seek(max(0, size - length))
        return bytes(file.read())

    return footer_by_end(end, FIRST_READ)


def footer_by_end(end: Callable[[int], bytes], first: int) -> bytes:
    """Read a footer through a function that returns a number of bytes of a file's end, or all of a shorter file.

    ``first`` bytes are read at first, more for a longer footer.
    """
    data = end(first)
    length = footer_length(data)
    return footer_at_end(data if length <= len(data) else end(length))


def metadata_of(footer: bytes, decryption: pq.FileDecryptionProperties | None = None) -> pq.FileMetaData:
    """Decode a footer with its length and magic bytes; raise pyarrow.ArrowException or OSError if that fails.

    With ``decryption`` a plain footer is refused.
    """
    return pq.read_metadata(pa.BufferReader(footer[-len(MAGIC) :] + footer), decryption_properties=decryption)


def coded_columns(
    metadata: pq.FileMetaData, names: Collection[str] | None = None, row_groups: Collection[int] | None = None
) -> list[str]:
    """Return the flat text columns that row groups store as dictionaries and codes, with few bytes a value."""
    groups = range(metadata.num_row_groups) if row_groups is None else row_groups
    indices = [i for i, name in enumerate(metadata.schema.names) if names is None or name in names]
    columns = [(i, metadata.schema.column(i)) for i in indices]
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
    """A cache of decoded footers, of ``most`` encoded bytes: data files never change, and decoding is slow."""

    def __init__(self, most: int = _MOST_KEPT) -> None:
        self._kept: LastUsed[tuple[str, str], pq.FileMetaData] = LastUsed(most)

    def get(self, path: str, digest: str) -> pq.FileMetaData | None:
        """Return a file's footer, None where it is not cached."""
        return self._kept.get((path, digest))

    def put(
        self, path: str, digest: str, footer: bytes, decryption: pq.FileDecryptionProperties | None = None
    ) -> pq.FileMetaData:
        """Decode a checked footer as :func:`metadata_of`, and cache it."""
        metadata = metadata_of(footer, decryption)
        self._kept.put((path, digest), metadata, len(footer))
        return metadata


# Thrift's compact protocol, as far as Parquet's footers need it. Kinds of values, by their numbers in the protocol:
BYTE: Final = 3
I32: Final = 5
I64: Final = 6
DOUBLE: Final = 7
BINARY: Final = 8
LIST: Final = 9
STRUCT: Final = 12
_NOTHING = (1, 2)  # true and false, which stand in the kind
_NUMBERS = (4, I32, I64)
# The end of a struct.
STOP: Final = b"\0"


def encode_field(step: int, kind: int) -> bytes:
    """Return the head of a field whose number is ``step`` above the previous field's."""
    return bytes([step << 4 | kind])


def encode_varint(value: int) -> bytes:
    r"""Encode a non-negative number, seven bits a byte, the lowest first.

    >>> encode_varint(300)
    b'\xac\x02'
    """
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def encode_number(value: int) -> bytes:
    r"""Encode a non-negative number as a field's value.

    >>> encode_number(1)
    b'\x02'
    """
    return encode_varint(value << 1)


def encode_text(value: bytes) -> bytes:
    """Encode bytes as a field's value."""
    return encode_varint(len(value)) + value


def encode_items(kind: int, values: Sequence[bytes]) -> bytes:
    """Encode a list of encoded values of one kind as a field's value."""
    count = len(values)
    head = bytes([count << 4 | kind]) if count < 15 else bytes([0xF0 | kind]) + encode_varint(count)
    return head + b"".join(values)


class ThriftReader:
    """Reads Thrift values from an offset ``at``; every method raises IndexError at the end of the data."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield the number and kind of each field of a struct; the caller reads or skips its value."""
        last = 0
        while head := self._read_byte():
            last = last + (head >> 4) if head >> 4 else self.number()
            yield last, head & 15

    def number(self) -> int:
        """Read a number."""
        value = self._read_varint()
        return (value >> 1) ^ -(value & 1)

    def text(self) -> bytes:
        """Read bytes."""
        size = self._read_varint()
        text = self.data[self.at : self.at + size]
        if len(text) < size:
            raise IndexError(self.at)
        self.at += size
        return text

    def items(self) -> Iterator[int]:
        """Yield the kind of each item of a list; the caller reads or skips its value."""
        head = self._read_byte()
        count = head >> 4 if head >> 4 < 15 else self._read_varint()
        for _ in range(count):
            yield head & 15

    def skip(self, kind: int) -> None:
        """Skip a value of a kind; raise ValueError if there is no such kind in a footer."""
        if kind in _NOTHING:
            return
        if kind == BYTE:
            self._read_byte()
        elif kind in _NUMBERS:
            self._read_varint()
        elif kind == DOUBLE:
            self.at += 8
        elif kind == BINARY:
            self.text()
        elif kind == LIST:
            for item in self.items():
                self.skip(BYTE if item in _NOTHING else item)
        elif kind == STRUCT:
            for _, item in self.fields():
                self.skip(item)
        else:
            raise ValueError(f"a value of kind {kind}")

    def _read_byte(self) -> int:
        byte = self.data[self.at]
        self.at += 1
        return byte

    def _read_varint(self) -> int:
        value = shift = 0
        while (byte := self._read_byte()) > 0x7F:
            value |= (byte & 0x7F) << shift
            shift += 7
        return value | byte << shift


# PLAIN, RLE and RLE_DICTIONARY; readers rely on the encoding in each page.
_ENCODINGS: Final = encode_items(I32, [encode_number(encoding) for encoding in (0, 3, 8)])
_ARROW_SCHEMA: Final = b"ARROW:schema"
_MOST_TEMPLATES: Final = 64
_MOST_COLUMN_SETS: Final = 256


class UnknownFooterError(Exception):
    """A footer or column of an unknown form; the caller decodes the footer whole."""


@dataclass(frozen=True, eq=False)
class ChunkSizes:
    """Sizes of the column chunks of row groups, without gaps within a row group.

    Attributes:
        names: of columns, in any order, all that the files may have.
        starts: the offset of each row group's first chunk in its file, ``int64[row groups]``; -1 where unknown.
        sizes: the chunks' bytes, ``int64[row groups, names]``; 0 where a file lacks the column, or unknown.
    """

    names: tuple[str, ...]
    starts: Ints
    sizes: Ints

    def only(self, row_groups: Ints | slice) -> ChunkSizes:
        """Return the sizes of some of the row groups, by their indices here."""
        return ChunkSizes(self.names, self.starts[row_groups], self.sizes[row_groups])

    def places(self, order: Sequence[str], names: Sequence[str]) -> tuple[Ints, Ints]:
        """Return the start and end offsets of the chunks of columns ``names``, each ``int64[row groups, names]``.

        ``order`` has all columns of the row groups' file; raises UnknownFooterError if it has columns of unknown size.
        """
        present = np.flatnonzero(self.sizes.max(axis=0) > 0)
        if set(order) != {self.names[i] for i in present.tolist()}:
            raise UnknownFooterError("it is of other columns")
        indices = [self.names.index(name) for name in order]
        if not (self.sizes[:, indices] > 0).all() or (self.starts < 0).any():
            raise UnknownFooterError("not all of its chunks are known")
        ends = self.starts[:, None] + np.cumsum(self.sizes[:, indices], axis=1)
        positions = [order.index(name) for name in names]
        return (ends - self.sizes[:, indices])[:, positions], ends[:, positions]


@dataclass(frozen=True, eq=False)
class FooterTemplate:
    """The common part of the footers of alike files.

    Attributes:
        elements: the encoded schema element and physical type of each flat column, by its name.
        codec: of all chunks, as Parquet numbers them.
        arrow: the Arrow schema that the files were written with.
    """

    elements: dict[str, tuple[bytes, int]]
    codec: int
    arrow: pa.Schema
    _parts: dict[tuple[str, ...], _FooterParts] = field(default_factory=dict)

    def footer(self, names: Sequence[str], chunks: ChunkSizes, rows: Sequence[int]) -> pq.FileMetaData:
        """Return the footer of some columns of the row groups of ``chunks``, with their numbers of rows.

        Raises UnknownFooterError if a column is nested or missing, pyarrow.ArrowException if Arrow can't read it.
        """
        parts = self._parts_for(tuple(names))
        starts, ends = (offsets.tolist() for offsets in chunks.places(self.arrow.names, names))
        groups = [parts.row_group(*group) for group in zip(starts, ends, rows, strict=True)]
        body = parts.head + encode_number(sum(rows)) + encode_field(1, LIST) + encode_items(STRUCT, groups)
        body += parts.tail
        return metadata_of(body + len(body).to_bytes(4, "little") + b"PAR1")

    def _parts_for(self, names: tuple[str, ...]) -> _FooterParts:
        if not set(names) <= self.elements.keys():
            raise UnknownFooterError("a column is nested, or the file lacks it")
        if names not in self._parts:
            if len(self._parts) >= _MOST_COLUMN_SETS:
                self._parts.clear()
            self._parts[names] = _make_parts(self, names)
        return self._parts[names]


@dataclass(frozen=True, eq=False)
class _FooterParts:
    """The parts of a footer of some columns before and after the row groups, and of chunks before their values."""

    head: bytes
    tail: bytes
    chunks: tuple[bytes, ...]

    def row_group(self, starts: Sequence[int], ends: Sequence[int], rows: int) -> bytes:
        """Encode a row group: its chunks, their bytes, its rows."""
        values = encode_number(rows)
        chunks = []
        for before, start, end in zip(self.chunks, starts, ends, strict=True):
            offset, size = encode_number(start), encode_number(end - start)
            # Its values, uncompressed bytes (not needed, so the compressed ones), compressed bytes and first page.
            numbers = values + _NEXT_I64 + size + _NEXT_I64 + size + encode_field(2, I64) + offset
            chunks.append(encode_field(2, I64) + offset + before + numbers + STOP + STOP)
        total = encode_number(sum(ends) - sum(starts))
        columns = encode_field(1, LIST) + encode_items(STRUCT, chunks)
        return columns + _NEXT_I64 + total + _NEXT_I64 + values + STOP


_NEXT_I64: Final = encode_field(1, I64)


def _make_parts(template: FooterTemplate, names: tuple[str, ...]) -> _FooterParts:
    root = encode_field(3, I32) + encode_number(0)  # required
    root += encode_field(1, BINARY) + encode_text(b"schema") + encode_field(1, I32) + encode_number(len(names))
    elements = [root + STOP, *(template.elements[name][0] for name in names)]
    head = encode_field(1, I32) + encode_number(2)  # Parquet's version
    head += encode_field(1, LIST) + encode_items(STRUCT, elements) + _NEXT_I64
    arrow = pa.schema([template.arrow.field(name) for name in names])
    pair = encode_field(1, BINARY) + encode_text(_ARROW_SCHEMA)
    pair += encode_field(1, BINARY) + encode_text(base64.b64encode(arrow.serialize().to_pybytes())) + STOP
    tail = encode_field(1, LIST) + encode_items(STRUCT, [pair]) + STOP
    chunks = tuple(_encode_chunk_head(name, template.elements[name][1], template.codec) for name in names)
    return _FooterParts(head, tail, chunks)


def _encode_chunk_head(name: str, type: int, codec: int) -> bytes:
    """Encode a column chunk between its offset and its number of values."""
    encoded = encode_field(1, STRUCT) + encode_field(1, I32) + encode_number(type)
    encoded += encode_field(1, LIST) + _ENCODINGS
    encoded += encode_field(1, LIST) + encode_items(BINARY, [encode_text(name.encode())])
    return encoded + encode_field(1, I32) + encode_number(codec) + _NEXT_I64


def template_of(footer: bytes) -> FooterTemplate:
    """Return the template of a file by its footer; raise UnknownFooterError if layoutopt did not write it."""
    try:
        reader = ThriftReader(footer)
        schema = b""
        for number, kind in reader.fields():
            start = reader.at
            if number == 4:
                return _make_template(schema, _read_first_codec(reader), _read_arrow_schema(footer))
            reader.skip(kind)
            if number == 2:
                schema = footer[start : reader.at]
    except (IndexError, ValueError, binascii.Error) as error:
        raise UnknownFooterError("it has another encoding") from error
    raise UnknownFooterError("it has no row groups")


@lru_cache(maxsize=_MOST_TEMPLATES)
def _make_template(schema: bytes, codec: int, arrow: bytes) -> FooterTemplate:
    try:
        types = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(arrow)))
    except (pa.ArrowException, OSError) as error:
        raise UnknownFooterError("its Arrow schema can't be read") from error
    elements = _list_flat_elements(schema)
    return FooterTemplate({name: elements[name] for name in elements if name in types.names}, codec, types)


def _read_first_codec(reader: ThriftReader) -> int:
    """Return the codec of the first column chunk of the next row groups."""
    for path in ((1, LIST), (3, STRUCT)):  # a row group's columns; a column's meta_data
        if next(reader.items(), None) is None:
            raise UnknownFooterError("it has no row groups")
        _seek(reader, *path)
    _seek(reader, 4, I32)
    return reader.number()


def _seek(reader: ThriftReader, field: int, kind: int) -> None:
    """Move to the value of a field of the next struct."""
    for number, field_kind in reader.fields():
        if (number, field_kind) == (field, kind):
            return
        reader.skip(field_kind)
    raise UnknownFooterError(f"it has no field {field}")


def _read_arrow_schema(footer: bytes) -> bytes:
    """Return the value of the last key ``ARROW:schema``, which stands after the row groups."""
    offset = footer.rfind(_ARROW_SCHEMA)
    if offset < 0:
        raise UnknownFooterError("it has no Arrow schema")
    reader = ThriftReader(footer, offset + len(_ARROW_SCHEMA))
    _seek(reader, 1, BINARY)
    return reader.text()


def _list_flat_elements(schema: bytes) -> dict[str, tuple[bytes, int]]:
    """Return the elements of the flat columns and their types, from an encoded list of elements."""
    reader = ThriftReader(schema)
    elements: dict[str, tuple[bytes, int]] = {}
    remaining = 0  # elements that are left of a column with nested ones
    for place, _ in enumerate(reader.items()):
        start = reader.at
        name, type, children = _read_element(reader)
        if place == 0:
            continue  # all columns together
        if not remaining and not children:
            elements[name] = schema[start : reader.at], type
        remaining += children - bool(remaining)
    return elements


def _read_element(reader: ThriftReader) -> tuple[str, int, int]:
    """Return a schema element's name, physical type (-1 without one) and number of children."""
    name, numbers = b"", {1: -1, 5: 0}
    for number, kind in reader.fields():
        if number == 4:
            name = reader.text()
        elif number in numbers:
            numbers[number] = reader.number()
        else:
            reader.skip(kind)
    return name.decode(), numbers[1], numbers[5]
