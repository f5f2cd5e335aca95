"""The check before a commit names what differs."""

from __future__ import annotations

import pytest

from layoutopt.catalog.load_check import Content, check_content
from layoutopt.errors import ContentMismatchError

SOURCE = Content(3, {"a": 10, "b": 20, "c": 30})


def test_equal_contents_pass() -> None:
    check_content(SOURCE, Content(3, {"c": 30, "b": 20, "a": 10}), "partition 1994")


def test_the_columns_that_differ_are_named_and_only_those() -> None:
    with pytest.raises(ContentMismatchError, match=r"partition 1994 differs from the source in b, c;"):
        check_content(SOURCE, Content(3, {"a": 10, "b": 21, "c": 0}), "partition 1994")


def test_lost_or_doubled_rows_are_noticed_before_the_checksums() -> None:
    with pytest.raises(ContentMismatchError, match="3 rows in the source but 4 were written"):
        check_content(SOURCE, Content(4, SOURCE.sums), "partition 1994")


@pytest.mark.parametrize("sums", [{"a": 10, "b": 20}, {**SOURCE.sums, "d": 0}])
def test_a_column_on_one_side_only_differs(sums: dict[str, int]) -> None:
    with pytest.raises(ContentMismatchError, match=r"in [cd];"):
        check_content(SOURCE, Content(3, sums), "partition 1994")
