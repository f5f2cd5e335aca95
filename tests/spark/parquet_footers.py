"""Footers of Parquet files as other writers leave them: Thrift's compact protocol, read and written field by field."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

# The numbers of fields in parquet.thrift.
ROW_GROUPS, CREATED_BY, CHUNKS, CHUNK_METADATA, CHUNK_PATH, STATISTICS = 4, 6, 1, 3, 3, 12
OLD_MAX, OLD_MIN, NULL_COUNT, MAX, MIN, MAX_IS_EXACT, MIN_IS_EXACT = 1, 2, 3, 5, 6, 7, 8
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _STRUCT = 1, 2, 3, 7, 8, 9, 12

# A struct: the type and value of each field, by its number.
Struct = dict[int, tuple[int, Any]]


def binary(value: bytes) -> tuple[int, bytes]:
    """A field of bytes."""
    return _BINARY, value


def boolean(value: bool) -> tuple[int, None]:
    """A field that is a boolean."""
    return (_TRUE if value else _FALSE), None


def change_footer(path: Path, change: Callable[[Struct], object]) -> None:
    """Change the footer of a file; its pages stay."""
    content = path.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    footer = _Reader(content[start:-8]).struct()
    change(footer)
    written = _struct(footer)
    path.write_bytes(content[:start] + written + len(written).to_bytes(4, "little") + b"PAR1")


def change_statistics(path: Path, column: str, change: Callable[[Struct], object]) -> None:
    """Change the statistics of a column in each row group."""

    def each(footer: Struct) -> None:
        for group in footer[ROW_GROUPS][1][1]:
            for chunk in group[CHUNKS][1][1]:
                metadata = chunk[CHUNK_METADATA][1]
                if metadata[CHUNK_PATH][1][1] == [column.encode()]:
                    change(metadata[STATISTICS][1])

    change_footer(path, each)


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    def struct(self) -> Struct:
        fields, number = Struct(), 0
        while head := self._take(1)[0]:
            number = number + (head >> 4) if head >> 4 else _unfold(self._varint())
            fields[number] = (head & 15, self._value(head & 15))
        return fields

    def _value(self, type: int) -> Any:
        match type:
            case 1 | 2:
                return None
            case 3:
                return self._take(1)
            case 7:
                return self._take(8)
            case 8:
                return self._take(self._varint())
            case 9 | 10:
                head = self._take(1)[0]
                size, kind = head >> 4, head & 15
                size = self._varint() if size == 15 else size
                return kind, [self._take(1) if kind in (_TRUE, _FALSE) else self._value(kind) for _ in range(size)]
            case 12:
                return self.struct()
            case _:
                return self._varint()

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def _take(self, size: int) -> bytes:
        self._at += size
        return self._content[self._at - size : self._at]


def _unfold(value: int) -> int:
    return value >> 1 ^ -(value & 1)


def _struct(fields: Struct) -> bytes:
    out, before = b"", 0
    for number, (type, value) in sorted(fields.items()):
        delta = number - before
        out += bytes([delta << 4 | type]) if delta < 16 else bytes([type]) + _varint(number << 1)
        out, before = out + _bytes(type, value), number
    return out + b"\0"


def _bytes(type: int, value: Any) -> bytes:
    match type:
        case 1 | 2:
            return b""
        case 3 | 7:
            return bytes(value)
        case 8:
            return _varint(len(value)) + bytes(value)
        case 9 | 10:
            kind, items = value
            head = bytes([len(items) << 4 | kind]) if len(items) < 15 else bytes([240 | kind]) + _varint(len(items))
            return head + b"".join(item if kind in (_TRUE, _FALSE) else _bytes(kind, item) for item in items)
        case 12:
            return _struct(value)
        case _:
            return _varint(value)


def _varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])
