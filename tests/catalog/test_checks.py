"""The check before a commit names what differs."""

from __future__ import annotations

import pytest

from layoutopt.catalog.load_check import Content, check_content
from layoutopt.errors import ContentMismatchError

SOURCE = Content(3, {"a": 10, "b": 20, "c": 30})


def test_equal_contents_pass() -> None:
    check_content(SOURCE, Content(3, {"c": 30, "b": 20, "a": 10}), "partition 1994")


@pytest.mark.parametrize(
    ("rows", "sums", "message"),
    [
        (3, {"a": 10, "b": 21, "c": 0}, r"partition 1994 differs from the source in b, c;"),
        (4, SOURCE.sums, "3 rows in the source but 4 were written"),
        (3, {"a": 10, "b": 20}, "in c;"),
        (3, {**SOURCE.sums, "d": 0}, "in d;"),
    ],
)
def test_what_differs_is_named_rows_before_checksums(rows: int, sums: dict[str, int], message: str) -> None:
    with pytest.raises(ContentMismatchError, match=message):
        check_content(SOURCE, Content(rows, sums), "partition 1994")
