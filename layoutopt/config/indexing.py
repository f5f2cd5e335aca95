"""The settings of `index` and `refresh`."""

from __future__ import annotations

from pydantic import Field

from layoutopt.config.fields import Expressions, Place, Share, Text, VerbSettings
from layoutopt.config.settings import Dialect, SqlColumn


class IndexSettings(VerbSettings):
    """Indexes of files that somebody else keeps."""

    source: Place = Field(
        description="whose files: a folder or URL of Parquet, delta:FOLDER or iceberg:CATALOG/NAMESPACE.TABLE"
    )
    into: Text = Field(description="the folder or URL of the indexes; nothing is written into the source's own")
    table: Text | None = Field(
        None, description="the name that queries call the source by [default: the last part of its path or name]"
    )
    index: Expressions = Field(
        (),
        description="what each row group is indexed by, as COLUMN:TYPE or COLUMN:TYPE:NUMBER, with the types of `plan "
        "--index`; minima and maxima are taken from the files' footers [default: those that there are]",
    )
    log: Text | None = Field(
        None, description="a query log, .sql, .jsonl or .csv: also build the indexes that its queries ask for"
    )
    index_budget: Share | None = Field(
        None,
        gt=0,
        le=1,
        description="of the indexes that the log might use build those that save its queries the most bytes for each "
        "of their own, of at most this share of the source's bytes, like 2% [default: whatever the texts ask for]",
    )
    dialect: Dialect = "spark"
    column: SqlColumn = None


class RefreshSettings(VerbSettings):
    """Indexes that are to be brought up to date."""

    index: Place = Field(description="the folder or URL of the indexes")
