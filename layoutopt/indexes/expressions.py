"""The values of indexed expressions, as whole Arrow columns: exactly Spark's, or unknown.

A few expressions are computed here, wherever blocks are measured. All others are computed by Spark while it loads, and
come to the writer beside the rows (:func:`left_to_spark`); nobody can measure their indexes again without Spark.

Of the elements of an array there are many values of a row, or none; they are put one after the other.

Spark folds the case of letters beyond ASCII by Java's rules, Arrow by others; so of a function the rows that have such
letters are unknown, and their blocks get no index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.keys import one_chunk
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.predicates import Call, Col, Const, Expr
from layoutopt.model.predicates.nodes import GET_FIELD
from layoutopt.model.predicates.normal import MAP_KEYS, MAP_VALUES, array_of
from layoutopt.model.types import nested_parts, struct_fields

_STRUCT: Final = "struct"
_ON_ASCII: Final[Mapping[str, Callable[[Any], Any]]] = {"lower": pc.ascii_lower, "upper": pc.ascii_upper}


@dataclass(frozen=True, eq=False)
class Evaluated:
    """The values of an expression.

    Attributes:
        values: of the rows, [rows]; of elements those of all rows, one row's after the other's.
        unknown: the rows of which they are not known, ``bool[rows]``; None: none.
        starts: where each row's values begin, and the end, ``int64[rows + 1]``; None: a row has one.
    """

    values: pa.ChunkedArray
    unknown: Bits | None = None
    starts: Ints | None = None


def is_stored(expr: Expr) -> bool:
    """Whether the expression's values stand in files as they are: a column, or a field of a struct."""
    return isinstance(expr, Col) or (isinstance(expr, Call) and expr.fn == GET_FIELD and is_stored(expr.args[0]))


def point_of(parts: Sequence[Expr]) -> Call:
    """The struct of some expressions, as an index of all of them is of.

    >>> point_of([Col("lat", "double"), Col("lon", "int")]).type
    'struct<c0:double,c1:int>'
    """
    return Call(_STRUCT, tuple(parts), f"struct<{','.join(f'c{i}:{part.type}' for i, part in enumerate(parts))}>")


def parts_of(expr: Expr) -> tuple[Expr, ...]:
    """The expressions that a struct is made of: those of :func:`point_of`, or its fields; none of another type."""
    if isinstance(expr, Call) and expr.fn == _STRUCT:
        return expr.args
    fields = struct_fields(expr.type)
    return tuple(Call(GET_FIELD, (expr, Const(name, "string")), type) for name, type in fields)


def stored_values(expr: Expr, rows: pa.Table | pa.RecordBatch) -> pa.ChunkedArray | pa.Array:
    """The values of an expression that :func:`is_stored`; a field of a struct that is NULL is NULL.

    Raises:
        KeyError: the rows lack its column, or the struct its field.
    """
    if isinstance(expr, Col):
        return rows.column(expr.name)
    assert isinstance(expr, Call), "nothing else is stored"
    name = expr.args[1]
    assert isinstance(name, Const), "a field's name is a constant"
    struct = stored_values(expr.args[0], rows)
    if pa.types.is_null(struct.type):  # rows of a table that never had any
        return pa.nulls(len(struct))
    place = struct.type.get_field_index(str(name.value))  # by its place: a name that begins with "." is a path to Arrow
    if place < 0:
        raise KeyError(str(name.value))
    return pc.struct_field(struct, [place])


def is_computed_here(expr: Expr) -> bool:
    """Whether :func:`evaluate` knows the expression.

    It does where it :func:`is_stored`, of structs of such, of a text's case folded, and of a stored map's keys and
    values; and of the elements of arrays that it knows.
    """
    array = array_of(expr)
    if array is not None:
        return is_computed_here(array)
    if is_stored(expr) or (isinstance(expr, Call) and expr.fn == _STRUCT and all(map(is_stored, expr.args))):
        return True
    if isinstance(expr, Call) and expr.fn in (MAP_KEYS, MAP_VALUES):
        return len(expr.args) == 1 and is_stored(expr.args[0]) and nested_parts(expr.args[0].type)[0] == "map"
    return isinstance(expr, Call) and expr.fn in _ON_ASCII and expr.type == "string" and _is_of_text(expr.args)


