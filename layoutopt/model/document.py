"""features.json: the product of workload analysis, from which plans are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from layoutopt.model.documents import canonical_bytes, header, read_document
from layoutopt.model.feature import FeatureSet
from layoutopt.model.predicates.codec import Json
from layoutopt.model.query import Query
from layoutopt.model.schema import Schema

FEATURES_FORMAT: Final = "layoutopt-features"
FEATURES_VERSION: Final = 1


@dataclass(frozen=True)
class SkippedStatement:
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
class FeaturesDocument:
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

    def to_json(self) -> Json:
        """A JSON value that :meth:`from_json` reads back."""
        return {
            **header(FEATURES_FORMAT, FEATURES_VERSION),
            "table": self.table,
            "schema": self.schema.to_json(),
            "features": self.features.to_json(),
            "queries": [query.to_json() for query in self.queries],
            "skipped": [asdict(statement) for statement in self.skipped],
            "exclude_columns": list(self.exclude_columns),
        }

    @classmethod
    def from_json(cls, value: object) -> FeaturesDocument:
        """The document that :meth:`to_json` wrote.

        Raises:
            PlanError: the value is no such document.
        """
        return read_document(value, FEATURES_FORMAT, FEATURES_VERSION, _from_json)

    def dumps(self) -> bytes:
        """The document's bytes: the same for equal documents, on every machine."""
        return canonical_bytes(self.to_json())

    @classmethod
    def loads(cls, data: bytes | str) -> FeaturesDocument:
        """The document of some bytes.

        Raises:
            PlanError: they are no features document, or one of another version.
        """
        return read_document(data, FEATURES_FORMAT, FEATURES_VERSION, _from_json)


def _from_json(value: Mapping[str, object]) -> FeaturesDocument:
    document: Mapping[str, Any] = value
    return FeaturesDocument(
        table=str(document["table"]),
        schema=Schema.from_json(document["schema"]),
        features=FeatureSet.from_json(document["features"]),
        queries=tuple(map(Query.from_json, document["queries"])),
        skipped=tuple(
            SkippedStatement(int(s["id"]), str(s["reason"]), str(s["detail"]), str(s["sql"]))
            for s in document["skipped"]
        ),
        exclude_columns=tuple(map(str, document["exclude_columns"])),
    )
