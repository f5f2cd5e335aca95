"""Time zones by Spark's names, as far as Java's and Python's databases surely agree on what clocks showed."""

from __future__ import annotations

import datetime as dt
import re
from typing import Final
from zoneinfo import ZoneInfo

from layoutopt.sql.problems import Unusable

_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::(\d{2}))?", re.ASCII)
_FIXED: Final = frozenset({"UTC", "GMT", "UT", "Z", "Etc/UTC"})
_UTC_NAMES: Final = frozenset(
    {"UTC", "Etc/UTC", "Z", "GMT", "Etc/GMT", "UCT", "Etc/UCT", "Zulu", "Etc/Zulu", "Universal", "Etc/Universal"}
)
"""Names of one zone without offsets, whatever a machine's clock settings call it."""
_AGREED_FROM: Final = dt.datetime(2000, 1, 1)
"""Of earlier years releases of the database tell a hundred zones otherwise (the latest: WET in 1995): which zones were
merged, and which clocks of before 1970 are kept, is a choice of who builds it."""


def normal_zone(name: str) -> str:
    """Return one name for each zone: the many names of UTC are ``UTC``.

    >>> normal_zone("Etc/UTC"), normal_zone("Asia/Tokyo")
    ('UTC', 'Asia/Tokyo')
    """
    return "UTC" if name in _UTC_NAMES else name


def zone_of(name: str) -> dt.tzinfo:
    """The zone of a session's name: a region, or an offset as Spark writes them.

    Raises:
        Unusable: ``inexact``: it is not known here, as Java's short names are.

    >>> zone_of("+08:00") == zone_of("GMT+8") == dt.timezone(dt.timedelta(hours=8))
    True
    """
    if name in _FIXED:
        return dt.UTC
    offset = _OFFSET.fullmatch(name)
    try:
        if offset is None:
            return ZoneInfo(name)
        ahead = dt.timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
        return dt.timezone(ahead if offset[1] == "+" else -ahead)
    except (KeyError, OSError, ValueError) as error:
        raise Unusable("inexact", f"the clocks of the time zone {name!r} are not known here") from error


def is_agreed(local: dt.datetime, zone: dt.tzinfo) -> bool:
    """Whether every database says the same of a zone's clocks at a time without zone: fixed offsets, and of late."""
    return isinstance(zone, dt.timezone) or local >= _AGREED_FROM
