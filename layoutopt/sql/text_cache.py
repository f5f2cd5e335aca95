"""A cache for functions of SQL texts, since dashboards repeat their queries."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, update_wrapper
from typing import Concatenate, Final, ParamSpec, TypeVar

# For one table or session. Its users cycle through hundreds of texts; a smaller LRU cache would never hit.
MOST_TEXTS: Final = 1_000
# Fewer texts are cached of those with more characters: a list of values may have megabytes.
_LONG_TEXT: Final = 5_000
_MAX_LONG_TEXTS: Final = 64

P = ParamSpec("P")
R = TypeVar("R")


def cache_by_text(function: Callable[Concatenate[str, P], R]) -> Callable[Concatenate[str, P], R]:
    """Return a function that caches results by its arguments, a text and hashable values; errors are not cached.

    >>> length = cache_by_text(lambda text: print("counting") or len(text))
    >>> length("SELECT 1"), length("SELECT 1")
    counting
    (8, 8)
    """
    short: Callable[..., R] = lru_cache(MOST_TEXTS)(function)
    long: Callable[..., R] = lru_cache(_MAX_LONG_TEXTS)(function)

    def look_up(text: str, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return (long if len(text) > _LONG_TEXT else short)(text, *args, **kwargs)

    return update_wrapper(look_up, function)
