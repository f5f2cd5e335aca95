"""The settings of every verb: default, meaning and validation in one place, for the command line and `conf/*.toml`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import ByteSize, Field, model_validator

from layoutopt.config.as_written import AsWritten, LocalFeatures, Search, Slices, Weights, with_as_written
from layoutopt.config.fields import (
    Expressions,
    Names,
    NewFile,
    Numbers,
    ParquetIndexes,
    Place,
    Share,
    Span,
    Text,
    Texts,
    TimeZone,
    VerbSettings,
    or_installed,
)
from layoutopt.model.documents import LARGEST_COUNT, Codec
from layoutopt.model.methods import CHOICES

if TYPE_CHECKING:
    Method = str
else:  # the choices, as the command line shows and checks them
    Method = Literal[CHOICES]

Partitioner = Literal["ward", "ward-refined", "portfolio", "qdtree"]
Cost = Literal["cells", "bytes"]
TimedEngine = Literal["spark", "duckdb", "arrow"]


CalibrationFile = Annotated[
    Path | None,
    Field(description="predict seconds by what `calibrate` wrote [default: by costs measured elsewhere]"),
]
Source = Annotated[
    Place,
    Field(
        description="the rows: a path that Spark reads (Parquet), delta:FOLDER[@VERSION] or "
        "iceberg:CATALOG/NAMESPACE.TABLE[@SNAPSHOT]"
    ),
]
PublishTo = Annotated[
    Texts,
    Field(
        description="afterwards show the table as FORMAT=PLACE, or FORMAT alone for its own folder, as `publish` does: "
        "delta, iceberg=iceberg:CATALOG/NAMESPACE.TABLE; repeat the flag for more"
    ),
]
TablePath = Annotated[Place, Field(alias="table", description="the table's folder or URL")]
Log = Annotated[Place, Field(description="the query log: .sql, .jsonl, .csv, .json or .parquet")]
Dialect = Annotated[
    Text,
    Field(description="the log's SQL dialect, as sqlglot calls it: bigquery, duckdb, postgres, snowflake, trino, ..."),
]
History = Literal["snowflake", "bigquery", "databricks", "redshift", "trino", "athena", "spark-events", "duckdb"]
SqlColumn = Annotated[Text | None, Field(description="the column or key that holds the SQL [default: sql]")]
HalfLife = Annotated[
    Span | None,
    Field(
        description="let a statement count half as much for each such time, like 30d, that it is older than the log's "
        "newest; every one needs a timestamp [default: all count alike]"
    ),
]
First = Annotated[Text | None, Field(alias="from", description="load the source's partitions from this value on")]
Last = Annotated[Text | None, Field(alias="to", description="load the source's partitions up to this value")]
EventLog = Annotated[
    Text | None,
    Field(
        description="add the load's events to this file as JSON lines; - for stderr (a job's every line is JSON then, "
        "which spark-submit puts on stdout)"
    ),
]


class AnalyzeSettings(VerbSettings):
    """From a query log to features."""

    log: Log
    schema_source: Text = Field(
        alias="schema",
        description="the table's schema: a Parquet file or folder, a .sql file with DDL, DDL, or a Delta or "
        "Iceberg table as `load` names it",
    )
    table: Text | None = Field(None, description="the table's name in the log [default: the only one, or any]")
    system: History | None = Field(
        None, alias="from", description="the system that the log is a history of [default: as its fields tell, if any]"
    )
    weigh: Literal["runs", "bytes"] = Field(
        "runs", description="what a statement of a history weighs: 1, or the bytes that it scanned"
    )
    half_life: HalfLife = None
    served: Share = Field(
        0,
        ge=0,
        le=1,
        description="the share of the statements that engines ask `serve` for, like 50%: of these only comparisons of "
        "columns with constants arrive, so that blocks have to suit what is left of a filter",
    )
    dialect: Dialect = "spark"
    column: SqlColumn = None
    threshold: int | None = Field(
        None, ge=1, description="T: a feature helps at least this many queries [default: one in 200, at least 2]"
    )
    num_features: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="the most features to find, but for stricter forms of them [default: as many as help queries held "
        "back from the log]",
    )
    date_features: int | None = Field(
        None,
        ge=0,
        le=1024,
        description="the most features about single dates and timestamps, after the others; they guide only column "
        "groups [default: a third of the others]",
    )
    exclude_columns: Names | None = Field(
        None,
        description="columns that make no features at all [default: those of date and timestamp types make only "
        "--date-features]",
    )
    max_set: int = Field(3, ge=1, le=8, description="the most predicates of one feature")
    selection: Literal["coverage", "text"] = Field(
        "coverage", description="how features are ranked: by what each adds, or as in the thesis (3.3.3)"
    )
    time_zone: TimeZone = Field("UTC", description="the session time zone under which the queries run")
    ansi: bool = Field(True, description="whether the queries run in Spark's ANSI mode")
    output: NewFile = Field(Path("features.json"), description="the file to write: features and analysed queries")
    plot: NewFile | None = Field(None, description="also draw filter commonality and stability to this image file")


FILE_BYTES: Final = 32_000_000
"""How large a data file may grow, where nobody says otherwise (docs/decisions/0037)."""


class PlanSettings(VerbSettings):
    """From features and a source to a plan."""

    source: Source
    features: Path = Field(Path("features.json"), description="what `analyze` wrote")
    partition_by: Text | None = Field(None, description="the column whose every value is a partition [default: none]")
    method: Annotated[Method, or_installed("methods")] = Field(
        "auto",
        description="how rows are put into blocks; `auto` tries the methods on a sample and takes the one by which "
        "queries held back read the fewest bytes",
    )
    objective: Literal["bytes", "cells", "time"] = Field(
        "bytes",
        description="what `auto` chooses by: the bytes or cells that queries read, or the seconds that they are "
        "predicted to take; by time it chooses --block-rows too where that is not given",
    )
    engine: TimedEngine = Field("spark", description="the engine whose seconds are predicted by --objective time")
    calibration: CalibrationFile = None
    by: Names = Field(
        (),
        description="the columns that order the rows [default: the four that the log's filters use most, by weight]; "
        "curves take as many bits of each column's quantiles as fit 62 together, 16 at most",
    )
    guides: Literal["auto", "features", "cuts", "both"] = Field(
        "auto",
        description="what the blocks of `sop` are made by: like features, cuts at values of columns, or cuts at both; "
        "`auto` takes cuts where queries held back read fewer bytes by them",
    )
    partitioner: Annotated[Partitioner, or_installed("partitioners")] = Field(
        "portfolio",
        description="how a load makes blocks of feature vectors: `portfolio` is the best of several by what queries "
        "really skip, never worse than `ward` for the log",
    )
    tune: bool = Field(
        False,
        description="choose T, numFeat and the block size by cross-validation: plan from the earlier queries, score by "
        "the bytes that the later ones read",
    )
    tune_plot: NewFile | None = Field(None, description="draw what --tune tried to this image file")
    resamples: int = Field(
        0,
        ge=0,
        description="judge plans in `auto` and --tune by the worst quarter of so many resamples of the log, so that "
        "none lives on a few queries",
    )
    weights: Weights = "marginal"
    slices: Slices = True
    search: Search = "default"
    local_features: LocalFeatures = "selectivity"
    as_written: AsWritten = False
    effort: Literal["low", "default", "high"] = Field(
        "low",
        description="how long the portfolio searches: `low` takes some hundredths of a load's time, `default` one to "
        "four times that, `high` many times",
    )
    num_features: int | None = Field(
        None,
        ge=1,
        description="numFeat: the most features that guide blocking; all others are only measured "
        "[default: 40 for one layout, all for several]",
    )
    block_rows: int = Field(10_000, ge=1, le=LARGEST_COUNT, description="the mean number of rows of a block")
    segment_rows: int = Field(
        1_000_000,
        ge=1,
        le=LARGEST_COUNT,
        description="the most rows partitioned together; bounds the memory of a load's tasks",
    )
    max_vectors: int = Field(
        3_000,
        ge=1,
        le=LARGEST_COUNT,
        description="the most distinct feature vectors of a segment; features beyond that are given up",
    )
    file_bytes: ByteSize = Field(
        ByteSize(FILE_BYTES),
        ge=1,
        le=LARGEST_COUNT,
        description="how large a data file may grow, as 128MB, before the next block goes to another; engines that "
        "skip files as a whole skip more of smaller ones, and Spark reads less of their footers",
    )
    seed: int = Field(0, ge=0, le=LARGEST_COUNT, description="the seed of everything that draws at random")
    codec: Codec = Field("zstd", description="the Parquet compression")
    row_order: Names | None = Field(
        None,
        description="the columns that sort the rows within each block; `auto` chooses them for each layout, so that "
        "the log's queries read the fewest bytes; `none` leaves rows as the method has them [default: auto for sop and "
        "gsop with all its kinds, none for the others]",
    )
    index: Expressions = Field(
        (),
        description="what each block is indexed by, as COLUMN:TYPE or COLUMN:TYPE:NUMBER, for queries that no feature "
        "foresaw: `bloom` (= and IN; the share of false positives), `value-list` (any comparison, LIKE; the most "
        "values), `hybrid` (either; the most values listed), `gap-list` (ranges between values; gaps), `prefix` and "
        "`suffix` (LIKE 'a%' and '%a'; characters), `ngrams` (LIKE '%word%'; the share of bits set), `metric-distance` "
        "(levenshtein(COLUMN, 'word') < 3; characters), `formatted` (of split_part and the like; pieces), `geo-box` "
        "(of struct(LAT, LON), ranges of both; boxes), or an installed one; also of expressions, as lower(COLUMN), "
        "COLUMN % 10, hour(COLUMN), MAP[KEY] or a function of your own; of an array, map_keys(MAP) or map_values(MAP) "
        "its elements (array_contains, exists, MAP[KEY] = 1)",
    )
    index_budget: Share | None = Field(
        None,
        gt=0,
        le=1,
        description="choose indexes too: those that save queries held back the most bytes for each of their own, of at "
        "most this share of the data's bytes, like 2% [default: none but those of --index]",
    )
    parquet_index: ParquetIndexes = Field(
        (),
        description="Parquet's own indexes in data files, for engines that read these as they are: `bloom`, filters of "
        "the columns that indexes for = are of; `page`, pages of 1,000 rows with minima and maxima [default: none]",
    )
    cost: Cost = Field(
        "cells", description="what column groups are searched by: cells and tids read, or their bytes on a sample"
    )
    storage_budget: Numbers = Field(
        (1.2,), description="with copies: what may be stored over the table stored once; several print the curve"
    )
    choose: float | None = Field(
        None, ge=1, description="of several storage budgets the one whose plan is written [default: the largest]"
    )
    budget_unit: Cost = Field("cells", description="what storage budgets count: cells, or compressed bytes")
    copies: int = Field(2, ge=1, description="how often `gsop-fullcopy` stores the table")
    output: NewFile = Field(Path("plan.json"), description="the file to write")

    @model_validator(mode="before")
    @classmethod
    def _as_written(cls, values: Any) -> Any:
        return with_as_written(values)


class LoadSettings(VerbSettings):
    """From a source and a plan to a table."""

    source: Source
    table_path: Place = Field(alias="table", description="the table's folder or URL; made if missing")
    plan: Path | None = Field(
        None, description="what `plan` wrote [default: the newest plan of the table; plan.json for a new one]"
    )
    partition: Names = Field(
        (),
        description="load only these partitions, each as COLUMN=VALUE, one commit each [default: all, in one commit]",
    )
    first: First = None
    last: Last = None
    replace: bool = Field(
        False,
        description="load partitions again that are there; else the same rows count as done and others are refused",
    )
    allow_empty: bool = Field(
        False, description="a partition without rows in the source becomes empty; else that is a failure"
    )
    encrypt: Text | None = Field(
        None,
        description="encrypt a new table by the key of 16, 24 or 32 bytes, in hexadecimal or base64, that is to be had "
        "by env:NAME, an environment variable, or command:WORDS, a command that prints it; the table keeps the "
        "reference, not the key",
    )
    publish: PublishTo = ()
    log_json: EventLog = None


class SnapshotSettings(VerbSettings):
    """Which state of a table is read."""

    snapshot: int | None = Field(None, ge=0, description="read the snapshot of this number [default: the newest]")
    as_of: Text | None = Field(
        None, description="read the snapshot that was the newest at this time: 2026-01-31T12:00, in UTC unless it says"
    )


class QuerySettings(SnapshotSettings):
    """A query's answer."""

    table_path: TablePath
    sql: Place = Field(description="the query, in Spark's SQL; the table is called by its name in the plan")
    engine: Annotated[Literal["duckdb", "spark"], or_installed("engines")] = Field(
        "duckdb", description="what computes the answer"
    )
    limit: int | None = Field(
        None, ge=1, description="the most rows printed; the query itself is not limited [default: 100, all as JSON]"
    )
    stats: bool = Field(False, description="also say what was asked of an object store: requests, bytes, seconds")
    read_through: int | None = Field(
        None,
        ge=0,
        description="in an object store: the most bytes between two ranges of a file that are read along with them to "
        "save a request [default: 131,072]",
    )


