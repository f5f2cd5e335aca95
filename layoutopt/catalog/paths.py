"""Where things lie in a table's folder: the only module that puts names together (SPEC.md, "Files")."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from urllib.parse import quote

from layoutopt.errors import CatalogError
from layoutopt.model.records import As, Record, read

CATALOG = "_layoutopt"
MARKER = f"{CATALOG}/table.json"
SNAPSHOTS = f"{CATALOG}/snapshots"
BLOCKS = f"{CATALOG}/blocks"
INDEXES = f"{CATALOG}/indexes"
PLANS = f"{CATALOG}/plans"
DELETES = f"{CATALOG}/deletes"
DATA = "data"

NULL_PARTITION = "__null__"
EMPTY_PARTITION = "__empty__"
WHOLE = "all"

_SNAPSHOT_NAME = re.compile(r"(0|[1-9][0-9]{0,17})\.json")
_DATA_FILE = re.compile(DATA + r"/([^/]+)/([0-9a-z-]{1,128})/layout-[0-9]+/[^/]+\.parquet")
# Names of files may have 255 bytes on most filesystems.
_LONGEST_KEY = 150


def snapshot_path(number: int) -> str:
    """The file of a snapshot."""
    return f"{SNAPSHOTS}/{number}.json"


def snapshot_number(name: str) -> int | None:
    """The number in a snapshot's file name; None for any other name.

    >>> snapshot_number("12.json"), snapshot_number("012.json"), snapshot_number("12.json.bak")
    (12, None, None)
    """
    match = _SNAPSHOT_NAME.fullmatch(name)
    return int(match[1]) if match else None


def plan_path(digest: str) -> str:
    """The file of a plan."""
    return f"{PLANS}/{digest}.json"


def blocks_path(load_id: str, version: int = 1) -> str:
    """The file with a load's blocks; a retry whose blocks differ takes the next version."""
    suffix = "" if version == 1 else f"-{version}"
    return f"{BLOCKS}/{load_id}{suffix}.parquet"


def index_path(load_id: str, sha256: str) -> str:
    """The file of one index of a load, named by its content: equal ones are one file."""
    return f"{INDEXES}/{load_id}-{sha256[:16]}.parquet"


def deletes_path(load_id: str) -> str:
    """The file with the deletion vectors that a change wrote."""
    return f"{DELETES}/{load_id}.parquet"


def data_path(partition: str, load_id: str, layout: int, segment: int, attempt: str, part: int = 0) -> str:
    """One Parquet file of one task attempt; ``part`` 1 has the master columns of the rows outside the layout."""
    suffix = "" if part == 0 else f"-part{part}"
    return f"{DATA}/{partition}/{load_id}/layout-{layout}/{segment}-{attempt}{suffix}.parquet"


def load_folder(partition: str, load_id: str) -> str:
    """The folder of a load's data files in a partition; nobody else writes there."""
    return f"{DATA}/{partition}/{load_id}"


def is_of_catalog(path: str) -> bool:
    """Whether a file is one of the catalog's that tell of rows or queries: all but the table's marker."""
    return path.startswith(f"{CATALOG}/") and path != MARKER


def hides_values(path: str) -> tuple[str, str, str]:
    """What of a path tells of values, with what comes before and after; empty where nothing does.

    That is the partition of data files, and the digest of what a plan or an index holds.

    >>> hides_values("data/FR/l1/layout-0/0-a.parquet"), hides_values("_layoutopt/plans/a1b2.json")
    (('data/', 'FR', '/l1/layout-0/0-a.parquet'), ('_layoutopt/plans/', 'a1b2', '.json'))
    >>> hides_values("_layoutopt/snapshots/1.json"), hides_values("data")
    (('_layoutopt/snapshots/1.json', '', ''), ('data', '', ''))
    """
    for folder, separator in ((DATA, "/"), (PLANS, "."), (INDEXES, ".")):
        if path.startswith(f"{folder}/"):
            name, separator, rest = path.removeprefix(f"{folder}/").partition(separator)
            return (f"{folder}/", name, f"{separator}{rest}") if name else (path, "", "")
    return path, "", ""


def load_of(path: str) -> tuple[str, str] | None:
    """The partition and load id of a data file, also of one whose writing was cut short; None for any other file.

    >>> load_of("data/1994/l1/layout-0/0-a.parquet"), load_of("data/1994/l1/notes.txt"), load_of("data/mine.parquet")
    (('1994', 'l1'), None, None)
    """
    match = _DATA_FILE.fullmatch(path)
    return (match[1], match[2]) if match else None


