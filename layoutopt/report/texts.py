"""Format texts and numbers for people."""

from __future__ import annotations

# Escapes of characters that move a terminal's cursor or change its text direction.
_CONTROLS = {
    code: f"\\x{code:02x}"
    for code in (*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F), 0x2066, 0x2067)
}
_UNITS = ("B", "KB", "MB", "GB", "TB")


def printable(text: str) -> str:
    """Return an untrusted text with control characters escaped.

    >>> printable("\x1b[2Ja")
    '\\\\x1b[2Ja'
    """
    return text.translate(_CONTROLS)


def format_bytes(count: float) -> str:
    """Return a number of bytes with a unit.

    >>> format_bytes(900), format_bytes(1_234_567)
    ('900 B', '1.2 MB')
    """
    unit = 0
    while count >= 1000 and unit < len(_UNITS) - 1:
        count, unit = count / 1000, unit + 1
    return f"{count:.0f} {_UNITS[0]}" if unit == 0 else f"{count:.1f} {_UNITS[unit]}"


def shorten(text: str, length: int) -> str:
    """Shorten a text to a number of characters.

    >>> shorten("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= length else text[: length - 1] + "…"
