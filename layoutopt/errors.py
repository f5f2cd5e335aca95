"""Every error that layoutopt raises on purpose.

::

    LayoutoptError                something failed (exit 1): another try may succeed
    ├── InputError                bad usage or bad input (exit 2): another try will fail too
    │   ├── SettingError          a setting or flag has a bad value
    │   ├── LogError              a query log can't be used (empty, unreadable, no usable query)
    │   ├── SchemaError           a schema, column or type is unknown, or differs from the plan's
    │   ├── PlanError             a features or plan document can't be used
    │   ├── EncryptionKeyError    the key of an encrypted table can't be had, or is another one
    │   ├── EncryptedTableError   what is asked for can't be done without showing an encrypted table's rows
    │   ├── QueryError            a SQL text can't be used on a table
    │   ├── PublicationError      a table can't be shown at a place, or as a table of another format
    │   └── SourceError           a source can't be read (missing, truncated, not Parquet)
    │       └── MissingPartitionError  the source has no rows (yet) for a partition (exit 1)
    ├── NeedsSparkError           what is asked for can't be done without Spark; caught, and done with it
    ├── WorkerLostError           a process that did a part of the work was killed
    └── TableError                the table itself
        ├── NotATableError        the path holds something else, or nothing
        │   └── SourceIndexError    the path holds the indexes of files that somebody else keeps
        ├── CatalogError          a catalog file is missing, damaged or of an unknown version
        │   └── NoSnapshotError     the table has no snapshot of that number, or as old (exit 2)
        ├── DataFileError         a data file is missing or damaged
        ├── CommitConflictError   somebody else committed the same partition first (exit 3)
        │   └── AlreadyLoadedError  the partition holds other rows, or another plan's; replace it if that is meant
        ├── SkippingError         a scan would skip rows that match; found where skipping is checked
        ├── StalePlanError        the queries that people run now skip much less than those of the plan
        ├── ContentMismatchError  rows or checksums differ from the source: the commit is refused
        └── BoundError            a bound (memory, vectors, rows) would be exceeded; names the setting

Each message is one sentence that names the offending value and what to do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager


class LayoutoptError(Exception):
    """The root: everything that layoutopt raises on purpose."""

    exit_code = 1


class InputError(LayoutoptError):
    """Bad usage or bad input."""

    exit_code = 2


class SettingError(InputError):
    """A setting or flag has a bad value."""


class LogError(InputError):
    """A query log can't be used."""


class SchemaError(InputError):
    """A schema, column or type is unknown, or differs from the plan's."""


class PlanError(InputError):
    """A features or plan document can't be used."""


class EncryptionKeyError(InputError):
    """The key of an encrypted table can't be had, or is another one than it was encrypted by."""


class EncryptedTableError(InputError):
    """What is asked for would show an encrypted table's rows to who has no key."""


class QueryError(InputError):
    """A SQL text can't be used on a table."""


class PublicationError(InputError):
    """A table can't be shown at a place, or as a table of another format."""


class SourceError(InputError):
    """A source can't be read."""


class MissingPartitionError(SourceError):
    """The source has no rows for a partition that was asked for; they may come."""

    exit_code = 1


class NeedsSparkError(LayoutoptError):
    """What is asked for can't be done without Spark, or not surely as Spark does it; who catches this starts it."""


class WorkerLostError(LayoutoptError):
    """A process that did a part of the work was killed."""


class TableError(LayoutoptError):
    """The table itself is the trouble."""


class NotATableError(TableError):
    """The path holds something else than a layoutopt table, or nothing."""

    exit_code = 2


class SourceIndexError(NotATableError):
    """The path holds the indexes of files that somebody else keeps; ``source`` names these."""

    def __init__(self, message: str, source: str = "") -> None:
        super().__init__(message)
        self.source = source


class CatalogError(TableError):
    """A catalog file is missing, damaged or of an unknown version."""


class NoSnapshotError(CatalogError):
    """The table has no snapshot of that number, or none as old as was asked for."""

    exit_code = 2


class DataFileError(TableError):
    """A data file is missing or damaged."""


class CommitConflictError(TableError):
    """Somebody else committed the same partition first."""

    exit_code = 3


class AlreadyLoadedError(CommitConflictError):
    """The table's partition holds other rows, or another plan's; nothing replaces it unless that is asked for."""


class SkippingError(TableError):
    """A scan would skip rows that match: the catalog is wrong, or layoutopt is."""


class StalePlanError(TableError):
    """The queries that people run now skip much less than those that the plan was made for."""


class ContentMismatchError(TableError):
    """Rows or checksums differ from the source: the commit is refused."""


class BoundError(TableError):
    """A bound would be exceeded; the message names the setting."""


def interrupt_behind(error: BaseException | None) -> KeyboardInterrupt | None:
    """The Ctrl-C that led to an error, None where there was none.

    Spark's own clean-up of a query that is interrupted fails, and what it raises hides the interruption.
    """
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error


_CARRIED = re.compile(r"layoutopt-error:(\{.*?\}):end", re.DOTALL)


def carried(error: LayoutoptError) -> RuntimeError:
    """An error whose text, inside whatever another process makes of it, :func:`recovered` finds again."""
    payload = json.dumps({"kind": type(error).__name__, "message": str(error)})
    return RuntimeError(f"layoutopt-error:{payload}:end")


@contextmanager
def carrying() -> Iterator[None]:
    """Raises layoutopt's own errors as what :func:`carried` makes of them; for the body of a task."""
    try:
        yield
    except LayoutoptError as error:
        raise carried(error) from error


def recovered(text: str) -> LayoutoptError | None:
    """The error that :func:`carried` put into a text, None where there is none.

    >>> recovered(f"task 3 failed: {carried(PlanError('no such column'))} at line 7")
    PlanError('no such column')
    """
    found = _CARRIED.search(text)
    if found is None:
        return None
    said = json.loads(found[1])
    kind = globals().get(said["kind"], TableError)
    error: LayoutoptError = kind(said["message"])
    return error
