"""What the JSON documents share: a header with format and version, canonical bytes, and clear errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, Literal, Self, cast

from layoutopt.errors import PlanError
from layoutopt.model.feature import FeatureSet
from layoutopt.model.query import Query
from layoutopt.model.records import Form, Record, from_json
from layoutopt.model.schema import Schema

_SIGNIFICANT_DIGITS: Final = 6
LARGEST_COUNT: Final = 2**53
"""No count is larger: beyond it numbers are not exact in JSON."""
Codec = Literal["zstd", "snappy", "gzip", "lz4", "none"]
"""How files are compressed: what Spark, which reads them back at each load, can read with no more than it brings."""
ParquetIndex = Literal["page", "bloom"]
"""Parquet's own indexes, which data files may have for engines that read them as they are."""


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


class Document(Record):
    """A record with bytes of its own; its form's constants are the format's name and the one version that is known."""

    @cached_property
    def _bytes(self) -> bytes:
        return canonical_bytes(self.to_json())

    def dumps(self) -> bytes:
        """The document's bytes: the same for equal documents, on every machine."""
        return self._bytes

    @classmethod
    def loads(cls, data: bytes | str) -> Self:
        """The document of some bytes.

        Raises:
            PlanError: the data is not JSON, another format or version, or damaged.
        """
        return cast(Self, from_json(cls, cls._parsed(data), f"{cls.form.constants['format']} document"))

    @classmethod
    def _parsed(cls, data: bytes | str) -> Mapping[str, Any]:
        """The JSON of some bytes that have this format and version; raises as :meth:`loads`."""
        format, version = cls.form.constants["format"], cls.form.constants["version"]
        value = _json(data, f"{format} document")
        if not isinstance(value, Mapping) or value.get("format") != format:
            raise PlanError(f"{data!r:.80} is no {format} document; give a file that layoutopt wrote")
        if value.get("version") != version:
            found = f"{value.get('version')!r:.80}"
            raise PlanError(f"the {format} document has version {found}, not {version}; write it anew")
        return value


def _json(data: bytes | str, what: str) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{data!r:.80} is no {what}: {error}; give a file that layoutopt wrote") from error


# ----------------------------------------------------------------------------------------------------
# features.json: the product of workload analysis, from which plans are made.


@dataclass(frozen=True)
class SkippedStatement(Record):
    """A statement of the log that was not used.

    Attributes:
        id: its place in the log, from 0.
        reason: a stable code, a key of the workload package's ``STATEMENT_REASONS``.
        detail: one sentence that names the offending text.
        sql: the statement's text.
    """

    id: int
    reason: str
    detail: str = ""
    sql: str = ""


@dataclass(frozen=True)
class FeaturesDocument(Document):
    """The features of a workload with the queries that they were mined from.

    Attributes:
        table: the table's name in the log.
        schema: the table's columns.
        features: the features, best first.
        queries: the analysed queries.
        skipped: the statements that were not used, each with its reason.
        exclude_columns: the columns that were to make no features.
    """

    table: str
    schema: Schema
    features: FeatureSet
    queries: tuple[Query, ...]
    skipped: tuple[SkippedStatement, ...] = ()
    exclude_columns: tuple[str, ...] = ()
    form: ClassVar = Form(constants={"format": "layoutopt-features", "version": 1})
