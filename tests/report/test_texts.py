"""Texts and numbers as people read them."""

from __future__ import annotations

from layoutopt.report.texts import format_bytes


def test_bytes_are_readable() -> None:
    assert [format_bytes(count) for count in (0, 999, 1000, 5e15)] == ["0 B", "999 B", "1.0 KB", "5000.0 TB"]
