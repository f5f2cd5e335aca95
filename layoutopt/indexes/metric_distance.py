"""``metric-distance`` and ``formatted``: indexes for functions of a string (Ta-Shma 2020, IV-D).

A symmetric distance with the triangle inequality limits how far a block's strings are from a word. If all distances to
the block's origin are between ``low`` and ``high``, and the word's is D, then each string's distance to the word is at
least ``D - high`` and ``low - D`` and at most ``D + high``. Levenshtein's distance of characters with unit costs is
such a distance.

``formatted`` is a value list of pieces of a string, which are few: ``regexp_extract(agent, '^([A-Za-z]+)/', 1)`` or
``split_part(code, '-', 1)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.functions.registry import FUNCTIONS
from layoutopt.indexes.bloom import list_single_keys
from layoutopt.indexes.protocol import BlockColumn, Parameter
from layoutopt.indexes.value_list import ValueList
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.predicates import Call, Const, Expr, InSet, Like
from layoutopt.model.values import ValueSet, key_kind
from layoutopt.skipping.zone_maps import overlaps

# Texts that are compared at once, which bounds memory.
_AT_ONCE = 4_096


def levenshtein_distances(texts: Sequence[str], origin: str) -> Ints:
    """Return the Levenshtein distance of each text to ``origin`` by characters, as in Spark, ``int64[n]``.

    >>> levenshtein_distances(["kitten", "", "sitting", "😀itting"], "sitting").tolist()
    [3, 7, 0, 1]
    """
    parts = [_distances(texts[i : i + _AT_ONCE], origin) for i in range(0, len(texts), _AT_ONCE)]
    return np.concatenate([np.zeros(0, np.int64), *parts])


def decode_texts(keys: pa.Array) -> list[str]:
    """Decode strings from UTF-8; raises pyarrow.ArrowInvalid for other bytes."""
    texts: list[str] = keys.cast(pa.large_string()).to_pylist()
    return texts


def _distances(texts: Sequence[str], origin: str) -> Ints:
    """Compute the usual table row by row, all texts at once (Wagner, Fischer 1974)."""
    letters, lengths = _letters(texts)
    steps = np.arange(letters.shape[1] + 1, dtype=np.int32)
    row = np.broadcast_to(steps, (len(texts), len(steps)))
    for i, letter in enumerate(map(ord, origin)):
        new = row + np.int32(1)
        np.minimum(new[:, 1:], row[:, :-1] + (letters != letter), out=new[:, 1:])
        new[:, 0] = i + 1
        # Insertions: from any place to the left, one for each step.
        new -= steps
        row = np.minimum.accumulate(new, axis=1) + steps
    return row[np.arange(len(texts)), lengths].astype(np.int64)


def _letters(texts: Sequence[str]) -> tuple[npt.NDArray[np.int32], Ints]:
    """Return the code points of texts, [n, longest], -1 after each text's end, and the texts' lengths."""
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    letters = np.full((len(texts), int(lengths.max(initial=0))), -1, dtype=np.int32)
    flat = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype="<i4")
    letters[np.arange(letters.shape[1]) < lengths[:, None]] = flat
    return letters, lengths


_STORED = pa.struct([("origin", pa.large_binary()), ("low", pa.int64()), ("high", pa.int64())])
# The origin is the best of this many strings, judged by the distances to this many.
_ORIGINS, _JUDGED_BY = 8, 64
_MOST_WORDS = 16
_LONGEST_WORD = 4_096


class MetricDistance:
    """A string of the block, and the smallest and largest distance to it, for ``levenshtein``, = and IN."""

    parameter = Parameter(64, 1, 1024, "the characters of the longest text; blocks with longer ones have none")
    functions = frozenset({"levenshtein"})

    def storage(self, type: str) -> pa.DataType | None:
        """Return the type of the origin and the distances, for strings."""
        return _STORED if key_kind(type) == "str" else None

    def measure(self, column: BlockColumn, parameter: float) -> pa.Array:
        """Return each block's origin and distances; NULL if it has no string, or a long or invalid one."""
        values = [
            None if bad or not len(keys) else _measure_texts(decode_texts(keys), int(parameter))
            for keys, bad in zip(column.keys.sorted_by_block(), column.has_bad_text.tolist(), strict=True)
        ]
        return pa.array(values, _STORED)

    def serves(self, literal: InSet | Like) -> bool:
        """Return whether the literal is a distance to a word, or a list of strings."""
        return _find_words(literal) is not None

    def cannot_match(self, literal: InSet | Like, stored: pa.Array, parameter: float) -> Bits:
        """Return the blocks whose strings are all too near to or too far from the literal's words."""
        proved, query = np.zeros(len(stored), np.bool_), _find_words(literal)
        children = [pc.struct_field(stored, [i]) for i in range(3)]
        known = np.logical_and.reduce([np.asarray(child.is_valid(), dtype=np.bool_) for child in children])
        if query is None or not known.any():
            return proved
        low, high = (np.asarray(child.filter(pa.array(known))) for child in children[1:])
        try:
            origins = decode_texts(children[0].filter(pa.array(known)))
        except pa.ArrowInvalid:  # foreign bytes
            return proved
        words, wanted = query
        proved[known] = np.logical_and.reduce(
            [_none_within(levenshtein_distances(origins, w), low, high, wanted) for w in words]
        )
        return proved


def _none_within(between: Ints, low: Ints, high: Ints, wanted: ValueSet) -> Bits:
    """Return where no string can be as far from a word as wanted, by its distances to the origins, ``bool[n]``."""
    nearest = np.maximum(np.maximum(between - high, low - between), 0)
    return ~overlaps(nearest, between + high, wanted.intervals)


def _find_words(literal: InSet | Like) -> tuple[list[str], ValueSet] | None:
    """Return the words of a literal and the wanted distances to one of them, or None."""
    if isinstance(literal, Like) or literal.values.is_all or literal.values.is_empty:
        return None
    subject = literal.subject
    if isinstance(subject, Call) and subject.fn == "levenshtein" and subject.type == "int":
        words, wanted = [arg.value for arg in subject.args if isinstance(arg, Const)], literal.values
        words = words if len(subject.args) == 2 else []
    else:
        words, wanted = list(list_single_keys(literal) or ()), ValueSet.point(0)
    texts = [word for word in words if isinstance(word, str) and len(word) <= _LONGEST_WORD]
    return (texts, wanted) if 0 < len(texts) == len(words) <= _MOST_WORDS else None


def _measure_texts(texts: list[str], longest: int) -> dict[str, object] | None:
    if max(map(len, texts)) > longest:
        return None
    sample = _sample(texts, _JUDGED_BY)
    origin = min(_sample(texts, _ORIGINS), key=lambda text: int(levenshtein_distances(sample, text).max()))
    lengths = levenshtein_distances(texts, origin)
    return {"origin": origin.encode(), "low": int(lengths.min()), "high": int(lengths.max())}


def _sample(texts: list[str], most: int) -> list[str]:
    return texts[:: -(-len(texts) // most)]


# The functions that return a piece of a string.
_PIECES: Final = frozenset(name for name, function in FUNCTIONS.items() if function.is_piece)


class Formatted(ValueList):
    """The distinct pieces of a block's strings, without false positives."""

    parameter = Parameter(1024, 1, 1 << 14, "the most distinct pieces of a block that are stored")

    def suits(self, subject: Expr) -> bool:
        """Return whether the expression is a piece of a string."""
        return isinstance(subject, Call) and subject.fn in _PIECES and subject.type == "string"
