"""The row groups of a file as blocks, with the footer's column statistics; and the plan of an indexed source.

A footer's min/max are trusted like other readers trust them, except for NaN, which footers don't record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.catalog.block_index import block_schema
from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.deletion_vectors import pack_positions
from layoutopt.catalog.statistics import column_statistics_type, measure, statistics_type
from layoutopt.errors import SchemaError
from layoutopt.evaluation.arrow_types import any_arrow_type
from layoutopt.external.footers import Footer
from layoutopt.external.listing import to_arrow_constant
from layoutopt.external.snapshot import SnapshotFile
from layoutopt.external.source_files import stored_names
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.feature import FeatureSet
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.layout import Layout, Plan, Scheme
from layoutopt.model.schema import Column, Schema
from layoutopt.model.values import key_kind
from layoutopt.sql.schema import read_arrow_schema

_ALL_BITS: Final = -1


def non_empty_row_groups(footer: Footer) -> list[int]:
    """Return the row groups that have rows."""
    return [i for i in range(footer.metadata.num_row_groups) if footer.metadata.row_group(i).num_rows]


def make_blocks(footer: Footer, schema: Schema, *, use_bounds: bool = True) -> pa.Table:
    """Return one row for each non-empty row group, in :func:`~layoutopt.catalog.block_index.block_schema`.

    Without ``use_bounds``, neither statistics of the footer nor values in folder names are used.
    """
    row_groups = non_empty_row_groups(footer)
    n, form = len(row_groups), block_schema(schema, 1)
    if not n:
        return form.empty_table()
    columns = FooterColumns(footer.listed.file, footer.metadata, schema, row_groups)
    values = {
        "file": [footer.key] * n,
        "row_group": row_groups,
        "block": range(n),
        "partition": [footer.key] * n,
        **dict.fromkeys(("segment", "layout", "part", "tid_bytes"), [0] * n),
        "rows": columns.rows,
        "bytes": columns.bytes(),
        "words": [[_ALL_BITS]] * n,
        "footer": [footer.digest] * n,
        "start": [None] * n,
    }
    arrays = {name: pa.array(column, form.field(name).type) for name, column in values.items()}
    stats = [_read_statistics(columns, column, use_bounds) for column in schema.columns]
    arrays["stats"] = pa.StructArray.from_arrays(stats, fields=list(statistics_type(schema)))
    return pa.Table.from_arrays([arrays[name] for name in form.names], schema=form)


class FooterColumns:
    """The sizes and bounds of columns, by their names in the source, in some of a file's row groups."""

    def __init__(
        self, file: SnapshotFile, metadata: pq.FileMetaData, schema: Schema, row_groups: Iterable[int] | None = None
    ) -> None:
        self._file, self._arrow = file, read_arrow_schema(metadata.schema)
        self._names = stored_names(file, schema, self._arrow.names)
        self._paths = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
        chosen = range(metadata.num_row_groups) if row_groups is None else row_groups
        self._groups = [metadata.row_group(i) for i in chosen]
        self.rows: Ints = np.array([group.num_rows for group in self._groups], dtype=np.int64)

    @cached_property
    def _sizes(self) -> Ints:
        """Return the compressed bytes of each leaf of each row group, ``int64[row groups, leaves]``."""
        sizes = [[group.column(i).total_compressed_size for i in range(len(self._paths))] for group in self._groups]
        return np.array(sizes, dtype=np.int64).reshape(len(self._groups), len(self._paths))

    def bytes(self, name: str | None = None) -> Ints:
        """Return the compressed bytes of a column in each row group, ``int64[row groups]``; None for all columns."""
        if name is None:
            return np.asarray(self._sizes.sum(axis=1))
        stored = self._names.get(name)
        leaves = [stored is not None and (path == stored or path.startswith(f"{stored}.")) for path in self._paths]
        return np.asarray(self._sizes[:, np.array(leaves, dtype=np.bool_)].sum(axis=1))

    def bounds(self, column: Column) -> tuple[pa.Array, pa.Array]:
        """Return the least and the greatest value of each row group in turn, and the numbers of NULLs.

        Both are null where unknown. Min/max are trusted, but don't say whether there are NaNs.

        Raises:
            SourceError: the column is constant in the file, and its value is invalid.
        """
        n = len(self._groups)
        unknown = pa.nulls(2 * n, any_arrow_type(column.type))
        stored = self._names.get(column.name)
        if stored is None:
            value = to_arrow_constant(self._file.constants.get(column.name), column)
            return pa.repeat(value, 2 * n), pa.array(np.zeros_like(self.rows) if value.is_valid else self.rows)
        type = self._arrow.field(stored).type
        if stored not in self._paths:
            return unknown, pa.nulls(n, pa.int64())
        leaf = self._paths.index(stored)
        statistics = [group.column(leaf).statistics for group in self._groups]
        nulls = [s.null_count if s is not None and s.has_null_count else None for s in statistics]
        try:
            pairs = [(s.min, s.max) if s is not None and s.has_min_max else (None, None) for s in statistics]
            ends = pa.array([end for pair in pairs for end in (pair if None not in pair else (None, None))], type)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):  # values that Python can't represent
            ends = unknown
        return ends, pa.array(nulls, pa.int64())


def _read_statistics(columns: FooterColumns, column: Column, use_bounds: bool) -> pa.StructArray:
    """Return the statistics of a column as in a blocks file; a NaN as an end makes a row group's bounds unknown."""
    form = column_statistics_type(column.type)
    known: dict[str, Any] = {"bytes": pa.array(columns.bytes(column.name))}
    if use_bounds:
        ends, known["nulls"] = columns.bounds(column)
        # The file may store the column with a type of another order.
        with suppress(pa.ArrowException, SchemaError, ValueError, TypeError, OverflowError):
            if key_kind(column.type) is not None:
                measured = measure(ends, np.arange(0, len(ends) + 1, 2), column.type)
                low, high = measured.low, measured.high
                if measured.nans is not None:
                    no_nans, unknown = pa.array(measured.nans == 0), pa.scalar(None, pa.int64())
                    low, high = (pa.compute.if_else(no_nans, keys, unknown) for keys in (low, high))
                known |= {"min": pa.array(low), "max": pa.array(high)}
    n = len(columns.rows)
    arrays = [known[f.name].cast(f.type) if f.name in known else pa.nulls(n, f.type) for f in form]
    return pa.StructArray.from_arrays(arrays, fields=list(form))


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
