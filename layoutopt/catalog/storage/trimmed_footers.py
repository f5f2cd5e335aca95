"""Parquet footers of just the column chunks that are read, made of what the catalog knows of them.

A footer describes every column of every row group, so that of a file of many small row groups takes longer to decode
than the few chunks that a query reads of it. The catalog knows where each block's chunks begin and how long they are;
what a reader needs beside that, the columns' types and the codec, stands at a footer's beginning. Of these a footer is
written anew for Arrow's own reader. A chunk's pages are read one after the other from where it begins, so nobody has
to know where its dictionary ends.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.catalog.storage import compact
from layoutopt.catalog.storage.compact import BINARY, I32, I64, LIST, STOP, STRUCT
from layoutopt.catalog.storage.footers import metadata_of
from layoutopt.model.arrays import Ints

_ENCODINGS: Final = compact.items(I32, [compact.number(of) for of in (0, 3, 8)])
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
        body = begun.head + compact.number(sum(rows)) + compact.field(1, LIST) + compact.items(STRUCT, groups)
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
        values = compact.number(rows)
        made = []
        for before, start, end in zip(self.chunks, starts, ends, strict=True):
            at, size = compact.number(start), compact.number(end - start)
            # Bytes before compression are nobody's business here. After the next but one: the first page.
            numbers = values + _NEXT_I64 + size + _NEXT_I64 + size + compact.field(2, I64) + at
            made.append(compact.field(2, I64) + at + before + numbers + STOP + STOP)
        total = compact.number(sum(ends) - sum(starts))
        columns = compact.field(1, LIST) + compact.items(STRUCT, made)
        return columns + _NEXT_I64 + total + _NEXT_I64 + values + STOP


_NEXT_I64: Final = compact.field(1, I64)


def _begun(template: Template, names: tuple[str, ...]) -> _Begun:
    root = compact.field(3, I32) + compact.number(0)  # required
    root += compact.field(1, BINARY) + compact.text(b"schema") + compact.field(1, I32) + compact.number(len(names))
    elements = [root + STOP, *(template.elements[name][0] for name in names)]
    head = compact.field(1, I32) + compact.number(2)  # Parquet's version
    head += compact.field(1, LIST) + compact.items(STRUCT, elements) + _NEXT_I64
    arrow = pa.schema([template.arrow.field(name) for name in names])
    pair = compact.field(1, BINARY) + compact.text(_ARROW_SCHEMA)
    pair += compact.field(1, BINARY) + compact.text(base64.b64encode(arrow.serialize().to_pybytes())) + STOP
    tail = compact.field(1, LIST) + compact.items(STRUCT, [pair]) + STOP
    chunks = tuple(_chunk(name, template.elements[name][1], template.codec) for name in names)
    return _Begun(head, tail, chunks)


def _chunk(name: str, type: int, codec: int) -> bytes:
    """A column chunk between its place and its number of values."""
    found = compact.field(1, STRUCT) + compact.field(1, I32) + compact.number(type)
    found += compact.field(1, LIST) + _ENCODINGS
    found += compact.field(1, LIST) + compact.items(BINARY, [compact.text(name.encode())])
    return found + compact.field(1, I32) + compact.number(codec) + _NEXT_I64


def template_of(footer: bytes) -> Template:
    """The template of a file, by its footer with its length and magic bytes.

    Raises:
        UnknownFooterError: it is not as those that layoutopt writes.
    """
    try:
        reader = compact.Reader(footer)
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


def _first_codec(reader: compact.Reader) -> int:
    """The codec of the first column chunk of the row groups that are read next."""
    for path in ((1, LIST), (3, STRUCT)):  # a row group's columns; a column's meta_data
        if next(reader.items(), None) is None:
            raise UnknownFooterError("it has no row groups")
        _seek(reader, *path)
    _seek(reader, 4, I32)
    return reader.number()


def _seek(reader: compact.Reader, wanted: int, kind: int) -> None:
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
    reader = compact.Reader(footer, found + len(_ARROW_SCHEMA))
    _seek(reader, 1, BINARY)
    return reader.text()


def _flat_elements(schema: bytes) -> dict[str, tuple[bytes, int]]:
    """The elements of the columns without nested ones, and their types, of an encoded list of elements."""
    reader = compact.Reader(schema)
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


def _element(reader: compact.Reader) -> tuple[str, int, int]:
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
