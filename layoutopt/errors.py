"""All errors that layoutopt raises, in one tree, with the exit codes of the command line::

    LayoutoptError (1)
    ├── InputError (2)  bad usage or input
    │   ├── SettingError, LogError, SchemaError, PlanError, PublicationError
    │   ├── QueryError ── UnknownTableError, CostLimitError
    │   ├── EncryptionKeyError, EncryptedTableError
    │   └── SourceError ── MissingPartitionError (4)
    ├── NeedsSparkError, WorkerLostError
    ├── StoreError (1)  a store or the network refused a file
    └── TableError (1)  the table itself
        ├── NotATableError (2) ── SourceIndexError
        ├── CatalogError ── NoSnapshotError (2)
        ├── CommitConflictError (3) ── AlreadyLoadedError
        ├── StalePlanError (5)
        ├── PartitionsFailedError (the lowest of the partitions')
        └── DataFileError, SkippingError, ContentMismatchError, BoundError

Each message is one sentence with the offending value and what to do.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final

# What each exit code of the command line means, and what a scheduler should do; `docs/commands.py` writes the pages.
EXIT_CODES: Final = MappingProxyType(
    {
        0: ("done, now or by an earlier attempt", "continue"),
        1: ("failed: a full disk, a lost executor", "retry: the table is unchanged"),
        2: ("invalid usage or input", "stop: a retry fails too, and the message says what to change"),
        3: (
            "conflict: the partition has other rows, or another commit changed it",
            "stop: `history` shows the other commit; run the command again, or `reload` to replace the rows",
        ),
        4: ("the source has no rows of that date yet", "retry later"),
        5: (
            "`drift`: the plan no longer fits the log; `evaluate`: a gate is not met",
            "`analyze` and `plan` again, or `optimize --log`",
        ),
        130: ("interrupted by Ctrl-C", "run the command again: it does the rest"),
    }
)


class LayoutoptError(Exception):
    """The root of all errors that layoutopt raises on purpose."""

    exit_code = 1


class InputError(LayoutoptError):
    """Bad usage or input."""

    exit_code = 2


class SettingError(InputError):
    """A setting or flag has an invalid value."""


class LogError(InputError):
    """A query log can't be used."""


class SchemaError(InputError):
    """A schema, column or type is unknown, or differs from the plan's."""


class PlanError(InputError):
    """A features or plan document can't be used."""


class EncryptionKeyError(InputError):
    """The key of an encrypted table is unavailable or wrong."""


class EncryptedTableError(InputError):
    """The operation would reveal an encrypted table's rows."""


class QueryError(InputError):
    """A SQL text can't be used on a table."""


class UnknownTableError(QueryError):
    """A SQL text reads a table that is not given; ``name`` is the table's."""

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name


class CostLimitError(QueryError):
    """A query would read more bytes than its limit allows; nothing was read."""


class PublicationError(InputError):
    """A table can't be published at a place or in a format."""


class SourceError(InputError):
    """A source can't be read: it is missing, truncated, or of another format."""


class MissingPartitionError(SourceError):
    """The source has no rows for a requested partition, perhaps not yet."""

    exit_code = 4


class NeedsSparkError(LayoutoptError):
    """The work needs Spark, or only Spark is known to do it right; callers catch this and start Spark."""


class WorkerLostError(LayoutoptError):
    """A worker process was killed."""


