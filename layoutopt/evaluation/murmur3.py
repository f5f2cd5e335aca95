"""Murmur3_x86_32 with seed 42, as in Spark's ``hash()``, over whole arrays.

As in ``org.apache.spark.unsafe.hash.Murmur3_x86_32.hashUnsafeBytes``, the bytes after the last whole word of a string
are mixed one by one, sign-extended, unlike in the reference implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from layoutopt.model.arrays import Bytes, Hashes, Ints, stable_order

SEED = 42
# Rows mixed together, so that the arrays of one round stay in the second-level cache.
_CHUNK = 16_384
# Words of a string that are read at once, from any byte.
_RUN = 8
_RUN_BYTES = 4 * _RUN
# For these bytes the loop saves half a second, as much as loading it from numba's cache takes.
_WORTH_A_LOOP = 1 << 27

HashTexts = Callable[[Bytes, Ints], Hashes]
Array = TypeVar("Array", Bytes, Ints)


def hash_words(words: Sequence[Hashes]) -> Hashes:
    """Return the hashes of rows of whole words, ``uint32[n]``; ``words[k]`` has each row's k-th."""
    hashes = np.full(len(words[0]), SEED, np.uint32)
    mixed, scratch = np.empty((2, min(_CHUNK, len(hashes))), np.uint32)
    for start in range(0, len(hashes), _CHUNK):
        part = hashes[start : start + _CHUNK]
        n = len(part)
        for word in words:
            _scramble(word[start : start + _CHUNK], mixed[:n], scratch[:n])
            _join(part, mixed[:n], scratch[:n])
        _finish(part, np.uint32(4 * len(words)), scratch[:n])
    return hashes


def scramble_words(words: Hashes) -> Hashes:
    """Return the scrambled words, ``uint32[n]`` (``mixK1``), which callers of :func:`hash_joined` can reuse."""
    result = np.empty(len(words), np.uint32)
    scratch = np.empty(min(_CHUNK, len(words)), np.uint32)
    for start in range(0, len(words), _CHUNK):
        part = result[start : start + _CHUNK]
        _scramble(words[start : start + _CHUNK], part, scratch[: len(part)])
    return result


def start_states(words: Hashes) -> Hashes:
    """Return the states after a first word, ``uint32[n]``, for :func:`hash_joined`."""
    states = np.full(len(words), SEED, np.uint32)
    _join(states, scramble_words(words), np.empty_like(states))
    return states


def hash_joined(states: Hashes, second: Hashes) -> Hashes:
    """Return the hashes of rows of two words, from :func:`start_states` and :func:`scramble_words` of each.

    >>> first, second = np.array([1, 2], np.uint32), np.array([3, 4], np.uint32)
    >>> (hash_joined(start_states(first), scramble_words(second)) == hash_words([first, second])).tolist()
    [True, True]
    """
    hashes = np.empty(len(states), np.uint32)
    scratch = np.empty(min(_CHUNK, len(states)), np.uint32)
    for start in range(0, len(states), _CHUNK):
        part = hashes[start : start + _CHUNK]
        n = len(part)
        np.copyto(part, states[start : start + n])
        _join(part, second[start : start + n], scratch[:n])
        _finish(part, np.uint32(8), scratch[:n])
    return hashes


def hash_texts(data: Bytes, offsets: Ints) -> Hashes:
    """Return the hashes of byte strings, ``uint32[n]``; the i-th is ``data[offsets[i] : offsets[i + 1]]``.

    After enough bytes, a compiled loop does this three to four times as fast.
    """
    loop = _LOOP.after(int(offsets[-1] - offsets[0]))
    return _hash_by_arrays(data, offsets) if loop is None else loop(data, offsets)


class _Loop:
    """The compiled loop, loaded once the hashed bytes are worth its loading time."""

    def __init__(self) -> None:
        self._bytes_left = _WORTH_A_LOOP
        self._loop: HashTexts | None = None

    def after(self, size: int) -> HashTexts | None:
        """Count bytes and return the loop, or None; races between threads only lose counts or time."""
        if self._bytes_left > 0:
            self._bytes_left -= size
            if self._bytes_left <= 0:
                self._loop = _compile_loop()
        return self._loop


def _compile_loop() -> HashTexts | None:
    try:
        from layoutopt.evaluation.hash_loop import hash_each, is_compiled

        def hash_compiled(data: Bytes, offsets: Ints) -> Hashes:
            return hash_each(_read_only(data), _read_only(offsets), np.uint32(SEED))

        hash_compiled(np.zeros(0, np.uint8), np.zeros(1, np.int64))  # compile now, so that failures fall back
    except Exception:  # failures of libraries and compilers have no common class
        return None
    return hash_compiled if is_compiled() else None


