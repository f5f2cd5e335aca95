"""features.json: the product of workload analysis, from which plans are made."""

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
