"""Index files: one for each index of a load, with one value a block in the order of the blocks file.

A blocks file names its load's index files and their digests in its metadata, so they are as trustworthy as the blocks
file. Readers fetch one when a filter needs it, and do without a missing or damaged one.

Each task encodes its part of an index; the driver merges the parts into a file. It decodes parts one after the other
and writes pieces of a few megabytes, each a row group. The pieces depend only on the values, so a load's file has the
same bytes for any division into parts. Only the dictionary of a file's texts is held whole.

Lists of texts are stored as positions in one sorted dictionary, after PowerDrill's global dictionaries and chunk
dictionaries (Hall 2012, 2.3).
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

from layoutopt.catalog.block_index import INDEXES, check_expansion, damage_error
from layoutopt.catalog.paths import FileDigest, SafePath, index_path, read_field
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import CatalogError
from layoutopt.evaluation.keys import dense_ranks, one_chunk
from layoutopt.model.arrays import Ints, reduce_blocks
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.records import Form, Record, to_json


def is_text_list(type: pa.DataType) -> bool:
    """Return whether values are lists of texts."""
    return bool(pa.types.is_large_list(type) and pa.types.is_large_binary(type.value_type))


def encode_lists(lists: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return lists of texts (none NULL) as lists of dictionary positions, int64, and the texts, ascending."""
    values = lists.flatten()
    if is_coded(lists.type):
        used = np.unique(np.asarray(values.indices))
        indices, texts = np.searchsorted(used, np.asarray(values.indices)), values.dictionary.take(pa.array(used))
    else:
        values = values.dictionary_encode()
        indices, texts = np.asarray(values.indices), values.dictionary
    dictionary, rank = dense_ranks(texts)
    return lists_like(lists, pa.array(rank[indices], pa.int64())), dictionary


def list_positions(lists: pa.Array) -> pa.Array:
    """Return lists of texts in an Arrow dictionary as lists of positions, int64."""
    return lists_like(lists, lists.flatten().indices.cast(pa.int64()))


def attach_dictionary(places: pa.Array, dictionary: pa.Array) -> pa.Array:
    """Return lists of positions as lists of texts in an Arrow dictionary; raise pyarrow.ArrowInvalid beyond it."""
    indices = places.flatten()
    if len(indices) and not (pc.min(indices).as_py() >= 0 and pc.max(indices).as_py() < len(dictionary)):
        raise pa.ArrowInvalid("a place is not in the dictionary")
    return lists_like(places, pa.DictionaryArray.from_arrays(indices.cast(pa.int32()), dictionary))


