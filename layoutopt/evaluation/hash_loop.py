"""The compiled loop of :func:`layoutopt.evaluation.murmur3.hash_texts`."""

from __future__ import annotations

import numba
import numpy as np

from layoutopt.evaluation.native import compile_loop, compile_loop_helper
from layoutopt.model.arrays import Bytes, Hashes, Ints


def is_compiled() -> bool:
    """Return whether numba compiles; with DISABLE_JIT, loops are hundreds of times as slow."""
    return not numba.config.DISABLE_JIT


@compile_loop
def hash_each(data: Bytes, offsets: Ints, seed: np.uint32) -> Hashes:
    """Return the hashes of byte strings, ``uint32[n]``; the i-th is ``data[offsets[i] : offsets[i + 1]]``.

    Both arrays must be read-only, since compiled code is cached by argument types.
    """
    hashes = np.empty(len(offsets) - 1, np.uint32)
    for text in range(len(hashes)):
        start, stop = offsets[text], offsets[text + 1]
        after_words = stop - (stop - start) % 4
        state = seed
        for place in range(start, after_words, 4):
            state = _joined(state, _word(data, place))
        for place in range(after_words, stop):
            state = _joined(state, np.uint32(np.int8(data[place])))
        hashes[text] = _finished(state, np.uint32(stop - start))
    return hashes


@compile_loop_helper
def _word(data: Bytes, place: int) -> np.uint32:
    low = np.uint32(data[place]) | np.uint32(data[place + 1]) << np.uint32(8)
    high = np.uint32(data[place + 2]) | np.uint32(data[place + 3]) << np.uint32(8)
    return np.uint32(low | high << np.uint32(16))


@compile_loop_helper
def _joined(state: np.uint32, word: np.uint32) -> np.uint32:
    """Apply ``mixK1`` and ``mixH1``."""
    scrambled = np.uint32(_rotated(np.uint32(word * np.uint32(0xCC9E2D51)), np.uint32(15)) * np.uint32(0x1B873593))
    return np.uint32(_rotated(np.uint32(state ^ scrambled), np.uint32(13)) * np.uint32(5) + np.uint32(0xE6546B64))


@compile_loop_helper
def _rotated(value: np.uint32, bits: np.uint32) -> np.uint32:
    return np.uint32(value << bits | value >> np.uint32(32) - bits)


@compile_loop_helper
def _finished(state: np.uint32, length: np.uint32) -> np.uint32:
    """Apply ``fmix``; ``length`` is in bytes."""
    state = np.uint32(state ^ length)
    state = np.uint32((state ^ state >> np.uint32(16)) * np.uint32(0x85EBCA6B))
    state = np.uint32((state ^ state >> np.uint32(13)) * np.uint32(0xC2B2AE35))
    return np.uint32(state ^ state >> np.uint32(16))
