"""JSON documents with a format and version, canonical bytes, and clear errors; the features document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, Self, cast

from layoutopt.errors import PlanError
from layoutopt.model.records import Record, from_json

_SIGNIFICANT_DIGITS: Final = 6
# The largest count: larger numbers are not exact in JSON.
LARGEST_COUNT: Final = 2**53
# The compression of files: codecs that Spark supports without further libraries.
Codec = Literal["zstd", "snappy", "gzip", "lz4", "none"]
# Parquet's own indexes, for engines that read the data files directly.
ParquetIndex = Literal["page", "bloom"]


def canonical_bytes(value: object) -> bytes:
    r"""Return a JSON value as bytes that depend only on the value; raise ValueError for NaN and infinity.

    >>> canonical_bytes({"b": 1, "a": "é"})
    b'{"a":"\\u00e9","b":1}\n'
    """
    return (json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False) + "\n").encode("ascii")


def round_figure(number: float) -> float:
    """Return a number with 6 digits: the order of a machine's additions changes only later ones.

    >>> round_figure(0.1 + 0.2)
    0.3
    """
    return float(f"{number:.{_SIGNIFICANT_DIGITS}g}")


class Document(Record):
    """A record with canonical bytes; its form's constants are the format's name and the one known version."""

    @cached_property
    def _bytes(self) -> bytes:
        return canonical_bytes(self.to_json())

    def dumps(self) -> bytes:
        """Return the document's bytes: the same for equal documents, on every machine."""
        return self._bytes

    def save(self, path: str | Path) -> None:
        """Write the document's bytes to a file; raises OSError."""
        Path(path).write_bytes(self.dumps())

    @classmethod
    def loads(cls, data: bytes | str) -> Self:
        """Return the document of some bytes; raise PlanError if they are damaged, or of another format or version."""
        return cast(Self, from_json(cls, cls._parse(data), f"{cls.form.constants['format']} document"))

    @classmethod
    def _parse(cls, data: bytes | str) -> Mapping[str, Any]:
        """Return the JSON of bytes with this format and version; raises as :meth:`loads`."""
        format, version = cls.form.constants["format"], cls.form.constants["version"]
        try:
            value = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise PlanError(
                f"{data!r:.80} is no {format} document: {error}; give a file that layoutopt wrote"
            ) from error
        if not isinstance(value, Mapping) or value.get("format") != format:
            raise PlanError(f"{data!r:.80} is no {format} document; give a file that layoutopt wrote")
        if value.get("version") != version:
            stored = f"{value.get('version')!r:.80}"
            raise PlanError(f"the {format} document has version {stored}, not {version}; write it again")
        return value
