"""Dictionaries of texts merged into one, and places in these as places in that; some at a time, as whole arrays.

What is held is a few times the merged dictionary, however many dictionaries there are: they are gathered until they
take as much as what is merged of them already, so that each text is hashed a few times only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.keys import dense_ranks, one_chunk
from layoutopt.catalog.storage.coded_lists import lists_like, places_of

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
