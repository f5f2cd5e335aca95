"""The settings of every verb: default, meaning and validation in one place, for the command line and `conf/*.toml`.

A configuration file has one table a verb, with the flags' names as keys (`block-rows` or `block_rows`), and a table
`[spark]` with properties for the Spark session::

    [analyze]
    log = "queries.jsonl"
    schema = "events.parquet"
    num-features = 40

    [spark]
    "spark.driver.memory" = "4g"

What is given on the command line comes before the file, and the file before the defaults.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from layoutopt.errors import SettingError

SPARK_SECTION: Final = "spark"
DEFAULT_PLAN: Final = Path("plan.json")
_LARGEST: Final = 2**53  # what a plan takes
_DIALECT: Final = "the log's SQL dialect, as sqlglot calls it: bigquery, duckdb, postgres, snowflake, trino, ..."


def _listed(value: object) -> object:
    """Lists may be written as one text with commas, in a file or after a flag, or repeat the flag."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple):
        return texts
    return tuple(part.strip() for text in texts for part in str(text).split(",") if part.strip())


def _filled(value: object) -> object:
    if isinstance(value, str) and not value.strip():
        raise ValueError("is empty")
    return value


def parse_age(text: str) -> timedelta:
    """A time written as a number and a unit.

    Raises:
        ValueError: the text is none.

    >>> parse_age("90m"), parse_age("7d")
    (datetime.timedelta(seconds=5400), datetime.timedelta(days=7))
    """
    match = re.fullmatch(r"([0-9]{1,6})([smhdw])", text)
    if match is None:
        raise ValueError("should be a number and one of s, m, h, d, w, as in 7d")
    seconds = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}[match[2]]
    return timedelta(seconds=int(match[1]) * seconds)


def _checked_age(text: str) -> str:
    parse_age(text)
    return text


Age = Annotated[str, AfterValidator(_checked_age)]
Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]
Numbers = Annotated[tuple[float, ...], BeforeValidator(_listed)]
Text = Annotated[str, BeforeValidator(_filled)]

Method = Literal[
    "sop",
    "gsop",
    "gsop-single",
    "gsop-hillclimb",
    "gsop-hyrise",
    "gsop-r",
    "gsop-selective",
    "gsop-fullcopy",
    "input-order",
    "sort",
    "range",
    "zorder",
    "hilbert",
    "qdtree",
    "predicate-sort",
    "auto",
]


Cost = Literal["cells", "bytes"]


class Positional:
    """Marks a setting that the command line takes by its place, not by a flag."""


Place = Annotated[Text, Positional()]


