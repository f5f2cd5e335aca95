"""Columns that only the names of Hive-style folders tell of (``day=2026-11-24/``): their values, and types guessed."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeAlias
from urllib.parse import unquote

from layoutopt.model.schema import Column

_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_DOUBLE_TO_SPARK: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?")

Guesses: TypeAlias = Sequence[tuple[str, Callable[[str], bool]]]
"""Types, the first of which takes the values of a column that all are of it, and whether a text is of the type."""


def values_in_folders(path: str) -> dict[str, str | None]:
    """The columns whose values a path's folders say, None for NULL.

    >>> values_in_folders("/day=2024-01-01/city=a%2Fb/f.parquet")
    {'day': '2024-01-01', 'city': 'a/b'}
    """
    parts = (part.partition("=") for part in path.split("/")[:-1] if "=" in part)
    said = [(unquote(name), unquote(value)) for name, _, value in parts]
    return {name: None if value == _NULL else value for name, value in said if name}


def is_shown(name: str) -> bool:
    """Whether Spark looks at a file or a folder of a name when it lists a folder.

    >>> is_shown("a.parquet"), is_shown("_SUCCESS"), is_shown("_day=1"), is_shown(".a.parquet.crc")
    (True, False, True, False)
    """
    return not name.startswith(".") and (not name.startswith("_") or "=" in name)


def _in_bits(bits: int) -> Callable[[str], bool]:
    def reads(text: str) -> bool:
        return bool(_INTEGER.fullmatch(text)) and -(2 ** (bits - 1)) <= int(text) < 2 ** (bits - 1)

    return reads


def _is_double(text: str) -> bool:
    plain = text.replace(".", "", 1).lstrip("+-")
    return plain.isascii() and plain.isdecimal()


def _is_double_to_spark(text: str) -> bool:
    return _DOUBLE_TO_SPARK.fullmatch(text) is not None


def _is_date(text: str) -> bool:
    with suppress(ValueError):
        return bool(_DATE.fullmatch(text)) and dt.date.fromisoformat(text) is not None
    return False


def _is_moment(text: str) -> bool:
    return _is_date(text) or _TIMESTAMP.fullmatch(text) is not None


SIMPLE: Final[Guesses] = (
    ("int", _in_bits(32)), ("bigint", _in_bits(64)), ("double", _is_double), ("date", _is_date),
)  # fmt: skip
"""Of values that are read without a time zone."""

AS_SPARK: Final[Guesses] = (
    ("int", _in_bits(32)), ("bigint", _in_bits(64)), ("double", _is_double_to_spark), ("date", _is_date),
    ("timestamp", _is_moment),
)  # fmt: skip
"""What Spark guesses."""


def folder_columns(values: Iterable[Mapping[str, str | None]], guesses: Guesses = SIMPLE) -> tuple[Column, ...]:
    """The columns that folders say, each of the first type that fits all of its values; else they are texts.

    Args:
        values: of each file, as :func:`values_in_folders` gives them.
        guesses: the types.

    >>> folder_columns([{"n": "01", "day": "2024-01-01"}, {"n": None, "day": "2024-01-02"}])
    (Column(name='n', type='int', nullable=True), Column(name='day', type='date', nullable=True))
    """
    texts: dict[str, set[str]] = {}
    for said in values:
        for name, value in said.items():
            texts.setdefault(name, set()).update([] if value is None else [value])
    return tuple(Column(name, _guessed(found, guesses)) for name, found in texts.items())


def _guessed(texts: set[str], guesses: Guesses) -> str:
    return next((type for type, reads in guesses if texts and all(map(reads, texts))), "string")
