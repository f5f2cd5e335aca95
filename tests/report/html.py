"""A check that every HTML page passes."""

from __future__ import annotations

from html.parser import HTMLParser

# Attributes by which a browser fetches something.
FETCHING = {"src", "href", "xlink:href", "srcset", "data", "action"}


def check_page(page: str) -> None:
    """Assert that every tag is closed, and that the page needs no other file and no script."""
    tags = _Tags()
    tags.feed(page)
    assert tags.open == []


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "img", "iframe")
        assert not [value for name, value in attrs if name in FETCHING and not (value or "").startswith("#")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, (tag, self.open[-3:])
