"""Spark's hashes of texts, by whole arrays and by a compiled loop, against the definition."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import numba
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from layoutopt.evaluation import hash_loop, murmur3
from layoutopt.evaluation.hash_loop import hash_each
from layoutopt.evaluation.murmur3 import SEED, hash_texts
from layoutopt.model.arrays import Bytes, Hashes, Ints

_ALL = 2**32 - 1


def by_definition(text: bytes) -> int:
    """``Murmur3_x86_32.hashUnsafeBytes`` of Spark."""
    state, whole = SEED, len(text) // 4 * 4
    words = [int.from_bytes(text[i : i + 4], "little") for i in range(0, whole, 4)]
    for word in [*words, *(byte - 256 * (byte >= 128) for byte in text[whole:])]:
        mixed = rotated(word * 0xCC9E2D51 & _ALL, 15) * 0x1B873593 & _ALL
        state = (rotated(state ^ mixed, 13) * 5 + 0xE6546B64) & _ALL
    state ^= len(text)
    state = (state ^ state >> 16) * 0x85EBCA6B & _ALL
    state = (state ^ state >> 13) * 0xC2B2AE35 & _ALL
    return state ^ state >> 16


def rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _ALL


def buffers(texts: Sequence[bytes], before: bytes = b"") -> tuple[Bytes, Ints]:
    """The bytes of texts, and where each begins; what stands before the first belongs to none."""
    ends = np.cumsum([len(before), *map(len, texts)])
    return np.frombuffer(before + b"".join(texts), np.uint8), ends


def compiled(data: Bytes, offsets: Ints) -> Hashes:
    offsets.flags.writeable = False
    return hash_each(data, offsets, np.uint32(SEED))


@pytest.mark.parametrize("hashed", [murmur3._hash_by_arrays, compiled], ids=["arrays", "loop"])
@given(texts=st.lists(st.binary(max_size=70), max_size=30), before=st.binary(max_size=3))
@example(texts=[b"", b"\xff", b"\x80\x7f\xff", b"\xff" * 4, b"\xff" * 7, bytes(range(256))], before=b"x")
def test_hashes_are_those_of_the_definition(
    hashed: Callable[[Bytes, Ints], Hashes], texts: list[bytes], before: bytes
) -> None:
    assert hashed(*buffers(texts, before)).tolist() == [by_definition(text) for text in texts]


def test_a_process_that_hashes_much_takes_the_loop_whatever_it_may_write_to(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [b"a text", b"another"]
    wanted = [by_definition(text) for text in texts]
    data, offsets = buffers(texts)
    monkeypatch.setattr(murmur3, "_LOOP", murmur3._Loop())
    monkeypatch.setattr(murmur3._LOOP, "_bytes_left", 2 * len(data))
    assert hash_texts(data, offsets).tolist() == wanted
    assert murmur3._LOOP._loop is None
    monkeypatch.setattr(murmur3, "_hash_by_arrays", lambda *_: pytest.fail("the loop was worth it by now"))
    assert hash_texts(data, offsets).tolist() == wanted
    assert hash_texts(data.copy(), offsets.copy()).tolist() == wanted
    assert offsets.flags.writeable  # only a view of it was made read-only


def _raise(*_: object) -> None:
    raise OSError("a library can't be loaded")


@pytest.mark.parametrize("broken", ["no numba", "does not compile", "told not to"])
def test_without_a_compiler_that_works_arrays_go_on(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    if broken == "no numba":
        for name in ("layoutopt.evaluation.hash_loop", "layoutopt.evaluation.native"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.setitem(sys.modules, "numba", None)
    elif broken == "does not compile":
        monkeypatch.setattr(hash_loop, "hash_each", _raise)
    else:
        monkeypatch.setattr(numba.config, "DISABLE_JIT", True)
    monkeypatch.setattr(murmur3, "_LOOP", murmur3._Loop())
    monkeypatch.setattr(murmur3._LOOP, "_bytes_left", 1)
    data, offsets = buffers([b"a text"])
    assert hash_texts(data, offsets).tolist() == [by_definition(b"a text")]
    assert murmur3._LOOP._loop is None
