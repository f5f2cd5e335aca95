"""Files of Parquet with days and times of the calendar that Spark had before version 3, by what their footers say.

Until 1582 that is the Julian calendar. Spark moves such values to the days of the same names when it reads them, and
times before 1900 to what clocks then showed; other readers take the stored numbers as they are.
"""

from __future__ import annotations

from collections.abc import Mapping

_VERSION = b"org.apache.spark.version"
_DATES = b"org.apache.spark.legacyDateTime"
_INT96 = b"org.apache.spark.legacyINT96"


def has_old_dates(said: Mapping[bytes, bytes] | None) -> bool:
    """Whether Spark moves a file's old dates and timestamps.

    Args:
        said: keys and values of its footer; None for none.

    >>> has_old_dates({b"org.apache.spark.version": b"2.4.8"}), has_old_dates({b"org.apache.spark.version": b"3.0.0"})
    (True, False)
    """
    return _is_old(said, _DATES, b"3.0.0")


def has_old_int96(said: Mapping[bytes, bytes] | None) -> bool:
    """Whether Spark moves a file's old timestamps that are stored as INT96; arguments as of :func:`has_old_dates`.

    >>> has_old_int96({b"org.apache.spark.version": b"3.0.0"}), has_old_int96(None)
    (True, False)
    """
    return _is_old(said, _INT96, b"3.1.0")


def _is_old(said: Mapping[bytes, bytes] | None, mark: bytes, since: bytes) -> bool:
    found = said or {}
    # Texts are compared, as Spark does.
    return mark in found or found.get(_VERSION, since) < since
