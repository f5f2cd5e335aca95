"""What `advise` prints, and its page."""

from __future__ import annotations

import io
from html.parser import HTMLParser

from rich.console import Console

from layoutopt.report.advice import advice_page, print_advice
from tests.advise.figures import advice


def printed(recommends: bool) -> str:
    stream = io.StringIO()
    print_advice(Console(file=stream, width=160, highlight=False, markup=False), advice(recommends))
    return stream.getvalue()


def test_everything_that_was_asked_for_is_printed() -> None:
    text = printed(recommends=True)
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
    assert "do not change the table" in printed(recommends=False)


class Tags(HTMLParser):
    """The tags of a page, and whether each is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not {"src", "href"} & {name for name, _ in attrs}, "the page stands alone"
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_stands_alone_and_shows_texts_as_texts() -> None:
    for recommends in (True, False):
        page = advice_page(advice(recommends))
        parser = Tags()
        parser.feed(page)
        assert parser.open == []
        assert "kind = &#x27;&lt;b&gt;&#x27;" in page
        assert "ALTER TABLE events SET SORTED BY (day)" in page
