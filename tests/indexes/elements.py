"""Rows with arrays and maps for the tests of indexes of their elements, as every form in which Arrow has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa

from layoutopt.model.values import to_key
from tests.indexes.columns import POOLS

ELEMENT_TYPES: Final = ("int", "bigint", "double", "float", "boolean", "date", "string", "decimal(38,0)", "binary")
FORMS: Final = ("list", "large", "view", "fixed", "hidden", "dictionaries")
_WIDTH: Final = 2  # of lists of a fixed size


def arrays(type: str) -> st.SearchStrategy[list[list[Any] | None]]:
    """Arrays of rows: NULL, empty, and with NULL, NaN and edges among their elements."""
    value = st.one_of(st.none(), st.sampled_from(POOLS[type][1]))
    return st.lists(st.one_of(st.none(), st.lists(value, max_size=3)), min_size=1, max_size=12)


def as_arrow(rows: Sequence[list[Any] | None], type: str, form: str) -> pa.ChunkedArray:
    """The rows in one of the forms, as slices of longer arrays, in two chunks.

    Lists of a fixed size take the rows of that length, and NULL for the others.
    """
    element = POOLS[type][0]
    made = {
        "list": pa.list_(element), "large": pa.large_list(element), "view": pa.list_view(element),
        "fixed": pa.list_(element, _WIDTH), "hidden": pa.list_(element),
        "dictionaries": pa.list_(element),
    }[form]  # fmt: skip
    around = [[POOLS[type][1][0]] * _WIDTH, [POOLS[type][1][-1]] * _WIDTH]
    middle = len(rows) // 2
    chunks = [pa.array([around[0], *part, around[1]], made) for part in (rows[:middle], rows[middle:])]
    if form == "hidden":
        chunks = [_with_hidden(chunk) for chunk in chunks]
    if form == "dictionaries":
        chunks = [_of_lists(each.offsets, each.values.dictionary_encode(), each) for each in chunks]
    return pa.chunked_array([chunk.slice(1, len(chunk) - 2) for chunk in chunks])


def rows_of(rows: Sequence[list[Any] | None], form: str) -> list[list[Any] | None]:
    """What a form holds of some rows."""
    return [row if row is None or form != "fixed" or len(row) == _WIDTH else None for row in rows]


def _with_hidden(lists: pa.ListArray) -> pa.ListArray:
    """The lists with the last one's elements under each NULL, where nobody may see them."""
    last = lists.slice(len(lists) - 1)[0].values
    shown = [row.values if row.is_valid else last for row in lists]
    offsets = np.concatenate(([0], np.cumsum([len(values) for values in shown])))
    return _of_lists(pa.array(offsets, pa.int32()), pa.concat_arrays(shown), lists)


def _of_lists(offsets: pa.Array, values: pa.Array, lists: pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(offsets, values, mask=lists.is_null())


def contains(row: list[Any] | None, value: Any, type: str) -> bool | None:
    """``array_contains`` as Spark has it: NULL of NULL, and where there is a NULL and not the value."""
    if row is None:
        return None
    if any(each is not None and to_key(each, type) == to_key(value, type) for each in row):
        return True
    return None if None in row else False
