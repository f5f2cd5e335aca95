"""The built-in methods by name, which of them `auto` tries and experiments compare; the default size of blocks."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

# The mean rows of a block by default. Ward's minSize follows from it.
DEFAULT_BLOCK_ROWS: Final = 10_000
# The default partitioner of a load: a short search from three starts.
DEFAULT_PARTITIONER: Final = "portfolio-low"
# The default size limit of a data file (docs/performance.md#load).
FILE_BYTES: Final = 32_000_000


class MethodTraits(NamedTuple):
    """Where a method takes part when the user names none.

    Attributes:
        trial: its place among the methods that ``auto`` tries, which takes the first of equals; 0 is not tried.
        compared: whether methods are compared with it by default.
    """

    trial: int = 0
    compared: bool = False


# Every list of methods is derived from this one; ``layoutopt.methods.registry`` has the function of each.
BUILT_IN: Final[Mapping[str, MethodTraits]] = MappingProxyType(
    {
        "sop": MethodTraits(trial=7, compared=True),
        "gsop": MethodTraits(trial=9, compared=True),
        "gsop-r": MethodTraits(),
        "input-order": MethodTraits(trial=1, compared=True),
        "sort": MethodTraits(compared=True),
        "range": MethodTraits(trial=2, compared=True),
        "zorder": MethodTraits(trial=3, compared=True),
        "hilbert": MethodTraits(trial=4, compared=True),
        "cuts": MethodTraits(trial=8),
        "qdtree": MethodTraits(trial=6, compared=True),
        "predicate-sort": MethodTraits(trial=5, compared=True),
    }
)

# The method that chooses among those with a ``trial``.
AUTO: Final = "auto"

CHOICES: Final = (*BUILT_IN, AUTO)
TRIED: Final = tuple(sorted((name for name in BUILT_IN if BUILT_IN[name].trial), key=lambda name: BUILT_IN[name].trial))
COMPARED: Final = (AUTO, *(name for name in BUILT_IN if BUILT_IN[name].compared))
