"""The variants that `layoutopt bench tpch` compares on each stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from layoutopt.bench.tpch.experiment import MONTH_BLOCK_ROWS, SOP_BY_MONTH, YEAR_BLOCK_ROWS, Variant

COPYING: Final = MappingProxyType({"gsop-r": (1.1, 1.2, 1.5, 2.0), "gsop-selective": (1.5,), "gsop-fullcopy": (2.0,)})
"""The storage budgets of the methods with copies (5.7)."""
SMALLER_BLOCKS: Final = (3_000, 1_000)
RANGE_2: Final = ("o_orderdate", "cr_name", "c_mktsegment", "l_quantity")  # 3.7.3


def baselines(partition_by: str, block_rows: int) -> tuple[Variant, ...]:
    """The comparisons of 3.7.3: what plain Parquet gives, and two ways of range partitioning, all by min/max alone."""
    return (
        Variant("Parquet min/max", "input-order", None, block_rows, features=False, written=False),
        Variant("range1", "range", partition_by, block_rows, ("o_orderdate",), features=False, written=False),
        Variant("range2", "range", partition_by, block_rows, RANGE_2, features=False, written=False),
    )


def variants(method_names: Sequence[str], stream: str) -> tuple[Variant, ...]:
    """Every registered method once, in partitions of a year; for chapter 3 SOP by month too, with 3.7.3's parameters.

    All have the same features to skip by, but for the thesis's baselines. Chapter 4 has GSOP in smaller blocks too.
    Methods with copies belong to chapter 5, where SOP and column groups are written, since storage and loading are what
    matters there; the others are only measured.
    """
    several = [name for name in method_names if name.startswith("gsop")]
    by_year = [_by_year(name) for name in method_names if name not in several and name not in ("input-order", "range")]
    if stream.startswith("chapter3"):
        month = replace(SOP_BY_MONTH, written=stream == "chapter3")
        groups = [_by_year(name) for name in several if name == "gsop"]
        return (*baselines("o_month", MONTH_BLOCK_ROWS), month, *by_year, *groups)
    _, *ranges = baselines("o_year", YEAR_BLOCK_ROWS)  # the source's order skips nothing by minima and maxima
    if stream.startswith("chapter4"):
        groups = [_by_year(name) for name in several if name not in COPYING]
        smaller = [in_blocks_of(_by_year("gsop"), rows) for rows in SMALLER_BLOCKS if "gsop" in several]
        return (*ranges, *by_year, *groups, *smaller)
    by_year = [replace(one, written=one.method == "sop") for one in by_year]
    gsop = replace(_by_year("gsop"), written=True)
    copies = [
        replace(gsop, method=name, label=f"{label_of(name)} {budget:g}", budget=budget)
        for name in several
        for budget in COPYING.get(name, ())
    ]
    return (*ranges, *by_year, *([gsop] if "gsop" in several else []), *copies)


def _by_year(method: str) -> Variant:
    """A method with the bench's parameters; those that order rows choose their columns from the workload."""
    return Variant(f"{label_of(method)} by year", method, "o_year", YEAR_BLOCK_ROWS, written=False)


def in_blocks_of(variant: Variant, rows: int) -> Variant:
    """The variant with another block size."""
    return replace(variant, label=f"{variant.label}, blocks of {rows:,}", block_rows=rows)


def label_of(method: str) -> str:
    """Name a method as the thesis does.

    >>> label_of("gsop-single"), label_of("qdtree")
    ('GSOP-single', 'qdtree')
    """
    return method.replace("gsop-r", "GSOP-R").replace("gsop", "GSOP").replace("sop", "SOP")