class ExplainSettings(SnapshotSettings):
    """What a query reads, and why not less."""

    table_path: TablePath
    sql: Place = Field(
        description="the query in Spark's SQL, or its condition alone; the table is called by its name in the plan"
    )
    predicate: bool = Field(
        False, description="print the condition on _block that makes any Parquet engine skip the same blocks"
    )
    bytes: bool = Field(False, description="print how many bytes the query would read, and no more")
    calibration: CalibrationFile = None


class EvaluateSettings(SnapshotSettings):
    """What a log would read."""

    table_path: TablePath
    log: Log
    dialect: Dialect = "spark"
    column: SqlColumn = None
    actual: bool = Field(False, description="also read the table once and count the rows that match")
    all: bool = Field(False, description="print a line for each query too, not only the sums and the worst")
    calibration: CalibrationFile = None
    html: NewFile | None = Field(
        None, description="also write a page with tables, plots and the worst queries to this file"
    )


class VerifySettings(SnapshotSettings):
    """Whether a table's files hold what its catalog says."""

    table_path: TablePath
    sample: float = Field(1.0, gt=0, le=1, description="the share of the data files that is read again")
    engine: Literal["local", "spark"] = Field(
        "local", description="what reads the files again: some threads here, or tasks of Spark, each a run of files"
    )
    source: Text | None = Field(None, description="also compare all rows with their source, like events.parquet")
    queries: Text | None = Field(None, description="audit instead: prove that no query of this log skips a row for it")
    dialect: Dialect = "spark"
    column: SqlColumn = None


class ReloadSettings(VerbSettings):
    """Partitions of a table once more, from a source and perhaps by another plan."""

    table_path: TablePath
    source: Source
    plan: Path | None = Field(None, description="what `plan` wrote [default: the table's newest plan]")
    partition: Names = Field((), description="the partitions to load again, each as COLUMN=VALUE, one commit each")
    first: First = None
    last: Last = None
    publish: PublishTo = ()
    log_json: EventLog = None
