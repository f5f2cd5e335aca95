"""The plan of a source's indexes, which lays nothing out, and the blocks that are its row groups."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pyarrow as pa

from layoutopt.catalog.blocks import BlockTable
from layoutopt.model.arrays import Bits
from layoutopt.model.feature import FeatureSet
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.layout import Layout, Plan, Scheme
from layoutopt.model.schema import Schema


def plan_of(name: str, schema: Schema, indexes: tuple[IndexSpec, ...]) -> Plan:
    """The plan under which queries find a source by its name, with its columns and indexes."""
    return Plan(
        table=name, schema=schema, partition_by=None, method="input-order", features=FeatureSet(()), queries=(),
        scheme=_as_it_is(schema), block_rows=1, segment_rows=1, max_vectors=1, seed=0, indexes=indexes,
    )  # fmt: skip


def grown(plan: Plan, schema: Schema) -> Plan:
    """The plan of files that nobody measured, under the columns that there are now."""
    return replace(plan, schema=schema, scheme=_as_it_is(schema), indexes=())


def _as_it_is(schema: Schema) -> Scheme:
    return Scheme((Layout(schema.names, (), schema.names),))


def in_partitions(blocks: BlockTable, keys: Collection[str]) -> Bits:
    """Which blocks lie in one of some partitions, ``bool[n]``."""
    wanted = np.array([key in keys for key in blocks.partitions], dtype=np.bool_)
    found: Bits = wanted[blocks.partition] if len(wanted) else np.zeros(0, dtype=np.bool_)
    return found


def numbered(blocks: pa.Table) -> pa.Table:
    """The blocks with numbers from 0."""
    place = blocks.column_names.index("block")
    return blocks.set_column(place, blocks.schema.field(place), pa.array(np.arange(blocks.num_rows)))
