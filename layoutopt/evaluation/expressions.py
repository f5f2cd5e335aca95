"""The values of indexed expressions as whole Arrow columns: exactly Spark's, or unknown.

A few expressions are computed here. Spark computes all others during loads and passes them beside the rows
(:func:`select_for_spark`), so only Spark can measure their indexes again. The values of an array's elements follow one
another, row by row. Spark folds the case of non-ASCII letters by Java's rules and Arrow by others, so these rows are
unknown and their blocks get no index.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.evaluation.keys import one_chunk
from layoutopt.functions.registry import FUNCTIONS
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.predicates import Call, Col, Const, Expr
from layoutopt.model.predicates.nodes import GET_FIELD
from layoutopt.model.predicates.normal import MAP_KEYS, MAP_VALUES, array_of
from layoutopt.model.types import nested_parts, struct_fields

_STRUCT: Final = "struct"
# The functions that Arrow computes for texts of ASCII.
_ON_ASCII: Final = {name: function.on_ascii for name, function in FUNCTIONS.items() if function.on_ascii is not None}


@dataclass(frozen=True, eq=False)
class Evaluated:
    """The values of an expression.

    Attributes:
        values: of the rows, [rows]; for elements, those of all rows in order.
        unknown: the rows with unknown values, ``bool[rows]``, or None.
        starts: where each row's values begin, and the end, ``int64[rows + 1]``; None: one value a row.
    """

    values: pa.ChunkedArray
    unknown: Bits | None = None
    starts: Ints | None = None


def is_stored(expr: Expr) -> bool:
    """Return whether files store the expression's values: a column, or a field of a struct."""
    return isinstance(expr, Col) or (isinstance(expr, Call) and expr.fn == GET_FIELD and is_stored(expr.args[0]))


def make_struct(parts: Sequence[Expr]) -> Call:
    """Return the struct of some expressions, for an index of all of them.

    >>> make_struct([Col("lat", "double"), Col("lon", "int")]).type
    'struct<c0:double,c1:int>'
    """
    return Call(_STRUCT, tuple(parts), f"struct<{','.join(f'c{i}:{part.type}' for i, part in enumerate(parts))}>")


def struct_parts(expr: Expr) -> tuple[Expr, ...]:
    """Return the expressions of :func:`make_struct`, or the fields of another struct; empty for other types."""
    if isinstance(expr, Call) and expr.fn == _STRUCT:
        return expr.args
    fields = struct_fields(expr.type)
    return tuple(Call(GET_FIELD, (expr, Const(name, "string")), type) for name, type in fields)


def stored_values(expr: Expr, rows: pa.Table | pa.RecordBatch) -> pa.ChunkedArray | pa.Array:
    """Return the values of an expression that :func:`is_stored`; fields of NULL structs are NULL.

    Raises:
        KeyError: the rows lack its column, or the struct its field.
    """
    if isinstance(expr, Col):
        return rows.column(expr.name)
    assert isinstance(expr, Call), "nothing else is stored"
    name = expr.args[1]
    assert isinstance(name, Const), "a field's name is a constant"
    struct = stored_values(expr.args[0], rows)
    if pa.types.is_null(struct.type):  # the table never had values
        return pa.nulls(len(struct))
    place = struct.type.get_field_index(str(name.value))  # Arrow parses a name with "." as a path
    if place < 0:
        raise KeyError(str(name.value))
    return pc.struct_field(struct, [place])


def is_computed_here(expr: Expr) -> bool:
    """Return whether :func:`evaluate` supports the expression.

    It supports stored expressions, structs of these, a string in lower or upper case, keys and values of a stored map,
    and elements of supported arrays.
    """
    array = array_of(expr)
    if array is not None:
        return is_computed_here(array)
    if is_stored(expr) or (isinstance(expr, Call) and expr.fn == _STRUCT and all(map(is_stored, expr.args))):
        return True
    if isinstance(expr, Call) and expr.fn in (MAP_KEYS, MAP_VALUES):
        return len(expr.args) == 1 and is_stored(expr.args[0]) and nested_parts(expr.args[0].type)[0] == "map"
    if not (isinstance(expr, Call) and expr.fn in _ON_ASCII and expr.type == "string" and len(expr.args) == 1):
        return False
    return is_stored(expr.args[0]) and expr.args[0].type == "string"


