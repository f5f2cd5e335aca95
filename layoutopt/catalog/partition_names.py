"""The names of partitions: keys in paths and snapshots, made from plain values.

A *plain* value is a partition value in Python: None for NULL, a bool, a str, a Decimal, an int for whole numbers; days
since 1970 for a date, microseconds since 1970 for both timestamps (in UTC, or in no zone). So no value is mistaken for
another one, or for one in another time zone. Names are made from values and never parsed.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

import numpy as np

from layoutopt.catalog.partition_entry import PartitionEntry, Scalar
from layoutopt.catalog.paths import NULL_PARTITION, WHOLE, partition_key
from layoutopt.catalog.snapshot import Snapshot
from layoutopt.catalog.statistics import MAX_TEXT
from layoutopt.errors import SettingError
from layoutopt.model.schema import Schema
from layoutopt.model.types import INTEGER_BITS
from layoutopt.model.values import to_key

PlainValue = bool | int | Decimal | str | None

_TIMES = ("timestamp", "timestamp_ntz")
# Texts for NULL: in the names of Hive's folders, and in layoutopt's keys. Of other types no value is called "null".
_NULLS = frozenset({"__HIVE_DEFAULT_PARTITION__", NULL_PARTITION})


@dataclass(frozen=True)
class PartitionNames:
    """The names of one table's partitions.

    Attributes:
        column: the partition column, None where the table has no partitions.
        type: the column's Spark type.
        older: keys by instant, in a table whose keys were made in the loader's time zone by an older version.
    """

    column: str | None
    type: str = "string"
    older: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, schema: Schema, column: str | None, snapshot: Snapshot | None = None) -> PartitionNames:
        """Return the names under a schema, including those in a snapshot."""
        if column is None:
            return cls(None)
        type = schema.find(column).type
        entries = () if snapshot is None or type != "timestamp" else snapshot.partitions
        instants = {entry.key: _find_instant(entry, column) for entry in entries}
        return cls(column, type, {instant: key for key, instant in instants.items() if instant is not None})

    def key(self, value: PlainValue) -> str:
        """Return a partition's key: safe in any path, and unique to the value."""
        if self.column is None:
            return WHOLE
        if self.type == "timestamp" and isinstance(value, int) and value in self.older:
            return self.older[value]
        return partition_key(self._spell(value, " "))

    def scalar(self, value: PlainValue) -> Scalar:
        """Return the value as in a snapshot's JSON: dates, times and decimals as text."""
        spelled = self._spell(value, "T")
        return str(spelled) if isinstance(spelled, Decimal) else spelled

    def shown(self, value: PlainValue) -> str:
        """Return the value for messages: ``day=1994-01-01``."""
        return "all rows" if self.column is None else f"{self.column}={self.scalar(value)}"

    def fits_bounds(self, entry: PartitionEntry, value: PlainValue) -> bool:
        """Return whether the measured bounds of an entry's rows fit the value."""
        if self.column is None or entry.rows == 0 or self.column not in entry.bounds:
            return True
        bounds = entry.bounds[self.column]
        if value is None:
            return bounds.nulls in (None, entry.rows)
        if bounds.nulls:
            return False
        if bounds.low is None or bounds.high is None:
            return True
        key = value if self.type in ("date", *_TIMES) else to_key(value, self.type)
        if isinstance(key, str) and len(key) > MAX_TEXT:  # whose bounds are rounded outwards
            return str(bounds.low) <= key <= str(bounds.high)
        return bounds.low == bounds.high == key

    def value_of(self, entry: PartitionEntry) -> tuple[PlainValue, ...]:
        """Return the value of an entry's rows by their bounds, in a tuple; empty where bounds and key don't tell it."""
        if self.column is None:
            return (None,)
        bounds = entry.bounds.get(self.column)
        if bounds is None or not entry.rows or bounds.nulls is None or self.type.startswith("decimal"):
            return ()
        value: PlainValue = None
        if bounds.nulls != entry.rows:
            if bounds.nulls or bounds.low != bounds.high or not isinstance(bounds.low, int | str):
                return ()
            value = bool(bounds.low) if self.type == "boolean" else bounds.low
        return (value,) if self.key(value) == entry.key else ()

    def values_of(self, entries: Sequence[PartitionEntry]) -> dict[str, PlainValue] | None:
        """Return the values of some entries by their partitions' keys; None where one is unknown."""
        by_key = {entry.key: value for entry in entries for value in self.value_of(entry)}
        return by_key if len(by_key) == len({entry.key for entry in entries}) else None

    def _spell(self, value: PlainValue, between: str) -> PlainValue:
        if value is None or not isinstance(value, int) or isinstance(value, bool):
            return value
        if self.type == "date":
            return str(np.datetime64(value, "D"))
        if self.type not in _TIMES:
            return value
        text = str(np.datetime64(value, "us")).removesuffix(".000000")
        # An instant says so: it is another text than the local times that older tables have for keys.
        return f"{text}Z" if self.type == "timestamp" else text.replace("T", between)


def _find_instant(entry: PartitionEntry, column: str) -> int | None:
    """Return the one instant of all rows of an entry by their bounds; None where unknown."""
    bounds = entry.bounds.get(column)
    if bounds is None or bounds.nulls != 0 or bounds.low != bounds.high or not isinstance(bounds.low, int):
        return None
    return bounds.low


def null_first_key(value: PlainValue) -> tuple[bool, PlainValue]:
    """Return a key that sorts partition values, NULL first."""
    return value is not None, value if value is not None else 0


