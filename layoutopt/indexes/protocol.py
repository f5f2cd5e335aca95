"""What a type of index has to be: measured while blocks are written, stored as one Arrow value a block, and asked.

A new type is a class with the members of :class:`Index`, registered in :mod:`layoutopt.indexes.registry` or by another
package under the entry point ``layoutopt.indexes``; ``tests/indexes/test_soundness.py`` takes every type there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.keys import stored_keys
from layoutopt.catalog.statistics import reduce_blocks
from layoutopt.indexes.block_values import block_values
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.predicates import Expr, InSet, Like
from layoutopt.model.values import key_kind


@dataclass(frozen=True)
class Parameter:
    """The one number by which a type of index may be tuned.

    Attributes:
        default: what it is where nobody says.
        least: the smallest that makes sense.
        most: the largest.
        meaning: what it counts, for messages.
    """

    default: float
    least: float
    most: float
    meaning: str


NO_PARAMETER = Parameter(0, 0, 0, "nothing")
"""Of a type that has nothing to be tuned."""


@dataclass(frozen=True, eq=False)
class Keys:
    """Keys of n blocks, none of them NULL, as :func:`~layoutopt.catalog.keys.stored_keys` has them.

    Attributes:
        keys: block by block; a block may have a key more than once.
        offsets: where each block's begin, and the end, ``int64[n + 1]``.
    """

    keys: pa.Array
    offsets: Ints

    def sorted_by_block(self) -> Iterator[pa.Array]:
        """Each block's distinct keys, ascending."""
        if self.keys.type == pa.int64():
            values = np.asarray(self.keys)
            for start, stop in pairwise(self.offsets.tolist()):
                yield pa.array(np.unique(values[start:stop]))
            return
        for start, stop in pairwise(self.offsets.tolist()):
            distinct = pc.unique(self.keys.slice(start, stop - start))
            yield distinct.take(pc.array_sort_indices(distinct))


@dataclass(frozen=True, eq=False)
class BlockColumn:
    """The values of one expression in n consecutive blocks: what an index is measured from.

    Attributes:
        values: of the rows, [rows], as Spark hands that type to Arrow.
        offsets: block i has the rows ``offsets[i] .. offsets[i + 1] - 1``; ``int64[n + 1]``.
        type: the Spark type.
    """

    values: pa.ChunkedArray
    offsets: Ints
    type: str

    @property
    def n(self) -> int:
        """How many blocks there are."""
        return len(self.offsets) - 1

    @cached_property
    def keys(self) -> Keys:
        """The keys of all values but NULL; equal ones of a block are put together where that is cheap.

        Raises:
            SchemaError: the type has no order.
        """
        found = block_values(self.values, self.offsets, self.type)
        stored = stored_keys(found.values, self.type)
        if not stored.null_count:
            return Keys(stored, found.offsets)
        valid = np.asarray(stored.is_valid())
        kept = np.concatenate(([0], np.cumsum(reduce_blocks(np.add, valid, found.offsets))))
        return Keys(stored.drop_null(), kept)

    @cached_property
    def has_bad_text(self) -> Bits:
        """The blocks with a text that is no UTF-8, whose order and letters nobody knows, ``bool[n]``."""
        bad = np.zeros(self.n, np.bool_)
        if key_kind(self.type) != "str" or _is_utf8(self.keys.keys):
            return bad
        for i, (start, stop) in enumerate(pairwise(self.keys.offsets.tolist())):
            bad[i] = not _is_utf8(self.keys.keys.slice(start, stop - start))
        return bad


def _is_utf8(texts: pa.Array) -> bool:
    try:
        texts.cast(pa.large_string())
    except pa.ArrowInvalid:
        return False
    return True


class Index(Protocol):
    """One type of index.

    A type may also have ``functions``, a frozenset of names (:func:`functions_of`), ``suits`` (:func:`suits`),
    ``reads_dictionaries`` (:func:`reads_dictionaries`), and be a :class:`JointIndex`.

    Soundness: where :meth:`cannot_match` is TRUE, none of the values that :meth:`measure` saw in the block makes the
    literal TRUE. So whatever the type can't tell (another kind of literal, a NULL in place of what is stored, bytes
    that it never wrote) is FALSE.

    What is measured depends on nothing but the block's values, not on their order: ``verify`` measures again and
    compares. A type that changes what it measures takes a new name.
    """

    @property
    def parameter(self) -> Parameter:
        """The number that it is tuned by."""

    def storage(self, type: str) -> pa.DataType | None:
        """The Arrow type of what is stored of a block; None where it has no use for values of a Spark type."""

    def measure(self, column: BlockColumn, parameter: float) -> pa.Array:
        """What is to be stored, one value a block, [n]; NULL where a block would take too much."""

    def serves(self, literal: InSet | Like) -> bool:
        """Whether it might deny the literal to any block; where it never does, what is stored is not read."""

    def cannot_match(self, literal: InSet | Like, stored: pa.Array, parameter: float) -> Bits:
        """The blocks of which the literal is TRUE for no value, ``bool[n]``.

        Args:
            literal: of a value of the type that was measured; NULL does not make it TRUE.
            stored: what :meth:`measure` gave, of blocks of several loads.
            parameter: as when it was measured.
        """


@runtime_checkable
class JointIndex(Protocol):
    """A type of index that is also asked of several expressions at once, whose values it has as structs.

    Soundness: where :meth:`cannot_match_all` is TRUE, no row of the block, with none of the expressions NULL, makes all
    of the literals TRUE.
    """

    def cannot_match_all(self, literals: Sequence[InSet], stored: pa.Array, parameter: float) -> Bits:
        """The blocks of which that is proved, ``bool[n]``.

        Args:
            literals: one of each field of the struct, in their order; NULL makes none of them TRUE.
            stored: what :meth:`Index.measure` gave, of blocks of several loads.
            parameter: as when it was measured.
        """


def functions_of(index: Index) -> frozenset[str]:
    """The functions whose literals a type is asked too: of the values that it measured and of constants."""
    found: frozenset[str] = getattr(index, "functions", frozenset())
    return found


def reads_dictionaries(index: Index) -> bool:
    """Whether a type that stores lists of texts is also asked of them as places in a dictionary of Arrow's."""
    return bool(getattr(index, "reads_dictionaries", False))


def suits(index: Index, subject: Expr) -> bool:
    """Whether a type has use for an expression: for values of its type and, if it is choosy, for just that one."""
    choosy: Callable[[Expr], bool] | None = getattr(index, "suits", None)
    return index.storage(subject.type) is not None and (choosy is None or choosy(subject))
