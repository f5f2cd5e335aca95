"""Parquet's own indexes in data files, for engines that read the files as they are; readers of ours need none.

A page index has minima and maxima of each page, so that engines skip pages within a block; a chunk of a block's rows is
a single page unless pages are made small. A Bloom filter has a block's values of one column, for equality.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from layoutopt.indexes.expressions import is_stored
from layoutopt.model.arrays import Ints
from layoutopt.model.layout import Plan
from layoutopt.model.predicates import Call, Col, Const, Expr

PAGE_ROWS: Final = 1_000
"""Rows of a page where pages are indexed."""
FALSE_POSITIVES: Final = 0.01
_OF_EQUALITY: Final = frozenset({"bloom", "hybrid", "value-list"})


def parquet_index_options(plan: Plan, schema: pa.Schema, offsets: Ints) -> dict[str, Any]:
    """The arguments of ``pyarrow.parquet.ParquetWriter`` for the indexes that a plan wants in its files.

    Args:
        plan: says which; Bloom filters are of the columns of its indexes that serve equality.
        schema: the file's.
        offsets: where its blocks begin, ``int64[n_blocks + 1]``.
    """
    options: dict[str, Any] = {}
    if "page" in plan.parquet_indexes:
        options |= {"write_page_index": True, "max_rows_per_page": PAGE_ROWS}
    if "bloom" in plan.parquet_indexes:
        most = int(np.diff(offsets).max(initial=1))  # the filter is folded to what a block's values need
        filters = {path: {"ndv": most, "fpp": FALSE_POSITIVES} for path in _looked_up(plan, schema)}
        options |= {"bloom_filter_options": filters} if filters else {}
    return options


def _looked_up(plan: Plan, schema: pa.Schema) -> Iterator[str]:
    """The file's columns that indexes for equality are of, as Parquet has their paths."""
    for spec in plan.indexes:
        names = _path(spec.subject)
        if spec.kind in _OF_EQUALITY and names and names[0] in schema.names and _is_hashed(schema, names):
            yield ".".join(names)


def _path(expr: Expr) -> tuple[str, ...]:
    if isinstance(expr, Col):
        return (expr.name,)
    if isinstance(expr, Call) and is_stored(expr) and isinstance(expr.args[1], Const):
        return (*_path(expr.args[0]), str(expr.args[1].value))
    return ()


def _is_hashed(schema: pa.Schema, names: tuple[str, ...]) -> bool:
    """Whether Parquet has Bloom filters of the column: not of booleans, nor of what has parts."""
    type = schema.field(names[0]).type
    for name in names[1:]:
        type = type.field(name).type
    type = type.value_type if pa.types.is_dictionary(type) else type
    return not (pa.types.is_boolean(type) or pa.types.is_nested(type) or pa.types.is_null(type))