class VerbSettings(BaseModel):
    """The settings of one verb. Keys that are no setting are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, defer_build=True)


class AnalyzeSettings(VerbSettings):
    """From a query log to features."""

    log: Place = Field(description="the query log: .sql, .jsonl or .csv")
    schema_source: Text = Field(
        alias="schema", description="the table's schema: a Parquet file or folder, a .sql file with DDL, or DDL"
    )
    table: Text | None = Field(None, description="the table's name in the log [default: the only one, or any]")
    dialect: Text = Field("spark", description=_DIALECT)
    column: Text | None = Field(None, description="the column or key that holds the SQL [default: sql]")
    threshold: int | None = Field(
        None, ge=1, description="T: a feature helps at least this many queries [default: one in 200, at least 2]"
    )
    num_features: int = Field(
        64, ge=1, le=1024, description="the most features to find, but for stricter forms of them"
    )
    date_features: int | None = Field(
        None,
        ge=0,
        le=1024,
        description="the most features about single dates and timestamps, after the others; they guide only column "
        "groups [default: a third of --num-features]",
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
    deterministic_udfs: Names = Field((), description="boolean functions of your own that may make features")
    time_zone: Text = Field("UTC", description="the session time zone under which the queries run")
    ansi: bool = Field(True, description="whether the queries run in Spark's ANSI mode")
    output: Path = Field(Path("features.json"), description="the file to write: features and analysed queries")
    plot: Path | None = Field(None, description="also draw filter commonality and stability to this image file")


class PlanSettings(VerbSettings):
    """From features and a source to a plan."""

    source: Place = Field(description="the rows: a path that Spark reads (Parquet)")
    features: Path = Field(Path("features.json"), description="what `analyze` wrote")
    partition_by: Text | None = Field(None, description="the column whose every value is a partition [default: none]")
    method: Method = Field(
        "auto",
        description="how rows are put into blocks; `auto` tries the methods on a sample and takes the one by which "
        "queries held back read the fewest bytes",
    )
    by: Names = Field(
        (),
        description="the columns that order the rows [default: the four that the log's filters use most, by weight]; "
        "curves take as many bits of each column's quantiles as fit 62 together, 16 at most",
    )
    partitioner: Literal["ward", "ward-refined", "portfolio", "qdtree"] = Field(
        "portfolio",
        description="how a load makes blocks of feature vectors: `portfolio` is the best of several by what queries "
        "really skip, never worse than `ward` for the log",
    )
    tune: bool = Field(
        False,
        description="choose T, numFeat and the block size by cross-validation: plan from the earlier queries, score by "
        "the bytes that the later ones read",
    )
    tune_plot: Path | None = Field(None, description="draw what --tune tried to this image file")
    resamples: int = Field(
        0,
        ge=0,
        description="judge plans in `auto` and --tune by the worst quarter of so many resamples of the log, so that "
        "none lives on a few queries",
    )
    effort: Literal["low", "default", "high"] = Field(
        "low",
        description="how long the portfolio searches: `low` costs a load next to nothing, `default` up to a third more "
        "time, `high` many times that",
    )
    num_features: int | None = Field(
        None,
        ge=1,
        description="numFeat: the most features that guide blocking; all others are only measured "
        "[default: 40 for one layout, all for several]",
    )
    block_rows: int = Field(10_000, ge=1, le=_LARGEST, description="the mean number of rows of a block")
    segment_rows: int = Field(
        1_000_000,
        ge=1,
        le=_LARGEST,
        description="the most rows partitioned together; bounds the memory of a load's tasks",
    )
    max_vectors: int = Field(
        3_000,
        ge=1,
        le=_LARGEST,
        description="the most distinct feature vectors of a segment; features beyond that are given up",
    )
    seed: int = Field(0, ge=0, le=_LARGEST, description="the seed of everything that draws at random")
    codec: Literal["zstd", "snappy", "gzip", "lz4", "none"] = Field("zstd", description="the Parquet compression")
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
    output: Path = Field(Path("plan.json"), description="the file to write")


class LoadSettings(VerbSettings):
    """From a source and a plan to a table."""

    source: Place = Field(description="the rows: a path that Spark reads (Parquet)")
    table_path: Place = Field(alias="table", description="the table's folder or URL; made if missing")
    plan: Path | None = Field(
        None, description="what `plan` wrote [default: the newest plan of the table; plan.json for a new one]"
    )
    partition: Names = Field(
        (),
        description="load only these partitions, each as COLUMN=VALUE, one commit each [default: all, in one commit]",
    )
    first: Text | None = Field(None, alias="from", description="load the source's partitions from this value on")
    last: Text | None = Field(None, alias="to", description="load the source's partitions up to this value")
    replace: bool = Field(
        False,
        description="load partitions again that are there; else the same rows count as done and others are refused",
    )
    allow_empty: bool = Field(
        False, description="a partition without rows in the source becomes empty; else that is a failure"
    )
    log_json: Text | None = Field(
        None,
        description="add the load's events to this file as JSON lines; - for stderr (a job's every line is JSON then, "
        "which spark-submit puts on stdout)",
    )


class SnapshotSettings(VerbSettings):
    """Which state of a table is read."""

    snapshot: int | None = Field(None, ge=0, description="read the snapshot of this number [default: the newest]")
    as_of: Text | None = Field(
        None, description="read the snapshot that was the newest at this time: 2026-01-31T12:00, in UTC unless it says"
    )


class QuerySettings(SnapshotSettings):
    """A query's answer."""

    table_path: Place = Field(alias="table", description="the table's folder or URL")
    sql: Place = Field(description="the query, in Spark's SQL; the table is called by its name in the plan")
    engine: Literal["duckdb", "spark"] = Field("duckdb", description="what computes the answer")
    limit: int | None = Field(
        None, ge=1, description="the most rows printed; the query itself is not limited [default: 100, all as JSON]"
    )


class ExplainSettings(SnapshotSettings):
    """What a query reads, and why not less."""

    table_path: Place = Field(alias="table", description="the table's folder or URL")
    sql: Place = Field(
        description="the query in Spark's SQL, or its condition alone; the table is called by its name in the plan"
    )
    predicate: bool = Field(
        False, description="print the condition on _block that makes any Parquet engine skip the same blocks"
    )
    bytes: bool = Field(False, description="print how many bytes the query would read, and no more")


