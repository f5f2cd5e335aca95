"""What the names of Hive-style folders say of the rows below them, and what their texts are as values."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from decimal import InvalidOperation
from typing import Final
from urllib.parse import unquote

import pyarrow as pa

from layoutopt.errors import SourceError
from layoutopt.model.schema import Column

_NULL: Final = "__HIVE_DEFAULT_PARTITION__"

UNNAMED: Final[tuple[str | None, ...]] = ()
"""In place of the names under which a file stores columns: they are those of its own footer."""


def values_in_folders(path: str) -> dict[str, str | None]:
    """The columns whose values a path's folders say, None for NULL.

    >>> values_in_folders("/day=2024-01-01/city=a%2Fb/f.parquet")
    {'day': '2024-01-01', 'city': 'a/b'}
    """
    parts = (part.partition("=") for part in path.split("/")[:-1] if "=" in part)
    said = [(unquote(name), unquote(value)) for name, _, value in parts]
    return {name: None if value == _NULL else value for name, value in said if name}


def folder_columns(values: Iterable[Mapping[str, str | None]]) -> tuple[Column, ...]:
    """The columns that folders say, each of the first type that fits: int, bigint, double, date or string.

    >>> folder_columns([{"n": "01", "day": "2024-01-01"}, {"n": None, "day": "2024-01-02"}])
    (Column(name='n', type='int', nullable=True), Column(name='day', type='date', nullable=True))
    """
    texts: dict[str, list[str]] = {}
    for said in values:
        for name, value in said.items():
            texts.setdefault(name, []).extend([] if value is None else [value])
    return tuple(Column(name, _type_of(found)) for name, found in texts.items())


def _type_of(texts: Iterable[str]) -> str:
    distinct = set(texts)
    return next((type for type, reads in _TYPES if distinct and all(map(reads, distinct))), "string")


def _in_bits(bits: int) -> Callable[[str], bool]:
    def reads(text: str) -> bool:
        digits = text.removeprefix("-").removeprefix("+")
        return digits.isascii() and digits.isdecimal() and -(2 ** (bits - 1)) <= int(text) < 2 ** (bits - 1)

    return reads


def _is_double(text: str) -> bool:
    plain = text.replace(".", "", 1).lstrip("+-")
    return plain.isascii() and plain.isdecimal()


def _is_date(text: str) -> bool:
    with suppress(ValueError):
        return len(text) == 10 and dt.date.fromisoformat(text) is not None
    return False


_TYPES: Final = (("int", _in_bits(32)), ("bigint", _in_bits(64)), ("double", _is_double), ("date", _is_date))


def constant(value: object, column: Column, type: pa.DataType) -> pa.Scalar:
    """A value that a folder's name or a table's metadata says of all rows of a file.

    Args:
        value: its text, or a value of Python's; None is NULL.
        column: what it is a value of.
        type: the column's in Arrow.

    Raises:
        SourceError: it is no value of the column's type, or of one whose texts depend on a time zone.
    """
    if value is None:
        return pa.scalar(None, type)
    text = str(value).lower() if column.type == "boolean" else str(value)
    try:
        if column.type in ("timestamp", "binary"):
            raise ValueError("such values are not read from there")
        return pa.scalar(text, pa.string()).cast(type)
    except (pa.ArrowException, ValueError, InvalidOperation) as error:
        raise SourceError(
            f"{text[:80]!r} stands for the column {column.name!r} of type {column.type} in the name of a folder or in "
            f"a table's metadata ({error}); store the column in the files"
        ) from error
