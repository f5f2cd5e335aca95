"""Whether stored indexes are what a load would measure of the rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from layoutopt.catalog.blocks import BlockTable
from layoutopt.catalog.storage.coded_lists import plain_lists
from layoutopt.catalog.storage.index_files import read_index
from layoutopt.catalog.table import Catalog
from layoutopt.errors import CatalogError, SettingError
from layoutopt.indexes.expressions import is_computed_here
from layoutopt.indexes.measuring import measure_indexes
from layoutopt.indexes.registry import check_index
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.layout import Plan


@dataclass(frozen=True, eq=False)
class ExpectedIndex:
    """What the catalog has of one index in n blocks: one value a block, NULL where it has nothing."""

    spec: IndexSpec
    stored: pa.Array


def expected_indexes(plan: Plan, blocks: BlockTable) -> tuple[ExpectedIndex, ...]:
    """The indexes of some blocks that can be measured again here."""
    found = []
    for spec in plan.indexes:
        stored = blocks.stored_index(spec) if why_unchecked(spec) is None else None
        if stored is not None:
            found.append(ExpectedIndex(spec, stored))
    return tuple(found)


def why_unchecked(spec: IndexSpec) -> str | None:
    """Why an index can't be measured again here; None where it can."""
    try:
        check_index(spec)
    except SettingError:
        return "its type is not installed"
    return None if is_computed_here(spec.subject) else "only Spark can compute its values"


def differing(expected: ExpectedIndex, blocks: Ints, rows: pa.Table, offsets: Ints) -> Bits:
    """The blocks whose index is not that of their rows, ``bool[k]``.

    Args:
        expected: of all blocks.
        blocks: those that were read, by their places.
        rows: theirs; the k-th has ``offsets[k] .. offsets[k + 1] - 1``.
        offsets: int64[k + 1].

    Raises:
        SchemaError: the rows' values are not of the indexed type.
    """
    stored = plain_lists(expected.stored.take(pa.array(blocks)))
    measured = measure_indexes([expected.spec], rows, offsets).field(0)
    if stored.type == measured.type and stored.equals(measured):
        return np.zeros(len(blocks), np.bool_)
    pairs = zip(stored, measured, strict=True)
    return np.array([ours.is_valid and (not theirs.is_valid or ours != theirs) for ours, theirs in pairs], np.bool_)


def unreadable(catalog: Catalog) -> Iterator[tuple[str, str]]:
    """The index files that can't be read or are not what their load wrote: each path, and what is wrong."""
    rows: dict[str, int] = {}
    for entry in catalog.partitions:
        table = catalog.file_blocks(entry)
        for named in table.index_files:
            if named.path not in rows:
                rows[named.path] = table.n
                try:
                    read_index(catalog.files, named, table.n)
                except CatalogError as error:
                    yield named.path, str(error)