class EvaluateSettings(SnapshotSettings):
    """What a log would read."""

    table_path: Place = Field(alias="table", description="the table's folder or URL")
    log: Place = Field(description="the query log: .sql, .jsonl or .csv")
    dialect: Text = Field("spark", description=_DIALECT)
    column: Text | None = Field(None, description="the column or key that holds the SQL [default: sql]")
    actual: bool = Field(False, description="also read the table once and count the rows that match")
    all: bool = Field(False, description="print a line for each query too, not only the sums and the worst")
    html: Path | None = Field(
        None, description="also write a page with tables, plots and the worst queries to this file"
    )


class VerifySettings(SnapshotSettings):
    """Whether a table's files hold what its catalog says."""

    table_path: Place = Field(alias="table", description="the table's folder or URL")
    sample: float = Field(1.0, gt=0, le=1, description="the share of the blocks that is read again")
    source: Text | None = Field(None, description="also compare all rows with their source, like events.parquet")
    queries: Text | None = Field(None, description="audit instead: prove that no query of this log skips a row for it")
    dialect: Text = Field("spark", description=_DIALECT)
    column: Text | None = Field(None, description="the column or key that holds the SQL [default: sql]")


class FilesSettings(VerbSettings):
    """The data files of the current snapshot."""

    table_path: Place = Field(alias="table", description="the table's folder or URL")
    layout: int = Field(0, ge=0, description="the layout whose files are listed")


class HistorySettings(VerbSettings):
    """The snapshots of a table."""

    table_path: Place = Field(alias="table", description="the table's folder or URL")


class ReloadSettings(VerbSettings):
    """Partitions of a table once more, from a source and perhaps by another plan."""

    table_path: Place = Field(alias="table", description="the table's folder or URL")
    source: Place = Field(description="the rows: a path that Spark reads (Parquet)")
    plan: Path | None = Field(None, description="what `plan` wrote [default: the table's newest plan]")
    partition: Names = Field((), description="the partitions to load again, each as COLUMN=VALUE, one commit each")
    first: Text | None = Field(None, alias="from", description="load the source's partitions from this value on")
    last: Text | None = Field(None, alias="to", description="load the source's partitions up to this value")
    log_json: Text | None = Field(
        None,
        description="add the load's events to this file as JSON lines; - for stderr (a job's every line is JSON then, "
        "which spark-submit puts on stdout)",
    )


class StatusSettings(VerbSettings):
    """What a table holds."""

    table_path: Place = Field(alias="table", description="the table's folder or URL")


class DriftSettings(VerbSettings):
    """Whether a table's plan still fits its queries."""

    table_path: Place = Field(alias="table", description="the table's folder or URL")
    log: Place = Field(description="a recent query log: .sql, .jsonl or .csv")
    most: float = Field(
        0.1, ge=0, le=1, description="by how much less of the rows the log may skip than the plan's own queries"
    )
    dialect: Text = Field("spark", description=_DIALECT)
    column: Text | None = Field(None, description="the column or key that holds the SQL [default: sql]")


class VacuumSettings(VerbSettings):
    """What a vacuum keeps."""

    table_path: Place = Field(alias="table", description="the table's folder or URL")
    retain_snapshots: int = Field(10, ge=1, description="keep at least so many snapshots, the newest")
    older_than: Age = Field(
        "7d", description="keep what was in use within this time, as 90m, 12h, 7d; longer than any load or query takes"
    )
    dry_run: bool = Field(False, description="only say what would be removed")


class RestoreSettings(VerbSettings):
    """Back to an older state."""

    table_path: Place = Field(alias="table", description="the table's folder or URL")
    snapshot: int = Field(ge=0, description="the snapshot to go back to, by its number in `history`")


Experiment = Literal["demo", "tpch", "query", "micro", "memory", "wide", "estimates", "partitioners", "tuning"]


class BenchSettings(VerbSettings):
    """An experiment."""

    experiment: Annotated[Experiment, Positional()] = Field(
        description="demo: TPC-H in a few minutes; tpch: every method on every stream; query: how long queries take, "
        "in Spark and DuckDB, on plain Parquet and on the optimised table; micro: single algorithms; "
        "memory: the peaks of loads against the rows of a partition; wide: planning for a synthetic table of "
        "453 columns; estimates: ways to estimate the objective of column groups; partitioners: all of them on the "
        "feature vectors of each stream; tuning: what `plan --tune` chooses beside the best by unseen queries"
    )
    sf: float = Field(0.1, gt=0, description="the scale factor of TPC-H")
    folder: Path = Field(Path("build/tpch"), description="where data and results go; finished steps are used again")
    streams: Names = Field(
        (), description="only these query streams, of tpch, partitioners and tuning [default: all; of tuning two]"
    )


