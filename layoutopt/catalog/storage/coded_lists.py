"""Lists of texts as places in one sorted dictionary: what many blocks list is stored, and looked at, once.

After PowerDrill's global dictionaries and chunk dictionaries (Hall 2012, 2.3).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.keys import dense_ranks, one_chunk


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
