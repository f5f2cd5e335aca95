"""Blocks that stay where they are while others of their entry are written anew: rows of the next blocks file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from layoutopt.catalog.block_index import block_schema
from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.statistics import column_statistics_type
from layoutopt.model.arrays import Words
from layoutopt.model.layout import Plan
from layoutopt.model.schema import Schema
from layoutopt.model.vectors import words_for


def in_layouts(blocks: BlockTable, layouts: Sequence[int]) -> BlockTable:
    """The blocks of some layouts, which then are the layouts 0, 1, ... in the order given."""
    place = np.full(max(blocks.layout.max(initial=-1), max(layouts, default=-1)) + 1, -1, dtype=np.int16)
    place[list(layouts)] = np.arange(len(layouts))
    part = blocks.take(place[blocks.layout] >= 0)
    index = part.block_index
    moved = pa.array(place[part.layout], index.schema.field("layout").type)
    return replace(part, block_index=index.set_column(index.schema.get_field_index("layout"), "layout", moved))


def as_rows(blocks: BlockTable, words: Words, plan: Plan) -> pa.Table:
    """Blocks of an opened table as rows of a blocks file.

    Args:
        blocks: without deleted rows.
        words: their union vectors under the features of ``plan``, ``uint64[n, w]``.
        plan: of the same columns, whose layouts the blocks name.
    """
    schema = block_schema(plan.schema, words_for(len(plan.features)))
    index = blocks.block_index
    columns = {name: index[name] for name in index.column_names}
    columns |= {"words": listed(words), "stats": _statistics(blocks, plan.schema)}
    arrays = [columns[of.name].cast(of.type) for of in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def listed(words: Words) -> pa.Array:
    """Union vectors, ``uint64[n, w]``, as the catalog lists them."""
    bits = pa.array(words.view(np.int64).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(bits, words.shape[1]).cast(pa.list_(pa.int64()))


def _statistics(blocks: BlockTable, schema: Schema) -> pa.StructArray:
    children = [
        _of_type(blocks.statistics(column.name), column_statistics_type(column.type)) for column in schema.columns
    ]
    return pa.StructArray.from_arrays(children, [f"c{i}" for i in range(len(children))])


def _of_type(statistics: pa.StructArray, type: pa.StructType) -> pa.StructArray:
    """Statistics with all members that are written today: those that an older file lacks are unknown."""
    members = [
        pa.nulls(len(statistics), member.type)
        if statistics.type.get_field_index(member.name) < 0
        else statistics.field(statistics.type.get_field_index(member.name)).cast(member.type)
        for member in type
    ]
    return pa.StructArray.from_arrays(members, fields=list(type), mask=statistics.is_null())
