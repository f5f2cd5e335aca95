"""``bloom``: a split-block Bloom filter of a block's values, as in Parquet, for = and IN.

A filter is a row of 256-bit buckets of eight 32-bit words. A value has one bucket and one bit in each of its words, so
a test touches one cache line (Putze et al. 2007; Parquet's format, "Bloom filter"). Hashes are stored, so they must
never change.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from layoutopt.evaluation.keys import key_storage
from layoutopt.evaluation.murmur3 import hash_texts
from layoutopt.indexes.lists import element_storage
from layoutopt.indexes.protocol import BlockColumn, BlockKeys, Parameter
from layoutopt.model.arrays import Bits, Ints, Words
from layoutopt.model.predicates import InSet, Like
from layoutopt.model.values import Interval, Key, successor
from layoutopt.model.values.keys import ceil_float32

_WORD = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def hash_keys(keys: pa.Array) -> Words:
    """Return the hashes of keys, ``uint64[n]``: int64, decimal128 or large_binary without NULL.

    Integers are mixed by SplitMix64's finisher; for strings, that mixes the 32 bits of Murmur3 with Spark's seed.

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
    """Return SplitMix64's finisher of words, ``uint64[n]``: every bit of a word changes about half of the bits."""
    state: Words = words + _WORD
    state = (state ^ (state >> np.uint64(30))) * _FIRST
    state = (state ^ (state >> np.uint64(27))) * _SECOND
    return state ^ (state >> np.uint64(31))


# Parquet's multipliers of hashes, one for each word.
_SALTS = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], np.uint32
)
_BUCKET_BYTES = 32
_BUCKET_BITS = 8 * _BUCKET_BYTES
_MOST_BUCKETS = 1 << 15
# The most values of one literal that are looked up.
_MOST_POINTS = 1024


class Bloom:
    """A Bloom filter sized by the block's distinct values, for = and IN (Ta-Shma 2020, table I)."""

    parameter = Parameter(0.01, 1e-6, 0.5, "the share of false positives")

    def storage(self, type: str) -> pa.DataType | None:
        """Return the type of the filter's bytes."""
        return None if key_storage(type) is None else pa.large_binary()

    def measure(self, column: BlockColumn, parameter: float) -> pa.Array:
        """Return each block's filter; NULL if it would be larger than a mebibyte."""
        return bloom_filters(column.keys, parameter, np.ones(column.n, np.bool_))

    def serves(self, literal: InSet | Like) -> bool:
        """Return whether the literal is a list of values."""
        return isinstance(literal, InSet) and list_single_keys(literal) is not None

    def cannot_match(self, literal: InSet | Like, stored: pa.Array, parameter: float) -> Bits:
        """Return the blocks whose filters have none of the literal's values."""
        points = None if isinstance(literal, Like) else list_single_keys(literal)
        if points is None:
            return np.zeros(len(stored), np.bool_)
        return find_blocks_without_points(stored, hash_keys(keys_to_arrow(points, literal.subject.type)))


def bloom_filters(keys: BlockKeys, share: float, wanted: Bits) -> pa.Array:
    """Return the filters of the wanted blocks with this share of false positives, large_binary[n]; else NULL."""
    hashes = hash_keys(keys.keys)
    spans = zip(wanted.tolist(), pairwise(keys.offsets.tolist()), strict=True)
    # Block by block, so that the data stays in the second-level cache.
    filters = [
        _make_filter(np.unique(hashes[start:stop]), share) if is_wanted else None for is_wanted, (start, stop) in spans
    ]
    return pa.array(filters, pa.large_binary())


def _make_filter(hashes: Words, share: float) -> bytes | None:
    buckets = buckets_for(len(hashes), share)
    if buckets > _MOST_BUCKETS:
        return None
    bits = np.zeros(buckets * _BUCKET_BITS, np.bool_)
    first = _find_buckets(hashes, np.array(buckets)) * _BUCKET_BITS
    for word, salt in enumerate(_SALTS):
        bits[first + _find_bits(hashes, salt) + 32 * word] = True
    return np.packbits(bits, bitorder="little").tobytes()


def buckets_for(distinct: int, share: float) -> int:
    """Return the number of buckets that keeps the share of false positives for so many distinct values.

    >>> buckets_for(0, 0.01), buckets_for(10_000, 0.01)
    (1, 412)
    """
    return max(1, math.ceil(distinct / values_per_bucket(share)))