class StoreError(LayoutoptError):
    """A store, disk or network refused a file, which may be intact; requests that may help were repeated.

    Attributes:
        path: the file's path or URL.
        status: the HTTP status of the store's answer, None if there was none.
        code: the store's own code, such as ``SlowDown``, None if it gave none.
    """

    def __init__(self, message: str, path: str = "", status: int | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.path, self.status, self.code = path, status, code


class TableError(LayoutoptError):
    """The table itself is the problem."""


class NotATableError(TableError):
    """The path holds no layoutopt table."""

    exit_code = 2


class SourceIndexError(NotATableError):
    """The path holds the indexes of external files; ``source`` names these."""

    def __init__(self, message: str, source: str = "") -> None:
        super().__init__(message)
        self.source = source


class CatalogError(TableError):
    """A catalog file is missing, damaged or of an unknown version.

    ``path`` is its path in the table, None where no single file is to blame.
    """

    path: str | None = None


class NoSnapshotError(CatalogError):
    """The table has no snapshot of that number or age."""

    exit_code = 2


class DataFileError(TableError):
    """A data file is missing or damaged."""


class CommitConflictError(TableError):
    """Another commit changed the same partition first."""

    exit_code = 3


class AlreadyLoadedError(CommitConflictError):
    """The partition holds other rows, or another plan's, and replacing them was not requested."""


class SkippingError(TableError):
    """A scan would skip matching rows: the catalog is wrong, or layoutopt is."""


class StalePlanError(TableError):
    """Queries skip much less than those of the plan, or less than a gate requires."""

    exit_code = 5


class PartitionsFailedError(TableError):
    """Some of several partitions were not loaded; ``report`` says which and why, and what was loaded."""

    def __init__(self, message: str, report: Any = None, exit_code: int = 1) -> None:
        super().__init__(message)
        self.report, self.exit_code = report, exit_code


class ContentMismatchError(TableError):
    """Rows or checksums differ from the source: the commit is refused."""


class BoundError(TableError):
    """A bound (memory, vectors, rows) would be exceeded; the message names the setting."""


# A message lists at most so many names.
_MOST_LISTED: Final = 40


def expected_names(name: str, known: Iterable[str]) -> str:
    """Return what a message says after an unknown name: the nearest known name, or all of them.

    >>> expected_names("prodct", ["product", "day"]), expected_names("x", ["product", "day"])
    ("did you mean 'product'?", 'expected one of product, day')
    """
    names = list(dict.fromkeys(known))
    by_folded = {known_name.lower(): known_name for known_name in names}
    nearest = get_close_matches(name.lower(), by_folded, 1)
    if nearest:
        return f"did you mean {by_folded[nearest[0]]!r:.80}?"
    more = f", ... ({len(names)} in all)" if len(names) > _MOST_LISTED else ""
    return f"expected one of {', '.join(names[:_MOST_LISTED])}{more}" if names else "there is none"


def find_interrupt(error: BaseException | None) -> KeyboardInterrupt | None:
    """Return the Ctrl-C that led to an error, or None: errors of Spark's clean-up hide an interrupted query."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error


_PREFIX = "layoutopt-error:"


def encode_error(error: LayoutoptError) -> RuntimeError:
    """Return an error whose text survives other processes, for :func:`decode_error`; attributes in JSON are kept."""
    kinds = [_name(kind) for kind in type(error).__mro__ if issubclass(kind, LayoutoptError)]
    attributes = {name: value for name, value in vars(error).items() if _is_json(value)}
    payload = json.dumps({"kinds": kinds, "message": str(error), "attributes": attributes})
    return RuntimeError(f"{_PREFIX}{payload}")


def _is_json(value: object) -> bool:
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError):
        return False


@contextmanager
def blame_file(path: str) -> Iterator[None]:
    """Set the path of a CatalogError that the body raises, unless it has one."""
    try:
        yield
    except CatalogError as error:
        error.path = error.path or path
        raise


@contextmanager
def encode_errors() -> Iterator[None]:
    """Raise layoutopt's errors as :func:`encode_error` within the block; for the body of a task."""
    try:
        yield
    except LayoutoptError as error:
        raise encode_error(error) from error


def decode_error(text: str) -> LayoutoptError | None:
    """Return the error that :func:`encode_error` put into a text, or None.

    An error class that is not imported here becomes its nearest imported base class.

    >>> decode_error(f"task 3 failed: {encode_error(PlanError('no such column'))} at line 7")
    PlanError('no such column')
    """
    start = text.find(f'{_PREFIX}{{"kinds": ')
    if start < 0:
        return None
    try:
        payload, _ = json.JSONDecoder().raw_decode(text, start + len(_PREFIX))
    except ValueError:  # the text was cut off
        return None
    imported = {_name(kind): kind for kind in _list_subclasses(LayoutoptError)}
    kind = next((imported[name] for name in payload["kinds"] if name in imported), TableError)
    # Constructors of subclasses may take other arguments than the message.
    error: LayoutoptError = kind.__new__(kind, payload["message"])
    vars(error).update(payload["attributes"])
    return error


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _list_subclasses(kind: type[LayoutoptError]) -> list[type[LayoutoptError]]:
    return [kind, *(inner for subclass in kind.__subclasses__() for inner in _list_subclasses(subclass))]
