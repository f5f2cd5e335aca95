"""Measure a plan's indexes of the blocks of one file while they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.block_index import INDEXES, block_schema
from layoutopt.errors import SettingError
from layoutopt.evaluation.expressions import Evaluated, evaluate, flatten_arrays, is_computed_here
from layoutopt.indexes.protocol import BlockColumn
from layoutopt.indexes.registry import check_index, find_index, find_parameter
from layoutopt.model.arrays import Bits, Ints, reduce_blocks
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.layout import Plan
from layoutopt.model.predicates import Expr
from layoutopt.model.predicates.normal import array_of
from layoutopt.model.vectors import words_for

NO_VALUES: Final[Mapping[Expr, pa.ChunkedArray]] = MappingProxyType({})


def blocks_with_indexes(plan: Plan) -> pa.Schema:
    """Return the schema of a plan's blocks: :func:`~layoutopt.catalog.block_index.block_schema` and its indexes.

    Indexes are a struct with one child ``i<k>`` for the plan's k-th; a plan without any has no such column.

    Raises:
        SettingError: an index type is not installed, or can't index its expression.
    """
    schema = block_schema(plan.schema, words_for(len(plan.features)))
    return schema.append(pa.field(INDEXES, indexes_type(plan.indexes), nullable=False)) if plan.indexes else schema


def indexes_type(specs: Sequence[IndexSpec]) -> pa.StructType:
    """Return the struct type of measured indexes, ``i<k>`` for the k-th; raises as :func:`blocks_with_indexes`."""
    for spec in specs:
        check_index(spec)
    return pa.struct([(f"i{k}", find_index(spec.kind).storage(spec.subject.type)) for k, spec in enumerate(specs)])


def measure_indexes(
    specs: Sequence[IndexSpec], rows: pa.Table, offsets: Ints, computed: Mapping[Expr, pa.ChunkedArray] = NO_VALUES
) -> pa.StructArray:
    """Return the indexes of blocks that are ranges of rows; NULL for indexes of missing columns.

    Args:
        specs: the indexes.
        rows: in the order of their blocks.
        offsets: block i has the rows ``offsets[i] .. offsets[i + 1] - 1``; ``int64[n + 1]``.
        computed: the values of :func:`~layoutopt.evaluation.expressions.select_for_spark` of these rows; without them
            the index is NULL.

    Raises:
        SettingError: a type is not installed, can't index its expression, or did not measure one value of its storage
            for each block.
        SchemaError: a column's values are not of its Spark type.
    """
    fields = list(indexes_type(specs))
    columns = {spec.subject: _block_column(spec.subject, rows, offsets, computed) for spec in specs}
    children = [
        _measure_index(spec, field.type, columns[spec.subject], len(offsets) - 1)
        for spec, field in zip(specs, fields, strict=True)
    ]
    return pa.StructArray.from_arrays(children, fields=fields)


@dataclass(frozen=True, eq=False)
class _Known:
    """An expression's values in blocks, and the blocks with unknown values, ``bool[n]``."""

    column: BlockColumn
    unknown: Bits


def _block_column(
    subject: Expr, rows: pa.Table, offsets: Ints, computed: Mapping[Expr, pa.ChunkedArray]
) -> _Known | None:
    evaluated = evaluate(subject, rows) if is_computed_here(subject) else _find_computed(subject, rows, computed)
    if evaluated is None:
        return None
    unknown = np.zeros(len(offsets) - 1, np.bool_)
    if evaluated.unknown is not None:
        unknown = reduce_blocks(np.add, evaluated.unknown, offsets) > 0
    value_offsets = offsets if evaluated.starts is None else evaluated.starts[offsets]
    return _Known(BlockColumn(evaluated.values, value_offsets, subject.type), unknown)


def _find_computed(subject: Expr, rows: pa.Table, computed: Mapping[Expr, pa.ChunkedArray]) -> Evaluated | None:
    array = array_of(subject)
    values = computed.get(subject if array is None else array)
    # As for other indexes, only blocks with the columns get one.
    if values is None or not subject.columns <= set(rows.column_names):
        return None
    return Evaluated(values) if array is None else flatten_arrays(Evaluated(values))


def _measure_index(spec: IndexSpec, type: pa.DataType, known: _Known | None, n: int) -> pa.Array:
    if known is None:
        return pa.nulls(n, type)
    measured = find_index(spec.kind).measure(known.column, find_parameter(spec))
    if len(measured) != n or measured.type != type:
        raise SettingError(
            f"the index {spec} measured {len(measured)} values of {measured.type}, not {n} of {type}; "
            f"fix the package that provides {spec.kind}"
        )
    return pc.if_else(pa.array(known.unknown), pa.scalar(None, type), measured) if known.unknown.any() else measured
