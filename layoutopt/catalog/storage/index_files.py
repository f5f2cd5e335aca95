"""Files of indexes: one for each index of a load, with one row a block in the order of the blocks file.

A blocks file names those of its load in its own metadata, with their digests, so that they are as sure as it is.
Readers fetch one when a filter asks for it, and do without one that is missing or damaged.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from layoutopt.catalog.block_index import INDEXES, check_expansion, damaged
from layoutopt.catalog.keys import dense_ranks, one_chunk
from layoutopt.catalog.paths import FileDigest, SafePath, index_path, read_field
from layoutopt.catalog.statistics import reduce_blocks
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import CatalogError
from layoutopt.model.arrays import Ints
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.records import Form, Record, to_json

# ----------------------------------------------------------------------------------------------------
# Lists of texts as places in one sorted dictionary: what many blocks list is stored, and looked at, once.
#
# After PowerDrill's global dictionaries and chunk dictionaries (Hall 2012, 2.3).


def may_be_coded(type: pa.DataType) -> bool:
    """Whether values are lists of texts."""
    return bool(pa.types.is_large_list(type) and pa.types.is_large_binary(type.value_type))


def coded(lists: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Lists of texts, none of them NULL, as lists of places, int64, and the texts that stand there, ascending."""
    values = lists.flatten()
    if is_coded(lists.type):
        used = np.unique(np.asarray(values.indices))
        indices, texts = np.searchsorted(used, np.asarray(values.indices)), values.dictionary.take(pa.array(used))
    else:
        values = values.dictionary_encode()
        indices, texts = np.asarray(values.indices), values.dictionary
    dictionary, rank = dense_ranks(texts)
    return lists_like(lists, pa.array(rank[indices], pa.int64())), dictionary


def places_of(lists: pa.Array) -> pa.Array:
    """Lists of places in a dictionary of Arrow's as lists of whole numbers, int64."""
    return lists_like(lists, lists.flatten().indices.cast(pa.int64()))


def with_dictionary(places: pa.Array, dictionary: pa.Array) -> pa.Array:
    """Lists of places as lists of texts, which stay places in Arrow's own dictionary.

    Raises:
        pyarrow.ArrowInvalid: a place is not in the dictionary.
    """
    indices = places.flatten()
    if len(indices) and not (pc.min(indices).as_py() >= 0 and pc.max(indices).as_py() < len(dictionary)):
        raise pa.ArrowInvalid("a place is not in the dictionary")
    return lists_like(places, pa.DictionaryArray.from_arrays(indices.cast(pa.int32()), dictionary))


