"""Which entries are joined: few remain, and no row is written often."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from layoutopt.maintenance.compaction import SMALL_SHARE, first_to_join


def after(rows: list[int], come: int) -> tuple[list[int], int]:
    """The entries once rows have come, and how many rows were written again for it."""
    rows = [*rows, come]
    first = first_to_join(rows)
    return (rows, 0) if first is None else ([*rows[:first], sum(rows[first:])], sum(rows[first:]))


@given(st.lists(st.integers(0, 1000), max_size=80))
def test_no_entry_is_much_smaller_than_what_came_later(sizes: list[int]) -> None:
    rows = [500]
    for size in sizes:
        rows, _ = after(rows, size)
        assert rows[0] == 500
        assert all(
            one > SMALL_SHARE * sum(rows[place + 1 :]) for place, one in enumerate(rows) if 0 < place < len(rows) - 1
        )
    assert sum(rows) == 500 + sum(sizes)


@given(st.integers(1, 300))
def test_appends_of_one_size_leave_few_entries_and_write_little_again(appends: int) -> None:
    rows, again = [10**6], 0
    for _ in range(appends):
        rows, written = after(rows, 7)
        again += written
    assert len(rows) - 1 <= 3 * math.log(appends, 4) + 1 + 1e-9
    assert again <= 7 * appends * math.log(appends, 4) + 1e-9


def test_twenty_appends_of_about_one_size_leave_a_few_entries() -> None:
    rows, again = [77_155], 0
    for number in range(20):
        rows, written = after(rows, 760 + 37 * (number * 7 % 5 - 2))
        again += written
    assert len(rows) <= 4
    assert again + 20 * 760 <= 0.03 * 20 * 77_155  # an append of 1 % writes at most 3 % of the partition's rows


def test_a_partition_of_its_own_is_not_joined_with_what_comes() -> None:
    assert first_to_join([]) is None
    assert first_to_join([5]) is None
    assert first_to_join([5, 100]) is None
    assert first_to_join([5, 100, 300]) == 1
