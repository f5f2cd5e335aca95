"""What stands for a Spark session where none may be asked for."""

from __future__ import annotations

from typing import NoReturn


def no_spark() -> NoReturn:
    """Fail where a session is made."""
    raise AssertionError("this needs no Spark")
