"""Stored indexes as what skipping asks: each is read when it is first asked for, and in doubt it proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.storage.index_files import is_coded, plain_lists
from layoutopt.errors import SettingError
from layoutopt.indexes.expressions import parts_of
from layoutopt.indexes.protocol import Index, JointIndex, functions_of, reads_dictionaries
from layoutopt.indexes.registry import find_index, parameter_of
from layoutopt.model.arrays import Bits
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.predicates import Expr, InSet, Like, Literal
from layoutopt.skipping.cannot_match import BlockIndex


@dataclass(frozen=True, eq=False)
class StoredIndex:
    """One index of a plan over the blocks that its loads wrote; a :class:`~layoutopt.skipping.cannot_match.BlockIndex`.

    Attributes:
        spec: what is indexed, and how.
        index: its type.
        n: how many blocks there are.
        read: gives what is stored of them, one value a block, or None where that can't be had.
    """

    spec: IndexSpec
    index: Index
    n: int
    read: Callable[[], pa.Array | None]

    @property
    def functions(self) -> frozenset[str]:
        """Those that its type knows."""
        return functions_of(self.index)

    @property
    def parts(self) -> tuple[Expr, ...]:
        """What it is of, where its type is asked of several expressions at once."""
        return parts_of(self.spec.subject) if isinstance(self.index, JointIndex) else ()

    def cannot_match(self, literal: Literal) -> Bits:
        """What the index proves; nothing where its file is missing or damaged, or of another type.

        Raises:
            SettingError: the type, another package's, answers for another number of blocks.
        """
        if not isinstance(literal, InSet | Like) or not self.index.serves(literal):
            return np.zeros(self.n, np.bool_)
        return self._proved(partial(self.index.cannot_match, literal))

    def cannot_match_all(self, literals: Sequence[InSet]) -> Bits:
        """What the index proves of literals of all its :attr:`parts`, as :meth:`cannot_match` of one.

        Raises:
            SettingError: as :meth:`cannot_match`.
        """
        if not isinstance(self.index, JointIndex):
            return np.zeros(self.n, np.bool_)
        return self._proved(partial(self.index.cannot_match_all, literals))

    def _proved(self, prove: Callable[[pa.Array, float], Bits]) -> Bits:
        stored = self.read()
        if stored is not None and not (reads_dictionaries(self.index) and is_coded(stored.type)):
            stored = plain_lists(stored)
            stored = stored if stored.type == self.index.storage(self.spec.subject.type) else None
        if stored is None:
            return np.zeros(self.n, np.bool_)
        proved = prove(stored, parameter_of(self.spec))
        if proved.dtype != np.bool_ or proved.shape != (self.n,):
            raise SettingError(
                f"the index {self.spec} answered {proved.dtype}{proved.shape} for {self.n} blocks, no bool for each; "
                f"mend the package that brings {self.spec.kind}, or uninstall it"
            )
        return proved & np.asarray(stored.is_valid(), dtype=np.bool_)


def stored_indexes(specs: Sequence[IndexSpec], blocks: BlockTable) -> Mapping[Expr, tuple[BlockIndex, ...]]:
    """A plan's indexes of its blocks by what they are of; those of types that are not installed prove nothing."""
    found: dict[Expr, tuple[BlockIndex, ...]] = {}
    for spec in specs:
        try:
            parameter_of(spec)
            index = find_index(spec.kind)
        except SettingError:
            continue
        found[spec.subject] = (
            *found.get(spec.subject, ()),
            StoredIndex(spec, index, blocks.n, partial(blocks.stored_index, spec)),
        )
    return found
