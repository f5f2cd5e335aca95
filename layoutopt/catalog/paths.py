"""Where things lie in a table's folder: the only module that puts names together (SPEC.md, "Files")."""

from __future__ import annotations

import hashlib
import re
import secrets
from datetime import UTC, datetime
from urllib.parse import quote

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
