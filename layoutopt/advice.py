"""What a layout would save, as values: nothing here reads rows or writes anything."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

import numpy as np

from layoutopt.errors import LogError
from layoutopt.model.arrays import Floats, spread
from layoutopt.model.predicates import columns_of
from layoutopt.model.query import Query, weight_of
from layoutopt.model.schema import Schema
from layoutopt.sql.statements import order_statement
from layoutopt.workload.entries import LogEntry
from layoutopt.workload.log import times_of

# ----------------------------------------------------------------------------------------------------
# Some of a log's statements that stand for all: to understand one takes milliseconds, and a log may have millions.

MOST_TEXTS: Final = 1_000
"""Different texts that are understood; of more so many, spread evenly along the log, each with all of its runs."""


def some_statements(entries: Iterable[LogEntry]) -> list[LogEntry]:
    """The entries of some texts, with as many runs as the log has in all.

    >>> few = some_statements(LogEntry(i, f"SELECT {i}") for i in range(5_000))
    >>> len(few), few[1].sql, few[1].count
    (1000, 'SELECT 7', 5.0)
    """
    listed = list(entries)
    texts = list(dict.fromkeys(entry.sql for entry in listed))
    if len(texts) <= MOST_TEXTS:
        return listed
    kept = set(spread(texts, MOST_TEXTS))
    some = [entry for entry in listed if entry.sql in kept]
    factor = sum(entry.count for entry in listed) / sum(entry.count for entry in some)
    return [replace(entry, count=entry.count * factor) for entry in some]


# ----------------------------------------------------------------------------------------------------
# Advice: what a log's queries read of a table as it is, what they would read of other layouts, and what that saves.

TERABYTE: Final = 1e12
MONTH: Final = "month"


@dataclass(frozen=True)
class Reading:
    """What the log's queries read of one layout, all their runs together.

    Attributes:
        bytes: compressed bytes of column chunks.
        share: of what full scans of the same columns read of the table as it is.
        spread: the standard deviation of ``bytes``, as a share of them, if other queries like these came.
        error: by what share such predictions were wrong where they were compared with loaded tables; 0 for what is
            known by the files themselves.
    """

    bytes: float
    share: float
    spread: float = 0.0
    error: float = 0.0

    @property
    def give_or_take(self) -> float:
        """How far off it may be, as a share of the bytes: one standard deviation and the known error together."""
        return math.hypot(self.spread, self.error)


@dataclass(frozen=True)
class Period:
    """What is saved in.

    Attributes:
        name: ``month`` or ``1,000 queries``.
        runs: how many queries run in it.
        by: where that is known from, in words.
    """

    name: str
    runs: float
    by: str

    @property
    def each(self) -> str:
        """How amounts are told: ``a month``, ``per 1,000 queries``."""
        return f"a {self.name}" if self.name == MONTH else f"per {self.name}"


@dataclass(frozen=True)
class Asked:
    """Queries that filter by the same columns.

    Attributes:
        columns: those that they filter by, in the schema's order; none where they read all rows.
        runs: how often they run, of the log.
        bytes: what they read of the table as it is.
        example: the text of one of them.
    """

    columns: tuple[str, ...]
    runs: float
    bytes: float
    example: str


@dataclass(frozen=True)
class LayoutAdvice:
    """What a method would make of the log's queries.

    Attributes:
        method: by its name.
        columns: of an order of rows those that it goes by.
        layouts: how many layouts it has: column groups, or copies.
        row_order: the columns that sort the rows within blocks, ``none`` or ``auto``, as ``plan --row-order`` takes it.
        reads: what the queries would read.
        rehearsed: whether that is by whole segments, put into blocks as a load would and encoded; else it is by a
            sample of rows.
        stored: compressed bytes of the table that a load would write; None where that was not found out.
        costs: what the period's queries cost at the price, in its currency.
        saves: how much less that is than what they cost now.
    """

    method: str
    columns: tuple[str, ...]
    layouts: int
    row_order: tuple[str, ...]
    reads: Reading
    rehearsed: bool
    stored: float | None
    costs: float
    saves: float


@dataclass(frozen=True)
class StatementAdvice:
    """The best that an engine can be told in its own SQL.

    Attributes:
        engine: its name.
        statement: what to tell it.
        layout: the order of rows that it then keeps, and what queries read of it in blocks of the size asked for.
        gives_away: what the period's queries cost more than by what is recommended.
    """

    engine: str
    statement: str
    layout: LayoutAdvice
    gives_away: float


@dataclass(frozen=True)
class Advice:
    """What to do about a table.

    Attributes:
        source, log, table: what was looked at, and the table's name in the log.
        rows, files, stored: of the table as it is: rows, files, and compressed bytes of all columns.
        partition_by: the column whose every value is a partition, of all layouts that were tried; None for none.
        block_rows: the mean block of all layouts that were tried.
        queries, skipped: how many runs the log's usable statements had, and how many statements could not be used.
        asked: what queries filter by, those that read the most first.
        full: what full scans of their columns read.
        now: what queries read of the table as it is, where files and row groups are skipped by their bounds.
        period: what costs and savings are told for.
        price: of reading a terabyte (10^12 bytes), in any currency.
        costs_now: what the period's queries cost now.
        layouts: what was tried, the least bytes first.
        recommended: the best of them; None where none reads clearly less than the table as it is.
        writing: what it costs to read the table once, in order to write it anew.
        statements: the best of each engine.
    """

    source: str
    log: str
    table: str
    rows: int
    files: int
    stored: float
    partition_by: str | None
    block_rows: int
    queries: float
    skipped: int
    asked: tuple[Asked, ...]
    full: Reading
    now: Reading
    period: Period
    price: float
    costs_now: float
    layouts: tuple[LayoutAdvice, ...]
    recommended: LayoutAdvice | None
    writing: float
    statements: tuple[StatementAdvice, ...]

    @property
    def pays_after(self) -> float | None:
        """After how many periods what is recommended has saved what reading the table once costs; None if never."""
        saves = 0.0 if self.recommended is None else self.recommended.saves
        return self.writing / saves if saves > 0 else None

    def to_json(self) -> dict[str, object]:
        """The advice as a JSON object."""
        return {**asdict(self), "pays_after": self.pays_after}


# ----------------------------------------------------------------------------------------------------
# How many queries run in a month: as somebody says, or as the times in a log tell.

_DAY: Final = 86_400.0
_DAYS_A_MONTH: Final = 365.25 / 12
_SHORTEST: Final = 1.0
"""Days that a log spans at least, so that it tells of a month."""
_THOUSAND: Final = 1_000


def period_of(queries: Sequence[Query], runs_a_month: float | None, time_zone: str = "UTC") -> Period:
    """What savings are told for: a month, where it is known how many queries it has, else a thousand queries.

    Args:
        queries: of the log, each with its runs as its weight.
        runs_a_month: as somebody says; None asks the log's times.
        time_zone: of times without one.
    """
    if runs_a_month is not None:
        return Period(MONTH, runs_a_month, "as --queries-per-month says")
    days = _days(queries, time_zone)
    if days is None:
        return Period(f"{_THOUSAND:,} queries", _THOUSAND, "since the log spans no day; see --queries-per-month")
    runs = weight_of(queries)
    return Period(MONTH, runs / days * _DAYS_A_MONTH, f"by the {days:,.1f} days of the log")


def _days(queries: Sequence[Query], time_zone: str) -> float | None:
    """How long the log is; None where a query has no time, or where it is too short to tell of a month."""
    try:
        times = times_of(queries, time_zone)
    except LogError:
        return None
    days = float(times.max() - times.min()) / _DAY
    return days if days >= _SHORTEST else None


# ----------------------------------------------------------------------------------------------------
# What people ask of a table: by which columns they filter, and how much that reads now.

MOST_TOLD: Final = 10


def asked_of(queries: Sequence[Query], read: Floats, schema: Schema) -> tuple[Asked, ...]:
    """Queries by the columns that they filter by, those that read the most first, :data:`MOST_TOLD` at most.

    Args:
        queries: of the log, each with its runs as its weight.
        read: the bytes that one run of each reads, ``float64[queries]``.
        schema: the table's.
    """
    groups: dict[frozenset[str], list[int]] = defaultdict(list)
    for place, query in enumerate(queries):
        groups[columns_of(query.filter.root)].append(place)
    weights = np.array([query.weight for query in queries])
    found = []
    for filtered, places in groups.items():
        names = tuple(name for name in schema.names if name in filtered)
        bytes = weights[places] * read[places]
        example = queries[places[int(np.argmax(bytes))]].sql
        found.append(Asked(names, float(weights[places].sum()), float(bytes.sum()), example))
    return tuple(sorted(found, key=lambda asked: (-asked.bytes, asked.columns))[:MOST_TOLD])


# ----------------------------------------------------------------------------------------------------
# From what trials read to advice: shares of the table as it is, what they cost, and what engines can be told.

REHEARSED_ERROR: Final = 0.07
"""By what share predictions by whole segments were off, of loaded tables on five workloads (decision 0034)."""
SAMPLED_ERROR: Final = 0.33
"""By what share predictions by a sample of rows were off, of those by whole segments."""

LEAST_GAIN: Final = 0.05
"""A layout that reads so little less than the table as it is is not worth writing."""


@dataclass(frozen=True)
class Tried:
    """A layout that was tried.

    Attributes:
        method: by its name.
        columns: of an order of rows those that it goes by.
        layouts: how many it has.
        row_order: what the rows within its blocks are sorted by, as ``plan --row-order`` takes it.
        share: of the bytes that full scans read of the table as it is, those that its queries read.
        spread: the standard deviation of these, as a share of them, if other queries like these came.
        rehearsed: whether it was tried on whole segments; else on a sample of rows.
        stored: compressed bytes of the table that a load would write; None where that was not found out.
    """

    method: str
    columns: tuple[str, ...]
    layouts: int
    row_order: tuple[str, ...]
    share: float
    spread: float
    rehearsed: bool
    stored: float | None


@dataclass(frozen=True)
class AsItIs:
    """What the whole log reads of the table as it is, all runs together, and what that costs.

    Attributes:
        full: bytes of full scans of the columns that queries read.
        now: bytes of what is left where files and row groups are skipped by their bounds.
        runs: how many runs the log has.
        period: what costs are told for.
        price: of reading a terabyte.
    """

    full: float
    now: float
    runs: float
    period: Period
    price: float

    def cost(self, bytes: float) -> float:
        """What the period's queries cost if the log's read so many bytes."""
        return bytes / self.runs * self.period.runs * self.price / TERABYTE

    def advice_of(self, tried: Tried) -> LayoutAdvice:
        """What a trial says of the whole log."""
        error = REHEARSED_ERROR if tried.rehearsed else SAMPLED_ERROR
        reads = Reading(tried.share * self.full, tried.share, tried.spread, error)
        costs = self.cost(reads.bytes)
        return LayoutAdvice(
            tried.method, tried.columns, tried.layouts, tried.row_order, reads, tried.rehearsed, tried.stored, costs,
            self.cost(self.now) - costs,
        )  # fmt: skip

    def is_worth_writing(self, layout: LayoutAdvice) -> bool:
        """Whether a layout reads clearly less than the table as it is."""
        return layout.reads.bytes < (1 - LEAST_GAIN) * self.now


def statements_of(
    orders: Sequence[LayoutAdvice], costs: float, engines: Sequence[str], table: str, schema: Schema, partitioned: bool
) -> tuple[StatementAdvice, ...]:
    """Of each engine the statement by which queries read the least, where it has one.

    Args:
        orders: of rows by columns, those that were rehearsed.
        costs: of the period's queries by what is recommended.
        engines: their names.
        table: its name in the log.
        schema: its columns.
        partitioned: whether it has partitions.
    """
    found = []
    for engine in engines:
        for order in sorted(orders, key=lambda order: order.reads.bytes):
            types = [schema.find(name).type for name in order.columns]
            text = order_statement(engine, order.method, table, order.columns, types, partitioned=partitioned)
            if text is not None:
                found.append(StatementAdvice(engine, text, order, order.costs - costs))
                break
    return tuple(found)
