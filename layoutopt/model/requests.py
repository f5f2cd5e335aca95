"""What each verb that reads a log or writes a table is asked to do.

The functions of :mod:`layoutopt.api` and the settings of the command line make the same requests, with the same names
and defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from layoutopt.model.methods import DEFAULT_BLOCK_ROWS

if TYPE_CHECKING:
    from layoutopt.model.layout import Plan

# The default for the most queries of a log that features and plans follow: of 5,000, shares are off by 3% at most.
SAMPLED_QUERIES: Final = 5_000
# The default for the largest share of changed rows, in the partitions of a change, that is written beside the others.
REWRITE_SHARE: Final = 0.1
# The default for the least share of deleted rows that a partition is rewritten for: queries read that much more.
DELETED_SHARE: Final = 0.05


@dataclass(frozen=True, kw_only=True)
class AnalyzeRequest:
    """Find the features of a query log.

    Attributes:
        log: a file of statements.
        table: the table's name in the log; any by default.
        system: the system that wrote the log; recognised by default.
        weigh: the weight of a statement of a history: 1 for each of its ``runs``, or its ``bytes``.
        half_life: halves a statement's weight for each such time that it is older than the newest.
        served: the share of statements whose engine plans its scans with ``serve``.
        dialect: the log's SQL dialect.
        column: the column or key that holds the SQL.
        threshold: T (3.3.2): keep features that help at least this many queries.
        num_features: numFeat: the most features to find, stricter forms of them aside.
        date_features: the most extra features about dates and timestamps.
        sample: go on with at most this many queries, drawn by weight.
        exclude_columns: columns without features; None for the default.
        max_set: the most predicates in a feature.
        time_zone: the session time zone of the queries.
        ansi: whether the queries run in Spark's ANSI mode.
    """

    log: str
    table: str | None = None
    system: str | None = None
    weigh: Literal["runs", "bytes"] = "runs"
    half_life: str | None = None
    served: float = 0
    dialect: str = "spark"
    column: str | None = None
    threshold: int | None = None
    num_features: int | None = None
    date_features: int | None = None
    sample: int = SAMPLED_QUERIES
    exclude_columns: tuple[str, ...] | None = None
    max_set: int = 3
    time_zone: str = "UTC"
    ansi: bool = True


@dataclass(frozen=True, kw_only=True)
class AdviseRequest:
    """Estimate what layouts would save a log.

    Attributes:
        source: the rows.
        log, table, system, dialect, column: as in :class:`AnalyzeRequest`; by default the table that is read most.
        partition_by: the column whose values are the partitions; the source's first one by default.
        block_rows: the mean number of rows a block.
        engine: the engines whose clustering statements are wanted.
        queries_per_month: how many queries run in a month; from the log's timestamps by default.
        price_per_tb: the price of reading 10^12 bytes.
    """

    source: str
    log: str
    table: str | None = None
    system: str | None = None
    dialect: str = "spark"
    column: str | None = None
    partition_by: str | None = None
    block_rows: int = DEFAULT_BLOCK_ROWS
    engine: tuple[str, ...] = ()
    queries_per_month: float | None = None
    price_per_tb: float = 5.0


@dataclass(frozen=True, kw_only=True)
class LoadRequest:
    """Load a source's partitions into a table.

    Attributes:
        source: the rows.
        table_path: the table, created where missing.
        plan: the plan, or its file; by default the table's newest one, or ``plan.json`` for a new table.
        partition: load only these partitions, each ``COLUMN=VALUE``.
        first, last: load only the partitions from one value to another.
        group: how many partitions are a commit; by default 1 where some are chosen, else all.
        parallel: how many groups Spark loads at once.
        replace: whether partitions that the table has are replaced.
        allow_empty: whether partitions without rows become empty.
        encrypt: the reference to the key of a new table.
        publish: where the table is published afterwards, each ``FORMAT`` or ``FORMAT=PLACE``.
    """

    source: str
    table_path: str
    plan: Plan | Path | None = None
    partition: tuple[str, ...] = ()
    first: str | None = None
    last: str | None = None
    group: int | None = None
    parallel: int = 1
    replace: bool = False
    allow_empty: bool = False
    encrypt: str | None = None
    publish: tuple[str, ...] = ()

    @property
    def is_partial(self) -> bool:
        """Whether only some of the source's partitions are requested."""
        return bool(self.partition) or self.first is not None or self.last is not None