def plain_lists(stored: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return dictionary-encoded lists of texts decoded; other values unchanged."""
    array = one_chunk(stored)
    if not is_coded(array.type):
        return array
    return lists_like(array, array.flatten().dictionary_decode())


def is_coded(type: pa.DataType) -> bool:
    """Return whether values are lists of texts in an Arrow dictionary."""
    return bool(
        pa.types.is_large_list(type)
        and pa.types.is_dictionary(type.value_type)
        and pa.types.is_large_binary(type.value_type.value_type)
    )


def lists_like(lists: pa.Array, values: pa.Array) -> pa.Array:
    """Return lists with the lengths and NULLs of some others, and new values."""
    sizes = pc.fill_null(pc.list_value_length(lists), 0)
    offsets = pa.array(np.concatenate(([0], np.cumsum(np.asarray(sizes, dtype=np.int64)))))
    missing = lists.is_null() if lists.null_count else None
    return pa.LargeListArray.from_arrays(offsets, values, mask=missing)


# Bytes of dictionaries that are merged at once, at least.
BATCH_BYTES = 8 << 20


def merge_dictionaries(dictionaries: Iterable[pa.Array]) -> pa.Array:
    """Return the texts of dictionaries, each once, ascending.

    Dictionaries are gathered until they take as much as the merged ones, so each text is hashed only a few times.

    >>> [text.decode() for text in merge_dictionaries([pa.array([b"b", b"c"]), pa.array([b"a", b"b"])]).to_pylist()]
    ['a', 'b', 'c']
    """
    known: list[pa.Array] = []
    gathered: list[pa.Array] = []
    for dictionary in dictionaries:
        gathered.append(dictionary)
        if _sum_bytes(gathered) >= max(BATCH_BYTES, _sum_bytes(known)):
            known, gathered = [pc.unique(pa.chunked_array([*known, *gathered]))], []
    merged, _ = dense_ranks(pc.unique(pa.chunked_array([*known, *gathered])))
    return merged


def map_positions(dictionary: pa.Array, lists: Iterable[pa.Array]) -> Iterator[pa.Array]:
    """Yield lists of positions in own dictionaries as lists of positions, int64, in a dictionary of all texts."""
    gathered: list[pa.Array] = []
    for array in lists:
        if len(array.values.dictionary) == len(dictionary):
            yield from _map_positions(dictionary, gathered)
            yield list_positions(array)
            gathered = []
            continue
        gathered.append(array)
        if _sum_bytes(gathered) >= max(BATCH_BYTES, dictionary.nbytes):
            yield from _map_positions(dictionary, gathered)
            gathered = []
    yield from _map_positions(dictionary, gathered)


def _map_positions(dictionary: pa.Array, lists: list[pa.Array]) -> Iterator[pa.Array]:
    if not lists:
        return
    dictionaries = [array.values.dictionary for array in lists]
    positions = np.asarray(one_chunk(pc.index_in(pa.chunked_array(dictionaries), value_set=dictionary)), dtype=np.int64)
    ends = np.cumsum([len(array) for array in dictionaries])
    for array, own_positions in zip(lists, np.split(positions, ends[:-1]), strict=True):
        yield lists_like(array, pa.array(own_positions[np.asarray(array.flatten().indices)]))


def _sum_bytes(arrays: list[pa.Array]) -> int:
    return sum(array.nbytes for array in arrays)


_COLUMN: Final = "index"
_DICTIONARY: Final = "dictionary"

# About the bytes of a row group of an index file before encoding.
PIECE_BYTES = 8 << 20

# Bytes held for each byte of a merged dictionary; measured, see docs/performance.md#indexes.
_MERGING: Final = 6

# Encoded parts are concatenated until they take so many bytes.
SMALL_BYTES = 256 << 10

# One index of some blocks, at least one, as :func:`pack_index` encodes it.
Packed: TypeAlias = "bytes | pa.Buffer"

# All indexes of some blocks, at least one, in the plan's order.
PackedIndexes: TypeAlias = Sequence[Packed]


def pack_index(stored: pa.Array | pa.ChunkedArray) -> bytes:
    """Encode one index of some blocks for transfer to the driver, about as compact as it will be stored."""
    array = _share_dictionary(stored)
    if is_coded(array.type):
        return _encode_with_dictionary([list_positions(array)], array.values.dictionary)
    # Compliant nested types would replace the names of list elements, which the Arrow schema keeps.
    return _encode(
        [array], _choose_delta_encodings(_COLUMN, array.type, keep_names=True), use_compliant_nested_type=False
    )


def split_indexes(blocks: pa.Table) -> tuple[pa.Table, PackedIndexes]:
    """Return blocks without the column of measured indexes, and the indexes, each as :func:`pack_index`."""
    if INDEXES not in blocks.column_names:
        return blocks, []
    measured = blocks[INDEXES]
    packed = [pack_index(pc.struct_field(measured, [k])) for k in range(measured.type.num_fields)]
    return blocks.drop_columns([INDEXES]), packed


def count_blocks(part: Packed) -> int:
    """Return the number of blocks in an encoded part."""
    return int(pq.read_metadata(pa.BufferReader(part)).num_rows)


def merge_index(parts: Sequence[Packed]) -> bytes:
    """Return the content of an index file: one value a block, of all parts (of one type) in their order.

    Ascending lists are delta-encoded if that is shorter. Of 10,000 of 150,000 whole numbers a difference takes 5 bits,
    fewer than in a Bloom filter with 5 % false positives. Lists of texts become lists of positions in a dictionary,
    which the file stores as the list of its first block.
    """
    return _encode_parts([partial(decode_index, part) for part in _gather_parts(parts)])


def encode_index(stored: pa.Array | pa.ChunkedArray) -> bytes:
    """Return the content of an index file with these values, as :func:`merge_index` makes it from any parts."""
    array = _share_dictionary(stored)
    return _encode_parts([lambda: array])


def held_bytes(stored: pa.Array | pa.ChunkedArray) -> int:
    """Return about the most bytes that :func:`merge_index` holds of these values: encoded, plus a merged dictionary."""
    array = _share_dictionary(stored)
    merging = _MERGING * array.values.dictionary.nbytes if is_coded(array.type) else 0
    return len(pack_index(array)) + merging


def decode_index(data: Packed) -> pa.Array:
    """Return the values of a file or part; lists of texts perhaps in an Arrow dictionary.

    Raises pyarrow.ArrowException, OSError or KeyError if it is no such content.
    """
    table = pq.ParquetFile(pa.BufferReader(data)).read()
    if _DICTIONARY in table.column_names:
        return attach_dictionary(one_chunk(table[_COLUMN]), one_chunk(table[_DICTIONARY]).flatten())
    return one_chunk(table[_COLUMN])


def _gather_parts(parts: Sequence[Packed]) -> Iterator[Packed]:
    """Yield the parts, with consecutive small ones concatenated: each is decoded several times."""
    small: list[Packed] = []
    for part in parts:
        small.append(part)
        if sum(map(len, small)) >= SMALL_BYTES:
            yield _concat_parts(small)
            small = []
    if small:
        yield _concat_parts(small)


def _concat_parts(parts: Sequence[Packed]) -> Packed:
    return parts[0] if len(parts) == 1 else pack_index(pa.concat_arrays([decode_index(part) for part in parts]))


def _share_dictionary(stored: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the values, with lists of texts in a dictionary of exactly these texts."""
    array = one_chunk(stored)
    return attach_dictionary(*encode_lists(array)) if is_text_list(array.type) or is_coded(array.type) else array


def _encode_parts(parts: Sequence[Callable[[], pa.Array]]) -> bytes:
    """Encode values, which are decoded again for each step."""
    type = parts[0]().type
    if is_coded(type):
        dictionary = merge_dictionaries(part().values.dictionary for part in parts)
        return _encode_with_dictionary(_cut_pieces(map_positions(dictionary, (part() for part in parts))), dictionary)
    plain = _encode(_cut_pieces(part() for part in parts))
    options = _choose_delta_encodings(_COLUMN, type)
    return min(plain, _encode(_cut_pieces(part() for part in parts), options), key=len) if options else plain


def _cut_pieces(arrays: Iterable[pa.Array]) -> Iterator[pa.Array]:
    """Yield the values of arrays (at least one) in pieces that don't depend on the arrays' borders."""
    n_bytes, piece = 0, 0
    pending: list[pa.Array] = []
    for array in arrays:
        ends = n_bytes + np.cumsum(_estimate_sizes(array))
        pieces = np.concatenate(([n_bytes], ends))[:-1] // PIECE_BYTES
        for number in np.unique(pieces).tolist():
            start, stop = np.searchsorted(pieces, [number, number + 1]).tolist()
            if number != piece and pending:
                yield pa.concat_arrays(pending)
                pending = []
            piece = number
            pending.append(array.slice(start, stop - start))
        n_bytes = int(ends[-1]) if len(ends) else n_bytes
        pending = pending or [array]
    yield pa.concat_arrays(pending)


def _estimate_sizes(values: pa.Array) -> Ints:
    """Return about the bytes that each value takes, ``int64[n]``; equal values have equal sizes."""
    type = values.type
    if pa.types.is_large_list(type) or pa.types.is_list(type):
        ends = np.cumsum(np.asarray(pc.fill_null(pc.list_value_length(values), 0), dtype=np.int64))
        return reduce_blocks(np.add, _estimate_sizes(values.flatten()), np.concatenate(([0], ends)))
    if pa.types.is_large_binary(type) or pa.types.is_binary(type):
        lengths: Ints = 8 + np.asarray(pc.fill_null(pc.binary_length(values), 0), dtype=np.int64)
        return lengths
    children = [_estimate_sizes(child) for child in values.flatten()] if pa.types.is_struct(type) else []
    whole: Ints = np.sum(children, axis=0) if children else np.full(len(values), 8)
    return whole


def _encode_with_dictionary(pieces: Iterable[pa.Array], dictionary: pa.Array) -> bytes:
    """Encode lists of positions, with their dictionary as the list of the first block."""
    options = _choose_delta_encodings(_COLUMN, pa.large_list(pa.int64())) | _choose_delta_encodings(
        _DICTIONARY, pa.large_list(dictionary.type)
    )
    return _encode(pieces, options, dictionary)


def _encode(
    pieces: Iterable[pa.Array],
    options: Mapping[str, str] = MappingProxyType({}),
    dictionary: pa.Array | None = None,
    **writer_options: Any,
) -> bytes:
    """Encode pieces (at least one) as Parquet, each a row group; ``options`` are column encodings."""
    sink, tables = io.BytesIO(), _make_tables(pieces, dictionary)
    first = next(tables)
    if options:
        writer_options |= {"use_dictionary": False, "column_encoding": dict(options)}
    with pq.ParquetWriter(sink, first.schema, compression="zstd", write_statistics=False, **writer_options) as writer:
        for table in chain([first], tables):
            writer.write_table(table)
    return sink.getvalue()


def _make_tables(pieces: Iterable[pa.Array], dictionary: pa.Array | None) -> Iterator[pa.Table]:
    """Yield pieces as tables, the first with the dictionary if there is one."""
    for piece in pieces:
        table = pa.table({_COLUMN: piece})
        if dictionary is not None:
            ends = pa.array([0, *[len(dictionary)] * len(piece)], pa.int64())
            table = table.append_column(_DICTIONARY, pa.LargeListArray.from_arrays(ends, dictionary))
            dictionary = dictionary.slice(0, 0)
        yield table


def _choose_delta_encodings(path: str, type: pa.DataType, keep_names: bool = False) -> dict[str, str]:
    """Return delta encodings of columns of lists of numbers or texts, by their paths in Parquet."""
    if pa.types.is_struct(type):
        fields = [_choose_delta_encodings(f"{path}.{field.name}", field.type, keep_names) for field in type]
        return {column: encoding for columns in fields for column, encoding in columns.items()}
    if not (pa.types.is_large_list(type) or pa.types.is_list(type)):
        return {}
    element = f"{path}.list.{type.value_field.name if keep_names else 'element'}"
    if type.value_type == pa.int64():
        return {element: "DELTA_BINARY_PACKED"}
    return {element: "DELTA_BYTE_ARRAY"} if pa.types.is_large_binary(type.value_type) else {}


_KEY: Final = b"layoutopt.indexes"


@dataclass(frozen=True)
class IndexFile(Record):
    """A file with one index of a load's blocks: its index, its path in the table's folder, its size and SHA-256."""

    index: IndexSpec
    path: SafePath
    digest: FileDigest
    form: ClassVar = Form()


def write_indexes(
    files: TableFiles, load_id: str, number: int, specs: Sequence[IndexSpec], parts: Sequence[PackedIndexes]
) -> tuple[IndexFile, ...]:
    """Write a load's indexes, of blocks in one or more parts; equal files of an attempt on the same base are reused.

    ``number`` is that of the paths.
    """

    def write(k: int, spec: IndexSpec) -> IndexFile:
        data = merge_index([part[k] for part in parts])
        digest = FileDigest.of(data)
        return IndexFile(spec, _write_index(files, index_path(load_id, number, digest.sha256), data), digest)

    return tuple(write(k, spec) for k, spec in enumerate(specs))


def _write_index(files: TableFiles, path: str, data: bytes) -> str:
    try:
        files.write_new(path, data)
    except FileExistsError:
        if files.read_bytes(path) != data:
            raise CatalogError(f"{files.full_path(path)} is damaged; remove it and load again") from None
    return path


def add_index_files(blocks: pa.Table, index_files: Sequence[IndexFile]) -> pa.Table:
    """Return the blocks of a load with the names of its index files in the metadata."""
    if not index_files:
        return blocks
    text = json.dumps([to_json(file) for file in index_files], sort_keys=True).encode("utf-8")
    return blocks.replace_schema_metadata({**(blocks.schema.metadata or {}), _KEY: text})


def list_index_files(metadata: Mapping[bytes, bytes] | None, where: str) -> tuple[IndexFile, ...]:
    """Return the index files in the metadata of a blocks file ``where``; raise CatalogError if it is damaged."""
    text = (metadata or {}).get(_KEY)
    if text is None:
        return ()
    try:
        value = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise damage_error(where, str(error)) from error
    index_files: tuple[IndexFile, ...] = read_field(tuple[IndexFile, ...], value, f"{where}, indexes")
    return index_files


def read_index(files: TableFiles, index_file: IndexFile, rows: int) -> pa.Array:
    """Return the values of an index file, perhaps in an Arrow dictionary.

    Raises:
        CatalogError: it is missing or damaged.
        StoreError: the store refused it.
    """
    where = files.full_path(index_file.path)
    try:
        data = files.read_bytes(index_file.path)
    except FileNotFoundError as error:
        raise CatalogError(f"the index file {where} is missing; load its rows again") from error
    if FileDigest.of(data) != index_file.digest:
        raise damage_error(where, f"its {len(data)} bytes are not those that its load wrote")
    try:
        check_expansion(pq.read_metadata(pa.BufferReader(data)), len(data), where)
        stored = decode_index(data)
        if len(stored) != rows:
            raise damage_error(where, f"it has {len(stored)} rows for {rows} blocks")
        return stored
    except (pa.ArrowException, OSError, KeyError) as error:
        raise damage_error(where, str(error)) from error
