"""Levenshtein's distance of whole arrays of texts, as Spark's ``levenshtein`` counts it: by characters, not bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from layoutopt.model.arrays import Ints

# Texts that are compared at once, so that what is kept meanwhile stays small.
_AT_ONCE = 4_096


def distances(texts: Sequence[str], origin: str) -> Ints:
    """How many characters have to be put in, taken out or replaced to make the origin of each text, ``int64[n]``.

    >>> distances(["kitten", "", "sitting", "😀itting"], "sitting").tolist()
    [3, 7, 0, 1]
    """
    parts = [_distances(texts[i : i + _AT_ONCE], origin) for i in range(0, len(texts), _AT_ONCE)]
    return np.concatenate([np.zeros(0, np.int64), *parts])


def texts_of(keys: pa.Array) -> list[str]:
    """Texts from their UTF-8 bytes.

    Raises:
        pyarrow.ArrowInvalid: some are no UTF-8.
    """
    found: list[str] = keys.cast(pa.large_string()).to_pylist()
    return found


def _distances(texts: Sequence[str], origin: str) -> Ints:
    """Row by row of the usual table, all texts at once (Wagner, Fischer 1974)."""
    letters, lengths = _letters(texts)
    steps = np.arange(letters.shape[1] + 1, dtype=np.int32)
    row = np.broadcast_to(steps, (len(texts), len(steps)))
    for i, letter in enumerate(map(ord, origin)):
        found = row + np.int32(1)
        np.minimum(found[:, 1:], row[:, :-1] + (letters != letter), out=found[:, 1:])
        found[:, 0] = i + 1
        # Letters put in: from any place to the left, one for each step.
        found -= steps
        row = np.minimum.accumulate(found, axis=1) + steps
    return row[np.arange(len(texts)), lengths].astype(np.int64)


def _letters(texts: Sequence[str]) -> tuple[npt.NDArray[np.int32], Ints]:
    """The code points of texts, [n, longest], -1 behind each text's end, and the texts' lengths."""
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    letters = np.full((len(texts), int(lengths.max(initial=0))), -1, dtype=np.int32)
    flat = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype="<i4")
    letters[np.arange(letters.shape[1]) < lengths[:, None]] = flat
    return letters, lengths
