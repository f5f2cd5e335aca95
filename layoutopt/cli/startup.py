"""Shorten the start and the end of short commands."""

from __future__ import annotations

import atexit
import gc
import os
import sys

# With Python's default, imports alone cause dozens of collections.
_OBJECTS_BETWEEN_COLLECTIONS = 50_000


def start_quickly() -> None:
    """Save a third of a short command's time. Call it before numpy is imported, and only in an own process.

    Imports create objects but no garbage, so fewer garbage collections suffice. OpenBLAS gets one thread, since a
    thread for each core would spin without work.
    """
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    atexit.unregister(freeze_objects)
    atexit.register(freeze_objects)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def freeze_objects() -> None:
    """Exempt the objects loaded so far from garbage collection; the one at exit takes a fifth of the time.

    Do nothing once DuckDB is loaded, which reports objects left at exit on stderr.
    """
    if "duckdb" not in sys.modules:
        gc.freeze()
