"""Compile loops over single elements to machine code with numba, where array operations don't fit."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar, cast

from layoutopt.errors import SettingError

try:
    import numba
    from numba.core.caching import FunctionCache
except ImportError as error:  # an executor's Python may have only numpy and pyarrow
    raise SettingError(
        f"the Python {sys.executable} has no working numba, which forming blocks needs ({error}): install it there, "
        "or set PYSPARK_PYTHON to a Python that has it"
    ) from error

Loop = TypeVar("Loop", bound=Callable[..., Any])

_OPTIONS: Final[dict[str, Any]] = {
    "nogil": True,
    # Sums may be reordered. Those of integers are equal in any order, so blocks are equal, too.
    "fastmath": {"contract", "nsz", "reassoc"},
}


class _DiskCache(FunctionCache):  # type: ignore[misc]
    """A cache of compiled code on disk: unreadable entries are compiled again, unwritable ones are not kept."""

    def load_overload(self, sig: object, target_context: object) -> object:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # pickle may raise anything for a truncated file
            with suppress(Exception):
                self.flush()
            return None

    def save_overload(self, sig: object, data: object) -> None:
        with suppress(Exception):
            super().save_overload(sig, data)


def compile_loop_helper(function: Loop) -> Loop:
    """Compile a function that only :func:`compile_loop` loops of its module call.

    A literal number among its arguments compiles it once more: pass ``np.int64(0)``. Loops compile faster than numpy
    operations on whole arrays.
    """
    return cast(Loop, numba.njit(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, **_OPTIONS))


def compile_loop(loop: Loop) -> Loop:
    """Compile a loop on its first call and cache the code beside its module, or in the user's cache.

    Always call it with the same argument types: processes that compile at once for several types may mix up cached
    code. The loop may call only :func:`compile_loop_helper` functions of its module. After changing the options here,
    change that module too, or old cached code stays in use. The GIL is released.
    """
    function = numba.njit(loop, **_OPTIONS)
    with suppress(RuntimeError):  # no folder is writable
        function._cache = _DiskCache(loop)
    return cast(Loop, function)
