"""The settings of `advise`."""

from __future__ import annotations

from pydantic import Field

from layoutopt.config.fields import Names, NewFile, Text, VerbSettings
from layoutopt.config.settings import Dialect, History, Log, Source, SqlColumn
from layoutopt.model.documents import LARGEST_COUNT


class AdviseSettings(VerbSettings):
    """What layouts would save, before anything is written."""

    source: Source
    log: Log
    table: Text | None = Field(None, description="the table's name in the log [default: the one that most read]")
    system: History | None = Field(
        None, alias="from", description="the system that the log is a history of [default: as its fields tell, if any]"
    )
    dialect: Dialect = "spark"
    column: SqlColumn = None
    partition_by: Text | None = Field(
        None, description="the column whose every value is a partition [default: the source's own first one, if any]"
    )
    block_rows: int = Field(10_000, ge=1, le=LARGEST_COUNT, description="the mean number of rows of a block")
    engine: Names = Field(
        (),
        description="for whom to say what to tell their engine: spark-delta, databricks, iceberg, spark, redshift, "
        "snowflake, bigquery, ducklake [default: those of the source's format, or of the log's system, or all]",
    )
    queries_per_month: float | None = Field(
        None, gt=0, description="how many such queries run in a month [default: by the times in the log]"
    )
    price_per_tb: float = Field(
        5.0,
        ge=0,
        description="what reading a terabyte (10^12 bytes) costs, in any currency; 5 dollars is about what engines "
        "that charge by bytes read ask for",
    )
    html: NewFile | None = Field(None, description="also write the advice as a page to this file")
