"""The paths in a table's folder; no other module builds names (SPEC.md, "Files"). Types of values in catalog files.

Anyone may have written a catalog file, so each value is checked against its range when it is read.
"""

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
MANIFESTS = f"{CATALOG}/manifests"
SOURCES = f"{CATALOG}/sources"
DATA = "data"

NULL_PARTITION = "__null__"
EMPTY_PARTITION = "__empty__"
WHOLE = "all"

_SNAPSHOT_NAME = re.compile(r"(0|[1-9][0-9]{0,17})\.json")
_DATA_FILE = re.compile(DATA + r"/([^/]+)/([0-9a-z-]{1,128})/layout-[0-9]+/[^/]+\.parquet")
# Names of files may have 255 bytes on most filesystems.
_LONGEST_KEY = 150


def snapshot_path(number: int) -> str:
    """Return the file of a snapshot."""
    return f"{SNAPSHOTS}/{number}.json"


def snapshot_number(name: str) -> int | None:
    """Return the number in a snapshot's file name; None for any other name.

    >>> snapshot_number("12.json"), snapshot_number("012.json"), snapshot_number("12.json.bak")
    (12, None, None)
    """
    match = _SNAPSHOT_NAME.fullmatch(name)
    return int(match[1]) if match else None


def plan_path(digest: str) -> str:
    """Return the file of a plan."""
    return f"{PLANS}/{digest}.json"


# A change names its catalog files by its load id and by ``number``, that of the snapshot after its base. An attempt on
# a later base therefore names other files, and a vacuum gives up a file only in snapshots that its change reads.


def blocks_path(load_id: str, number: int, version: int = 1) -> str:
    """Return the file of a load's blocks; a retry with different blocks takes the next version."""
    return f"{BLOCKS}/{load_id}_{number}{_suffix(version)}.parquet"


def sources_path(load_id: str, number: int, version: int = 1) -> str:
    """Return the file of a load's source lists; a retry with different ones takes the next version."""
    return f"{SOURCES}/{load_id}_{number}{_suffix(version)}.parquet"


def manifest_path(load_id: str, number: int, version: int = 1) -> str:
    """Return the file of the entries that a change writes, ``number`` being that of the snapshot that names it.

    An attempt with different entries takes the next version.
    """
    return f"{MANIFESTS}/{load_id}_{number}{_suffix(version)}.parquet"


def _suffix(version: int) -> str:
    return "" if version == 1 else f"-{version}"


def index_path(load_id: str, number: int, sha256: str) -> str:
    """Return the file of one index of a load, named by its content: equal indexes are one file."""
    return f"{INDEXES}/{load_id}_{number}-{sha256[:16]}.parquet"


def deletes_path(load_id: str, number: int) -> str:
    """Return the file of a change's deletion vectors."""
    return f"{DELETES}/{load_id}_{number}.parquet"


def load_of_deletes(path: str) -> str:
    """Return the load id of the change that wrote deletion vectors; older versions wrote no number.

    >>> load_of_deletes(deletes_path("l1", 3)), load_of_deletes("_layoutopt/deletes/l1.parquet")
    ('l1', 'l1')
    """
    return path.removeprefix(f"{DELETES}/").removesuffix(".parquet").partition("_")[0]


def data_path(partition: str, load_id: str, layout: int, segment: int, attempt: str, part: int = 0) -> str:
    """Return a Parquet file of one task attempt; ``part`` 1 has the master columns of the rows outside the layout."""
    suffix = "" if part == 0 else f"-part{part}"
    return f"{DATA}/{partition}/{load_id}/layout-{layout}/{segment}-{attempt}{suffix}.parquet"


def load_folder(partition: str, load_id: str) -> str:
    """Return the folder of a load's data files in a partition; no other load writes there."""
    return f"{DATA}/{partition}/{load_id}"


def is_of_catalog(path: str) -> bool:
    """Return whether a catalog file contains rows or queries: all but the table's marker."""
    return path.startswith(f"{CATALOG}/") and path != MARKER


