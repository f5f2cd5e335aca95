"""Typed access to untrusted JSON: every number and name read from a catalog file passes through here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from layoutopt.errors import CatalogError

LARGEST_INT64 = 2**63 - 1
LONGEST_PATH = 1024
_LOAD_ID = re.compile(r"[0-9a-z-]{1,128}")
_DIGEST = re.compile(r"[0-9a-f]{1,64}")


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


@dataclass(frozen=True)
class Fields:
    """The fields of one JSON object, read with their types; ``where`` names the file and place in messages.

    Every reader raises CatalogError where the field is missing, of another type or out of its range.
    """

    values: Mapping[str, Any]
    where: str

    @classmethod
    def of(cls, value: object, where: str) -> Fields:
        """The fields of a value that must be a JSON object."""
        if not isinstance(value, dict):
            raise CatalogError(f"{where} should be an object, not {short(value)}; restore the file from a copy")
        return cls(value, where)

    def _bad(self, name: str, wanted: str) -> CatalogError:
        found = short(self.values[name]) if name in self.values else "nothing"
        return CatalogError(f"{self.where} should have {wanted} as {name!r}, not {found}; restore the file from a copy")

    def text(self, name: str) -> str:
        """A non-empty text."""
        value = self.values.get(name)
        if not isinstance(value, str) or not value:
            raise self._bad(name, "a text")
        return value

    def optional_text(self, name: str) -> str | None:
        """A non-empty text, or null."""
        return None if self.values.get(name) is None else self.text(name)

    def count(self, name: str) -> int:
        """A whole number in 0 .. 2^63-1."""
        value = self.values.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LARGEST_INT64:
            raise self._bad(name, "a whole number from 0")
        return value

    def optional_count(self, name: str) -> int | None:
        """A whole number in 0 .. 2^63-1, or null."""
        return None if self.values.get(name) is None else self.count(name)

    def scalar(self, name: str) -> str | int | float | bool | None:
        """A JSON scalar; the field must be there."""
        value = self.values.get(name)
        if name not in self.values or not (value is None or isinstance(value, (str, int, float, bool))):
            raise self._bad(name, "a scalar")
        return value

    def path(self, name: str) -> str:
        """A path inside the table (see :func:`is_safe_path`)."""
        value = self.text(name)
        if not is_safe_path(value):
            raise self._bad(name, "a path inside the table")
        return value

    def load_id(self, name: str) -> str:
        """A load's identifier: ``[0-9a-z-]``."""
        return self._matching(name, _LOAD_ID, "a load id of 0-9, a-z and -")

    def digest(self, name: str) -> str:
        """A hexadecimal digest of at most 64 digits."""
        return self._matching(name, _DIGEST, "a hexadecimal digest")

    def _matching(self, name: str, pattern: re.Pattern[str], wanted: str) -> str:
        value = self.text(name)
        if not pattern.fullmatch(value):
            raise self._bad(name, wanted)
        return value

    def items(self, name: str) -> list[Any]:
        """A JSON list."""
        value = self.values.get(name)
        if not isinstance(value, list):
            raise self._bad(name, "a list")
        return value

    def mapping(self, name: str) -> dict[str, Any]:
        """A JSON object."""
        value = self.values.get(name)
        if not isinstance(value, dict):
            raise self._bad(name, "an object")
        return value


def short(value: object) -> str:
    """The value for a message, at most 60 characters of it."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
