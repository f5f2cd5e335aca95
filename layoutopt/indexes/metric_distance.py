"""Types of indexes that are also asked about more than their own expression: functions of it, several columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.indexes.bloom import points_of
from layoutopt.indexes.protocol import BlockColumn, Parameter
from layoutopt.indexes.value_list import ValueList
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.predicates import Call, Const, Expr, InSet, Like
from layoutopt.model.values import ValueSet, key_kind
from layoutopt.skipping.zone_maps import overlaps

# ----------------------------------------------------------------------------------------------------
# Levenshtein's distance of whole arrays of texts, as Spark's ``levenshtein`` counts it: by characters, not bytes.

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


# ----------------------------------------------------------------------------------------------------
# ``metric-distance``: how far a block's texts are from one of them, for ``levenshtein(text, 'word') < n``.
#
# A distance that is symmetric and keeps the triangle inequality puts every text of a block, which is no nearer to the
# block's origin than ``low`` and no farther than ``high``, at least ``D - high`` and ``low - D`` and at most ``D +
# high``
# from a word that is D from the origin (Ta-Shma 2020, IV-D). Levenshtein's, of characters and with every edit
# counting one, does: edits can be undone, and done one after the other.

_STORED = pa.struct([("origin", pa.large_binary()), ("low", pa.int64()), ("high", pa.int64())])
# The origin is the best of so many of a block's texts, as the distances to so many of them tell.
_ORIGINS, _JUDGED_BY = 8, 64
_MOST_WORDS = 16
_LONGEST_WORD = 4_096


class MetricDistance:
    """A text of the block, and the least and the largest distance to it: ``levenshtein``, and = and IN of texts."""

    parameter = Parameter(64, 1, 1024, "the characters of the longest text; blocks with longer ones have none")
    functions = frozenset({"levenshtein"})

    def storage(self, type: str) -> pa.DataType | None:
        """The origin and the two distances, of types that are texts."""
        return _STORED if key_kind(type) == "str" else None

    def measure(self, column: BlockColumn, parameter: float) -> pa.Array:
        """Each block's origin and distances; NULL where it has no text, a longer one, or one that is no UTF-8."""
        found = [
            None if bad or not len(keys) else _of_texts(texts_of(keys), int(parameter))
            for keys, bad in zip(column.keys.sorted_by_block(), column.has_bad_text.tolist(), strict=True)
        ]
        return pa.array(found, _STORED)

    def serves(self, literal: InSet | Like) -> bool:
        """Distances to a word, and single texts."""
        return _asked(literal) is not None

    def cannot_match(self, literal: InSet | Like, stored: pa.Array, parameter: float) -> Bits:
        """The blocks whose texts are all nearer to the words of the literal, or farther from them, than it asks for."""
        proved, asked = np.zeros(len(stored), np.bool_), _asked(literal)
        children = [pc.struct_field(stored, [i]) for i in range(3)]
        known = np.logical_and.reduce([np.asarray(child.is_valid(), dtype=np.bool_) for child in children])
        if asked is None or not known.any():
            return proved
        low, high = (np.asarray(child.filter(pa.array(known))) for child in children[1:])
        try:
            origins = texts_of(children[0].filter(pa.array(known)))
        except pa.ArrowInvalid:  # nothing that a load stores
            return proved
        words, wanted = asked
        proved[known] = np.logical_and.reduce([_none_within(distances(origins, w), low, high, wanted) for w in words])
        return proved


def _none_within(between: Ints, low: Ints, high: Ints, wanted: ValueSet) -> Bits:
    """Where no text can be as far from a word as is asked for, by how far that is from the origins, ``bool[n]``."""
    nearest = np.maximum(np.maximum(between - high, low - between), 0)
    return ~overlaps(nearest, between + high, wanted.intervals)


def _asked(literal: InSet | Like) -> tuple[list[str], ValueSet] | None:
    """The words of a literal and how far from one of them its texts are; None where it asks for something else."""
    if isinstance(literal, Like) or literal.values.is_all or literal.values.is_empty:
        return None
    subject = literal.subject
    if isinstance(subject, Call) and subject.fn == "levenshtein" and subject.type == "int":
        words, wanted = [arg.value for arg in subject.args if isinstance(arg, Const)], literal.values
        words = words if len(subject.args) == 2 else []
    else:
        words, wanted = list(points_of(literal) or ()), ValueSet.point(0)
    texts = [word for word in words if isinstance(word, str) and len(word) <= _LONGEST_WORD]
    return (texts, wanted) if 0 < len(texts) == len(words) <= _MOST_WORDS else None


def _of_texts(texts: list[str], longest: int) -> dict[str, object] | None:
    """What is stored of a block's distinct texts, ascending."""
    if max(map(len, texts)) > longest:
        return None
    sample = _spread(texts, _JUDGED_BY)
    origin = min(_spread(texts, _ORIGINS), key=lambda each: int(distances(sample, each).max()))
    found = distances(texts, origin)
    return {"origin": origin.encode(), "low": int(found.min()), "high": int(found.max())}


def _spread(texts: list[str], most: int) -> list[str]:
    """So many of some texts at most, at even steps."""
    return texts[:: -(-len(texts) // most)]


# ----------------------------------------------------------------------------------------------------
# ``formatted``: a piece of texts of a known form, for filters on the piece and on the whole text.
#
# What the piece is says the expression that is indexed: ``regexp_extract(agent, '^([A-Za-z]+)/', 1)``, or
# ``split_part(code, '-', 1)`` (Ta-Shma 2020, IV-D). Pieces are few where texts are many.

PIECES: Final = frozenset({"regexp_extract", "split_part", "substring_index", "get_json_object"})
"""The functions that give a piece of a text."""


class Formatted(ValueList):
    """The distinct pieces of a block's texts: what any literal says of them, without false positives."""

    parameter = Parameter(1024, 1, 1 << 14, "the most distinct pieces of a block that are stored")

    def suits(self, subject: Expr) -> bool:
        """Of expressions that give a piece of a text."""
        return isinstance(subject, Call) and subject.fn in PIECES and subject.type == "string"
