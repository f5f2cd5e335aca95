"""Keeping short commands short: what would be imported for nothing."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

_UNWANTED = "pandas"
_OBJECTS_BETWEEN_COLLECTIONS = 50_000


def start_quickly() -> None:
    """Spare a short command what takes a third of its time; for whoever owns the process, before numpy is imported.

    Modules make many objects and no garbage, for which Python looks dozens of times all the same, and once more among
    all of them when it ends. And numpy's linear algebra starts a thread for each core, which then wait for work by
    going in circles; reading has none for them.
    """
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    atexit.unregister(keep_what_is_loaded)
    atexit.register(keep_what_is_loaded)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def keep_what_is_loaded() -> None:
    """Don't look for garbage among what a short command has loaded by now: not even when it ends, which takes a fifth.

    Nothing is done once DuckDB is loaded, which says on stderr which of its objects are left at the end.
    """
    if "duckdb" not in sys.modules:
        gc.freeze()


class _Absent:
    """Says of pandas that it is not installed, to the thread that made it."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Part of Python's import: None leaves the search to others."""
        if name == _UNWANTED and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"{name} is not looked for here", name=name)


class _Later:
    """Tells pyarrow of pandas once that is imported."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Part of Python's import: finds what others find, and adds a step to the end of its loading."""
        if name != _UNWANTED:
            return None
        with suppress(ValueError):  # another thread's import has just done that
            sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def load_and_tell(module: ModuleType) -> None:
            load(module)
            _look_again()

        spec.loader.exec_module = load_and_tell  # type: ignore[method-assign]
        return spec


def spare_pandas() -> None:
    """Let pyarrow ask for pandas now and be told that there is none; it is told better once somebody imports pandas.

    It asks once, when it makes its first array or scalar, to see whether what it was given is of pandas. Where that is
    installed, that one question imports it, which takes as long as all the rest of a short query. As long as nobody has
    imported pandas, nothing can be of it.
    """
    if _UNWANTED in sys.modules or any(isinstance(finder, _Later) for finder in sys.meta_path):
        return
    import pyarrow as pa

    absent = _Absent()
    sys.meta_path.insert(0, absent)
    try:
        pa.scalar(0)
    finally:
        sys.meta_path.remove(absent)
    sys.meta_path.insert(0, _Later())


def _look_again() -> None:
    """Have pyarrow look for pandas, now that it is there: what converts to it does."""
    import pyarrow as pa

    with suppress(ImportError):  # too old for pyarrow, which has warned of that
        pa.nulls(0).to_pandas()
