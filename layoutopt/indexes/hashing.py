"""64 well-mixed bits of every key, for Bloom filters: on disk for ever, so what they are never changes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from layoutopt.indexes.murmur3 import hash_texts
from layoutopt.model.arrays import Words

_WORD = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def hash_keys(keys: pa.Array) -> Words:
    """The hashes of keys, ``uint64[n]``: int64, decimal128 or large_binary, none of them NULL.

    Integers are mixed by SplitMix64's finisher; of texts the 32 bits of Murmur3 with Spark's seed are mixed so.

    >>> hash_keys(pa.array([7])) == hash_keys(pa.array([7, 8]))[:1]
    array([ True])
    """
    if pa.types.is_large_binary(keys.type):
        offsets = np.frombuffer(keys.buffers()[1], np.int64, count=len(keys) + 1, offset=8 * keys.offset)
        data = keys.buffers()[2]
        texts = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        return mixed(hash_texts(texts[offsets[0] : offsets[-1]], offsets - offsets[0]).astype(np.uint64))
    if pa.types.is_decimal(keys.type):
        halves = np.frombuffer(keys.buffers()[1], np.uint64, count=2 * len(keys), offset=16 * keys.offset)
        return mixed(halves[0::2] ^ mixed(halves[1::2]))
    return mixed(np.asarray(keys).view(np.uint64))


def mixed(words: Words) -> Words:
    """SplitMix64's finisher of words, ``uint64[n]``: every bit of a word changes about half of the bits."""
    found = words + _WORD
    found = (found ^ (found >> np.uint64(30))) * _FIRST
    found = (found ^ (found >> np.uint64(27))) * _SECOND
    mixed_words: Words = found ^ (found >> np.uint64(31))
    return mixed_words
