"""Paths that Spark would take for patterns of many."""

from __future__ import annotations

import re
from typing import Final

_SPECIAL: Final = re.compile(r"([*?\[\]{}\\])")


def is_pattern(path: str) -> bool:
    """Whether Spark reads a path as a pattern, which may mean other files."""
    return _SPECIAL.search(path) is not None


def as_no_pattern(path: str) -> str:
    r"""What Spark is given to read just the file or folder of that path.

    >>> print(as_no_pattern("/tables/ev[1]?/a.parquet"))
    /tables/ev\[1\]\?/a.parquet
    """
    return _SPECIAL.sub(r"\\\1", path)
