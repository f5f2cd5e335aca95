"""A file's row groups as blocks: where they are, and what the footer says of their columns.

A footer's minima and maxima are believed where other readers believe them, but for NaN, of which it says nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from layoutopt.catalog.block_index import block_schema
from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.statistics import column_statistics_type, measure, statistics_type
from layoutopt.errors import SchemaError
from layoutopt.external.footers import Footer
from layoutopt.external.listing import constant
from layoutopt.external.source_files import stored_names
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.feature import FeatureSet
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.layout import Layout, Plan, Scheme
from layoutopt.model.schema import Column, Schema
from layoutopt.model.values import key_kind

_ALL_BITS: Final = -1
ArrowTypes = Mapping[str, pa.DataType]
"""Of each column the Arrow type of its values."""


def row_groups(footer: Footer) -> list[int]:
    """The row groups that have rows."""
    return [i for i in range(footer.metadata.num_row_groups) if footer.metadata.row_group(i).num_rows]


def blocks_of(footer: Footer, schema: Schema, types: ArrowTypes, *, believed: bool = True) -> pa.Table:
    """One row for each row group that has rows, as :func:`~layoutopt.catalog.block_index.block_schema` has them.

    Args:
        footer: the file's.
        schema: the source's columns.
        types: theirs in Arrow.
        believed: whether to take what the footer and the folders' names say of values; else nothing is known of them.
    """
    groups = [footer.metadata.row_group(i) for i in row_groups(footer)]
    n, form = len(groups), block_schema(schema, 1)
    rows = np.array([group.num_rows for group in groups], dtype=np.int64)
    names = stored_names(footer.listed.file, schema, footer.arrow.names)
    of_column = _Columns(footer, groups, rows, names, believed)
    stats = [of_column.statistics(column, types[column.name]) for column in schema.columns]
    values = {
        "file": [footer.key] * n,
        "row_group": row_groups(footer),
        "block": range(n),
        "partition": [footer.key] * n,
        **dict.fromkeys(("segment", "layout", "part", "tid_bytes"), [0] * n),
        "rows": rows,
        "bytes": [sum(group.column(i).total_compressed_size for i in range(group.num_columns)) for group in groups],
        "words": [[_ALL_BITS]] * n,
        "footer": [footer.digest] * n,
        "start": [None] * n,
    }
    arrays = {name: pa.array(held, form.field(name).type) for name, held in values.items()}
    if not n:
        return form.empty_table()
    arrays["stats"] = pa.StructArray.from_arrays(stats, fields=list(statistics_type(schema)))
    return pa.Table.from_arrays([arrays[name] for name in form.names], schema=form)


class _Columns:
    """What a footer says of columns."""

    def __init__(
        self, footer: Footer, groups: Sequence[Any], rows: Ints, names: Mapping[str, str], believed: bool
    ) -> None:
        self._footer, self._groups, self._rows, self._names, self._believed = footer, groups, rows, names, believed
        self._paths = [footer.metadata.schema.column(i).path for i in range(footer.metadata.num_columns)]

    def statistics(self, column: Column, type: pa.DataType) -> pa.StructArray:
        """The statistics of one column over the row groups."""
        form = column_statistics_type(column.type)
        known = {"bytes": self._bytes(column.name)}
        if self._believed:
            known |= self._values(column, type)
        n = len(self._groups)
        arrays = [
            pa.array(known[field.name]).cast(field.type) if field.name in known else pa.nulls(n, field.type)
            for field in form
        ]
        return pa.StructArray.from_arrays(arrays, fields=list(form))

    def _bytes(self, name: str) -> list[int]:
        stored = self._names.get(name)
        if stored is None:
            return [0] * len(self._groups)
        leaves = [i for i, path in enumerate(self._paths) if path == stored or path.startswith(f"{stored}.")]
        return [sum(group.column(i).total_compressed_size for i in leaves) for group in self._groups]

    def _values(self, column: Column, type: pa.DataType) -> dict[str, Any]:
        constants, n = self._footer.listed.file.constants, len(self._groups)
        if column.name in constants:
            value = constant(constants[column.name], column, type)
            if not value.is_valid:
                return {"nulls": self._rows}
            return self._bounds(pa.array([value.as_py()] * (2 * n), type), column, [0] * n)
        if column.name not in self._names:
            return {"nulls": self._rows}
        if key_kind(column.type) is None or self._names[column.name] not in self._paths:
            return {}
        held_as = self._footer.arrow.field(self._names[column.name]).type
        if pa.types.is_unsigned_integer(held_as):  # whose ends pyarrow gives as signed
            return {}
        leaf = self._paths.index(self._names[column.name])
        found = [group.column(leaf).statistics for group in self._groups]
        nulls = [one.null_count if one is not None and one.has_null_count else None for one in found]
        try:
            pairs = [(one.min, one.max) if one is not None and one.has_min_max else (None, None) for one in found]
            both = [value for pair in pairs for value in (pair if None not in pair else (None, None))]
            return self._bounds(pa.array(both, held_as), column, nulls)
        except (pa.ArrowException, SchemaError, ValueError, TypeError, OverflowError):  # what Python has no value for
            return {"nulls": pa.array(nulls, pa.int64())}

    def _bounds(self, ends: pa.Array, column: Column, nulls: Sequence[int | None]) -> dict[str, Any]:
        """Bounds of row groups from the least and greatest value of each, one after the other."""
        found: dict[str, Any] = {"nulls": pa.array(nulls, pa.int64())}
        if key_kind(column.type) is None:
            return found
        measured = measure(ends, np.arange(0, len(ends) + 1, 2), column.type)
        if measured.nans is None:
            return {**found, "min": measured.low, "max": measured.high}
        whole = pa.array(measured.nans == 0)
        unknown = pa.scalar(None, pa.int64())
        return {
            **found,
            "min": pa.compute.if_else(whole, measured.low, unknown),
            "max": pa.compute.if_else(whole, measured.high, unknown),
        }


# ----------------------------------------------------------------------------------------------------
# The plan of a source's indexes, which lays nothing out, and the blocks that are its row groups.


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