def is_worth_indexing(expr: Expr) -> bool:
    """Return whether an index of the expression is useful; booleans that Spark computes make features instead."""
    return is_computed_here(expr) or expr.type != "boolean"


def select_for_spark(expressions: Iterable[Expr]) -> tuple[Expr, ...]:
    """Return the distinct expressions that Spark computes in loads; for elements, their array."""
    sources = (array_of(expr) or expr for expr in expressions)
    return tuple(dict.fromkeys(expr for expr in sources if not is_computed_here(expr)))


def evaluate(expr: Expr, rows: pa.Table) -> Evaluated | None:
    """Return an expression's values; None if the rows lack its column.

    Raises:
        ValueError: the expression is not :func:`is_computed_here`.
    """
    if not is_computed_here(expr):
        raise ValueError(f"{expr} can't be computed here")
    array = array_of(expr)
    if array is not None:
        arrays = evaluate(array, rows)
        return None if arrays is None else flatten_arrays(arrays)
    if not expr.columns <= set(rows.column_names):
        return None
    if is_stored(expr):
        return Evaluated(_chunked(stored_values(expr, rows)))
    assert isinstance(expr, Call), "nothing else is computed here"
    if expr.fn in (MAP_KEYS, MAP_VALUES):
        return Evaluated(_read_map_part(_chunked(stored_values(expr.args[0], rows)), expr.fn == MAP_VALUES))
    if expr.fn == _STRUCT:
        parts = [one_chunk(_plain(_chunked(stored_values(arg, rows)))) for arg in expr.args]
        return Evaluated(_chunked(pa.StructArray.from_arrays(parts, names=[f"c{i}" for i in range(len(parts))])))
    texts = _plain(_chunked(stored_values(expr.args[0], rows))).cast(pa.large_binary())
    beyond = np.asarray(pc.match_substring_regex(texts, rb"[^\x00-\x7f]").fill_null(False))
    # Unknown rows may hold invalid UTF-8.
    ascii_only = pc.if_else(pa.array(beyond), pa.scalar(b"", pa.large_binary()), texts).cast(pa.large_string())
    folded = _ON_ASCII[expr.fn](ascii_only)
    return Evaluated(_chunked(folded), beyond)


def flatten_arrays(arrays: Evaluated) -> Evaluated:
    """Return the elements of arrays; NULL arrays have none.

    >>> elements = flatten_arrays(Evaluated(pa.chunked_array([[[1, None], None, [], [2]]])))
    >>> elements.values.to_pylist(), elements.starts.tolist()
    ([1, None, 2], [0, 2, 2, 2, 3])
    """
    lists = one_chunk(arrays.values)
    if pa.types.is_null(lists.type):  # rows of a table that never had any
        lists = lists.cast(pa.list_(pa.null()))
    # Use kernels: the child array of a sliced list may hold further elements.
    sizes = np.asarray(pc.list_value_length(lists).fill_null(0), dtype=np.int64)
    starts: Ints = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
    return Evaluated(_chunked(pc.list_flatten(lists)), arrays.unknown, starts)


def _read_map_part(maps: pa.ChunkedArray, values: bool) -> pa.ChunkedArray:
    array = one_chunk(maps)
    if pa.types.is_null(array.type):
        return _chunked(array)
    entries = pa.list_(pa.struct([("key", array.type.key_type), ("value", array.type.item_type)]))
    flat = flatten_arrays(Evaluated(_chunked(array.cast(entries))))
    part = pc.struct_field(one_chunk(flat.values), [int(values)])
    return _chunked(pa.LargeListArray.from_arrays(pa.array(flat.starts), part, mask=array.is_null()))


def _plain(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values


def _chunked(values: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray:
    return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
