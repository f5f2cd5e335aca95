"""Thrift's compact protocol, as far as Parquet's footers need it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

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


def field(step: int, kind: int) -> bytes:
    """The head of a field whose number is so many above the one before it."""
    return bytes([step << 4 | kind])


def varint(value: int) -> bytes:
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


def number(value: int) -> bytes:
    """A number that is not negative as a value of a field.

    >>> number(1)
    b'\\x02'
    """
    return varint(value << 1)


def text(value: bytes) -> bytes:
    """Bytes as a value of a field."""
    return varint(len(value)) + value


def items(kind: int, values: Sequence[bytes]) -> bytes:
    """A list of encoded values of one kind as a value of a field."""
    count = len(values)
    head = bytes([count << 4 | kind]) if count < 15 else bytes([0xF0 | kind]) + varint(count)
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
