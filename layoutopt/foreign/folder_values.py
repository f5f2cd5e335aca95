"""What texts in the names of Hive-style folders, and in metadata of tables, are as values."""

from __future__ import annotations

from decimal import InvalidOperation
from typing import Final

import pyarrow as pa

from layoutopt.errors import SourceError
from layoutopt.model.schema import Column

UNNAMED: Final[tuple[str | None, ...]] = ()
"""In place of the names under which a file stores columns: they are those of its own footer."""


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
