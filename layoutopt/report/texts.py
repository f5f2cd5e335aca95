"""Texts and numbers in the form that people read."""

from __future__ import annotations

from collections.abc import Mapping

_CONTROLS = {
    code: f"\\x{code:02x}"
    for code in (*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F), 0x2066, 0x2067)
}


_UNITS = ("B", "KB", "MB", "GB", "TB")


def printable(text: str) -> str:
    """A text of somebody else's without what moves a terminal's cursor or turns its direction.

    >>> printable("\x1b[2Ja")
    '\\\\x1b[2Ja'
    """
    return text.translate(_CONTROLS)


def format_bytes(count: float) -> str:
    """A number of bytes as people read it.

    >>> format_bytes(900), format_bytes(1_234_567)
    ('900 B', '1.2 MB')
    """
    place = 0
    while count >= 1000 and place < len(_UNITS) - 1:
        count, place = count / 1000, place + 1
    return f"{count:.0f} {_UNITS[0]}" if place == 0 else f"{count:.1f} {_UNITS[place]}"


def shortened(text: str, most: int) -> str:
    """A text of at most so many characters.

    >>> shortened("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= most else text[: most - 1] + "…"


def seconds_text(seconds: Mapping[str, float]) -> str:
    """Seconds by engine, for people.

    >>> seconds_text({"duckdb": 0.0123, "spark": 4.5})
    'duckdb 0.012 s, spark 4.5 s'
    """
    return ", ".join(f"{engine} {each:,.2g} s" for engine, each in seconds.items())
