"""What is found in a SQL text is remembered, since a dashboard's texts come again and again."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, update_wrapper
from typing import Concatenate, Final, ParamSpec, TypeVar

MOST_TEXTS: Final = 1_000
"""Of one table or session: its users ask hundreds in turns, and of more than are remembered none would be."""

_LONG: Final = 5_000
_MOST_LONG: Final = 64
"""Of texts of more characters fewer are remembered: a list of values may have megabytes."""

P = ParamSpec("P")
R = TypeVar("R")


def remembered(function: Callable[Concatenate[str, P], R]) -> Callable[Concatenate[str, P], R]:
    """A function of a text, and of other things that can be hashed, that remembers what it gave; not what it raised.

    >>> length = remembered(lambda text: print("counting") or len(text))
    >>> length("SELECT 1"), length("SELECT 1")
    counting
    (8, 8)
    """
    short: Callable[..., R] = lru_cache(MOST_TEXTS)(function)
    long: Callable[..., R] = lru_cache(_MOST_LONG)(function)

    def look_up(text: str, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return (long if len(text) > _LONG else short)(text, *args, **kwargs)

    return update_wrapper(look_up, function)
