"""Advice: what a log's queries read of a table now, what they would read of other layouts, and what that saves.

These are only values: nothing here reads rows or writes files.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from layoutopt.errors import LogError
from layoutopt.model.arrays import Floats
from layoutopt.model.predicates import columns_of
from layoutopt.model.query import Query, weight_of
from layoutopt.model.schema import Schema
from layoutopt.model.summary import Report
from layoutopt.sql.order_statements import order_statement
from layoutopt.workload.log import query_times

# Different statements above which this many queries are drawn by weight, since each layout is tried on all of them.
MOST_QUERIES: Final = 1_000

TERABYTE: Final = 1e12
MONTH: Final = "month"


@dataclass(frozen=True)
class Reading:
    """The compressed bytes that all runs of the log's queries read of one layout.

    Attributes:
        share: of full scans of the same columns in the current table.
        spread: the standard deviation of ``bytes`` over logs of similar queries, as a share of them.
        error: the relative error of such predictions against loaded tables; 0 for exact values.
    """

    bytes: float
    share: float
    spread: float = 0.0
    error: float = 0.0

    @property
    def relative_error(self) -> float:
        """Return the relative error: one standard deviation and the prediction error combined."""
        return math.hypot(self.spread, self.error)


@dataclass(frozen=True)
class Period:
    """The period of costs and savings: ``month`` or ``1,000 queries``, its queries, and that number's source."""

    name: str
    runs: float
    by: str

    @property
    def each(self) -> str:
        """Return the period after an amount: ``a month``, ``per 1,000 queries``."""
        return f"a {self.name}" if self.name == MONTH else f"per {self.name}"


@dataclass(frozen=True)
class FilterProfile:
    """Queries that filter by the same columns, in the schema's order; none where they read all rows.

    ``runs`` and ``bytes`` are totals in the log and of the current table; ``example`` is the text of one of them.
    """

    columns: tuple[str, ...]
    runs: float
    bytes: float
    example: str


