"""Choosing among the values of a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def spread(values: Sequence[T], count: int) -> list[T]:
    """At most ``count`` of the values, spread evenly.

    >>> spread([1992, 1993, 1994, 1995, 1996, 1997, 1998], 3)
    [1993, 1995, 1997]
    """
    count = min(len(values), count)
    return [values[(2 * i + 1) * len(values) // (2 * count)] for i in range(count)]
