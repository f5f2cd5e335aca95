"""What the JSON documents share: a header with format and version, canonical bytes, and clear errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from layoutopt.errors import LayoutoptError, PlanError

Document = TypeVar("Document")
_SIGNIFICANT_DIGITS: Final = 6


def header(format: str, version: int) -> dict[str, object]:
    """The first members of a document."""
    return {"format": format, "version": version}


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


def read_document(
    data: object, format: str, version: int, read: Callable[[Mapping[str, object]], Document]
) -> Document:
    """What a document of that format and version holds.

    Args:
        data: the document's bytes or text, or the JSON value.
        format: the format's name.
        version: the one version that is known.
        read: makes the noun of the JSON object.

    Raises:
        PlanError: the data is not JSON, another format or version, or damaged.
    """
    value = _parsed(data, format) if isinstance(data, bytes | str) else data
    if not isinstance(value, Mapping) or value.get("format") != format:
        raise PlanError(f"{data!r:.80} is no {format} document; give a file that layoutopt wrote")
    if value.get("version") != version:
        raise PlanError(f"the {format} document has version {value.get('version')!r:.80}, not {version}; write it anew")
    try:
        return read(value)
    except LayoutoptError as error:
        if isinstance(error, PlanError):
            raise
        raise PlanError(f"the {format} document is damaged: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise PlanError(f"the {format} document is damaged ({error!r:.200}); write it anew") from error


def _parsed(data: bytes | str, format: str) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{data!r:.80} is no {format} document: {error}; give a file that layoutopt wrote") from error
