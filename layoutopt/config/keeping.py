"""The settings of the verbs that say what a table holds, and decide what of it is kept and shown."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from layoutopt.config.fields import Age, Place, Text, VerbSettings
from layoutopt.config.settings import Dialect, HalfLife, SqlColumn, TablePath


class FilesSettings(VerbSettings):
    """The data files of the current snapshot."""

    table_path: TablePath
    layout: int = Field(0, ge=0, description="the layout whose files are listed")


class HistorySettings(VerbSettings):
    """The snapshots of a table."""

    table_path: TablePath


class StatusSettings(VerbSettings):
    """What a table holds."""

    table_path: TablePath


class DriftSettings(VerbSettings):
    """Whether a table's plan still fits its queries."""

    table_path: TablePath
    log: Place = Field(description="a recent query log: .sql, .jsonl or .csv")
    most: float = Field(
        0.1, ge=0, le=1, description="by how much less of the rows the log may skip than the plan's own queries"
    )
    regret: bool = Field(
        False,
        description="also plan the table anew for the log, by Spark, and say how much of what that would save is lost",
    )
    half_life: HalfLife = None
    dialect: Dialect = "spark"
    column: SqlColumn = None


class VacuumSettings(VerbSettings):
    """What a vacuum keeps."""

    table_path: TablePath
    retain_snapshots: int = Field(10, ge=1, description="keep at least so many snapshots, the newest")
    older_than: Age = Field(
        "7d", description="keep what was in use within this time, as 90m, 12h, 7d; longer than any load or query takes"
    )
    dry_run: bool = Field(False, description="only say what would be removed")


class PublishSettings(VerbSettings):
    """Where a table is shown as one of another format."""

    table_path: TablePath
    format: Literal["delta", "iceberg"] = Field(alias="as", description="the format")
    to: Text | None = Field(
        None,
        description="where: a folder, a URL, or iceberg:CATALOG/NAMESPACE.TABLE of a catalog that pyiceberg's "
        "configuration names [default: the table's own folder]",
    )
    forget: bool = Field(
        False, description="publish nothing, and let `vacuum` take the files that only this place still needs"
    )


class RestoreSettings(VerbSettings):
    """Back to an older state."""

    table_path: TablePath
    snapshot: int = Field(ge=0, description="the snapshot to go back to, by its number in `history`")
