"""What the JSON documents share: a header with format and version, canonical bytes, and clear errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, Literal, TypeVar, cast

from layoutopt.errors import PlanError
from layoutopt.model.records import Record, from_json

Document = TypeVar("Document", bound=Record)
_SIGNIFICANT_DIGITS: Final = 6
LARGEST_COUNT: Final = 2**53
"""No count is larger: beyond it numbers are not exact in JSON."""
Codec = Literal["zstd", "snappy", "gzip", "lz4", "none"]
"""How files are compressed: what Spark, which reads them back at each load, can read with no more than it brings."""


def canonical_bytes(value: object) -> bytes:
    """A JSON value as bytes that depend on nothing but the value.

    Raises:
        ValueError: it holds NaN or an infinity, which JSON has no words for.

    >>> canonical_bytes({"b": 1, "a": "é"})
    b'{"a":"\\\\u00e9","b":1}\\n'
    """
    return (json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False) + "\n").encode("ascii")


def rounded(number: float) -> float:
    """A number to 6 digits: the order in which a machine adds up changes only later ones.

    >>> rounded(0.1 + 0.2)
    0.3
    """
    return float(f"{number:.{_SIGNIFICANT_DIGITS}g}")


def read_document(kind: type[Document], data: bytes | str) -> Document:
    """The document of some bytes; its kind's form has the format and the one version that is known as constants.

    Raises:
        PlanError: the data is not JSON, another format or version, or damaged.
    """
    format, version = kind.form.constants["format"], kind.form.constants["version"]
    value = _parsed(data, f"{format} document")
    if not isinstance(value, Mapping) or value.get("format") != format:
        raise PlanError(f"{data!r:.80} is no {format} document; give a file that layoutopt wrote")
    if value.get("version") != version:
        raise PlanError(f"the {format} document has version {value.get('version')!r:.80}, not {version}; write it anew")
    return cast(Document, from_json(kind, value, f"{format} document"))


def _parsed(data: bytes | str, what: str) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{data!r:.80} is no {what}: {error}; give a file that layoutopt wrote") from error
