"""Types of what stands in catalog files, which anybody may have written: each is read only within its range."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Annotated, Any

from layoutopt.errors import CatalogError
from layoutopt.model.records import As, read

LONGEST_PATH = 1024


def is_safe_path(path: str) -> bool:
    """Whether a path stays inside the table: relative, not endless, no ``..``, scheme, backslash or control character.

    >>> is_safe_path("data/1994/l1/layout-0/0-a.parquet")
    True
    >>> [is_safe_path(p) for p in ("/etc/passwd", "a/../b", "s3://b/k", "a//b", "")]
    [False, False, False, False, False]
    """
    if (
        not 0 < len(path) <= LONGEST_PATH
        or path.startswith("~")
        or "\\" in path
        or ":" in path
        or not path.isprintable()
    ):
        return False
    return all(part not in ("", ".", "..") for part in path.split("/"))


def _only(accepts: Callable[[Any], object], wanted: str) -> Callable[[Any], Any]:
    def only(value: Any) -> Any:
        if not accepts(value):
            raise ValueError(f"it should be {wanted}")
        return value

    return only


def _is_utc(text: str) -> bool:
    return datetime.fromisoformat(text).utcoffset() == timedelta(0)


Count = Annotated[int, As(int, _only(lambda number: 0 <= number < 2**63, "a whole number in 0 .. 2^63-1"))]
Text = Annotated[str, As(str, _only(bool, "a text that is not empty"))]
SafePath = Annotated[str, As(str, _only(is_safe_path, "a path inside the table"))]
PartitionKey = Annotated[
    str, As(str, _only(lambda key: is_safe_path(key) and not set(key) & set("/="), "a name that is safe in any path"))
]
LoadId = Annotated[str, As(str, _only(re.compile(r"[0-9a-z-]{1,128}").fullmatch, "a load id of 0-9, a-z and -"))]
Digest = Annotated[str, As(str, _only(re.compile(r"[0-9a-f]{1,64}").fullmatch, "a hexadecimal digest"))]
UtcTime = Annotated[str, As(str, _only(_is_utc, "a time in UTC"))]


def read_field(kind: Any, value: object, where: str) -> Any:
    """A JSON value as a value of a type, as :func:`~layoutopt.model.records.read`; ``where`` names the file.

    Raises:
        CatalogError: it is no such value.
    """
    try:
        return read(kind, value, where)
    except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
        raise CatalogError(f"{error}; restore the file from a copy or load again") from error
