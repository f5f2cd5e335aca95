"""What `advise` prints, and its page."""

from __future__ import annotations

from html import unescape

import pytest

from layoutopt.report.advice import advice_page, print_advice
from tests.advised import advice
from tests.report.html import check_page
from tests.report.printing import printed


def test_everything_that_was_asked_for_is_printed() -> None:
    text = printed(print_advice, advice(), width=160)
    for said in (
        "1,000,000 rows in 8 files of 10.0 GB, partitioned by year; 1,234 queries (3 statements could not be used)",
        "80.0%",
        "day, kind",
        "(no filter)",
        "~20.0 GB",
        "sort by day",
        "Recommended: gsop, which would read 10.0 GB and save 0.35 a month",
        "layoutopt analyze 'my log.jsonl' --schema events.parquet -o features.json",
        "--partition-by year --block-rows 10000 --method gsop --row-order kind -o plan.json",
        "ducklake: ALTER TABLE events SET SORTED BY (day)",
        "costs 0.15 a month more than the best layout",
        "row groups of 10,000 rows",
    ):
        assert said in text, said


def test_a_table_that_is_well_as_it_is_stays_so() -> None:
    assert "do not change the table" in printed(print_advice, advice(recommends=False))


@pytest.mark.parametrize("recommends", [True, False])
def test_the_page_of_an_advice_stands_alone_and_shows_texts_as_texts(recommends: bool) -> None:
    page = advice_page(advice(recommends))
    check_page(page)
    assert "kind = '<b>'" in unescape(page)
    assert "<b>'" not in page
    assert "ALTER TABLE events SET SORTED BY (day)" in page
