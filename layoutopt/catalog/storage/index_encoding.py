"""How an index is encoded: each part of it in the task that measured it, and all parts together as a file's content.

Parts are decoded one after the other, and the file is written in pieces of a few megabytes, each a row group. Where
pieces end follows from what is listed alone, so that a load's file has the same bytes however its blocks came in parts.
Only the dictionary of a file's texts is held whole: it is merged of the parts' own, each of which lists a text once.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from layoutopt.catalog.block_index import INDEXES
from layoutopt.catalog.keys import one_chunk
from layoutopt.catalog.statistics import reduce_blocks
from layoutopt.catalog.storage.coded_lists import coded, is_coded, may_be_coded, places_of, plain_lists, with_dictionary
from layoutopt.catalog.storage.dictionaries import merged_dictionary, places_within
from layoutopt.model.arrays import Ints

_COLUMN: Final = "index"
_DICTIONARY: Final = "dictionary"

PIECE_BYTES = 8 << 20
"""About what a row group of an index file takes before it is encoded."""

_MERGING: Final = 6  # measured, see docs/decisions/0065

SMALL_BYTES = 256 << 10
"""Encoded parts are put together until they take so much."""

Packed: TypeAlias = "bytes | pa.Buffer"
"""One index of some blocks, at least one, as :func:`pack_index` encodes it."""

PackedIndexes: TypeAlias = Sequence[Packed]
"""All indexes of some blocks, at least one, in the plan's order."""


def pack_index(stored: pa.Array | pa.ChunkedArray) -> bytes:
    """What was measured of some blocks, for the way from a task to the driver: about as short as it will be stored."""
    array = _sharing(stored)
    if is_coded(array.type):
        return _in_dictionary([places_of(array)], array.values.dictionary)
    # Parquet's own name of a list's elements would take the place of theirs, which a file of Arrow's types tells.
    return _encoded([array], _differences(_COLUMN, array.type, their_names=True), use_compliant_nested_type=False)


def split_indexes(blocks: pa.Table) -> tuple[pa.Table, PackedIndexes]:
    """Blocks without the column of measured indexes, and these, one by one as :func:`pack_index` has them."""
    if INDEXES not in blocks.column_names:
        return blocks, []
    measured = blocks[INDEXES]
    packed = [pack_index(pc.struct_field(measured, [k])) for k in range(measured.type.num_fields)]
    return blocks.drop_columns([INDEXES]), packed


def packed_blocks(part: Packed) -> int:
    """How many blocks an encoded part is of."""
    return int(pq.read_metadata(pa.BufferReader(part)).num_rows)


def merge_index(parts: Sequence[Packed]) -> bytes:
    """The content of an index file: one value a block, of all parts in their order.

    Lists, which ascend, are told by differences if that is shorter. Of 10,000 of 150,000 whole numbers a difference
    takes 5 bits, fewer than of a Bloom filter that errs in 5 %. Lists of texts may be of their places in a dictionary,
    which the file then has as the list of its first block.

    Args:
        parts: at least one, all of one type.
    """
    return _shortest([partial(decode_index, part) for part in _gathered(parts)])


def encode_index(stored: pa.Array | pa.ChunkedArray) -> bytes:
    """The content of an index file with these values: what :func:`merge_index` makes of them, however they are cut."""
    array = _sharing(stored)
    return _shortest([lambda: array])


def held_bytes(stored: pa.Array | pa.ChunkedArray) -> int:
    """About what :func:`merge_index` holds of these values at most: encoded, and a dictionary that is being merged."""
    array = _sharing(stored)
    merging = _MERGING * array.values.dictionary.nbytes if is_coded(array.type) else 0
    return len(pack_index(array)) + merging


def decode_index(data: Packed) -> pa.Array:
    """The values of a file, or of a part; lists of texts perhaps as places in a dictionary of Arrow's.

    Raises:
        pyarrow.ArrowException, OSError, KeyError: it is no such content.
    """
    table = pq.ParquetFile(pa.BufferReader(data)).read()
    if _DICTIONARY in table.column_names:
        return with_dictionary(one_chunk(table[_COLUMN]), one_chunk(table[_DICTIONARY]).flatten())
    return one_chunk(table[_COLUMN])


def _gathered(parts: Sequence[Packed]) -> Iterator[Packed]:
    """The parts, with small ones that follow each other put together: each is decoded several times."""
    small: list[Packed] = []
    for part in parts:
        small.append(part)
        if sum(map(len, small)) >= SMALL_BYTES:
            yield _together(small)
            small = []
    if small:
        yield _together(small)


def _together(parts: Sequence[Packed]) -> Packed:
    return parts[0] if len(parts) == 1 else pack_index(pa.concat_arrays([decode_index(part) for part in parts]))


