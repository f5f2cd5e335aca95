"""``bloom``: a split-block Bloom filter of a block's values, as Parquet's: equality and IN of values never seen before.

A filter is a row of 256-bit buckets, each of eight 32-bit words. A value has one bucket and one bit in each of its
words, so a test touches one cache line (Putze et al. 2007; Parquet's format, "Bloom filter").
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from layoutopt.catalog.keys import key_storage
from layoutopt.indexes.lists import element_storage
from layoutopt.indexes.murmur3 import hash_texts
from layoutopt.indexes.protocol import BlockColumn, Keys, Parameter
from layoutopt.model.arrays import Bits, Ints, Words
from layoutopt.model.predicates import InSet, Like
from layoutopt.model.values import Interval, Key, successor
from layoutopt.model.values.keys import ceil_float32

# ----------------------------------------------------------------------------------------------------
# 64 well-mixed bits of every key, for Bloom filters: on disk for ever, so what they are never changes.

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


# What Parquet's format multiplies hashes by, a word each.
_SALTS = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], np.uint32
)
_BUCKET_BYTES = 32
_BUCKET_BITS = 8 * _BUCKET_BYTES
_MOST_BUCKETS = 1 << 15
# More values than that in one literal are not looked up.
_MOST_POINTS = 1024


class Bloom:
    """A Bloom filter sized by the block's distinct values: = and IN (Ta-Shma 2020, table I)."""

    parameter = Parameter(0.01, 1e-6, 0.5, "the share of false positives")

    def storage(self, type: str) -> pa.DataType | None:
        """The filter's bytes; its size follows from their number."""
        return None if key_storage(type) is None else pa.large_binary()

    def measure(self, column: BlockColumn, parameter: float) -> pa.Array:
        """Each block's filter; NULL where it would be larger than a mebibyte."""
        return bloom_filters(column.keys, parameter, np.ones(column.n, np.bool_))

    def serves(self, literal: InSet | Like) -> bool:
        """Single values."""
        return isinstance(literal, InSet) and points_of(literal) is not None

    def cannot_match(self, literal: InSet | Like, stored: pa.Array, parameter: float) -> Bits:
        """The blocks whose filters have none of the literal's values."""
        points = None if isinstance(literal, Like) else points_of(literal)
        if points is None:
            return np.zeros(len(stored), np.bool_)
        return without_points(stored, hash_keys(as_keys(points, literal.subject.type)))


def bloom_filters(keys: Keys, share: float, wanted: Bits) -> pa.Array:
    """The filters of the wanted blocks, with this share of false positives, large_binary[n]; NULL for the others."""
    hashes = hash_keys(keys.keys)
    spans = zip(wanted.tolist(), pairwise(keys.offsets.tolist()), strict=True)
    # Block by block: all that is looked at stays in the second-level cache.
    filters = [_filter(np.unique(hashes[start:stop]), share) if asked else None for asked, (start, stop) in spans]
    return pa.array(filters, pa.large_binary())


def _filter(hashes: Words, share: float) -> bytes | None:
    """The filter of some distinct hashes; None where it would be too large."""
    buckets = buckets_for(len(hashes), share)
    if buckets > _MOST_BUCKETS:
        return None
    bits = np.zeros(buckets * _BUCKET_BITS, np.bool_)
    first = _places(hashes, np.array(buckets)) * _BUCKET_BITS
    for word, salt in enumerate(_SALTS):
        bits[first + _bit_places(hashes, salt) + 32 * word] = True
    return np.packbits(bits, bitorder="little").tobytes()


def buckets_for(distinct: int, share: float) -> int:
    """How many buckets keep the share of false positives for so many distinct values.

    >>> buckets_for(0, 0.01), buckets_for(10_000, 0.01)
    (1, 412)
    """
    return max(1, math.ceil(distinct / values_a_bucket(share)))


@lru_cache(maxsize=64)
def values_a_bucket(share: float) -> float:
    """How many values a bucket may have on average, so that the share of false positives is kept (Putze et al. 2007).

    Rounded, so that it is the same on every machine, whose exponentials may differ in the last bit.
    """
    few, many = 0.0, 256.0
    for _ in range(40):
        middle = (few + many) / 2
        few, many = (middle, many) if _false_positives(middle) <= share else (few, middle)
    return max(round(few, 4), 0.1)


