"""Columns that only the names of folders tell of (``day=2026-11-24/``), with the types that Spark guesses for them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from layoutopt.model.schema import Column

_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_INTEGER: Final = re.compile(r"[+-]?\d{1,19}")
_DOUBLE: Final = re.compile(r"[+-]?(\d+\.\d*|\.\d+|\d+)([eE][+-]?\d+)?")
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIMESTAMP: Final = re.compile(r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?")


def folder_columns(root: Path, files: Iterable[Path]) -> tuple[Column, ...]:
    """The columns of a folder's folders, in their order; none where files lie below folders of different names.

    Args:
        root: the folder.
        files: of Parquet below it.
    """
    told = [[part.partition("=") for part in file.relative_to(root).parts[:-1] if "=" in part] for file in files]
    names = {tuple(name for name, _, _ in parts) for parts in told}
    if len(names) != 1:
        return ()
    values = [{unquote(parts[place][2]) for parts in told} - {_NULL} for place in range(len(told[0]))]
    return tuple(Column(name, guessed_type(held)) for name, held in zip(names.pop(), values, strict=True))


def guessed_type(values: Iterable[str]) -> str:
    """The type that Spark guesses for the values of a folder's column.

    >>> guessed_type({"7", "08"}), guessed_type({"2026-11-24"}), guessed_type({"2026-11-24", "7"})
    ('int', 'date', 'string')
    """
    types = {_type_of(value) for value in values}
    if len(types) == 1:
        return types.pop()
    if types == {"int", "bigint"}:
        return "bigint"
    if types and types <= {"int", "bigint", "double"}:
        return "double"
    return "timestamp" if types == {"date", "timestamp"} else "string"


def _type_of(value: str) -> str:
    if _INTEGER.fullmatch(value) and -(2**63) <= int(value) < 2**63:
        return "int" if -(2**31) <= int(value) < 2**31 else "bigint"
    if _DOUBLE.fullmatch(value):
        return "double"
    if _TIMESTAMP.fullmatch(value):
        return "timestamp"
    if not _DATE.fullmatch(value):
        return "string"
    try:
        date.fromisoformat(value)
    except ValueError:
        return "string"
    return "date"