def is_worth_indexing(expr: Expr) -> bool:
    """Whether the expression has values to choose between; what is TRUE or FALSE makes a feature."""
    return is_computed_here(expr) or expr.type != "boolean"


def left_to_spark(expressions: Iterable[Expr]) -> tuple[Expr, ...]:
    """What loads have Spark compute for some expressions, each once, in their order; for elements it is their array."""
    asked = (array_of(expr) or expr for expr in expressions)
    return tuple(dict.fromkeys(expr for expr in asked if not is_computed_here(expr)))


def _is_of_text(args: tuple[Expr, ...]) -> bool:
    return len(args) == 1 and is_stored(args[0]) and args[0].type == "string"


def evaluate(expr: Expr, rows: pa.Table) -> Evaluated | None:
    """An expression of rows; None where they lack its column.

    Raises:
        ValueError: the expression is not :func:`is_computed_here`.
    """
    if not is_computed_here(expr):
        raise ValueError(f"{expr} can't be computed here")
    array = array_of(expr)
    if array is not None:
        found = evaluate(array, rows)
        return None if found is None else of_elements(found)
    if not expr.columns <= set(rows.column_names):
        return None
    if is_stored(expr):
        return Evaluated(_chunked(stored_values(expr, rows)))
    assert isinstance(expr, Call), "nothing else is computed here"
    if expr.fn in (MAP_KEYS, MAP_VALUES):
        return Evaluated(_part_of_maps(_chunked(stored_values(expr.args[0], rows)), expr.fn == MAP_VALUES))
    if expr.fn == _STRUCT:
        parts = [one_chunk(_plain(_chunked(stored_values(arg, rows)))) for arg in expr.args]
        return Evaluated(_chunked(pa.StructArray.from_arrays(parts, names=[f"c{i}" for i in range(len(parts))])))
    texts = _plain(_chunked(stored_values(expr.args[0], rows))).cast(pa.large_binary())
    beyond = np.asarray(pc.match_substring_regex(texts, rb"[^\x00-\x7f]").fill_null(False))
    # Bytes that are no text stay as they are where they are unknown anyway.
    ascii_only = pc.if_else(pa.array(beyond), pa.scalar(b"", pa.large_binary()), texts).cast(pa.large_string())
    folded = _ON_ASCII[expr.fn](ascii_only)
    return Evaluated(_chunked(folded), beyond)


def of_elements(arrays: Evaluated) -> Evaluated:
    """The elements of arrays; of a NULL there are none, whatever stands in its place.

    >>> found = of_elements(Evaluated(pa.chunked_array([[[1, None], None, [], [2]]])))
    >>> found.values.to_pylist(), found.starts.tolist()
    ([1, None, 2], [0, 2, 2, 2, 3])
    """
    lists = one_chunk(arrays.values)
    if pa.types.is_null(lists.type):  # rows of a table that never had any
        lists = lists.cast(pa.list_(pa.null()))
    # Arrow's kernels, which know where a slice begins: a list's child array may hold more than its elements.
    sizes = np.asarray(pc.list_value_length(lists).fill_null(0), dtype=np.int64)
    starts: Ints = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
    return Evaluated(_chunked(pc.list_flatten(lists)), arrays.unknown, starts)


def _part_of_maps(maps: pa.ChunkedArray, values: bool) -> pa.ChunkedArray:
    """The keys or the values of maps, as arrays."""
    one = one_chunk(maps)
    if pa.types.is_null(one.type):
        return _chunked(one)
    entries = pa.list_(pa.struct([("key", one.type.key_type), ("value", one.type.item_type)]))
    lists = Evaluated(_chunked(one.cast(entries)))
    flat = of_elements(lists)
    offsets = pa.array(flat.starts)
    part = pc.struct_field(one_chunk(flat.values), [int(values)])
    return _chunked(pa.LargeListArray.from_arrays(offsets, part, mask=one.is_null()))


def _plain(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values


def _chunked(values: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray:
    return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
