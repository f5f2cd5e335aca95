"""``value-list``: every distinct value of a block, where these are few. Proves whatever a literal says of values."""

from __future__ import annotations

import pyarrow as pa

from layoutopt.indexes.lists import contents, element_storage, list_array, list_storage, matching_keys, without_any
from layoutopt.indexes.protocol import BlockColumn, Parameter
from layoutopt.model.arrays import Bits
from layoutopt.model.predicates import InSet, Like

MOST_BYTES = 1 << 19
"""Of one block's list; one that would be longer is left out."""


class ValueList:
    """The values themselves: =, <>, IN, ranges and LIKE, without false positives (Ta-Shma 2020, table I)."""

    parameter = Parameter(256, 1, 1 << 14, "the most distinct values of a block that are stored")
    reads_dictionaries = True

    def storage(self, type: str) -> pa.DataType | None:
        """A list of keys."""
        return list_storage(type)

    def measure(self, column: BlockColumn, parameter: float) -> pa.Array:
        """Each block's distinct keys, ascending."""
        lists: list[pa.Array | None] = [
            None if bad or len(keys) > parameter or keys.nbytes > MOST_BYTES else keys
            for keys, bad in zip(column.keys.sorted_by_block(), column.has_bad_text.tolist(), strict=True)
        ]
        return list_array(lists, element_storage(column.type))

    def serves(self, literal: InSet | Like) -> bool:
        """Every literal but one that any value makes TRUE."""
        return isinstance(literal, Like) or not literal.values.is_all

    def cannot_match(self, literal: InSet | Like, stored: pa.Array, parameter: float) -> Bits:
        """The blocks none of whose values makes the literal TRUE."""
        keys, offsets = contents(stored)
        return without_any(matching_keys(literal, keys), offsets, stored)
