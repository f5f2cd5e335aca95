"""``value-list`` and ``hybrid``: the distinct values of a block, or a Bloom filter if there are many."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.evaluation.keys import key_storage
from layoutopt.indexes.bloom import Bloom, bloom_filters
from layoutopt.indexes.lists import (
    element_storage,
    find_blocks_without,
    flatten_lists,
    list_array,
    list_storage,
    matching_keys,
)
from layoutopt.indexes.protocol import BlockColumn, Parameter
from layoutopt.model.arrays import Bits
from layoutopt.model.predicates import InSet, Like

# The largest list of one block; longer ones are not stored.
MOST_BYTES = 1 << 19


class ValueList:
    """The distinct values: =, <>, IN, ranges and LIKE, without false positives (Ta-Shma 2020, table I)."""

    parameter = Parameter(256, 1, 1 << 14, "the most distinct values of a block that are stored")
    reads_dictionaries = True

    def storage(self, type: str) -> pa.DataType | None:
        """Return the type of a list of keys."""
        return list_storage(type)

    def measure(self, column: BlockColumn, parameter: float) -> pa.Array:
        """Return each block's sorted distinct keys."""
        lists: list[pa.Array | None] = [
            None if bad or len(keys) > parameter or keys.nbytes > MOST_BYTES else keys
            for keys, bad in zip(column.keys.sorted_by_block(), column.has_bad_text.tolist(), strict=True)
        ]
        return list_array(lists, element_storage(column.type))

    def serves(self, literal: InSet | Like) -> bool:
        """Return whether some value does not make the literal TRUE."""
        return isinstance(literal, Like) or not literal.values.is_all

    def cannot_match(self, literal: InSet | Like, stored: pa.Array, parameter: float) -> Bits:
        """Return the blocks none of whose values makes the literal TRUE."""
        keys, offsets = flatten_lists(stored)
        return find_blocks_without(matching_keys(literal, keys), offsets, stored)


_LIST, _FILTER = ValueList(), Bloom()


class Hybrid:
    """A value list or a Bloom filter, whichever is smaller for a block (Ta-Shma 2020, IV-E)."""

    parameter = Parameter(64, 1, 1 << 14, "the most distinct values of a block that are listed")

    def storage(self, type: str) -> pa.DataType | None:
        """Return the type of both, of which a block has one."""
        if key_storage(type) is None:
            return None
        return pa.struct([("values", list_storage(type)), ("filter", pa.large_binary())])

    def measure(self, column: BlockColumn, parameter: float) -> pa.Array:
        """Return each block's list, or else its filter."""
        lists = _LIST.measure(column, parameter)
        filters = bloom_filters(column.keys, _FILTER.parameter.default, np.asarray(lists.is_null()))
        return pa.StructArray.from_arrays([lists, filters], fields=list(self.storage(column.type) or ()))

    def serves(self, literal: InSet | Like) -> bool:
        """Return whether the list or the filter serves the literal."""
        return _LIST.serves(literal) or _FILTER.serves(literal)

    def cannot_match(self, literal: InSet | Like, stored: pa.Array, parameter: float) -> Bits:
        """Return the blocks that the list or the filter rules out."""
        by_list = _LIST.cannot_match(literal, pc.struct_field(stored, [0]), parameter)
        by_filter = _FILTER.cannot_match(literal, pc.struct_field(stored, [1]), _FILTER.parameter.default)
        return by_list | by_filter
