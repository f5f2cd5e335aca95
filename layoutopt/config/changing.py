"""The settings of the verbs that change a table that is there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from layoutopt.config.fields import Names, NewFile, Span, Text, Texts, VerbSettings
from layoutopt.config.settings import Dialect, EventLog, HalfLife, PublishTo, Source, SqlColumn, TablePath

RewriteShare = Annotated[
    float,
    Field(
        ge=0,
        le=1,
        description="up to this share of the rows of the partitions concerned, those that go are only marked, by "
        "deletion vectors beside the files, and rows that come stand beside; above it, and with 0 always, these "
        "partitions are written anew",
    ),
]


class AppendSettings(VerbSettings):
    """Rows that come to partitions that are there, or to new ones."""

    table_path: TablePath
    source: Source
    batch_id: Text | None = Field(
        None,
        description="names the rows: a batch is appended once [default: by the paths, sizes and times of the "
        "source's files, not by what they hold: name batches whose files may be copied or written again]",
    )
    keep_apart: bool = Field(
        False,
        description="leave what earlier appends left as it is: else it is joined, in a second commit, where several "
        "times as many rows have come since",
    )
    publish: PublishTo = ()
    log_json: EventLog = None


class DeleteSettings(VerbSettings):
    """Rows that go."""

    table_path: TablePath
    where: Text = Field(description="which rows, a condition in Spark's SQL; those for which it is NULL stay")
    publish: PublishTo = ()
    rewrite_share: RewriteShare = 0.1
    hard: bool = Field(
        False,
        description="leave no copy: write partitions anew, then give up all older snapshots and remove their files at "
        "once, whoever reads or loads",
    )
    log_json: EventLog = None


class UpdateSettings(VerbSettings):
    """Rows that get other values."""

    table_path: TablePath
    assignments: Texts = Field(
        alias="set", description="'column = expression' of the row as it was; repeat the flag for more columns"
    )
    where: Text = Field(description="which rows, a condition in Spark's SQL; those for which it is NULL stay")
    publish: PublishTo = ()
    rewrite_share: RewriteShare = 0.1
    log_json: EventLog = None


class MergeSettings(VerbSettings):
    """A feed of changes: rows that replace those with the same key, new ones, and such as delete."""

    table_path: TablePath
    source: Source
    on: Names = Field(
        min_length=1,
        description="the columns that tell rows apart: no two rows of the source agree in them, and all rows of the "
        "table that agree with one of the source give their place to that one",
    )
    delete_when: Text | None = Field(
        None, description="the source's rows that delete theirs, a condition that may ask columns of the source alone"
    )
    publish: PublishTo = ()
    rewrite_share: RewriteShare = 0.1
    log_json: EventLog = None


class OptimizeSettings(VerbSettings):
    """Partitions laid out anew where that pays."""

    table_path: TablePath
    partition: Names = Field((), description="only these partitions, each by its key as `status` lists it")
    log: Text | None = Field(
        None,
        description="a recent query log: lay out by a plan for its queries, made on the table's own rows like its "
        "newest plan [default: by that, and by its queries]",
    )
    plan: Path | None = Field(None, description="lay out by this plan, that `plan` wrote, instead")
    dialect: Dialect = "spark"
    column: SqlColumn = None
    half_life: HalfLife = None
    auto: bool = Field(
        False,
        description="only where the queries of --log have lost as much as writing costs since a partition was written, "
        "and more is expected to be saved within --horizon: for every night. A --half-life is found in the log",
    )
    horizon: Span = Field("7d", description="of --auto: within this time what is saved has to exceed what it costs")
    write_cost: float = Field(
        2.0, gt=0, description="of --auto: what writing a byte anew costs, in bytes that queries read"
    )
    deleted_share: float = Field(
        0.05,
        ge=0,
        le=1,
        description="fold in deleted rows of partitions of which at least this share of rows is deleted; 0: of all",
    )
    budget_bytes: int | None = Field(
        None,
        ge=1,
        description="rewrite at most so many bytes, the best gain a byte first; of partitions of several layouts "
        "perhaps some layouts alone, beside those that are there",
    )
    budget_share: float | None = Field(None, gt=0, le=1, description="the same as a share of the table's bytes")
    dry_run: bool = Field(False, description="only say what would be rewritten, and why")
    publish: PublishTo = ()
    plot: NewFile | None = Field(
        None,
        description="also draw what is regained over what is written to this image file, with what layouts "
        "written alone would, which takes a rehearsal",
    )
    log_json: EventLog = None
