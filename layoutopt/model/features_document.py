"""The document features.json: a workload's features and the queries that they were mined from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from layoutopt.model.documents import Document
from layoutopt.model.feature import FeatureSet
from layoutopt.model.query import Query
from layoutopt.model.records import Form, Record
from layoutopt.model.schema import Schema


@dataclass(frozen=True)
class SkippedStatement(Record):
    """An unused statement of the log, by its position.

    ``reason`` is a stable code, a key of the workload package's ``STATEMENT_REASONS``; ``detail`` names the offending
    text in one sentence.
    """

    id: int
    reason: str
    detail: str = ""
    sql: str = ""


@dataclass(frozen=True)
class FeaturesDocument(Document):
    """features.json: the features of a workload, best first, and the queries that they were mined from.

    Attributes:
        table: the table's name in the log.
        skipped: the first unused statements, each with its reason.
        exclude_columns: the columns that were excluded from features.
    """

    table: str
    schema: Schema
    features: FeatureSet
    queries: tuple[Query, ...]
    skipped: tuple[SkippedStatement, ...] = ()
    exclude_columns: tuple[str, ...] = ()
    form: ClassVar = Form(constants={"format": "layoutopt-features", "version": 1})