def _read_only(values: Array) -> Array:
    view = values.view()
    view.flags.writeable = False
    return view


_LOOP = _Loop()


def _hash_by_arrays(data: Bytes, offsets: Ints) -> Hashes:
    hashes = np.empty(len(offsets) - 1, np.uint32)
    # Runs are read beyond a string's end, so the last ones need padding.
    n_inside = int(np.searchsorted(offsets[1:], len(data) - _RUN_BYTES, side="right"))
    for start in range(0, n_inside, _CHUNK):
        stop = min(start + _CHUNK, n_inside)
        hashes[start:stop] = _hash_some_texts(data, offsets[start : stop + 1])
    last = offsets[n_inside:]
    padded = np.concatenate([data[last[0] : last[-1]], np.zeros(_RUN_BYTES, np.uint8)])
    hashes[n_inside:] = _hash_some_texts(padded, last - last[0])
    return hashes


def _hash_some_texts(data: Bytes, offsets: Ints) -> Hashes:
    lengths = np.diff(offsets)
    longest = int(lengths.max(initial=0))
    longest_first = stable_order(longest - lengths, longest + 1)
    lengths = lengths[longest_first]
    starts = offsets[:-1][longest_first]
    hashes = np.full(len(lengths), SEED, np.uint32)
    scratch = np.empty((2, len(hashes)), np.uint32)
    _mix_whole_words(hashes, data, starts, lengths // 4, scratch)
    _mix_tails(hashes, data, starts + lengths // 4 * 4, lengths % 4, scratch)
    _finish(hashes, lengths.astype(np.uint32), scratch[0])
    in_order = np.empty_like(hashes)
    in_order[longest_first] = hashes
    return in_order


def _mix_whole_words(hashes: Hashes, data: Bytes, starts: Ints, n_words: Ints, scratch: Hashes) -> None:
    """Mix whole words into hashes; strings come longest first, so those with a k-th word are a prefix."""
    runs = np.ndarray(len(data) - _RUN_BYTES + 1, dtype=f"V{_RUN_BYTES}", buffer=data, strides=(1,))
    most = int(n_words[0]) if len(n_words) else 0
    having = np.searchsorted(-n_words, -np.arange(1, most + 1), side="right").tolist()
    for first in range(0, most, _RUN):
        words = runs[starts[: having[first]] + 4 * first].view("<u4").reshape(-1, _RUN)
        for k, n in enumerate(having[first : first + _RUN]):
            _scramble(words[:n, k], scratch[0, :n], scratch[1, :n])
            _join(hashes[:n], scratch[0, :n], scratch[1, :n])


def _mix_tails(hashes: Hashes, data: Bytes, starts: Ints, sizes: Ints, scratch: Hashes) -> None:
    """Mix the up to three bytes after the whole words, each alone and with its sign."""
    for k in range(3):
        having = np.flatnonzero(sizes > k)
        n = len(having)
        part = hashes[having]
        signed = data[starts[having] + k].view(np.int8).astype(np.int32).view(np.uint32)
        _scramble(signed, scratch[0, :n], scratch[1, :n])
        _join(part, scratch[0, :n], scratch[1, :n])
        hashes[having] = part


def _scramble(words: Hashes, out: Hashes, scratch: Hashes) -> None:
    """Apply ``mixK1``."""
    np.multiply(words, np.uint32(0xCC9E2D51), out=out)
    _rotate(out, 15, scratch)
    np.multiply(out, np.uint32(0x1B873593), out=out)


def _join(hashes: Hashes, words: Hashes, scratch: Hashes) -> None:
    """Apply ``mixH1`` in place."""
    np.bitwise_xor(hashes, words, out=hashes)
    _rotate(hashes, 13, scratch)
    np.multiply(hashes, np.uint32(5), out=hashes)
    np.add(hashes, np.uint32(0xE6546B64), out=hashes)


def _rotate(values: Hashes, bits: int, scratch: Hashes) -> None:
    np.left_shift(values, np.uint32(bits), out=scratch)
    np.right_shift(values, np.uint32(32 - bits), out=values)
    np.bitwise_or(values, scratch, out=values)


def _finish(hashes: Hashes, lengths: np.uint32 | Hashes, scratch: Hashes) -> None:
    """Apply ``fmix`` in place; ``lengths`` is in bytes."""
    np.bitwise_xor(hashes, lengths, out=hashes)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        np.right_shift(hashes, np.uint32(shift), out=scratch)
        np.bitwise_xor(hashes, scratch, out=hashes)
        np.multiply(hashes, np.uint32(factor), out=hashes)
    np.right_shift(hashes, np.uint32(16), out=scratch)
    np.bitwise_xor(hashes, scratch, out=hashes)
