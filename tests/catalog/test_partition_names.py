"""Names of partitions: one each, the same as ever, and an instant that an older table has under a local time."""

from __future__ import annotations

from decimal import Decimal

import pytest

from layoutopt.catalog.partition_entry import Bounds, PartitionEntry
from layoutopt.catalog.partition_names import PartitionNames, PlainValue
from layoutopt.catalog.snapshot import Snapshot
from layoutopt.model.schema import Column, Schema
from layoutopt.model.values import Key

DAY = 86_400_000_000
LONG = "x" * 100


def entry(key: str, low: Key | None, high: Key | None, nulls: int | None = 0, rows: int = 5) -> PartitionEntry:
    return PartitionEntry(key, key, "p", "l", "b", rows, {"c": Bounds(low, high, nulls)}, {}, 0)


def snapshot(*entries: PartitionEntry) -> Snapshot:
    schema = Schema((Column("c", "timestamp"),))
    return Snapshot(1, None, "2026-01-01T00:00:00Z", "load", "l", schema, "c", entries)


@pytest.mark.parametrize(
    ("type", "value", "key", "scalar"),
    [
        ("date", 0, "1970-01-01", "1970-01-01"),
        ("date", -719162, "0001-01-01", "0001-01-01"),
        ("date", 2932896, "9999-12-31", "9999-12-31"),
        ("date", 2932897, "10000-01-01", "10000-01-01"),
        ("timestamp_ntz", DAY, "1970-01-02%2000%3A00%3A00", "1970-01-02T00:00:00"),
        ("timestamp_ntz", 5, "1970-01-01%2000%3A00%3A00.000005", "1970-01-01T00:00:00.000005"),
        ("timestamp", DAY, "1970-01-02T00%3A00%3A00Z", "1970-01-02T00:00:00Z"),
        ("string", "null", "null", "null"),
        ("string", None, "__null__", None),
        ("string", "__null__", "%5F_null__", "__null__"),
        ("string", "a=b", "a%3Db", "a=b"),
        ("boolean", False, "false", False),
        ("decimal(5,2)", Decimal("1.50"), "1.50", "1.50"),
        ("int", -1, "-1", -1),
    ],
)
def test_a_value_has_one_key_and_one_scalar(type: str, value: PlainValue, key: str, scalar: object) -> None:
    names = PartitionNames("c", type)
    assert (names.key(value), names.scalar(value)) == (key, scalar)


def test_a_table_without_partitions_has_one_key() -> None:
    names = PartitionNames.of(Schema((Column("c", "int"),)), None)
    assert (names.key(None), names.shown(None)) == ("all", "all rows")


@pytest.mark.parametrize(
    ("type", "value", "low", "high", "nulls", "same"),
    [
        ("date", 3, 3, 3, 0, True),
        ("date", 3, 3, 4, 0, False),
        ("date", 3, 4, 4, 0, False),
        ("date", 3, 3, 3, 1, False),
        ("date", 3, None, None, None, True),
        ("date", None, None, None, 5, True),
        ("date", None, 3, 3, 0, False),
        ("date", None, 3, 3, 4, False),
        ("boolean", True, 1, 1, 0, True),
        ("boolean", True, 0, 1, 0, False),
        ("decimal(5,2)", Decimal("1.50"), 150, 150, 0, True),
        ("decimal(5,2)", Decimal("1.50"), 15, 15, 0, False),
        ("string", "null", "null", "null", 0, True),
        ("string", "null", None, None, 5, False),
        ("string", LONG, LONG[:64], LONG[:63] + "y", 0, True),
        ("string", LONG, "y", "z", 0, False),
    ],
)
def test_what_was_measured_says_whose_rows_they_are(
    type: str, value: PlainValue, low: Key | None, high: Key | None, nulls: int | None, same: bool
) -> None:
    assert PartitionNames("c", type).fits_bounds(entry("k", low, high, nulls), value) == same


@pytest.mark.parametrize(
    ("type", "value", "low"),
    [
        ("date", 9000, 9000), ("timestamp_ntz", DAY, DAY), ("timestamp", DAY, DAY), ("int", -1, -1),
        ("boolean", True, 1),
        ("string", "a=b", "a=b"), ("string", "", ""),
    ],
)  # fmt: skip
def test_a_value_is_told_by_what_was_measured_of_its_rows(type: str, value: PlainValue, low: Key) -> None:
    names = PartitionNames("c", type)
    key = names.key(value)
    (told,) = names.value_of(entry(key, low, low))
    assert (told, told.__class__) == (value, value.__class__)
    unknown = [entry(key, low, low, nulls=None), entry(key, low, low, nulls=1), entry(key, low, low, rows=0)]
    assert [names.value_of(which) for which in (*unknown, entry("other", low, low))] == [()] * 4


OLDER = snapshot(entry("2021-10-31%2002%3A30%3A00", DAY, DAY), entry("__null__", None, None, 5))
STRINGS = PartitionNames("c", "string")


@pytest.mark.parametrize(
    ("names", "measured", "told"),
    [
        (STRINGS, entry("__null__", None, None, nulls=5), (None,)),
        (STRINGS, entry(STRINGS.key(LONG), LONG[:64], LONG[:63] + "y"), ()),  # cut
        (STRINGS, entry("a", "a", "b"), ()),
        (PartitionNames("c", "decimal(5,0)"), entry("150", 150, 150), ()),  # Spark gives a Decimal
        (PartitionNames(None), entry("all", 1, 2), (None,)),
        (PartitionNames.of(OLDER.schema, "c", OLDER), OLDER.partitions[0], (DAY,)),
    ],
)
def test_null_is_told_and_what_is_cut_or_of_another_type_is_not(
    names: PartitionNames, measured: PartitionEntry, told: tuple[PlainValue, ...]
) -> None:
    assert names.value_of(measured) == told


def test_an_instant_keeps_the_key_that_an_older_table_has_for_it() -> None:
    names = PartitionNames.of(OLDER.schema, "c", OLDER)
    keys = [names.key(value) for value in (DAY, 2 * DAY, None)]
    assert keys == ["2021-10-31%2002%3A30%3A00", "1970-01-03T00%3A00%3A00Z", "__null__"]
