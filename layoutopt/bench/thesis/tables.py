"""The tables that the figures measure: variants at a scale factor, their steps, and what an evaluation says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from layoutopt.bench.steps import Step
from layoutopt.bench.thesis.figure import Products
from layoutopt.bench.tpch.experiment import block_rows as year_block_rows
from layoutopt.bench.tpch.experiment import (
    MONTH_BLOCK_ROWS,
    UNORDERED,
    Bench,
    Variant,
    matching_step,
    stream_for_testing,
    table_folder,
    table_step,
)
from layoutopt.bench.tpch.rehearsals import rehearsal_steps
from layoutopt.bench.tpch.variants import RANGE_2

MONTH: Final = "o_month"
YEAR: Final = "o_year"
LEAST_MONTH_BLOCK: Final = 70
UNSORTED: Final[Mapping[str, Any]] = MappingProxyType({"row_order": UNORDERED})
"""Of variants whose rows or cells are counted, not their bytes: planning need not look for an order within blocks."""
RANGES: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "range1": {"method": "range", "by": ("o_orderdate",), "features": False},
        "range2": {"method": "range", "by": RANGE_2, "features": False},
    }
)
"""What range1 and range2 of 3.7.3 are beside their partitions: rows in order, skipped by minima and maxima alone."""
FULL_SCAN: Final = "full scan"
MATCHING: Final = "matching"
JOINS: Final = "PAR-n"
"""The normalised tables as plain Parquet, joined by each query."""


def month_block_rows(scale: float) -> int:
    """The mean block by which a month has about the thesis's hundred, as at scale factor 100.

    >>> month_block_rows(1), month_block_rows(0.1), month_block_rows(0.01)
    (700, 70, 70)
    """
    return max(LEAST_MONTH_BLOCK, round(MONTH_BLOCK_ROWS * min(1.0, scale)))


def by_month(scale: float, label: str, method: str, **more: Any) -> Variant:
    """A variant in partitions of months, as chapter 3 has them."""
    return Variant(label, method, MONTH, **{"block_rows": month_block_rows(scale), "written": False} | more)


def by_year(scale: float, label: str, method: str, **more: Any) -> Variant:
    """A variant in partitions of years, in as many blocks as a year has of 10,000 rows at scale factor 1."""
    return Variant(label, method, YEAR, **{"block_rows": year_block_rows(scale), "written": False} | more)


def plain_parquet(scale: float) -> Variant:
    """The source's order in blocks without features: what Parquet's minima and maxima skip."""
    rows = year_block_rows(scale)
    return Variant("Parquet min/max", "input-order", None, rows, features=False, written=False)


def rehearsals(bench: Bench, stream: str, variants: Sequence[Variant]) -> dict[str, Step]:
    """The steps that measure variants, loaded where some figure times them, and the one that counts what matches."""
    counted = [variant for variant in variants if not variant.written]
    steps = {f"rehearsed {stream} {place}": step for place, step in enumerate(rehearsal_steps(bench, stream, counted))}
    loaded = loads(bench, stream, [variant for variant in variants if variant.written])
    return {**steps, **loaded, f"{MATCHING} {stream}": matching_step(bench, stream)}


def loads(bench: Bench, stream: str, variants: Sequence[Variant]) -> dict[str, Step]:
    """The steps that load variants, by their labels."""
    return {f"loaded {stream} {variant.label}": table_step(bench, stream, variant) for variant in variants}


def loaded(products: Products, stream: str, variant: Variant) -> Mapping[str, Any]:
    """What loading one of them gave."""
    return products[f"loaded {stream} {variant.label}"]


def rehearsed(
    bench: Bench, products: Products, stream: str, variants: Sequence[Variant]
) -> dict[str, Mapping[str, Any]]:
    """What rehearsing or loading said of each variant, by its label."""
    found = {
        name: table
        for key, product in products.items()
        if key.startswith(f"rehearsed {stream} ")
        for name, table in product["tables"].items()
    }
    return {
        variant.label: loaded(products, stream, variant)
        if variant.written
        else found[table_folder(bench, stream, variant).name]
        for variant in variants
    }


def scanned(table: Mapping[str, Any], unit: str) -> int:
    """What the test stream reads of a table: ``rows``, ``cells``, ``tids`` or ``bytes``."""
    return int(table["evaluation"]["totals"][f"{unit}_scanned"])


def full_scan(table: Mapping[str, Any], unit: str) -> int:
    """What it would read without any skipping."""
    return int(table["full_scan"][f"{unit}_scanned"])


def matching_rows(products: Products, stream: str) -> int:
    """The rows that match the test stream's filters, which have to be read."""
    return sum(products[f"{MATCHING} {stream}"]["rows"])


def queries_of(stream: str) -> int:
    """How many test queries a stream has."""
    return len(stream_for_testing(stream))


def details_of(tables: Mapping[str, Mapping[str, Any]]) -> tuple[Mapping[str, object], ...]:
    """A line for each table: shares of a full scan's rows and cells, and bytes."""
    return tuple(
        {
            "method": label,
            "rows, % of a full scan": _percent(scanned(table, "rows"), full_scan(table, "rows")),
            "cells, %": _percent(scanned(table, "cells"), full_scan(table, "cells")),
            "tids, % of the cells": _percent(scanned(table, "tids"), full_scan(table, "cells")),
            "bytes read, MB": round(scanned(table, "bytes") / 1e6, 3),
            "bytes of a full scan of it, MB": round(full_scan(table, "bytes") / 1e6, 3),
            "planning, s": round(table["planning_seconds"], 1),
        }
        for label, table in tables.items()
    )


def _percent(part: float, whole: float) -> float:
    return round(100 * part / whole, 4)


def settings_of(bench: Bench, stream: str, variants: Sequence[Variant]) -> dict[str, object]:
    """What a comparison of variants was measured with."""
    partitions = dict.fromkeys(variant.partition_by or "none" for variant in variants)
    rows = sorted({variant.block_rows for variant in variants})
    return {
        "scale factor": bench.data.scale,
        "unseen queries": queries_of(stream),
        "partitions": ", ".join(partitions),
        "rows of a block, on average": ", ".join(f"{each:,}" for each in rows),
    }