@lru_cache(maxsize=64)
def values_per_bucket(share: float) -> float:
    """Return the mean number of values in a bucket that keeps the share of false positives (Putze et al. 2007).

    It is rounded, because exponentials may differ in the last bit between machines.
    """
    few, many = 0.0, 256.0
    for _ in range(40):
        middle = (few + many) / 2
        few, many = (middle, many) if _estimate_false_positives(middle) <= share else (few, middle)
    return max(round(few, 4), 0.1)


def _estimate_false_positives(load: float) -> float:
    """Return the probability that all eight bits are set, with a Poisson-distributed number of values in a bucket.

    In a bucket of x values a bit is not set with probability a^x, where a = 31/32; the mean of (1 - a^x)^8 over x.
    """
    terms = ((-1) ** j * math.comb(8, j) * math.exp(-load * (1 - (31 / 32) ** j)) for j in range(9))
    return math.fsum(terms)


def list_single_keys(literal: InSet) -> list[Key] | None:
    """Return the single keys of a set of values, with the integers of short ranges; None if there are too many."""
    points: list[Key] = []
    for interval in literal.values.intervals:
        keys = _keys_within(interval, literal.subject.type)
        if keys is None or len(points) + len(keys) > _MOST_POINTS:
            return None
        points += keys
    return points


def _keys_within(interval: Interval, type: str) -> list[Key] | None:
    low, high = interval
    if isinstance(low, int) and isinstance(high, int):
        if type == "float" and high == ceil_float32(low + 1):
            return [low]  # the only 32-bit float in the interval
        return list(range(low, high)) if high - low <= _MOST_POINTS else None
    return [low] if low is not None and high == successor(low) else None


def keys_to_arrow(points: list[Key], type: str) -> pa.Array:
    """Return keys in the Arrow form of :func:`~layoutopt.evaluation.keys.stored_keys` for a Spark type."""
    storage = element_storage(type)
    if pa.types.is_large_binary(storage):
        return pa.array([p.encode("utf-8", "surrogatepass") if isinstance(p, str) else p for p in points], storage)
    return pa.array(points, storage)


def find_blocks_without_points(stored: pa.Array, hashes: Words) -> Bits:
    """Return the blocks whose filters, large_binary[n], have none of these hashes, ``bool[n]``."""
    offsets, data = _split_bytes(stored)
    sizes = np.diff(offsets)
    # Foreign bytes prove nothing.
    proved: Bits = np.asarray(stored.is_valid()) & (sizes > 0) & (sizes % _BUCKET_BYTES == 0)
    for place in range(len(hashes)):
        blocks = np.flatnonzero(proved)
        if not len(blocks):
            break
        bucket = _find_buckets(hashes[place : place + 1], sizes[blocks] // _BUCKET_BYTES)
        words = _read_buckets(data, offsets[blocks] + _BUCKET_BYTES * bucket)
        mask = np.uint32(1) << _find_bits(hashes[place], _SALTS).astype(np.uint32)
        proved[blocks] = ((words & mask) != mask).any(axis=1)
    return proved


def _find_buckets(hashes: Words, buckets: Ints) -> Ints:
    """Return the bucket of each hash: its upper half, spread evenly."""
    place: Ints = (((hashes >> np.uint64(32)) * buckets.astype(np.uint64)) >> np.uint64(32)).astype(np.int64)
    return place


def _find_bits(hashes: Words, salt: npt.NDArray[np.uint32] | np.uint32) -> npt.NDArray[np.int64]:
    """Return the bit of each hash in the word of a salt, ``int64``: 5 bits of its lower half, multiplied."""
    lower = (hashes & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    bit: Ints = ((lower * salt) >> np.uint32(27)).astype(np.int64)
    return bit


def _split_bytes(stored: pa.Array) -> tuple[Ints, npt.NDArray[np.uint8]]:
    _, offsets, data = stored.buffers()
    starts = np.frombuffer(offsets, np.int64, count=len(stored) + 1, offset=8 * stored.offset)
    return starts, np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)


def _read_buckets(data: npt.NDArray[np.uint8], starts: Ints) -> npt.NDArray[np.uint32]:
    runs = np.ndarray(len(data) - _BUCKET_BYTES + 1, dtype=f"V{_BUCKET_BYTES}", buffer=data, strides=(1,))
    return runs[starts].view("<u4").reshape(-1, 8)