def plain_lists(stored: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The same with each text where it is listed; whatever is no list of places in a dictionary as it is."""
    array = one_chunk(stored)
    if not is_coded(array.type):
        return array
    return lists_like(array, array.flatten().dictionary_decode())


def is_coded(type: pa.DataType) -> bool:
    """Whether values are lists of places in a dictionary of texts."""
    return bool(
        pa.types.is_large_list(type)
        and pa.types.is_dictionary(type.value_type)
        and pa.types.is_large_binary(type.value_type.value_type)
    )


def lists_like(lists: pa.Array, values: pa.Array) -> pa.Array:
    """Lists as long as some others, with other values; NULL where these are."""
    sizes = pc.fill_null(pc.list_value_length(lists), 0)
    offsets = pa.array(np.concatenate(([0], np.cumsum(np.asarray(sizes, dtype=np.int64)))))
    missing = lists.is_null() if lists.null_count else None
    return pa.LargeListArray.from_arrays(offsets, values, mask=missing)


# ----------------------------------------------------------------------------------------------------
# Dictionaries of texts merged into one, and places in these as places in that; some at a time, as whole arrays.
#
# What is held is a few times the merged dictionary, however many dictionaries there are: they are gathered until they
# take as much as what is merged of them already, so that each text is hashed a few times only.

BATCH_BYTES = 8 << 20
"""What is gathered at least."""


def merged_dictionary(dictionaries: Iterable[pa.Array]) -> pa.Array:
    """The texts of dictionaries, each once, ascending.

    >>> [of.decode() for of in merged_dictionary([pa.array([b"b", b"c"]), pa.array([b"a", b"b"])]).to_pylist()]
    ['a', 'b', 'c']
    """
    known: list[pa.Array] = []
    gathered: list[pa.Array] = []
    for dictionary in dictionaries:
        gathered.append(dictionary)
        if _size(gathered) >= max(BATCH_BYTES, _size(known)):
            known, gathered = [pc.unique(pa.chunked_array([*known, *gathered]))], []
    merged, _ = dense_ranks(pc.unique(pa.chunked_array([*known, *gathered])))
    return merged


def places_within(dictionary: pa.Array, lists: Iterable[pa.Array]) -> Iterator[pa.Array]:
    """Lists of places in dictionaries of their own as lists of places, int64, in one that has the texts of all."""
    gathered: list[pa.Array] = []
    for each in lists:
        if len(each.values.dictionary) == len(dictionary):
            yield from _within(dictionary, gathered)
            yield places_of(each)
            gathered = []
            continue
        gathered.append(each)
        if _size(gathered) >= max(BATCH_BYTES, dictionary.nbytes):
            yield from _within(dictionary, gathered)
            gathered = []
    yield from _within(dictionary, gathered)


def _within(dictionary: pa.Array, lists: list[pa.Array]) -> Iterator[pa.Array]:
    if not lists:
        return
    dictionaries = [each.values.dictionary for each in lists]
    found = np.asarray(one_chunk(pc.index_in(pa.chunked_array(dictionaries), value_set=dictionary)), dtype=np.int64)
    ends = np.cumsum([len(each) for each in dictionaries])
    for each, places in zip(lists, np.split(found, ends[:-1]), strict=True):
        yield lists_like(each, pa.array(places[np.asarray(each.flatten().indices)]))


def _size(arrays: list[pa.Array]) -> int:
    return sum(each.nbytes for each in arrays)


# ----------------------------------------------------------------------------------------------------
# How an index is encoded: each part of it in the task that measured it, and all parts together as a file's content.
#
# Parts are decoded one after the other, and the file is written in pieces of a few megabytes, each a row group. Where
# pieces end follows from what is listed alone, so that a load's file has the same bytes however its blocks came in
# parts.
# Only the dictionary of a file's texts is held whole: it is merged of the parts' own, each of which lists a text once.

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


_KEY: Final = b"layoutopt.indexes"


@dataclass(frozen=True)
class IndexFile(Record):
    """A file with one index of a load's blocks.

    Attributes:
        index: what is indexed, and how.
        path: where it lies, in the table's folder.
        digest: its size and SHA-256.
    """

    index: IndexSpec
    path: SafePath
    digest: FileDigest
    form: ClassVar = Form()


def write_indexes(
    files: TableFiles, load_id: str, specs: Sequence[IndexSpec], parts: Sequence[PackedIndexes]
) -> tuple[IndexFile, ...]:
    """Write a load's indexes, of blocks that come in some parts, at least one; what an earlier attempt wrote alike is
    taken.

    Raises:
        OSError: the store failed.
    """
    return tuple(_write(files, load_id, spec, [part[k] for part in parts]) for k, spec in enumerate(specs))


def _write(files: TableFiles, load_id: str, spec: IndexSpec, parts: Sequence[Packed]) -> IndexFile:
    data = merge_index(parts)
    digest = FileDigest.of(data)
    path = index_path(load_id, digest.sha256)
    try:
        files.write_new(path, data)
    except FileExistsError:
        if files.read_bytes(path) != data:
            raise CatalogError(f"{files.full_path(path)} is damaged; remove it and load again") from None
    return IndexFile(spec, path, digest)


def naming(blocks: pa.Table, named: Sequence[IndexFile]) -> pa.Table:
    """The blocks of a load with the names of its index files in the metadata."""
    if not named:
        return blocks
    listed = json.dumps([to_json(each) for each in named], sort_keys=True).encode("utf-8")
    return blocks.replace_schema_metadata({**(blocks.schema.metadata or {}), _KEY: listed})


def named_indexes(metadata: Mapping[bytes, bytes] | None, where: str) -> tuple[IndexFile, ...]:
    """The index files that the metadata of a blocks file names; ``where`` names that in messages.

    Raises:
        CatalogError: what stands there is no list of them.
    """
    listed = (metadata or {}).get(_KEY)
    if listed is None:
        return ()
    try:
        value = json.loads(listed.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise damaged(where, str(error)) from error
    found: tuple[IndexFile, ...] = read_field(tuple[IndexFile, ...], value, f"{where}, indexes")
    return found


def read_index(files: TableFiles, named: IndexFile, rows: int) -> pa.Array:
    """What an index file holds, one value a block; lists of texts perhaps as places in a dictionary of Arrow's.

    Raises:
        CatalogError: the file is missing, or not the one that was written, or has other than so many rows.
    """
    where = files.full_path(named.path)
    try:
        data = files.read_bytes(named.path)
    except OSError as error:
        raise CatalogError(
            f"the index file {where} can't be read ({error.strerror or error}); load its rows again"
        ) from error
    if FileDigest.of(data) != named.digest:
        raise damaged(where, f"its {len(data)} bytes are not those that its load wrote")
    try:
        check_expansion(pq.read_metadata(pa.BufferReader(data)), len(data), where)
        stored = decode_index(data)
        if len(stored) != rows:
            raise damaged(where, f"it has {len(stored)} rows for {rows} blocks")
        return stored
    except (pa.ArrowException, OSError, KeyError) as error:
        raise damaged(where, str(error)) from error