def _false_positives(load: float) -> float:
    """Of buckets with so many values on average, as a Poisson process spreads them: all eight bits asked for are set.

    In a bucket of x values a bit is not set with probability a^x, where a = 31/32; the mean of (1 - a^x)^8 over x.
    """
    terms = ((-1) ** j * math.comb(8, j) * math.exp(-load * (1 - (31 / 32) ** j)) for j in range(9))
    return math.fsum(terms)


def points_of(literal: InSet) -> list[Key] | None:
    """The single keys of a set of values, whole numbers side by side too; None where it is no short list."""
    found: list[Key] = []
    for interval in literal.values.intervals:
        keys = _keys_within(interval, literal.subject.type)
        if keys is None or len(found) + len(keys) > _MOST_POINTS:
            return None
        found += keys
    return found


def _keys_within(interval: Interval, type: str) -> list[Key] | None:
    low, high = interval
    if isinstance(low, int) and isinstance(high, int):
        if type == "float" and high == ceil_float32(low + 1):
            return [low]  # of the doubles up to the next 32-bit number only this one is one
        return list(range(low, high)) if high - low <= _MOST_POINTS else None
    return [low] if low is not None and high == successor(low) else None


def as_keys(points: list[Key], type: str) -> pa.Array:
    """Keys as Arrow, as :func:`~layoutopt.catalog.keys.stored_keys` has those of the Spark type."""
    storage = element_storage(type)
    if pa.types.is_large_binary(storage):
        return pa.array([p.encode("utf-8", "surrogatepass") if isinstance(p, str) else p for p in points], storage)
    return pa.array(points, storage)


def without_points(stored: pa.Array, hashes: Words) -> Bits:
    """The blocks whose filters, large_binary[n], have none of these values, ``bool[n]``."""
    offsets, data = _bytes_of(stored)
    sizes = np.diff(offsets)
    # What is no row of buckets was never written by us, and proves nothing.
    proved: Bits = np.asarray(stored.is_valid()) & (sizes > 0) & (sizes % _BUCKET_BYTES == 0)
    for place in range(len(hashes)):
        left = np.flatnonzero(proved)
        if not len(left):
            break
        bucket = _places(hashes[place : place + 1], sizes[left] // _BUCKET_BYTES)
        words = _buckets_at(data, offsets[left] + _BUCKET_BYTES * bucket)
        mask = np.uint32(1) << _bit_places(hashes[place], _SALTS).astype(np.uint32)
        proved[left] = ((words & mask) != mask).any(axis=1)
    return proved


def _places(hashes: Words, buckets: Ints) -> Ints:
    """The bucket of each hash among so many: its upper half, spread evenly."""
    place: Ints = (((hashes >> np.uint64(32)) * buckets.astype(np.uint64)) >> np.uint64(32)).astype(np.int64)
    return place


def _bit_places(hashes: Words, salt: npt.NDArray[np.uint32] | np.uint32) -> npt.NDArray[np.int64]:
    """The bit of each hash in the word of a salt, ``int64``: 5 bits of its lower half, multiplied."""
    lower = (hashes & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    bit: Ints = ((lower * salt) >> np.uint32(27)).astype(np.int64)
    return bit


def _bytes_of(stored: pa.Array) -> tuple[Ints, npt.NDArray[np.uint8]]:
    _, offsets, data = stored.buffers()
    starts = np.frombuffer(offsets, np.int64, count=len(stored) + 1, offset=8 * stored.offset)
    return starts, np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)


def _buckets_at(data: npt.NDArray[np.uint8], starts: Ints) -> npt.NDArray[np.uint32]:
    """The words of the buckets that begin at these bytes, ``uint32[n, 8]``."""
    runs = np.ndarray(len(data) - _BUCKET_BYTES + 1, dtype=f"V{_BUCKET_BYTES}", buffer=data, strides=(1,))
    return runs[starts].view("<u4").reshape(-1, 8)
