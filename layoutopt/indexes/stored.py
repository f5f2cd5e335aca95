"""Stored indexes in the form that skipping uses: each is read at its first use, and in doubt proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.storage.index_files import is_coded, plain_lists
from layoutopt.errors import SettingError
from layoutopt.evaluation.expressions import struct_parts
from layoutopt.indexes.protocol import Index, JointIndex, get_functions, reads_dictionaries
from layoutopt.indexes.registry import find_index, find_parameter
from layoutopt.model.arrays import Bits
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.predicates import Expr, InSet, Like, Literal
from layoutopt.skipping.cannot_match import BlockIndex


@dataclass(frozen=True, eq=False)
class StoredIndex:
    """A plan's index of n loaded blocks; a :class:`~layoutopt.skipping.cannot_match.BlockIndex`.

    ``read`` returns the stored value of each block, or None if they are unavailable.
    """

    spec: IndexSpec
    index: Index
    n: int
    read: Callable[[], pa.Array | None]

    @property
    def functions(self) -> frozenset[str]:
        """The functions that its type supports."""
        return get_functions(self.index)

    @property
    def parts(self) -> tuple[Expr, ...]:
        """The expressions of a joint index; empty for others."""
        return struct_parts(self.spec.subject) if isinstance(self.index, JointIndex) else ()

    def cannot_match(self, literal: Literal) -> Bits:
        """Return what the index proves: nothing if its file is missing, damaged or of another type.

        Raises:
            SettingError: the type, of another package, answers for another number of blocks.
        """
        if not isinstance(literal, InSet | Like) or not self.index.serves(literal):
            return np.zeros(self.n, np.bool_)
        return self._prove(partial(self.index.cannot_match, literal))

    def cannot_match_all(self, literals: Sequence[InSet]) -> Bits:
        """Return what the index proves of literals of all :attr:`parts`; raises as :meth:`cannot_match`."""
        if not isinstance(self.index, JointIndex):
            return np.zeros(self.n, np.bool_)
        return self._prove(partial(self.index.cannot_match_all, literals))

    def _prove(self, prove: Callable[[pa.Array, float], Bits]) -> Bits:
        stored = self.read()
        if stored is not None and not (reads_dictionaries(self.index) and is_coded(stored.type)):
            stored = plain_lists(stored)
            stored = stored if stored.type == self.index.storage(self.spec.subject.type) else None
        if stored is None:
            return np.zeros(self.n, np.bool_)
        proved = prove(stored, find_parameter(self.spec))
        if proved.dtype != np.bool_ or proved.shape != (self.n,):
            raise SettingError(
                f"the index {self.spec} answered {proved.dtype}{proved.shape} for {self.n} blocks, no bool for each; "
                f"fix or uninstall the package that provides {self.spec.kind}"
            )
        return proved & np.asarray(stored.is_valid(), dtype=np.bool_)


def stored_indexes(specs: Sequence[IndexSpec], blocks: BlockTable) -> Mapping[Expr, tuple[BlockIndex, ...]]:
    """Return a plan's indexes of its blocks by expression, without those of types that are not installed."""
    indexes: dict[Expr, tuple[BlockIndex, ...]] = {}
    for spec in specs:
        try:
            find_parameter(spec)
            index = find_index(spec.kind)
        except SettingError:
            continue
        stored = StoredIndex(spec, index, blocks.n, partial(blocks.stored_index, spec))
        indexes[spec.subject] = (*indexes.get(spec.subject, ()), stored)
    return indexes
