"""Versions of the on-disk format, in four states."""

from __future__ import annotations

from typing import Literal

from layoutopt.catalog.fields import Count, read_field
from layoutopt.errors import CatalogError

FORMAT = "layoutopt-table"
FORMAT_VERSION = 3
"""The newest: rows may be deleted by vectors, which a reader that knows nothing of them would bring back."""

ENCRYPTED = 4
"""The version of an encrypted table's marker: programs that know nothing of keys see that the table is too new."""

SEVERAL_ENTRIES = 2
"""From this one on a partition may have several entries, and batches that were appended are listed."""

OLDEST_SUPPORTED = 1
"""The oldest that is read. It is written, too, where it can say all that there is: older programs then go on."""

VersionState = Literal["current", "supported", "unsupported", "too new"]


def version_state(version: int, current: int = FORMAT_VERSION, oldest: int = OLDEST_SUPPORTED) -> VersionState:
    """What this program makes of a format version: write and read it, only read it, or neither.

    >>> [version_state(v, current=3, oldest=2) for v in (1, 2, 3, 4)]
    ['unsupported', 'supported', 'current', 'too new']
    """
    if version == current:
        return "current"
    if version > current:
        return "too new"
    return "supported" if version >= oldest else "unsupported"


def check_version(version: object, where: str, current: int = FORMAT_VERSION, oldest: int = OLDEST_SUPPORTED) -> None:
    """Refuse versions that can't be read.

    Raises:
        CatalogError: the version is no number, unsupported or too new.
    """
    state = version_state(number := read_field(Count, version, f"the version of {where}"), current, oldest)
    if state == "too new":
        raise CatalogError(f"{where} has format version {number}, newer than {current}; install a newer layoutopt")
    if state == "unsupported":
        raise CatalogError(f"{where} has format version {number}, older than {oldest}; load the table again")
