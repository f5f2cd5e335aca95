"""The ends of data files: Parquet's footer, which says where everything is and what readers may skip.

Parquet has a checksum for each page but none for the footer, and a bit that flips there can shift columns, change a
type or make readers skip rows. The catalog therefore keeps each footer's digest; see SPEC.md, "Blocks".
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


# ----------------------------------------------------------------------------------------------------
# Thrift's compact protocol, as far as Parquet's footers need it.

BYTE: Final = 3
I32: Final = 5
I64: Final = 6
DOUBLE: Final = 7
BINARY: Final = 8
LIST: Final = 9
STRUCT: Final = 12
"""Kinds of values, by their numbers in the protocol."""
_NOTHING = (1, 2)  # true and false, which stand in the kind
_NUMBERS = (4, I32, I64)
STOP: Final = b"\0"
"""The end of a struct."""


def encode_field(step: int, kind: int) -> bytes:
    """The head of a field whose number is so many above the one before it."""
    return bytes([step << 4 | kind])


def encode_varint(value: int) -> bytes:
    """A number that is not negative, seven bits a byte, the lowest first.

    >>> varint(300)
    b'\\xac\\x02'
    """
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def encode_number(value: int) -> bytes:
    """A number that is not negative as a value of a field.

    >>> number(1)
    b'\\x02'
    """
    return encode_varint(value << 1)


def encode_text(value: bytes) -> bytes:
    """Bytes as a value of a field."""
    return encode_varint(len(value)) + value


def encode_items(kind: int, values: Sequence[bytes]) -> bytes:
    """A list of encoded values of one kind as a value of a field."""
    count = len(values)
    head = bytes([count << 4 | kind]) if count < 15 else bytes([0xF0 | kind]) + encode_varint(count)
    return head + b"".join(values)


class Reader:
    """Reads values one after the other.

    Args:
        data: where they stand.
        at: where the first of them begins.

    Every method raises IndexError where the data end too soon.
    """

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def fields(self) -> Iterator[tuple[int, int]]:
        """The number and the kind of each field of a struct; its value is read, or skipped, before the next."""
        last = 0
        while head := self._byte():
            last = last + (head >> 4) if head >> 4 else self.number()
            yield last, head & 15

    def number(self) -> int:
        """A number as a value of a field."""
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def text(self) -> bytes:
        """Bytes as a value of a field."""
        size = self._varint()
        found = self.data[self.at : self.at + size]
        if len(found) < size:
            raise IndexError(self.at)
        self.at += size
        return found

    def items(self) -> Iterator[int]:
        """The kind of each item of a list; its value is read, or skipped, before the next."""
        head = self._byte()
        count = head >> 4 if head >> 4 < 15 else self._varint()
        for _ in range(count):
            yield head & 15

    def skip(self, kind: int) -> None:
        """A value of this kind.

        Raises:
            ValueError: there is no such kind in a footer.
        """
        if kind in _NOTHING:
            return
        if kind == BYTE:
            self._byte()
        elif kind in _NUMBERS:
            self._varint()
        elif kind == DOUBLE:
            self.at += 8
        elif kind == BINARY:
            self.text()
        elif kind == LIST:
            for of in self.items():
                self.skip(BYTE if of in _NOTHING else of)
        elif kind == STRUCT:
            for _, of in self.fields():
                self.skip(of)
        else:
            raise ValueError(f"a value of kind {kind}")

    def _byte(self) -> int:
        found = self.data[self.at]
        self.at += 1
        return found

    def _varint(self) -> int:
        found = shift = 0
        while (byte := self._byte()) > 0x7F:
            found |= (byte & 0x7F) << shift
            shift += 7
        return found | byte << shift


# ----------------------------------------------------------------------------------------------------
# Parquet footers of just the column chunks that are read, made of what the catalog knows of them.
#
# A footer describes every column of every row group, so that of a file of many small row groups takes longer to decode
# than the few chunks that a query reads of it. The catalog knows where each block's chunks begin and how long they are;
# what a reader needs beside that, the columns' types and the codec, stands at a footer's beginning. Of these a footer
# is
# written anew for Arrow's own reader. A chunk's pages are read one after the other from where it begins, so nobody has
# to know where its dictionary ends.

_ENCODINGS: Final = encode_items(I32, [encode_number(of) for of in (0, 3, 8)])
"""PLAIN, RLE and RLE_DICTIONARY; readers go by what each page says."""
_ARROW_SCHEMA: Final = b"ARROW:schema"
_MOST_TEMPLATES: Final = 64
_MOST_COLUMN_SETS: Final = 256


class UnknownFooterError(Exception):
    """A footer, or a column, is not as this module knows them; whoever meets that decodes the footer whole."""


@dataclass(frozen=True, eq=False)
class ChunkSizes:
    """How large the column chunks of some row groups are, which follow each other in each row group.

    Attributes:
        names: of columns, in any order, all that the files may have.
        starts: where each row group's first chunk begins in its file, ``int64[row groups]``; -1 where unknown.
        sizes: the chunks' bytes, ``int64[row groups, names]``; 0 where a file lacks the column, or that is unknown.
    """

    names: tuple[str, ...]
    starts: Ints
    sizes: Ints

    def only(self, kept: Ints | slice) -> ChunkSizes:
        """The same of some of the row groups, by their places here."""
        return ChunkSizes(self.names, self.starts[kept], self.sizes[kept])

    def places(self, order: Sequence[str], names: Sequence[str]) -> tuple[Ints, Ints]:
        """Where the chunks of some columns begin and end, each ``int64[row groups, names]``.

        Args:
            order: all columns of the row groups' file as they follow each other.
            names: those wanted.

        Raises:
            UnknownFooterError: the file has other columns than those whose sizes are known.
        """
        known = self.sizes > 0
        if set(order) != {
            name for name, of in zip(self.names, (self.sizes.max(axis=0) > 0).tolist(), strict=True) if of
        }:
            raise UnknownFooterError("it is of other columns")
        at = [self.names.index(name) for name in order]
        if not known[:, at].all() or (self.starts < 0).any():
            raise UnknownFooterError("not all of its chunks are known")
        ends = self.starts[:, None] + np.cumsum(self.sizes[:, at], axis=1)
        wanted = [order.index(name) for name in names]
        return (ends - self.sizes[:, at])[:, wanted], ends[:, wanted]


@dataclass(frozen=True, eq=False)
class Template:
    """What the footers of alike files have in common.

    Attributes:
        elements: by the names of columns without nested ones their element of Parquet's schema, as it is encoded, and
            their physical type.
        codec: of all chunks, as Parquet numbers them.
        arrow: the Arrow schema that the files were written with.
    """

    elements: dict[str, tuple[bytes, int]]
    codec: int
    arrow: pa.Schema
    _begun: dict[tuple[str, ...], _Begun] = field(default_factory=dict)

    def footer(self, names: Sequence[str], chunks: ChunkSizes, rows: Sequence[int]) -> pq.FileMetaData:
        """The footer of some columns of the row groups that ``chunks`` is of, which have so many rows.

        Raises:
            UnknownFooterError: a column is nested, or not in the file.
            pyarrow.ArrowException: Arrow can't read it.
        """
        begun = self._begun_for(tuple(names))
        starts, ends = (each.tolist() for each in chunks.places(self.arrow.names, names))
        groups = [begun.row_group(*of) for of in zip(starts, ends, rows, strict=True)]
        body = begun.head + encode_number(sum(rows)) + encode_field(1, LIST) + encode_items(STRUCT, groups)
        body += begun.tail
        return metadata_of(body + len(body).to_bytes(4, "little") + b"PAR1")

    def _begun_for(self, names: tuple[str, ...]) -> _Begun:
        if not set(names) <= self.elements.keys():
            raise UnknownFooterError("a column is nested, or the file lacks it")
        if names not in self._begun:
            if len(self._begun) >= _MOST_COLUMN_SETS:
                self._begun.clear()
            self._begun[names] = _begun(self, names)
        return self._begun[names]


@dataclass(frozen=True, eq=False)
class _Begun:
    """The parts of a footer of some columns that no row group changes.

    Attributes:
        head: up to the number of rows.
        tail: after the row groups.
        chunks: of each column's chunk what stands before its number of values.
    """

    head: bytes
    tail: bytes
    chunks: tuple[bytes, ...]

    def row_group(self, starts: Sequence[int], ends: Sequence[int], rows: int) -> bytes:
        """A row group: its chunks, their bytes, its rows."""
        values = encode_number(rows)
        made = []
        for before, start, end in zip(self.chunks, starts, ends, strict=True):
            at, size = encode_number(start), encode_number(end - start)
            # Bytes before compression are nobody's business here. After the next but one: the first page.
            numbers = values + _NEXT_I64 + size + _NEXT_I64 + size + encode_field(2, I64) + at
            made.append(encode_field(2, I64) + at + before + numbers + STOP + STOP)
        total = encode_number(sum(ends) - sum(starts))
        columns = encode_field(1, LIST) + encode_items(STRUCT, made)
        return columns + _NEXT_I64 + total + _NEXT_I64 + values + STOP


_NEXT_I64: Final = encode_field(1, I64)


def _begun(template: Template, names: tuple[str, ...]) -> _Begun:
    root = encode_field(3, I32) + encode_number(0)  # required
    root += encode_field(1, BINARY) + encode_text(b"schema") + encode_field(1, I32) + encode_number(len(names))
    elements = [root + STOP, *(template.elements[name][0] for name in names)]
    head = encode_field(1, I32) + encode_number(2)  # Parquet's version
    head += encode_field(1, LIST) + encode_items(STRUCT, elements) + _NEXT_I64
    arrow = pa.schema([template.arrow.field(name) for name in names])
    pair = encode_field(1, BINARY) + encode_text(_ARROW_SCHEMA)
    pair += encode_field(1, BINARY) + encode_text(base64.b64encode(arrow.serialize().to_pybytes())) + STOP
    tail = encode_field(1, LIST) + encode_items(STRUCT, [pair]) + STOP
    chunks = tuple(_chunk(name, template.elements[name][1], template.codec) for name in names)
    return _Begun(head, tail, chunks)


def _chunk(name: str, type: int, codec: int) -> bytes:
    """A column chunk between its place and its number of values."""
    found = encode_field(1, STRUCT) + encode_field(1, I32) + encode_number(type)
    found += encode_field(1, LIST) + _ENCODINGS
    found += encode_field(1, LIST) + encode_items(BINARY, [encode_text(name.encode())])
    return found + encode_field(1, I32) + encode_number(codec) + _NEXT_I64


def template_of(footer: bytes) -> Template:
    """The template of a file, by its footer with its length and magic bytes.

    Raises:
        UnknownFooterError: it is not as those that layoutopt writes.
    """
    try:
        reader = Reader(footer)
        schema = b""
        for number, kind in reader.fields():
            begins = reader.at
            if number == 4:
                return _template(schema, _first_codec(reader), _arrow_schema(footer))
            reader.skip(kind)
            if number == 2:
                schema = footer[begins : reader.at]
    except (IndexError, ValueError, binascii.Error) as error:
        raise UnknownFooterError("it is encoded otherwise") from error
    raise UnknownFooterError("it has no row groups")


@lru_cache(maxsize=_MOST_TEMPLATES)
def _template(schema: bytes, codec: int, arrow: bytes) -> Template:
    try:
        types = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(arrow)))
    except (pa.ArrowException, OSError) as error:
        raise UnknownFooterError("its Arrow schema can't be read") from error
    elements = _flat_elements(schema)
    return Template({name: of for name, of in elements.items() if name in types.names}, codec, types)


def _first_codec(reader: Reader) -> int:
    """The codec of the first column chunk of the row groups that are read next."""
    for path in ((1, LIST), (3, STRUCT)):  # a row group's columns; a column's meta_data
        if next(reader.items(), None) is None:
            raise UnknownFooterError("it has no row groups")
        _seek(reader, *path)
    _seek(reader, 4, I32)
    return reader.number()


def _seek(reader: Reader, wanted: int, kind: int) -> None:
    """To the value of a field of the struct that is read next."""
    for number, of in reader.fields():
        if (number, of) == (wanted, kind):
            return
        reader.skip(of)
    raise UnknownFooterError(f"it has no field {wanted}")


def _arrow_schema(footer: bytes) -> bytes:
    """The value of the last key ``ARROW:schema``, which stands after the row groups."""
    found = footer.rfind(_ARROW_SCHEMA)
    if found < 0:
        raise UnknownFooterError("it has no Arrow schema")
    reader = Reader(footer, found + len(_ARROW_SCHEMA))
    _seek(reader, 1, BINARY)
    return reader.text()


def _flat_elements(schema: bytes) -> dict[str, tuple[bytes, int]]:
    """The elements of the columns without nested ones, and their types, of an encoded list of elements."""
    reader = Reader(schema)
    found: dict[str, tuple[bytes, int]] = {}
    nested = 0  # elements that are left of a column with nested ones
    for place, _ in enumerate(reader.items()):
        begins = reader.at
        name, type, children = _element(reader)
        if place == 0:
            continue  # all columns together
        if not nested and not children:
            found[name] = schema[begins : reader.at], type
        nested += children - bool(nested)
    return found


def _element(reader: Reader) -> tuple[str, int, int]:
    """The name of an element of the schema, its physical type (-1 without one) and how many are below it."""
    name, numbers = b"", {1: -1, 5: 0}
    for number, kind in reader.fields():
        if number == 4:
            name = reader.text()
        elif number in numbers:
            numbers[number] = reader.number()
        else:
            reader.skip(kind)
    return name.decode(), numbers[1], numbers[5]