def hides_values(path: str) -> tuple[str, str, str]:
    """Split a path around the part that reveals values; the last two parts are empty if none does.

    The part is the partition of a data file, or the digest in the name of a plan or an index.

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
    """Return the partition and load id of a data file, even an incomplete one; None for any other file.

    >>> load_of("data/1994/l1/layout-0/0-a.parquet"), load_of("data/1994/l1/notes.txt"), load_of("data/mine.parquet")
    (('1994', 'l1'), None, None)
    """
    match = _DATA_FILE.fullmatch(path)
    return (match[1], match[2]) if match else None


def new_load_id() -> str:
    """Return a unique load id: UTC time to the second, and 64 random bits."""
    return f"{datetime.now(UTC):%Y%m%dt%H%M%Sz}-{secrets.token_hex(8)}"


def load_time(load_id: str) -> float:
    """Return the start of a load in seconds since 1970, by its id; 0 if the id has no time.

    >>> load_time("20260101t000000z-a"), load_time("mine")
    (1767225600.0, 0.0)
    """
    try:
        return datetime.strptime(load_id.partition("-")[0], "%Y%m%dt%H%M%Sz").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0


def partition_key(value: object) -> str:
    """Return a partition value as a name that is safe in any path; equal only for values with equal text.

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
        # Percent-escaped by hand: quote() keeps these, but they would be a folder, a home or a reserved name.
        text = f"%{ord(text[0]):02X}{text[1:]}"
    if len(text) > _LONGEST_KEY:
        return f"{text[: _LONGEST_KEY - 40]}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"
    return text


LONGEST_PATH = 1024


def is_safe_path(path: str) -> bool:
    """Return whether a path stays inside the table: relative, bounded, no ``..``, scheme, backslash or control code.

    >>> is_safe_path("data/1994/l1/layout-0/0-a.parquet")
    True
    >>> [is_safe_path(p) for p in ("/etc/passwd", "a/../b", "s3://b/k", "a//b", "")]
    [False, False, False, False, False]
    """
    if not 0 < len(path) <= LONGEST_PATH or path[0] == "~" or set(path) & set("\\:") or not path.isprintable():
        return False
    return all(part not in ("", ".", "..") for part in path.split("/"))


def _require(accepts: Callable[[Any], object], expected: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not accepts(value):
            raise ValueError(f"it should be {expected}")
        return value

    return check


def _is_utc(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).utcoffset() == timedelta(0)
    except ValueError:  # whose message repeats the text, however long
        return False


Count = Annotated[int, As(int, _require(lambda number: 0 <= number < 2**63, "a whole number in 0 .. 2^63-1"))]
Text = Annotated[str, As(str, _require(bool, "a text that is not empty"))]
SafePath = Annotated[str, As(str, _require(is_safe_path, "a path inside the table"))]
PartitionKey = Annotated[
    str,
    As(str, _require(lambda key: is_safe_path(key) and not set(key) & set("/="), "a name that is safe in any path")),
]
LoadId = Annotated[str, As(str, _require(re.compile(r"[0-9a-z-]{1,128}").fullmatch, "a load id of 0-9, a-z and -"))]
Digest = Annotated[str, As(str, _require(re.compile(r"[0-9a-f]{1,64}").fullmatch, "a hexadecimal digest"))]
UtcTime = Annotated[str, As(str, _require(_is_utc, "a time in UTC"))]


def read_field(kind: Any, value: object, where: str) -> Any:
    """Return a JSON value as a value of a type; raise CatalogError with the file's name ``where`` if invalid."""
    try:
        return read(kind, value, where)
    except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
        raise CatalogError(f"{error}; restore the file from a copy or load again") from error


@dataclass(frozen=True)
class FileDigest(Record):
    """Size in bytes and SHA-256 (64 hex digits) of a catalog file, to detect flipped bits."""

    size: Count
    sha256: Digest

    @classmethod
    def of(cls, data: bytes) -> FileDigest:
        """Return the digest of file content."""
        return cls(len(data), hashlib.sha256(data).hexdigest())