def parse_request(request: object, partition_by: str, is_text: bool) -> str | None:
    """Return the text of the value that ``--partition`` requests: ``o_year=1994``, or just ``1994``; None for NULL.

    NULL is ``o_year=__null__`` (or Hive's name for it; ``o_year=null`` in columns where no value is called so, all but
    texts). ``kind:="..."`` has a JSON string, for texts that would be read as something else. A request that is not a
    text stands for its text, None for NULL.

    Raises:
        SettingError: the text names another column, or has no JSON where it should.

    >>> parse_request("day=2026-01-31", "day", False), parse_request('kind:="a=b"', "kind", True)
    ('2026-01-31', 'a=b')
    """
    if not isinstance(request, str):
        return None if request is None else str(request)
    name, operator, value = _split_request(request, partition_by)
    if operator == ":=":
        try:
            text = json.loads(value)
        except ValueError:
            text = False
        if text is None or isinstance(text, str):
            return text
        raise SettingError(f"--partition {request!r} has no text in quotes behind :=, nor null; write it as JSON")
    if operator == "=" and name.strip().lower() != partition_by.lower():
        raise SettingError(f"the table is partitioned by {partition_by}, not {name!r}; write {partition_by}={value}")
    return None if value in _NULLS or (value.lower() == "null" and not is_text) else value


def _split_request(request: str, partition_by: str) -> tuple[str, str, str]:
    """Return name, operator and value; the first two are empty for a value alone. A name may contain an ``=``."""
    for operator in ("=", ":="):
        start = f"{partition_by}{operator}"
        if request[: len(start)].lower() == start.lower():
            return partition_by, operator, request[len(start) :]
    name, equals, value = request.partition("=")
    return (name, equals, value) if equals else ("", "", request)


def no_partitions(request: object) -> SettingError:
    """Return the error for a partition that is requested of a table without partitions."""
    return SettingError(f"the plan has no partitions, but {request!r} is requested; leave --partition out")


def no_partition_range() -> SettingError:
    """Return the error for a range of partitions of a table without partitions."""
    return SettingError("the plan has no partitions, but a range of them is requested; leave --from and --to out")


_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})")
_NUMBERED_TYPES: Final = ("date", *_TIMES, *INTEGER_BITS)


def parse_plain_value(text: str, type: str, flag: str) -> PlainValue:
    """Return the plain value of a text after a flag, in a form that Spark reads alike; raises SettingError.

    >>> parse_plain_value("2026-01-31", "date", "--from ")
    20484
    """
    if type == "string":
        return text
    stripped, form = text.strip(), f"{flag}VALUE"
    if type == "date":
        form = f"{flag}2026-01-31"
        if match := _DATE.fullmatch(stripped):
            with suppress(ValueError):  # as of February 30
                return (dt.date(*map(int, match.groups())) - dt.date(1970, 1, 1)).days
    elif type in INTEGER_BITS and _INTEGER.fullmatch(stripped):
        value, bound = int(stripped), 1 << INTEGER_BITS[type] - 1
        if -bound <= value < bound:
            return value
    raise wrong_partition_value(text, type, form)


def parse_requests(requests: Sequence[object], by: str, type: str) -> dict[PlainValue, None]:
    """Return the values that ``--partition`` requests, in order; SettingError for a text that is no value."""
    texts = [parse_request(request, by, type == "string") for request in requests]
    return {None if text is None else parse_plain_value(text, type, f"--partition {by}="): None for text in texts}


def parse_range(first: str | None, last: str | None, type: str) -> Callable[[PlainValue], bool]:
    """Return whether a value lies between two ends, None for open; NULL never does. SettingError as above."""
    ends = (("--from ", first), ("--to ", last))
    low, high = (None if text is None else parse_plain_value(text, type, flag) for flag, text in ends)

    def is_between(value: PlainValue) -> bool:
        return value is not None and (low is None or low <= value) and (high is None or value <= high)  # type: ignore[operator]

    return is_between


def parse_selection(
    names: PartitionNames, requests: Sequence[object], first: str | None, last: str | None
) -> Callable[[PlainValue], bool]:
    """Return whether a value may be requested, or lie in the range; any may, where only Spark reads the texts."""
    with suppress(SettingError):
        if names.column is not None and requests:
            return parse_requests(requests, names.column, names.type).__contains__
        if names.column is not None and (first, last) != (None, None):
            return parse_range(first, last, names.type)
    return lambda value: True


def check_requests(
    names: PartitionNames, requests: Sequence[object], first: str | None = None, last: str | None = None
) -> None:
    """Check requested partitions before a source is opened; texts that Spark may understand pass.

    Raises:
        SettingError: the table has no partitions, a text names another column or surely is no value of the column, or
            the range is empty.
    """
    by, type = names.column, names.type
    if by is None:
        if requests:
            raise no_partitions(requests[0])
        if first is not None or last is not None:
            raise no_partition_range()
        return
    for request in requests:
        _check_value(parse_request(request, by, type == "string"), type, f"--partition {by}=")
    ends = [_check_value(text, type, flag) for flag, text in (("--from ", first), ("--to ", last))]
    if None not in ends and ends[0] > ends[1]:  # type: ignore[operator]  # of one type
        raise SettingError(f"--from {first} is after --to {last}, so no partition is between them; exchange them")


def _check_value(text: str | None, type: str, flag: str) -> PlainValue:
    """Return the value of a text; None if only Spark can read it."""
    try:
        return None if text is None else parse_plain_value(text, type, flag)
    except SettingError:
        is_read = type == "date" and _DATE.fullmatch(str(text).strip())
        if is_read or (type in _NUMBERED_TYPES and not any(map(str.isdigit, str(text)))):
            raise
        return None


def wrong_partition_value(text: str, type: str, form: str) -> SettingError:
    """Return the error for a text that is no value of the partition column's type; ``form`` is what to write."""
    return SettingError(f"{text!r} is no {type}; write {form} with a value of that type")