@dataclass(frozen=True, kw_only=True)
class AppendRequest:
    """Append a batch of rows to a table.

    Attributes:
        table_path: the table.
        source: the rows.
        batch_id: the name of the batch, which is appended once; from the source's files by default.
        keep_apart: whether small entries of earlier appends are left as they are.
        publish: where the table is published afterwards, each ``FORMAT`` or ``FORMAT=PLACE``.
    """

    table_path: str
    source: str
    batch_id: str | None = None
    keep_apart: bool = False
    publish: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DeleteRequest:
    """Delete the rows for which a condition is TRUE.

    Attributes:
        table_path: the table.
        where: the condition, in Spark's SQL.
        rewrite_share: up to this share of changed rows in the affected partitions, deletion vectors are written;
            above it, and always with 0, the partitions are rewritten.
        hard: whether no copy of the rows is left: older snapshots and their files go, too.
        publish: as in :class:`AppendRequest`.
    """

    table_path: str
    where: str
    rewrite_share: float = REWRITE_SHARE
    hard: bool = False
    publish: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class UpdateRequest:
    """Assign new values to columns of some rows.

    Attributes:
        table_path, where, rewrite_share, publish: as in :class:`DeleteRequest`.
        assignments: each ``column = expression``, computed from the old row.
    """

    table_path: str
    assignments: tuple[str, ...]
    where: str
    rewrite_share: float = REWRITE_SHARE
    publish: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MergeRequest:
    """Replace the rows that have a key of a source, and insert the source's other rows.

    Attributes:
        table_path, rewrite_share, publish: as in :class:`DeleteRequest`.
        source: the changed and new rows.
        on: the key columns, unique in the source.
        delete_when: a condition on the source's columns; its rows delete the table's rows with their key.
    """

    table_path: str
    source: str
    on: tuple[str, ...]
    delete_when: str | None = None
    rewrite_share: float = REWRITE_SHARE
    publish: tuple[str, ...] = ()


# What changes rows of a table.
ChangeRequest: TypeAlias = DeleteRequest | UpdateRequest | MergeRequest


@dataclass(frozen=True, kw_only=True)
class OptimizeRequest:
    """Rewrite the partitions of which queries gain most.

    Attributes:
        table_path, publish: as in :class:`AppendRequest`.
        partition: only these partitions, by their keys.
        log, dialect, column, half_life: a recent log to plan for, as in :class:`AnalyzeRequest`; by default the newest
            plan and its queries are used.
        plan: the file of the plan to use.
        auto: whether a partition is rewritten only if that pays within ``horizon``.
        horizon: a time, like ``7d``.
        write_cost: with ``auto``, the cost of rewriting a byte, in bytes read.
        deleted_share: the least share of deleted rows for which a partition is rewritten; 0 for any.
        budget_bytes, budget_share: the most bytes to rewrite, or the most of the table's bytes.
        dry_run: whether nothing is written.
        curve: whether the report has the whole gain curve, which takes a dry run of partial rewrites.
        parallel: how many partitions are rewritten at once.
    """

    table_path: str
    partition: tuple[str, ...] = ()
    log: str | None = None
    plan: Path | None = None
    dialect: str = "spark"
    column: str | None = None
    half_life: str | None = None
    auto: bool = False
    horizon: str = "7d"
    write_cost: float = 2.0
    deleted_share: float = DELETED_SHARE
    budget_bytes: int | None = None
    budget_share: float | None = None
    dry_run: bool = False
    curve: bool = False
    parallel: int = 1
    publish: tuple[str, ...] = ()
