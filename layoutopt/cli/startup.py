"""Keeping short commands short: what would be imported for nothing."""

from __future__ import annotations

import atexit
import gc
import os
import sys

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
