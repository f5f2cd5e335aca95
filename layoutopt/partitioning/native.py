"""Loops as machine code: one step after another, element by element."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar, cast

from layoutopt.errors import SettingError

# ----------------------------------------------------------------------------------------------------
# Loops over single elements as machine code, by numba: where each step depends on the last, arrays have no whole.

try:
    import numba
    from numba.core.caching import FunctionCache
except ImportError as error:  # an executor's Python may have numpy and pyarrow alone
    raise SettingError(
        f"the Python {sys.executable} has no numba that works, by which blocks are formed ({error}); install it there, "
        "or name a Python that has it by PYSPARK_PYTHON"
    ) from error

Loop = TypeVar("Loop", bound=Callable[..., Any])

_OPTIONS: Final[dict[str, Any]] = {
    "nogil": True,
    # Sums may be added in any order, several at once. Those of integers are the same in each, so that blocks are.
    "fastmath": {"contract", "nsz", "reassoc"},
}


class _Kept(FunctionCache):  # type: ignore[misc]
    """Compiled code on disk: what can't be read there is compiled anew, what can't be written is not kept."""

    def load_overload(self, sig: object, target_context: object) -> object:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # of a file that was cut short pickle raises whatever it likes
            with suppress(Exception):
                self.flush()
            return None

    def save_overload(self, sig: object, data: object) -> None:
        with suppress(Exception):
            super().save_overload(sig, data)


def part_of_a_loop(function: Loop) -> Loop:
    """The function as machine code that :func:`compiled` loops of its module call, and nobody else can.

    For a literal number among its arguments it is compiled once more: give ``np.int64(0)``. Loops compile sooner than
    what numpy does to whole arrays.
    """
    return cast(Loop, numba.njit(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, **_OPTIONS))


def compiled(loop: Loop) -> Loop:
    """The function as machine code, compiled when it is first called and kept beside its module, or in a user's cache.

    It must always be called with arguments of the same types: processes that compile at once for several may exchange
    what they keep. What it calls must be :func:`part_of_a_loop` in the same module, and whoever changes the options
    here must change that module too, or code that was kept goes on as it was. Other threads go on meanwhile.
    """
    made = numba.njit(loop, **_OPTIONS)
    with suppress(RuntimeError):  # nowhere may anything be written
        made._cache = _Kept(loop)
    return cast(Loop, made)
