"""The settings of every verb: default, meaning and validation in one place, for the command line and `conf/*.toml`."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import ByteSize, Field, model_validator

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
    TimeZone,
    VerbSettings,
    or_installed,
)
from layoutopt.model.documents import LARGEST_COUNT, Codec
from layoutopt.model.methods import CHOICES

# ----------------------------------------------------------------------------------------------------
# The settings by which a plan is made as the thesis has it (Sun 2017), one by one or all together.

_AS_WRITTEN: Final = MappingProxyType(
    {
        "guides": "features",
        "weights": "subsumed",
        "slices": False,
        "partitioner": "ward",
        "row_order": ("none",),
        "search": "text",
        "local_features": "count",
    }
)

Weights = Annotated[
    Literal["marginal", "subsumed"],
    Field(
        description="what a feature counts for while blocks are made: the rows that queries skip by it beyond stricter "
        "features, or all queries that it subsumes (the thesis's Equation 3.1)",
    ),
]
Slices = Annotated[
    bool,
    Field(description="whether ranges of the most filtered column that no feature is about guide blocks too"),
]
Search = Annotated[
    Literal["default", "text"],
    Field(
        description="how `gsop` and `gsop-r` search: `text` is as the thesis has it, which takes minutes: groups "
        "merged by the estimate by blocks alone, copies made feature by feature (Algorithms 1 and 2)",
    ),
]
LocalFeatures = Annotated[
    Literal["selectivity", "count"],
    Field(
        description="how the features that guide a column group are ranked: by weight and selectivity, of which fewer "
        "than fit are tried too, or by the number of queries (the thesis's 4.5)",
    ),
]
AsWritten = Annotated[
    bool,
    Field(
        description="plan as the thesis has it: --guides features --weights subsumed --no-slices --partitioner ward "
        "--row-order none --search text --local-features count, each unless given",
    ),
]


def with_as_written(values: Any) -> Any:
    """The thesis's settings too, where ``as_written`` is asked for and they are not given otherwise."""
    asked = isinstance(values, dict) and (values.get("as_written") or values.get("as-written"))
    given = {str(key).replace("-", "_") for key in values} if asked else set()
    return {**values, **{key: value for key, value in _AS_WRITTEN.items() if key not in given}} if asked else values


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
"""How large a data file may grow, where nobody says otherwise (docs/performance.md#load)."""


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


# ----------------------------------------------------------------------------------------------------
# The settings of `advise`.


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


# ----------------------------------------------------------------------------------------------------
# The settings of the verbs that change a table that is there.

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


# ----------------------------------------------------------------------------------------------------
# The settings of `index` and `refresh`.


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


# ----------------------------------------------------------------------------------------------------
# The settings of the verbs that say what a table holds, and decide what of it is kept and shown.


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


# ----------------------------------------------------------------------------------------------------
# The settings of the server.


class ServeSettings(VerbSettings):
    """Tables as an Iceberg REST catalog."""

    tables: Annotated[Texts, Positional()] = Field(
        (), description="the tables: FOLDER (or a URL), called by its last part, NAME=FOLDER or NAMESPACE.NAME=FOLDER"
    )
    root: Text | None = Field(
        None, description="also serve every table below this folder or URL: ROOT/TABLE and ROOT/NAMESPACE/TABLE"
    )
    host: Text = Field("127.0.0.1", description="the address to listen on; another than this machine's needs a token")
    port: int = Field(8181, ge=0, le=65_535, description="the port to listen on; 0 for any that is free")
    token_file: Path | None = Field(
        None, description="a file of tokens, one a line, of which every request has to bear one [default: none needed]"
    )
    manifests: Text | None = Field(
        None,
        description="a folder or URL for the manifests of clients that plan scans on their own; they have to be able "
        "to read it [default: a temporary folder]",
    )
    history: int = Field(
        0, ge=0, le=1000, description="how many older snapshots of each table clients may ask for by their ids"
    )
    max_body_bytes: int = Field(4 << 20, ge=1_000, description="the longest body of a request")
    max_body_seconds: float = Field(30, gt=0, description="the longest time that a body may take to come")
    max_requests: int = Field(256, ge=1, description="the most requests at a time, waiting ones too; more get a 429")
    max_filter_depth: int = Field(200, ge=1, le=400, description="how deep filters may be nested")
    threads: int = Field(
        4, ge=1, le=256, description="how many scans are planned at a time; as many tables are loaded beside"
    )
    log_json: Text | None = Field(
        None, description="add a JSON line for each request, and for each failure, to this file; - for stderr"
    )
