"""The row groups of a file as blocks, with the footer's column statistics; and the plan of an indexed source.

A footer's min/max are trusted like other readers trust them, except for NaN, which footers don't record.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from layoutopt.catalog.block_index import block_schema
from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.deletion_vectors import pack_positions
from layoutopt.catalog.statistics import column_statistics_type, measure, statistics_type
from layoutopt.errors import SchemaError
from layoutopt.external.footers import Footer
from layoutopt.external.listing import to_arrow_constant
from layoutopt.external.source_files import stored_names
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.feature import FeatureSet
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.layout import Layout, Plan, Scheme
from layoutopt.model.schema import Column, Schema
from layoutopt.model.values import key_kind
from layoutopt.sources.snapshot import SnapshotFile

_ALL_BITS: Final = -1


def non_empty_row_groups(footer: Footer) -> list[int]:
    """Return the row groups that have rows."""
    return [i for i in range(footer.metadata.num_row_groups) if footer.metadata.row_group(i).num_rows]


def make_blocks(footer: Footer, schema: Schema, *, use_bounds: bool = True) -> pa.Table:
    """Return one row for each non-empty row group, in :func:`~layoutopt.catalog.block_index.block_schema`.

    Without ``use_bounds``, neither statistics of the footer nor values in folder names are used.
    """
    groups = [footer.metadata.row_group(i) for i in non_empty_row_groups(footer)]
    n, form = len(groups), block_schema(schema, 1)
    rows = np.array([group.num_rows for group in groups], dtype=np.int64)
    names = stored_names(footer.listed.file, schema, footer.arrow.names)
    reader = _StatisticsReader(footer, groups, rows, names, use_bounds)
    stats = [reader.read(column) for column in schema.columns]
    values = {
        "file": [footer.key] * n,
        "row_group": non_empty_row_groups(footer),
        "block": range(n),
        "partition": [footer.key] * n,
        **dict.fromkeys(("segment", "layout", "part", "tid_bytes"), [0] * n),
        "rows": rows,
        "bytes": [sum(group.column(i).total_compressed_size for i in range(group.num_columns)) for group in groups],
        "words": [[_ALL_BITS]] * n,
        "footer": [footer.digest] * n,
        "start": [None] * n,
    }
    arrays = {name: pa.array(column, form.field(name).type) for name, column in values.items()}
    if not n:
        return form.empty_table()
    arrays["stats"] = pa.StructArray.from_arrays(stats, fields=list(statistics_type(schema)))
    return pa.Table.from_arrays([arrays[name] for name in form.names], schema=form)


class _StatisticsReader:
    """Reads column statistics from a footer."""

    def __init__(
        self, footer: Footer, groups: Sequence[Any], rows: Ints, names: Mapping[str, str], use_bounds: bool
    ) -> None:
        self._footer, self._groups, self._rows = footer, groups, rows
        self._names, self._use_bounds = names, use_bounds
        self._paths = [footer.metadata.schema.column(i).path for i in range(footer.metadata.num_columns)]

    def read(self, column: Column) -> pa.StructArray:
        """Return the statistics of one column over the row groups."""
        form = column_statistics_type(column.type)
        known = {"bytes": self._sum_bytes(column.name)}
        if self._use_bounds:
            known |= self._read_values(column)
        n = len(self._groups)
        arrays = [
            pa.array(known[field.name]).cast(field.type) if field.name in known else pa.nulls(n, field.type)
            for field in form
        ]
        return pa.StructArray.from_arrays(arrays, fields=list(form))

    def _sum_bytes(self, name: str) -> list[int]:
        stored = self._names.get(name)
        if stored is None:
            return [0] * len(self._groups)
        leaves = [i for i, path in enumerate(self._paths) if path == stored or path.startswith(f"{stored}.")]
        return [sum(group.column(i).total_compressed_size for i in leaves) for group in self._groups]

    def _read_values(self, column: Column) -> dict[str, Any]:
        constants, n = self._footer.listed.file.constants, len(self._groups)
        if column.name in constants:
            value = to_arrow_constant(constants[column.name], column)
            if not value.is_valid:
                return {"nulls": self._rows}
            return self._make_bounds(pa.repeat(value, 2 * n), column, [0] * n)
        if column.name not in self._names:
            return {"nulls": self._rows}
        if key_kind(column.type) is None or self._names[column.name] not in self._paths:
            return {}
        file_type = self._footer.arrow.field(self._names[column.name]).type
        if pa.types.is_unsigned_integer(file_type):  # pyarrow returns their min/max as signed
            return {}
        leaf = self._paths.index(self._names[column.name])
        statistics = [group.column(leaf).statistics for group in self._groups]
        nulls = [s.null_count if s is not None and s.has_null_count else None for s in statistics]
        try:
            pairs = [(s.min, s.max) if s is not None and s.has_min_max else (None, None) for s in statistics]
            ends = [value for pair in pairs for value in (pair if None not in pair else (None, None))]
            return self._make_bounds(pa.array(ends, file_type), column, nulls)
        except (pa.ArrowException, SchemaError, ValueError, TypeError, OverflowError):  # no Python value
            return {"nulls": pa.array(nulls, pa.int64())}

    def _make_bounds(self, ends: pa.Array, column: Column, nulls: Sequence[int | None]) -> dict[str, Any]:
        """Return bounds of row groups, given the least and the greatest value of each in turn."""
        bounds: dict[str, Any] = {"nulls": pa.array(nulls, pa.int64())}
        if key_kind(column.type) is None:
            return bounds
        measured = measure(ends, np.arange(0, len(ends) + 1, 2), column.type)
        low, high = measured.low, measured.high
        if measured.nans is not None:
            no_nans, unknown = pa.array(measured.nans == 0), pa.scalar(None, pa.int64())
            low, high = (pa.compute.if_else(no_nans, keys, unknown) for keys in (low, high))
        return {**bounds, "min": low, "max": high}


def make_source_plan(name: str, schema: Schema, indexes: tuple[IndexSpec, ...]) -> Plan:
    """Return the plan of an indexed source with its name, columns and indexes; it has no layouts of its own."""
    return Plan(
        table=name, schema=schema, partition_by=None, method="input-order", features=FeatureSet(()), queries=(),
        scheme=_single_layout(schema), block_rows=1, segment_rows=1, max_vectors=1, seed=0, indexes=indexes,
    )  # fmt: skip


def widen_plan(plan: Plan, schema: Schema) -> Plan:
    """Return the plan with other columns and without indexes, for files that are not indexed."""
    return replace(plan, schema=schema, scheme=_single_layout(schema), indexes=())


def _single_layout(schema: Schema) -> Scheme:
    return Scheme((Layout(schema.names, (), schema.names),))


def mask_partitions(blocks: BlockTable, keys: Collection[str]) -> Bits:
    """Return which blocks are in some partitions, ``bool[n]``."""
    mask = np.array([key in keys for key in blocks.partitions], dtype=np.bool_)
    in_blocks: Bits = mask[blocks.partition] if len(mask) else np.zeros(0, dtype=np.bool_)
    return in_blocks


def mark_deleted(blocks: BlockTable, files: Mapping[str, SnapshotFile]) -> BlockTable:
    """Return the blocks with the deleted rows that a table's metadata lists; ``files`` are by key."""
    if not any(files[key].deleted_rows for key in blocks.files):
        return blocks
    vectors: list[bytes | None] = [None] * blocks.n
    counts = np.zeros(blocks.n, dtype=np.int64)
    for number, key in enumerate(blocks.files):
        deleted, first = files[key].deleted, 0
        if deleted is None:
            continue
        in_file = np.flatnonzero(blocks.file == number)
        for block in in_file[np.argsort(blocks.row_group[in_file])].tolist():
            end = first + int(blocks.rows[block])
            places = np.unique(deleted[(deleted >= first) & (deleted < end)]) - first
            if len(places):
                vectors[block], counts[block] = pack_positions(places), len(places)
            first = end
    return blocks.marked(pa.array(vectors, pa.large_binary()), pa.array(counts))


def number_blocks(blocks: pa.Table) -> pa.Table:
    """Return the blocks numbered from 0."""
    place = blocks.column_names.index("block")
    return blocks.set_column(place, blocks.schema.field(place), pa.array(np.arange(blocks.num_rows)))
