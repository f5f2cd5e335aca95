"""Smaller blocks than a plan asks for: where rows are too few to fill blocks of its size with rows that are alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from layoutopt.model.layout import MIN_ROWS, ByVectors, Plan, Scheme

FEWEST_BLOCKS: Final = 12
"""Into so many blocks few rows are cut, as long as blocks do not become too small."""

SMALLEST: Final = 250
"""Rows of a block, below which what a block costs by itself is more than it saves."""


def scaled(plan: Plan, scale: float) -> Plan:
    """The plan with blocks of so many times fewer rows."""
    layouts = []
    for layout in plan.scheme.layouts:
        params = dict(layout.blocking.params)
        if isinstance(layout.blocking, ByVectors) and MIN_ROWS in params:
            params[MIN_ROWS] = max(1, round(float(params[MIN_ROWS]) / scale))
            layout = replace(layout, blocking=replace(layout.blocking, params=tuple(params.items())))
        layouts.append(layout)
    return replace(plan, block_rows=max(1, round(plan.block_rows / scale)), scheme=Scheme(tuple(layouts)))


def for_few_rows(plan: Plan, rows: int) -> Plan:
    """The plan as it is for so many rows, or with smaller blocks where these are few.

    A single block of late rows would hold some of every kind, so that every query would read it.
    """
    block_rows = max(min(plan.block_rows, SMALLEST), rows // FEWEST_BLOCKS)
    return plan if block_rows >= plan.block_rows else scaled(plan, plan.block_rows / block_rows)
