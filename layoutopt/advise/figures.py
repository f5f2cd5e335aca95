"""From what trials read to advice: shares of the table as it is, what they cost, and what engines can be told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from layoutopt.advise.advice import TERABYTE, LayoutAdvice, Period, Reading, StatementAdvice
from layoutopt.model.schema import Schema
from layoutopt.sql.statements import order_statement

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