def new_load_id() -> str:
    """A load id that nobody else has: UTC time to the second, and 64 random bits."""
    return f"{datetime.now(UTC):%Y%m%dt%H%M%Sz}-{secrets.token_hex(8)}"


def load_time(load_id: str) -> float:
    """When a load began, in seconds since 1970, by its id; 0, as if always, of an id that does not tell.

    >>> load_time("20260101t000000z-a"), load_time("mine")
    (1767225600.0, 0.0)
    """
    try:
        return datetime.strptime(load_id.partition("-")[0], "%Y%m%dt%H%M%Sz").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0


def partition_key(value: object) -> str:
    """A partition value as a name that is safe in any path; equal only for values with equal text.

    >>> partition_key(1994), partition_key(None), partition_key("a/b=c d"), partition_key("")
    ('1994', '__null__', 'a%2Fb%3Dc%20d', '__empty__')
    >>> partition_key("__null__"), partition_key("..")
    ('%5F_null__', '%2E.')
    """
    if value is None:
        return NULL_PARTITION
    if isinstance(value, bool):
        return "true" if value else "false"
    text = quote(str(value), safe="")
    if not text:
        return EMPTY_PARTITION
    if text.startswith((".", "~", "__")):
        # Percent-escaped by hand: quote() leaves these alone, but they would be a folder, a home or our own names.
        text = f"%{ord(text[0]):02X}{text[1:]}"
    if len(text) > _LONGEST_KEY:
        return f"{text[: _LONGEST_KEY - 40]}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"
    return text


# ----------------------------------------------------------------------------------------------------
# Types of what stands in catalog files, which anybody may have written: each is read only within its range.

LONGEST_PATH = 1024


def is_safe_path(path: str) -> bool:
    """Whether a path stays inside the table: relative, not endless, no ``..``, scheme, backslash or control character.

    >>> is_safe_path("data/1994/l1/layout-0/0-a.parquet")
    True
    >>> [is_safe_path(p) for p in ("/etc/passwd", "a/../b", "s3://b/k", "a//b", "")]
    [False, False, False, False, False]
    """
    if (
        not 0 < len(path) <= LONGEST_PATH
        or path.startswith("~")
        or "\\" in path
        or ":" in path
        or not path.isprintable()
    ):
        return False
    return all(part not in ("", ".", "..") for part in path.split("/"))


def _only(accepts: Callable[[Any], object], wanted: str) -> Callable[[Any], Any]:
    def only(value: Any) -> Any:
        if not accepts(value):
            raise ValueError(f"it should be {wanted}")
        return value

    return only


def _is_utc(text: str) -> bool:
    return datetime.fromisoformat(text).utcoffset() == timedelta(0)


Count = Annotated[int, As(int, _only(lambda number: 0 <= number < 2**63, "a whole number in 0 .. 2^63-1"))]
Text = Annotated[str, As(str, _only(bool, "a text that is not empty"))]
SafePath = Annotated[str, As(str, _only(is_safe_path, "a path inside the table"))]
PartitionKey = Annotated[
    str, As(str, _only(lambda key: is_safe_path(key) and not set(key) & set("/="), "a name that is safe in any path"))
]
LoadId = Annotated[str, As(str, _only(re.compile(r"[0-9a-z-]{1,128}").fullmatch, "a load id of 0-9, a-z and -"))]
Digest = Annotated[str, As(str, _only(re.compile(r"[0-9a-f]{1,64}").fullmatch, "a hexadecimal digest"))]
UtcTime = Annotated[str, As(str, _only(_is_utc, "a time in UTC"))]


def read_field(kind: Any, value: object, where: str) -> Any:
    """A JSON value as a value of a type, as :func:`~layoutopt.model.records.read`; ``where`` names the file.

    Raises:
        CatalogError: it is no such value.
    """
    try:
        return read(kind, value, where)
    except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
        raise CatalogError(f"{error}; restore the file from a copy or load again") from error


@dataclass(frozen=True)
class FileDigest(Record):
    """Size in bytes and SHA-256 (64 hex digits) of a catalog file, so that a flipped bit is noticed."""

    size: Count
    sha256: Digest

    @classmethod
    def of(cls, data: bytes) -> FileDigest:
        """The digest of these bytes."""
        return cls(len(data), hashlib.sha256(data).hexdigest())
