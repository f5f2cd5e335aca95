"""The settings of the verbs that change a table that is there."""

from __future__ import annotations

from pydantic import Field

from layoutopt.config.fields import Names, Text, Texts, VerbSettings
from layoutopt.config.settings import EventLog, PublishTo, Source, TablePath


class AppendSettings(VerbSettings):
    """Rows that come to partitions that are there, or to new ones."""

    table_path: TablePath
    source: Source
    batch_id: Text | None = Field(
        None, description="names the rows: a batch is appended once [default: a digest of the source's files]"
    )
    publish: PublishTo = ()
    log_json: EventLog = None


class DeleteSettings(VerbSettings):
    """Rows that go."""

    table_path: TablePath
    where: Text = Field(description="which rows, a condition in Spark's SQL; those for which it is NULL stay")
    publish: PublishTo = ()
    log_json: EventLog = None


class UpdateSettings(VerbSettings):
    """Rows that get other values."""

    table_path: TablePath
    assignments: Texts = Field(
        alias="set", description="'column = expression' of the row as it was; repeat the flag for more columns"
    )
    where: Text = Field(description="which rows, a condition in Spark's SQL; those for which it is NULL stay")
    publish: PublishTo = ()
    log_json: EventLog = None


class MergeSettings(VerbSettings):
    """A feed of changes: rows that replace those with the same key, new ones, and such as delete."""

    table_path: TablePath
    source: Source
    on: Names = Field(
        min_length=1, description="the columns that tell rows apart; no two rows of the source agree in them"
    )
    delete_when: Text | None = Field(
        None, description="the source's rows that delete theirs, a condition that may ask columns of the source alone"
    )
    publish: PublishTo = ()
    log_json: EventLog = None


class OptimizeSettings(VerbSettings):
    """Partitions laid out anew where that pays."""

    table_path: TablePath
    partition: Names = Field((), description="only these partitions, each by its key as `status` lists it")
    budget_bytes: int | None = Field(
        None, ge=1, description="rewrite at most so many bytes, the best gain a byte first"
    )
    budget_share: float | None = Field(None, gt=0, le=1, description="the same as a share of the table's bytes")
    dry_run: bool = Field(False, description="only say what would be rewritten, and why")
    publish: PublishTo = ()
    log_json: EventLog = None
