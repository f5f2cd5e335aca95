"""Define the settings of every verb, for the command line and `conf/*.toml`: default, help text and validation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import ByteSize, Field

from layoutopt.config.fields import (
    Age,
    Expressions,
    Names,
    NewFile,
    Numbers,
    ParquetIndexes,
    Place,
    Positional,
    Share,
    Span,
    Text,
    Texts,
    Thresholds,
    TimeZone,
    VerbSettings,
    or_installed,
)
from layoutopt.model.documents import LARGEST_COUNT, Codec
from layoutopt.model.methods import AUTO, CHOICES, DEFAULT_BLOCK_ROWS, DEFAULT_PARTITIONER, FILE_BYTES
from layoutopt.model.requests import DELETED_SHARE, REWRITE_SHARE, SAMPLED_QUERIES

if TYPE_CHECKING:
    Method = str
else:  # the choices, as the command line shows and checks them
    Method = Literal[CHOICES]

Partitioner = Literal["portfolio-low", "portfolio", "portfolio-high", "ward", "ward-refined", "qdtree"]
Cost = Literal["cells", "bytes"]

Source = Annotated[
    Place,
    Field(
        description="the rows: a path of Parquet, orc:FOLDER, delta:FOLDER[@VERSION] or "
        "iceberg:CATALOG/NAMESPACE.TABLE[@SNAPSHOT]"
    ),
]
PublishTo = Annotated[
    Texts,
    Field(
        description="then publish the table as FORMAT=PLACE, or FORMAT alone for its own folder: delta, "
        "iceberg=iceberg:CATALOG/NAMESPACE.TABLE; may be given several times"
    ),
]
TablePath = Annotated[Place, Field(alias="table", description="the table's folder or URL")]
Log = Annotated[Place, Field(description="the query log: .sql, .jsonl, .csv, .json or .parquet")]
Dialect = Annotated[
    Text,
    Field(description="the log's SQL dialect, as sqlglot calls it: bigquery, duckdb, postgres, snowflake, trino, ..."),
]
History = Literal["snowflake", "bigquery", "databricks", "redshift", "trino", "athena", "spark-events", "duckdb"]
System = Annotated[
    History | None,
    Field(alias="from", description="the system that wrote the log [default: recognised by its fields]"),
]
SqlColumn = Annotated[Text | None, Field(description="the column or key that holds the SQL [default: sql]")]
PartitionBy = Annotated[Text | None, Field(description="the column whose values are the partitions [default: none]")]
BlockRows = Annotated[int, Field(ge=1, le=LARGEST_COUNT, description="the mean number of rows per block")]
HalfLife = Annotated[
    Span | None,
    Field(
        description="halve a statement's weight for each such time, like 30d, that it is older than the log's newest; "
        "every statement needs a timestamp [default: no decay]"
    ),
]
First = Annotated[Text | None, Field(alias="from", description="load the source's partitions from this value on")]
Last = Annotated[Text | None, Field(alias="to", description="load the source's partitions up to this value")]
FurtherTables = Annotated[
    Texts,
    Field(
        alias="with",
        description="a further table that the query reads, as name=path: a table, Parquet, CSV, delta: or iceberg:; "
        "repeatable",
    ),
]
EventLog = Annotated[
    Text | None,
    Field(
        description="append events to this file as JSON lines; - for stderr (then a job prints only JSON, on "
        "spark-submit's stdout)"
    ),
]

# What runs the tasks of a verb.
Executor = Annotated[
    Literal["auto", "local", "spark"],
    Field(
        description="what runs the tasks: `local`, processes of this machine; `spark`; or `auto`: these processes for "
        "Parquet files, Delta and Iceberg tables of up to 10 million rows (of changes: 100,000), and Spark for "
        "the rest, if PySpark is installed"
    ),
]

MaxBytes = Annotated[
    ByteSize | None,
    Field(
        ge=0,
        description="refuse a query, before anything is read, that would read more compressed bytes than this, like "
        "500MB or 2GiB [default: no limit]",
    ),
]


class AnalyzeSettings(VerbSettings):
    """Settings of `analyze`: a query log becomes features."""

    tuning = frozenset({"weigh", "half_life", "served", "threshold", "num_features", "date_features", "sample"})
    expert = frozenset({"exclude_columns", "max_set", "time_zone", "ansi"})

    log: Log
    schema_source: Text = Field(
        alias="schema",
        description="the table's schema: a Parquet file or folder, a .sql file with DDL, DDL, or "
        "another source as `load` names it",
    )
    table: Text | None = Field(
        None, description="the table's name in the log, and in DDL of several tables [default: any]"
    )
    system: System = None
    weigh: Literal["runs", "bytes"] = Field(
        "runs", description="the weight of a statement of a history: 1, or the bytes that it scanned"
    )
    half_life: HalfLife = None
    served: Share = Field(
        0,
        ge=0,
        le=1,
        description="the share of statements whose engine plans its scans with `serve`, like 50%; `serve` gets only "
        "comparisons of columns with constants, so features follow these parts of the filters",
    )
    dialect: Dialect = "spark"
    column: SqlColumn = None
    threshold: int | None = Field(
        None, ge=1, description="T: keep features that help at least this many queries [default: 1 in 200, at least 2]"
    )
    num_features: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="the most features to find, not counting stricter forms of them [default: as many as help "
        "hold-out queries]",
    )
    date_features: int | None = Field(
        None,
        ge=0,
        le=1024,
        description="the most extra features about dates and timestamps; they guide only column groups "
        "[default: a third of the other features]",
    )
    sample: int = Field(
        SAMPLED_QUERIES, ge=100, description="go on with at most this many of the log's queries, drawn by weight"
    )
    exclude_columns: Names | None = Field(
        None,
        description="columns without features [default: none, but date and timestamp columns have only "
        "--date-features]",
    )
    max_set: int = Field(3, ge=1, le=8, description="the most predicates in a feature")
    time_zone: TimeZone = Field("UTC", description="the session time zone of the queries")
    ansi: bool = Field(True, description="whether the queries run in Spark's ANSI mode")
    output: NewFile = Field(Path("features.json"), description="the file to write: features and analysed queries")


class PlanSettings(VerbSettings):
    """Settings of `plan`: features and a source become a plan."""

    tuning = frozenset({"tune", "partitioner", "storage_budget", "row_order"})
    expert = frozenset(
        {"choose", "parquet_index", "guides", "executor", "num_features", "pairs",
         "segment_rows", "max_vectors", "seed", "codec", "cost", "budget_unit"}
    )  # fmt: skip

    source: Source
    features: Path = Field(Path("features.json"), description="the file from `analyze`")
    pairs: Path | None = Field(
        None,
        description="the pairs that `jobs/featurize.py` counted with the same settings, instead of counting them again",
    )
    partition_by: PartitionBy = None
    method: Annotated[Method, or_installed("methods")] = Field(
        AUTO,
        description="how rows are assigned to blocks; `auto` tries the methods on a sample and takes the one with "
        "which hold-out queries read the fewest bytes",
    )
    by: Names = Field(
        (),
        description="the columns that order the rows; space-filling curves share 62 bits among the columns' quantiles, "
        "at most 16 each [default: the four that filters use most, by weight]",
    )
    guides: Literal["auto", "features", "cuts", "both"] = Field(
        "auto",
        description="how `sop` makes blocks: by features, by cuts at column values, or by both; `auto` takes cuts "
        "where hold-out queries then read fewer bytes",
    )
    partitioner: Annotated[Partitioner, or_installed("partitioners")] = Field(
        DEFAULT_PARTITIONER,
        description="how a load groups feature vectors into blocks: a portfolio takes the best of several by what "
        "the log's queries skip, never worse than `ward`. `portfolio-low` searches for a few percent of a load's time, "
        "`portfolio` for one to four times that, `portfolio-high` for many times",
    )
    tune: bool = Field(
        False,
        description="choose T, numFeat and the block size: plan from the earlier queries, score by the bytes that "
        "later ones read",
    )
    num_features: int | None = Field(
        None,
        ge=1,
        description="numFeat: the most features that guide blocking; the others are only measured "
        "[default: 40 for one layout, all for several]",
    )
    block_rows: BlockRows = DEFAULT_BLOCK_ROWS
    segment_rows: int = Field(
        1_000_000,
        ge=1,
        le=LARGEST_COUNT,
        description="the most rows blocked together; bounds the memory of a load's tasks",
    )
    max_vectors: int = Field(
        3_000,
        ge=1,
        le=LARGEST_COUNT,
        description="the most distinct feature vectors in a segment; features that exceed it are dropped",
    )
    file_bytes: ByteSize = Field(
        ByteSize(FILE_BYTES),
        ge=1,
        le=LARGEST_COUNT,
        description="the size of a data file, like 128MB, at which the next block starts another; smaller files help "
        "engines that skip whole files, and Spark reads smaller footers",
    )
    seed: int = Field(0, ge=0, le=LARGEST_COUNT, description="the random seed")
    codec: Codec = Field("zstd", description="the Parquet compression")
    row_order: Names | None = Field(
        None,
        description="the columns that sort the rows within each block; `auto` chooses them for each layout by the "
        "bytes that the log's queries read; `none` keeps the method's order [default: auto for sop and all kinds of "
        "gsop, otherwise none]",
    )
    index: Expressions = Field(
        (),
        description="indexes for each block, as COLUMN:TYPE or COLUMN:TYPE:NUMBER, for queries without a matching "
        "feature. Types: `bloom` (=, IN; NUMBER is the false-positive rate), `value-list` (comparisons, LIKE; most "
        "values), `hybrid` (either; most listed values), `gap-list` (ranges; gaps), `prefix` and `suffix` (LIKE 'a%', "
        "'%a'; characters), `ngrams` (LIKE '%word%'; share of bits set), `metric-distance` "
        "(levenshtein(COLUMN, 'word') < 3; characters), `formatted` (split_part and the like; parts), `geo-box` "
        "(ranges of struct(LAT, LON); boxes), or an installed type. COLUMN may be an expression: lower(COLUMN), "
        "COLUMN % 10, hour(COLUMN), MAP[KEY], your own function. Arrays, map_keys(MAP) and map_values(MAP) index their "
        "elements (array_contains, exists, MAP[KEY] = 1)",
    )
    index_budget: Share | None = Field(
        None,
        gt=0,
        le=1,
        description="also choose the indexes that save hold-out queries the most bytes per index byte, up to this "
        "share of the data's bytes, like 2% [default: only --index]",
    )
    parquet_index: ParquetIndexes = Field(
        (),
        description="Parquet's own indexes, for engines that read the files directly: `bloom`, filters of the columns "
        "with an index for =; `page`, pages of 1,000 rows with minima and maxima [default: none]",
    )
    cost: Cost = Field(
        "cells", description="what the search for column groups minimises: cells and tids, or their bytes on a sample"
    )
    storage_budget: Numbers | None = Field(
        None,
        description="the most storage of a plan with copies, as a multiple of one copy; several print a curve "
        "[default: 1.2; `auto` tries copies only where it is given]",
    )
    choose: float | None = Field(
        None, ge=1, description="which of several storage budgets gives the written plan [default: the largest]"
    )
    budget_unit: Cost = Field("cells", description="the unit of storage budgets: cells or compressed bytes")
    executor: Executor = "auto"
    output: NewFile = Field(Path("plan.json"), description="the file to write")


class LoadSettings(VerbSettings):
    """Settings of `load`: a source and a plan become a table."""

    source: Source
    table_path: Place = Field(alias="table", description="the table's folder or URL; created if missing")
    plan: Path | None = Field(
        None, description="the file from `plan` [default: the table's newest plan; plan.json for a new table]"
    )
    plan_first: Path | None = Field(
        None,
        description="plan a new table from this file of `analyze`, by the settings in [plan] of --conf; a table that "
        "has a plan keeps it",
    )
    partition: Names = Field(
        (),
        description="load only these partitions, each COLUMN=VALUE, in a commit each [default: all, in one commit]",
    )
    first: First = None
    last: Last = None
    group: int | None = Field(
        None,
        ge=1,
        description="commit so many partitions at a time; a group fills more cores than a small partition [default: 1 "
        "where some are chosen, else all]",
    )
    parallel: int = Field(
        1,
        ge=1,
        le=64,
        description="with Spark, load so many groups at once; its cores bound the tasks and their memory. Processes of "
        "this machine load one group after another, so --executor auto takes Spark for more than 1",
    )
    replace: bool = Field(
        False,
        description="replace existing partitions; without it, the same rows count as done and other rows are refused",
    )
    allow_empty: bool = Field(False, description="accept partitions without rows in the source; they become empty")
    executor: Executor = "auto"
    encrypt: Text | None = Field(
        None,
        description="encrypt a new table with the key (16, 24 or 32 bytes in hexadecimal or base64) from env:NAME, an "
        "environment variable, or command:WORDS, a command that prints it; the table stores the reference, not the key",
    )
    publish: PublishTo = ()
    log_json: EventLog = None


class UpSettings(VerbSettings):
    """Settings of `up`: a table and a log become a table that is laid out for the log."""

    source: Source
    log: Log
    into: Path | None = Field(None, description="the folder of all results [default: layoutopt-TABLE]")
    table: Text | None = Field(None, description="the table's name in the log [default: any]")
    partition_by: Text | None = Field(
        None,
        description="the column whose values are the partitions [default: that of folders' names; or a date column "
        "of at most 400 days with thousands of rows each]",
    )
    quick: bool = Field(False, description="keep the first plan; don't try all methods")
    dialect: Dialect = "spark"
    column: SqlColumn = None
    executor: Executor = "auto"


class SnapshotSettings(VerbSettings):
    """The snapshot that a verb reads."""

    snapshot: int | None = Field(None, ge=0, description="read the snapshot with this number [default: the newest]")
    as_of: Text | None = Field(
        None, description="read the newest snapshot at this time, like 2026-01-31T12:00 (UTC unless an offset is given)"
    )


QueryEngine = Annotated[Literal["duckdb", "spark"], or_installed("engines")]


class QuerySettings(SnapshotSettings):
    """Settings of `query`."""

    table_path: TablePath
    sql: Place = Field(description="the query in Spark's SQL; FROM names the table as its plan does")
    further: FurtherTables = ()
    engine: QueryEngine = Field("duckdb", description="the engine that runs the query")
    limit: int | None = Field(
        None,
        ge=1,
        description="the most rows to print; the query itself is not limited [default: 100, all with --json]",
    )
    output: NewFile | None = Field(
        None, description="write all rows to this file instead: .csv, .jsonl (an object a line) or .parquet"
    )
    max_bytes: MaxBytes = None
    stats: bool = Field(False, description="also print the requests to an object store, their bytes and seconds")
    read_through: int | None = Field(
        None,
        ge=0,
        description="in an object store: read two ranges of a file at once where the gap is at most this many bytes "
        "[default: 131,072]",
    )


class ShellSettings(SnapshotSettings):
    """Settings of `shell`."""

    table_path: TablePath
    further: FurtherTables = ()
    engine: QueryEngine = Field("duckdb", description="the engine that runs the queries")
    limit: int = Field(100, ge=1, description="the most rows to print; a query itself is not limited")
    max_bytes: MaxBytes = None


class ExplainSettings(SnapshotSettings):
    """Settings of `explain`."""

    table_path: TablePath
    sql: Place = Field(
        description="the query in Spark's SQL, or only its condition; FROM names the table as its plan does"
    )
    further: FurtherTables = ()
    predicate: bool = Field(
        False, description="print only the condition on _block with which any Parquet engine skips the same blocks"
    )
    bytes: bool = Field(False, description="print only how many bytes the query would read")


class EvaluateSettings(SnapshotSettings):
    """Settings of `evaluate`."""

    table_path: TablePath
    log: Log
    dialect: Dialect = "spark"
    column: SqlColumn = None
    actual: bool = Field(False, description="also read the table once to count matching rows")
    all: bool = Field(False, description="print a line per query, not only the sums and the worst")
    html: NewFile | None = Field(None, description="also write tables, plots and the worst queries to this HTML file")
    min_skipped: Thresholds = Field(
        (),
        description="exit with 5 if the log's statements skip less than this share of the rows, like 60%; or those of "
        "a user in the log, like dashboard=80%; repeatable",
    )
    fail_on_new_full_scan: Path | None = Field(
        None,
        description="exit with 5 if queries scan the whole table whose family does not in this file, an earlier output "
        "of `evaluate --json`; a family reads and filters by the same columns",
    )


class VerifySettings(SnapshotSettings):
    """Settings of `verify`."""

    table_path: TablePath
    sample: float = Field(
        1.0, gt=0, le=1, description="the share of the data files to read again; with --queries, of the log's queries"
    )
    engine: Literal["local", "spark"] = Field(
        "local", description="what reads the files: threads of this process, or Spark tasks of several files each"
    )
    source: Text | None = Field(None, description="also compare all rows with this source, like events.parquet")
    queries: Text | None = Field(
        None, description="instead prove that no query of this log skips a row that it matches"
    )
    dialect: Dialect = "spark"
    column: SqlColumn = None


class ReloadSettings(VerbSettings):
    """Settings of `reload`."""

    table_path: TablePath
    source: Source
    plan: Path | None = Field(None, description="the file from `plan` [default: the table's newest plan]")
    partition: Names = Field((), description="the partitions to load again, each COLUMN=VALUE, in a commit each")
    first: First = None
    last: Last = None
    executor: Executor = "auto"
    publish: PublishTo = ()
    log_json: EventLog = None


class AdviseSettings(VerbSettings):
    """Settings of `advise`."""

    source: Source
    log: Log
    table: Text | None = Field(None, description="the table's name in the log [default: the one read most]")
    system: System = None
    dialect: Dialect = "spark"
    column: SqlColumn = None
    partition_by: Text | None = Field(
        None, description="the column whose values are the partitions [default: the source's first one, if any]"
    )
    block_rows: BlockRows = DEFAULT_BLOCK_ROWS
    engine: Names = Field(
        (),
        description="print the clustering statements of these engines: spark-delta, databricks, iceberg, spark, "
        "redshift, snowflake, bigquery, ducklake [default: by the source's format or the log's system, else all]",
    )
    queries_per_month: float | None = Field(
        None, gt=0, description="how many queries run in a month [default: from the log's timestamps]"
    )
    price_per_tb: float = Field(
        5.0,
        ge=0,
        description="the price of reading a terabyte (10^12 bytes), in any currency; about 5 dollars is usual",
    )
    html: NewFile | None = Field(None, description="also write the advice to this HTML file")


RewriteShare = Annotated[
    float,
    Field(
        ge=0,
        le=1,
        description="up to this share of changed rows in the affected partitions, write deletion vectors and add new "
        "rows (merge-on-read); above it, and always with 0, rewrite these partitions (copy-on-write)",
    ),
]


class AppendSettings(VerbSettings):
    """Settings of `append`."""

    table_path: TablePath
    source: Source
    batch_id: Text | None = Field(
        None,
        description="the name of the batch; a batch is appended once [default: from the paths, sizes and times of the "
        "source's files; name batches whose files may be copied or rewritten]",
    )
    keep_apart: bool = Field(
        False,
        description="do not compact the small files of earlier appends; otherwise a second commit does so "
        "once several times as many rows have arrived since",
    )
    executor: Executor = "auto"
    publish: PublishTo = ()
    log_json: EventLog = None


class DeleteSettings(VerbSettings):
    """Settings of `delete`."""

    table_path: TablePath
    where: Text = Field(description="the rows, as a condition in Spark's SQL; rows for which it is NULL do not match")
    publish: PublishTo = ()
    rewrite_share: RewriteShare = REWRITE_SHARE
    hard: bool = Field(
        False,
        description="leave no copy: rewrite the partitions, then remove all older snapshots and their files at once, "
        "even if queries or loads still use them",
    )
    executor: Executor = "auto"
    log_json: EventLog = None


class UpdateSettings(VerbSettings):
    """Settings of `update`."""

    table_path: TablePath
    assignments: Texts = Field(
        alias="set", description="'column = expression', computed from the old row; may be given several times"
    )
    where: Text = Field(description="the rows, as a condition in Spark's SQL; rows for which it is NULL do not match")
    publish: PublishTo = ()
    rewrite_share: RewriteShare = REWRITE_SHARE
    executor: Executor = "auto"
    log_json: EventLog = None


class MergeSettings(VerbSettings):
    """Settings of `merge`: a feed of changed, new and deleted rows."""

    table_path: TablePath
    source: Source
    on: Names = Field(
        min_length=1,
        description="the key columns, unique in the source; a source row replaces all rows of the table with its key",
    )
    delete_when: Text | None = Field(
        None, description="a condition on the source's columns; matching rows delete the table's rows with their key"
    )
    publish: PublishTo = ()
    rewrite_share: RewriteShare = REWRITE_SHARE
    executor: Executor = "auto"
    log_json: EventLog = None


class OptimizeSettings(VerbSettings):
    """Settings of `optimize`."""

    expert = frozenset({"horizon", "write_cost", "deleted_share", "plot"})

    table_path: TablePath
    partition: Names = Field((), description="only these partitions, by their keys in `status`")
    log: Text | None = Field(
        None,
        description="a recent query log: make a new plan for its queries from the table's rows [default: use the "
        "newest plan and its queries]",
    )
    plan: Path | None = Field(None, description="use this plan from `plan` instead")
    dialect: Dialect = "spark"
    column: SqlColumn = None
    half_life: HalfLife = None
    auto: bool = Field(
        False,
        description="rewrite a partition only if the queries of --log have lost as much since it was written as "
        "rewriting costs, and would save more within --horizon; for nightly runs. Chooses --half-life from the log",
    )
    horizon: Span = Field("7d", description="with --auto: the time within which the savings must exceed the cost")
    write_cost: float = Field(
        2.0, gt=0, description="with --auto: the cost of rewriting a byte, in bytes that queries read"
    )
    deleted_share: float = Field(
        DELETED_SHARE,
        ge=0,
        le=1,
        description="remove deleted rows from the files of partitions with at least this share of them; 0: always",
    )
    budget_bytes: int | None = Field(
        None,
        ge=1,
        description="rewrite at most this many bytes, the best gain per byte first; of a partition with several "
        "layouts, perhaps only some layouts",
    )
    budget_share: float | None = Field(None, gt=0, le=1, description="the same as a share of the table's bytes")
    parallel: int = Field(
        1, ge=1, le=64, description="rewrite so many partitions at once; Spark's cores bound the tasks and their memory"
    )
    dry_run: bool = Field(False, description="only print what would be rewritten, and why")
    publish: PublishTo = ()
    plot: NewFile | None = Field(
        None,
        description="also plot the gain over the bytes written to this image file, including partial rewrites, which "
        "takes a dry run",
    )
    log_json: EventLog = None


class IndexSettings(VerbSettings):
    """Settings of `index`: indexes of external files."""

    source: Place = Field(
        description="the files: a folder or URL of Parquet, delta:FOLDER or iceberg:CATALOG/NAMESPACE.TABLE"
    )
    into: Text = Field(description="the folder or URL of the indexes; the source's folder is not changed")
    table: Text | None = Field(
        None, description="the source's name in queries [default: the last part of its path or name]"
    )
    index: Expressions = Field(
        (),
        description="indexes for each row group, as COLUMN:TYPE or COLUMN:TYPE:NUMBER, with the types of `plan "
        "--index`; minima and maxima come from the files' footers [default: the existing indexes]",
    )
    log: Text | None = Field(
        None, description="a query log (.sql, .jsonl or .csv): also build the indexes that help its queries"
    )
    index_budget: Share | None = Field(
        None,
        gt=0,
        le=1,
        description="build the indexes that save the log's queries the most bytes per index byte, up to this share of "
        "the source's bytes, like 2% [default: all that the log suggests]",
    )
    dialect: Dialect = "spark"
    column: SqlColumn = None


class RefreshSettings(VerbSettings):
    """Settings of `refresh`."""

    index: Place = Field(description="the folder or URL of the indexes")


class FilesSettings(VerbSettings):
    """Settings of `files`."""

    table_path: TablePath
    layout: int = Field(0, ge=0, description="the number of the layout")


class HistorySettings(VerbSettings):
    """Settings of `history`."""

    table_path: TablePath
    sources: bool = Field(
        False, description="also list the source's files that each snapshot's new rows came from, where they are known"
    )


class StatusSettings(VerbSettings):
    """Settings of `status`."""

    table_path: TablePath


class DriftSettings(VerbSettings):
    """Settings of `drift`."""

    table_path: TablePath
    log: Place = Field(description="a recent query log: .sql, .jsonl or .csv")
    most: float = Field(
        0.1, ge=0, le=1, description="how far the share of skipped rows may fall below that of the plan's own queries"
    )
    regret: bool = Field(
        False,
        description="also replan the table for the log with Spark, and print what share of its savings is lost",
    )
    half_life: HalfLife = None
    dialect: Dialect = "spark"
    column: SqlColumn = None


class ExpireSettings(VerbSettings):
    """Settings of `expire`."""

    table_path: TablePath
    partition: Names = Field((), description="drop these partitions, each COLUMN=VALUE")
    before: Text | None = Field(
        None,
        description="drop the partitions whose value is less than this one, of the partition column's type, like "
        "2024-01-01, 2024 or 202401; times are in UTC unless an offset is given; NULL stays",
    )
    keep: Span | None = Field(
        None,
        description="drop the partitions that are older than this, like 400d, by a partition column of dates or "
        "timestamps; for nightly runs",
    )
    all: bool = Field(False, description="drop them even if no partition is left")
    dry_run: bool = Field(False, description="only print what would be dropped")
    publish: PublishTo = ()


class VacuumSettings(VerbSettings):
    """Settings of `vacuum`."""

    table_path: TablePath
    retain_snapshots: int = Field(10, ge=1, description="keep at least this many of the newest snapshots")
    older_than: Age = Field(
        "7d", description="keep what was in use within this time, like 90m, 12h, 7d; exceed the longest load or query"
    )
    dry_run: bool = Field(False, description="only print what would be removed")


class PublishSettings(VerbSettings):
    """Settings of `publish`."""

    table_path: TablePath
    format: Literal["delta", "iceberg"] = Field(alias="as", description="the format")
    to: Text | None = Field(
        None,
        description="the place: a folder, a URL, or iceberg:CATALOG/NAMESPACE.TABLE with a catalog of pyiceberg's "
        "configuration [default: the table's own folder]",
    )
    forget: bool = Field(
        False, description="publish nothing, and let `vacuum` remove the files that only this place still needs"
    )


class RestoreSettings(VerbSettings):
    """Settings of `restore`."""

    table_path: TablePath
    snapshot: int = Field(ge=0, description="the number of the snapshot in `history`")


class ServeSettings(VerbSettings):
    """Settings of `serve`."""

    expert = frozenset({"max_body_bytes", "max_body_seconds", "max_requests", "max_filter_depth", "threads"})

    tables: Annotated[Texts, Positional()] = Field(
        (), description="the tables: FOLDER (or a URL; its last part is the name), NAME=FOLDER or NAMESPACE.NAME=FOLDER"
    )
    root: Text | None = Field(
        None, description="also serve every table below this folder or URL: ROOT/TABLE and ROOT/NAMESPACE/TABLE"
    )
    host: Text = Field("127.0.0.1", description="the address to listen on; any but localhost needs a token")
    port: int = Field(8181, ge=0, le=65_535, description="the port to listen on; 0 for any free one")
    token_file: Path | None = Field(
        None, description="a file of tokens, one per line; every request needs one of them [default: no token]"
    )
    manifests: Text | None = Field(
        None,
        description="a folder or URL for manifests, readable by clients that plan scans themselves [default: a "
        "temporary folder]",
    )
    history: int = Field(0, ge=0, le=1000, description="how many older snapshots of each table clients may read by id")
    max_bytes: MaxBytes = None
    max_body_bytes: int = Field(4 << 20, ge=1_000, description="the largest body of a request in bytes")
    max_body_seconds: float = Field(30, gt=0, description="the longest time to receive a body")
    max_requests: int = Field(
        256, ge=1, description="the most concurrent requests, including waiting ones; more get status 429"
    )
    max_filter_depth: int = Field(200, ge=1, le=400, description="the deepest nesting of a filter")
    threads: int = Field(
        4,
        ge=1,
        le=256,
        description="how many scans are planned at a time; the same number of tables is loaded in parallel",
    )
    log_json: Text | None = Field(
        None, description="append a JSON line for each request and each failure to this file; - for stderr"
    )


class BenchSettings(VerbSettings):
    """Settings of `bench`."""

    experiment: Annotated[Literal["demo"], Positional()] = Field(description="`demo`: TPC-H, from generator to report")
    sf: float = Field(0.1, gt=0, description="the scale factor of TPC-H")
    folder: Path = Field(Path("build/tpch"), description="the folder of the generated tables and the results")