def _sharing(stored: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The values, with lists of texts as places in a dictionary of just these texts."""
    array = one_chunk(stored)
    return with_dictionary(*coded(array)) if may_be_coded(array.type) or is_coded(array.type) else array


def _shortest(parts: Sequence[Callable[[], pa.Array]]) -> bytes:
    """The shortest of the encodings that there are for values of such a type, which are decoded for each again."""
    type = parts[0]().type
    best = _encoded(_pieces(part() for part in parts))
    if options := _differences(_COLUMN, type):
        best = min(best, _encoded(_pieces(part() for part in parts), options), key=len)
    if is_coded(type):
        dictionary = merged_dictionary(part().values.dictionary for part in parts)
        places = places_within(dictionary, (part() for part in parts))
        best = min(best, _in_dictionary(_pieces(places), dictionary), key=len)
    return best


def _pieces(arrays: Iterable[pa.Array]) -> Iterator[pa.Array]:
    """The values of arrays, at least one, in pieces that don't depend on how these were cut; texts where they are."""
    taken, piece = 0, 0
    held: list[pa.Array] = []
    for array in arrays:
        ends = taken + np.cumsum(_sizes(array))
        pieces = np.concatenate(([taken], ends))[:-1] // PIECE_BYTES
        for number in np.unique(pieces).tolist():
            start, stop = np.searchsorted(pieces, [number, number + 1]).tolist()
            if number != piece and held:
                yield pa.concat_arrays(held)
                held = []
            piece = number
            held.append(plain_lists(array.slice(start, stop - start)))
        taken = int(ends[-1]) if len(ends) else taken
        held = held or [plain_lists(array)]
    yield pa.concat_arrays(held)


def _sizes(values: pa.Array) -> Ints:
    """About the bytes that each value takes, ``int64[n]``; for equal values they are equal."""
    type = values.type
    if pa.types.is_large_list(type) or pa.types.is_list(type):
        ends = np.cumsum(np.asarray(pc.fill_null(pc.list_value_length(values), 0), dtype=np.int64))
        return reduce_blocks(np.add, _sizes(values.flatten()), np.concatenate(([0], ends)))
    if pa.types.is_dictionary(type):
        of_dictionary: Ints = _sizes(values.dictionary)[np.asarray(values.indices)]
        return of_dictionary
    if pa.types.is_large_binary(type) or pa.types.is_binary(type):
        lengths: Ints = 8 + np.asarray(pc.fill_null(pc.binary_length(values), 0), dtype=np.int64)
        return lengths
    children = [_sizes(child) for child in values.flatten()] if pa.types.is_struct(type) else []
    whole: Ints = np.sum(children, axis=0) if children else np.full(len(values), 8)
    return whole


def _in_dictionary(pieces: Iterable[pa.Array], dictionary: pa.Array) -> bytes:
    """Lists of places in a dictionary, which stands beside them as the list of the first block."""
    options = _differences(_COLUMN, pa.large_list(pa.int64())) | _differences(
        _DICTIONARY, pa.large_list(dictionary.type)
    )
    return _encoded(pieces, options, dictionary)


def _encoded(
    pieces: Iterable[pa.Array],
    options: Mapping[str, str] = MappingProxyType({}),
    dictionary: pa.Array | None = None,
    **how: Any,
) -> bytes:
    """Parquet of pieces, at least one, each a row group; some columns told by differences."""
    sink, tables = io.BytesIO(), _tables(pieces, dictionary)
    first = next(tables)
    if options:
        how |= {"use_dictionary": False, "column_encoding": dict(options)}
    with pq.ParquetWriter(sink, first.schema, compression="zstd", write_statistics=False, **how) as writer:
        for table in chain([first], tables):
            writer.write_table(table)
    return sink.getvalue()


def _tables(pieces: Iterable[pa.Array], dictionary: pa.Array | None) -> Iterator[pa.Table]:
    """Pieces as tables, the first with the dictionary if there is one."""
    for piece in pieces:
        table = pa.table({_COLUMN: piece})
        if dictionary is not None:
            ends = pa.array([0, *[len(dictionary)] * len(piece)], pa.int64())
            table = table.append_column(_DICTIONARY, pa.LargeListArray.from_arrays(ends, dictionary))
            dictionary = dictionary.slice(0, 0)
        yield table


def _differences(path: str, type: pa.DataType, their_names: bool = False) -> dict[str, str]:
    """The columns of lists of numbers or texts, by their paths in Parquet, with how differences are encoded."""
    if pa.types.is_struct(type):
        fields = [_differences(f"{path}.{field.name}", field.type, their_names) for field in type]
        return {column: encoding for of_field in fields for column, encoding in of_field.items()}
    if not (pa.types.is_large_list(type) or pa.types.is_list(type)):
        return {}
    element = f"{path}.list.{type.value_field.name if their_names else 'element'}"
    if type.value_type == pa.int64():
        return {element: "DELTA_BINARY_PACKED"}
    return {element: "DELTA_BYTE_ARRAY"} if is_coded(type) or pa.types.is_large_binary(type.value_type) else {}
