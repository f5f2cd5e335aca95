"""features.json: the product of workload analysis, from which plans are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from layoutopt.model.documents import canonical_bytes, read_document
from layoutopt.model.feature import FeatureSet
from layoutopt.model.query import Query
from layoutopt.model.records import Form, Record
from layoutopt.model.schema import Schema

FEATURES_FORMAT: Final = "layoutopt-features"
FEATURES_VERSION: Final = 1


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
class FeaturesDocument(Record):
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
    form: ClassVar = Form(constants={"format": FEATURES_FORMAT, "version": FEATURES_VERSION})

    def dumps(self) -> bytes:
        """The document's bytes: the same for equal documents, on every machine."""
        return canonical_bytes(self.to_json())

    @classmethod
    def loads(cls, data: bytes | str) -> FeaturesDocument:
        """The document of some bytes.

        Raises:
            PlanError: they are no features document, or one of another version.
        """
        return read_document(cls, data)