@dataclass(frozen=True)
class LayoutAdvice:
    """The predicted effect of a method's layout on the log's queries.

    Attributes:
        columns: for an order of rows, the columns of the order.
        layouts: the number of layouts: column groups, or copies.
        row_order: the columns that sort the rows within blocks, ``none`` or ``auto``, as in ``plan --row-order``.
        rehearsed: whether a dry run of whole segments predicted it; else a sample of rows did.
        stored: compressed bytes of the loaded table; None where unknown.
        costs, saves: of the period's queries at the price, in its currency, and the current costs minus these.
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
    """The best layout that can be declared in an engine's own SQL.

    ``layout`` is the resulting order of rows in blocks of the requested size; ``gives_away`` the extra cost of the
    period's queries compared with the recommended layout.
    """

    engine: str
    statement: str
    layout: LayoutAdvice
    gives_away: float


@dataclass(frozen=True)
class Advice(Report):
    """The advice about a table.

    Attributes:
        table: the table's name in the log.
        rows, files, stored: of the current table: rows, files, and compressed bytes of all columns.
        partition_by: the column whose every value is a partition in all tried layouts; None for none.
        queries, skipped: the number of runs of the log's usable statements, and of unusable statements.
        asked: the queries by filtered columns, those that read the most first.
        full, now: the bytes of full scans, and of the current table, where files and row groups are skipped by bounds.
        price: of reading a terabyte (10^12 bytes), in any currency.
        layouts: the tried layouts, the fewest bytes first.
        recommended: the best layout; None where none reads clearly less than the current table.
        writing: the cost of reading the table once to rewrite it.
        statements: the best of each engine.
        is_complete: whether all trials were made; otherwise this is a first estimate.
    """

    derived = ("pays_after",)

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
    asked: tuple[FilterProfile, ...]
    full: Reading
    now: Reading
    period: Period
    price: float
    costs_now: float
    layouts: tuple[LayoutAdvice, ...]
    recommended: LayoutAdvice | None
    writing: float
    statements: tuple[StatementAdvice, ...]
    is_complete: bool = True

    @property
    def pays_after(self) -> float | None:
        """Return the number of periods after which the recommended layout has paid for its rewrite; None if never."""
        saves = 0.0 if self.recommended is None else self.recommended.saves
        return self.writing / saves if saves > 0 else None


_DAY: Final = 86_400.0
_DAYS_A_MONTH: Final = 365.25 / 12
# Days that a log must span to estimate a month's queries.
_SHORTEST: Final = 1.0
_THOUSAND: Final = 1_000


def period_of(queries: Sequence[Query], runs_a_month: float | None, time_zone: str = "UTC") -> Period:
    """Return the period of savings: a month if its number of queries is known, else a thousand queries.

    ``runs_a_month`` is the user's; None derives it from the log's times. ``time_zone`` is that of times without one.
    """
    if runs_a_month is not None:
        return Period(MONTH, runs_a_month, "as --queries-per-month says")
    days = _measure_days(queries, time_zone)
    if days is None:
        return Period(f"{_THOUSAND:,} queries", _THOUSAND, "since the log spans no day; see --queries-per-month")
    runs = weight_of(queries)
    return Period(MONTH, runs / days * _DAYS_A_MONTH, f"by the {days:,.1f} days of the log")


def _measure_days(queries: Sequence[Query], time_zone: str) -> float | None:
    """Return the length of the log in days; None where a query has no time, or where the log is too short."""
    try:
        times = query_times(queries, time_zone)
    except LogError:
        return None
    days = float(times.max() - times.min()) / _DAY
    return days if days >= _SHORTEST else None


MOST_TOLD: Final = 10


def profile_filters(queries: Sequence[Query], read: Floats, schema: Schema) -> tuple[FilterProfile, ...]:
    """Return queries by the columns that they filter, those that read the most first, :data:`MOST_TOLD` at most.

    ``read`` has the bytes that one run of each query reads, ``float64[queries]``.
    """
    groups: dict[frozenset[str], list[int]] = defaultdict(list)
    for index, query in enumerate(queries):
        groups[columns_of(query.filter.root)].append(index)
    weights = np.array([query.weight for query in queries])
    usages = []
    for columns, indices in groups.items():
        names = tuple(name for name in schema.names if name in columns)
        bytes = weights[indices] * read[indices]
        example = queries[indices[int(np.argmax(bytes))]].sql
        usages.append(FilterProfile(names, float(weights[indices].sum()), float(bytes.sum()), example))
    return tuple(sorted(usages, key=lambda usage: (-usage.bytes, usage.columns))[:MOST_TOLD])


# The relative error of predictions by dry runs, against loaded tables on five workloads (docs/performance.md#plan).
REHEARSED_ERROR: Final = 0.07
# The relative error of predictions by a sample of rows, against dry runs.
SAMPLED_ERROR: Final = 0.33

# The least share of bytes that a layout must save to be worth a rewrite.
LEAST_GAIN: Final = 0.05


@dataclass(frozen=True)
class Trial:
    """A tried layout, with attributes as :class:`LayoutAdvice` and :class:`Reading`."""

    method: str
    columns: tuple[str, ...]
    layouts: int
    row_order: tuple[str, ...]
    share: float
    spread: float
    rehearsed: bool
    stored: float | None


@dataclass(frozen=True)
class CurrentCosts:
    """The bytes and costs of all runs of the log's queries on the current table.

    ``full`` are full scans of the queries' columns; ``now`` is with files and row groups skipped by their bounds.
    """

    full: float
    now: float
    runs: float
    period: Period
    price: float

    def cost(self, bytes: float) -> float:
        """Return the cost of the period's queries if the log's queries read so many bytes."""
        return bytes / self.runs * self.period.runs * self.price / TERABYTE

    def advice_of(self, tried: Trial) -> LayoutAdvice:
        """Return a trial's advice for the whole log."""
        error = REHEARSED_ERROR if tried.rehearsed else SAMPLED_ERROR
        reads = Reading(tried.share * self.full, tried.share, tried.spread, error)
        costs = self.cost(reads.bytes)
        return LayoutAdvice(
            tried.method, tried.columns, tried.layouts, tried.row_order, reads, tried.rehearsed, tried.stored, costs,
            self.cost(self.now) - costs,
        )  # fmt: skip

    def is_worth_writing(self, layout: LayoutAdvice) -> bool:
        """Return whether a layout reads clearly less than the current table."""
        return layout.reads.bytes < (1 - LEAST_GAIN) * self.now


def statements_of(
    orders: Sequence[LayoutAdvice], costs: float, engines: Sequence[str], table: str, schema: Schema, partitioned: bool
) -> tuple[StatementAdvice, ...]:
    """Return for each engine the statement with which queries read the least, if it has one.

    ``orders`` are orders of rows by columns; ``costs`` are those of the recommended layout.
    """
    advice = []
    for engine in engines:
        for order in sorted(orders, key=lambda order: order.reads.bytes):
            types = [schema.find(name).type for name in order.columns]
            text = order_statement(engine, order.method, table, order.columns, types, partitioned=partitioned)
            if text is not None:
                advice.append(StatementAdvice(engine, text, order, order.costs - costs))
                break
    return tuple(advice)
