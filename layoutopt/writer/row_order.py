"""The order of rows within their blocks: sorted by a few columns, so that equal values stand together and compress.

What is read, skipped and answered does not depend on it, but the bytes of a block do (Hall et al., "Processing a
Trillion Cells per Mouse Click", VLDB 2012, section 3). Columns are turned into numbers of few bits that are packed into
one word with the block and the place, so that one sort of words does it all and equal rows keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.keys import dense_ranks, stored_keys
from layoutopt.model.arrays import Ints, Places
from layoutopt.model.schema import Schema
from layoutopt.writer.routing import Routing

_WORD_BITS = 63


class Codes(NamedTuple):
    """Numbers in the order of the values that they stand for, from 0 and of so many bits, ``int64[n]``."""

    values: Ints
    bits: int


def in_row_order(routing: Routing, columns: Sequence[str], schema: Schema, table: pa.Table) -> Routing:
    """The same blocks, the rows of each sorted by some columns; equal rows stay as they stand.

    Args:
        routing: of some rows of the segment.
        columns: what is sorted by, the first one first: in Spark's order of values, NULL first and NaN last.
        schema: the table's, for the columns' types.
        table: the segment's rows.

    Raises:
        SchemaError: a column is unknown, or of a type without an order.
    """
    if not columns or not len(routing.rows):
        return routing
    n_blocks = len(routing.offsets) - 1
    block = np.repeat(np.arange(n_blocks, dtype=np.int64), np.diff(routing.offsets))
    codes = [Codes(block, _bits_below(n_blocks))]
    for name in columns:
        values, bits = order_codes(table[name], schema.find(name).type)
        codes.append(Codes(values[routing.rows], bits))
    return replace(routing, rows=routing.rows[sorted_places(codes)])


def order_codes(column: pa.ChunkedArray, type: str) -> Codes:
    """A column as numbers below its rows whose order is Spark's order of the values; NULL is the least, NaN the last.

    Raises:
        SchemaError: the type has no order.
    """
    keys = stored_keys(column, type)
    most_bits = _bits_below(len(keys))
    if keys.type == pa.int64() and keys.null_count < len(keys):
        least, greatest = (int(each.as_py()) for each in pc.min_max(keys).values())
        bits = _bits_below(greatest - least + 1 + bool(keys.null_count))
        if bits <= most_bits:
            shift = 1 - least if keys.null_count else -least
            found = np.asarray(pc.fill_null(keys, least - 1) if keys.null_count else keys, dtype=np.int64) + shift
            return Codes(found, bits)
    return _ranked(keys)


def _ranked(keys: pa.Array) -> Codes:
    """Dense ranks, by the distinct values alone."""
    coded = keys.dictionary_encode()
    _, ranks = dense_ranks(coded.dictionary)
    if not keys.null_count:
        return Codes(ranks[np.asarray(coded.indices)], _bits_below(len(ranks)))
    with_null = np.append(ranks + 1, 0)
    return Codes(with_null[np.asarray(pc.fill_null(coded.indices, len(ranks)))], _bits_below(len(with_null)))


def sorted_places(codes: Sequence[Codes]) -> Places:
    """The places of the rows in the order of their codes, the first codes first; of equal rows the first first."""
    n = len(codes[0].values)
    place_bits = _bits_below(n)
    if 3 * max(place_bits, *(bits for _, bits in codes)) > _WORD_BITS:  # block, column and place may not fit together
        return np.lexsort([values for values, _ in reversed(codes)])
    word, used = codes[0]
    for values, bits in codes[1:]:
        if used + bits + place_bits > _WORD_BITS:
            word = np.unique(word, return_inverse=True)[1].astype(np.int64).reshape(-1)
            used = place_bits
        word, used = (word << bits) | values, used + bits
    return np.sort((word << place_bits) | np.arange(n)) & ((1 << place_bits) - 1)


def _bits_below(count: int) -> int:
    """The bits of a number below ``count``."""
    return max(0, count - 1).bit_length()