VERBS: Final[Mapping[str, type[VerbSettings]]] = MappingProxyType(
    {
        "analyze": AnalyzeSettings,
        "plan": PlanSettings,
        "load": LoadSettings,
        "reload": ReloadSettings,
        "status": StatusSettings,
        "drift": DriftSettings,
        "query": QuerySettings,
        "explain": ExplainSettings,
        "evaluate": EvaluateSettings,
        "verify": VerifySettings,
        "files": FilesSettings,
        "history": HistorySettings,
        "vacuum": VacuumSettings,
        "restore": RestoreSettings,
        "bench": BenchSettings,
    }
)
"""The verbs that take settings, by the names of the command line."""

Verb = TypeVar("Verb", bound=VerbSettings)


def make_settings(kind: type[Verb], values: Mapping[str, object]) -> Verb:
    """Validate a verb's settings; values that are None count as not given.

    Raises:
        SettingError: a value is missing or bad, or a key is no setting.
    """
    try:
        return kind.model_validate({key: value for key, value in values.items() if value is not None})
    except ValidationError as error:
        raise SettingError(_sentence(kind, error.errors()[0], "")) from error


def read_settings(path: str | Path, kind: type[Verb]) -> Verb:
    """All settings of a verb from a configuration file.

    Raises:
        SettingError: as :func:`read_values`, or a setting without a default is missing.
    """
    return make_settings(kind, read_values(path, kind))


def read_values(path: str | Path, kind: type[VerbSettings]) -> dict[str, Any]:
    """What a configuration file says of one verb, validated, by field name; defaults are left out.

    Raises:
        SettingError: the file can't be read or is no TOML, has an unknown table or key, or a bad value.
    """
    sections = _sections(path)
    verb = next(name for name, settings in VERBS.items() if settings is kind)
    by_key = {key_of(name, field): name for name, field in kind.model_fields.items()}
    given = {}
    for key, value in sections.get(verb, {}).items():
        name = by_key.get(key.replace("_", "-"))
        if name is None:
            raise SettingError(f"{str(path)!r} has an unknown key {key!r} in [{verb}]; it takes {', '.join(by_key)}")
        given[name] = value
    try:
        valid = kind.model_validate(given)
    except ValidationError as error:
        wrong = [e for e in error.errors() if e["type"] != "missing"]
        if wrong:
            raise SettingError(_sentence(kind, wrong[0], f" in [{verb}] of {str(path)!r}")) from error
        return given
    return {name: getattr(valid, name) for name in given}


def read_spark_properties(path: str | Path) -> dict[str, str]:
    """The `[spark]` table of a configuration file: properties for the Spark session, as texts.

    Raises:
        SettingError: the file can't be read or is no TOML, or a property is a table or a list.
    """
    properties = _sections(path).get(SPARK_SECTION, {})
    for key, value in properties.items():
        if not isinstance(value, str | int | float):
            raise SettingError(
                f"the Spark property {key!r} in {str(path)!r} is no text, number or boolean; quote its name"
            )
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in properties.items()}


def key_of(name: str, field: FieldInfo) -> str:
    """A setting's key in a file, which is its flag without the dashes in front."""
    return (field.alias or name).replace("_", "-")


def _sections(path: str | Path) -> dict[str, dict[str, Any]]:
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingError(
            f"the configuration {str(path)!r} can't be read ({error.strerror}); check the path"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingError(f"the configuration {str(path)!r} is not TOML: {error}") from error
    known = (*VERBS, SPARK_SECTION)
    for name, section in content.items():
        if name not in known or not isinstance(section, dict):
            raise SettingError(f"{str(path)!r} has {name!r} where only these tables may be: {', '.join(known)}")
    return content


def _sentence(kind: type[VerbSettings], error: Any, where: str) -> str:
    place = str(error["loc"][0]) if error["loc"] else "?"
    field = kind.model_fields.get(place)
    key = key_of(place, field) if field else place.replace("_", "-")
    if error["type"] == "missing":
        return f"{key!r} is missing{where}; give it as a flag or in the configuration"
    if error["type"] == "extra_forbidden":
        return f"{key!r} is no setting{where}; the settings are {', '.join(map(str, kind.model_fields))}"
    return f"{key} = {str(error['input'])!r}{where} is no good value: {error['msg'].removeprefix('Value error, ')}"
