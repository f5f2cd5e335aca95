"""Advice: what a log's queries read of a table as it is, what they would read of other layouts, and what that saves."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Final

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
