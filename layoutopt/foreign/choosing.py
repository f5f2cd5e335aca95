"""Which indexes of a source are worth their bytes to a log's queries, tried on a few of its files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.storage.index_encoding import encode_index
from layoutopt.indexes.choosing import Judged, candidates, worth_their_bytes
from layoutopt.indexes.expressions import is_computed_here
from layoutopt.indexes.stored import stored_indexes
from layoutopt.model.arrays import Floats, Ints
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.query import Query
from layoutopt.skipping.cannot_match import cannot_match

TRIED: Final = 4
"""Files that are measured to choose by, spread evenly."""

Trial = Callable[[tuple[IndexSpec, ...]], BlockTable]
"""Measures some indexes of a few files."""


def within_budget(queries: Sequence[Query], trial: Trial, share: float) -> tuple[IndexSpec, ...]:
    """The indexes that save queries the most bytes for each of their own (Ta-Shma 2020, IV-B).

    Args:
        queries: a log's.
        trial: measures all that there could be.
        share: the most bytes of those taken, in the compressed bytes of the row groups tried.
    """
    possible = tuple(
        spec for spec in candidates(query.filter.root for query in queries) if is_computed_here(spec.subject)
    )
    if not possible:
        return ()
    blocks = trial(possible)
    read = _read(queries, blocks)
    indexes = [_judged(spec, queries, blocks, read) for spec in possible]
    return tuple(possible[i] for i in worth_their_bytes(indexes, read, share * float(blocks.bytes.sum())))


def _read(queries: Sequence[Query], blocks: BlockTable) -> Floats:
    """The bytes that each query reads of each block by footers alone, by weight, ``float64[queries, blocks]``."""
    read = np.zeros((len(queries), blocks.n))
    for place, query in enumerate(queries):
        left = ~cannot_match(query.filter.root, blocks.block_statistics(), None)
        sizes: Ints = sum((blocks.column_bytes(name) for name in query.columns), np.zeros(blocks.n, np.int64))
        read[place] = query.weight * np.where(left, sizes, 0)
    return read


def _judged(spec: IndexSpec, queries: Sequence[Query], blocks: BlockTable, read: Floats) -> Judged:
    """What one index lets the queries skip, and how many of its bytes they read for that."""
    alone = replace(blocks.block_statistics(), indexes=stored_indexes([spec], blocks))
    stored = blocks.stored_index(spec)
    size = 0.0 if stored is None else float(len(encode_index(stored)))
    skipped, asked = np.zeros(read.shape, np.bool_), 0.0
    for place, query in enumerate(queries):
        if spec.subject.columns <= query.filter.root.columns and read[place].any():
            skipped[place] = cannot_match(query.filter.root, alone, None)
            asked += query.weight
    return Judged(skipped, size, asked * size)
