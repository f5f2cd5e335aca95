"""Whether tasks of ours read few of many small row groups sooner than Spark's own reader does.

Spark's reader decodes all of a file's footer, again for every query: where a file has many small row groups, that
takes longer than the few that a query reads of it. Tasks of ours know from the catalog where their column chunks are,
but have to be started, and each value goes through Arrow once more.

Seconds were measured on two cores of 2026; only their ratios count.
"""

from __future__ import annotations

from typing import Final

from layoutopt.inspect.work import work_of
from layoutopt.scan.reads import TableRead

_FOOTER_CHUNK: Final = 2.7e-6
"""Seconds in which Spark decodes what a footer says of one column chunk."""
_TASKS: Final = 0.06
"""Seconds until tasks of ours begin, and end."""
_FILE: Final = 1e-3
"""Seconds in which they open a file."""
_VALUE: Final = 20e-9
"""Seconds more for a value that they read."""

_KNOWN_SHARE: Final = 0.75
"""Of more of the files than this it has to be known where their chunks are; older versions' tables don't say."""


def are_read_by_tasks(read: TableRead) -> bool:
    """Whether the surviving rows of a read, each of one layout, are to be read by tasks of ours."""
    if read.table.catalog.data.local_root is None:  # of a store's files tasks of ours decode footers, too
        return False
    work = work_of(read.pruned)
    if work.footer_chunks * _FOOTER_CHUNK < _TASKS + work.files * _FILE + work.values * _VALUE:
        return False
    known = [file.chunks is not None for of in read.segments for layout in of.layouts for file in layout.files]
    return sum(known) > _KNOWN_SHARE * len(known)
