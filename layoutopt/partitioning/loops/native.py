"""Loops over single elements as machine code, by numba: where each step depends on the last, arrays have no whole."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from layoutopt.errors import SettingError

try:
    import numba
except ImportError as error:  # an executor's Python may have numpy and pyarrow alone
    raise SettingError(
        f"the Python {sys.executable} has no numba, by which blocks are formed; install it there, or name one that has "
        "it by PYSPARK_PYTHON"
    ) from error

Loop = TypeVar("Loop", bound=Callable[..., Any])

_ANY_ORDER: Final = {"contract", "nsz", "reassoc"}
"""Sums may be added in any order, several at once. Those of integers are the same in each, so that blocks are."""


def compiled(loop: Loop) -> Loop:
    """The function as machine code, compiled when it is first called and kept beside its module, or in a user's cache.

    Functions that it calls must be compiled ones of the same module, or a change of theirs would not be seen. Other
    threads go on meanwhile. Where nothing can be written, each process compiles for itself.
    """
    options: dict[str, Any] = {"nogil": True, "fastmath": _ANY_ORDER}
    try:
        return cast(Loop, numba.njit(loop, cache=True, **options))
    except RuntimeError:  # there is no folder that may be written
        return cast(Loop, numba.njit(loop, **options))
