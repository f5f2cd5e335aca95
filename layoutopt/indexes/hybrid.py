"""``hybrid``: a value list where a block has few distinct values, a Bloom filter where it has many."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.catalog.keys import key_storage
from layoutopt.indexes.bloom import Bloom, bloom_filters
from layoutopt.indexes.lists import list_storage
from layoutopt.indexes.protocol import BlockColumn, Parameter
from layoutopt.indexes.value_list import ValueList
from layoutopt.model.arrays import Bits
from layoutopt.model.predicates import InSet, Like

_LIST, _FILTER = ValueList(), Bloom()


class Hybrid:
    """Whichever of the two costs the fewer bytes, block by block (Ta-Shma 2020, IV-E)."""

    parameter = Parameter(64, 1, 1 << 14, "the most distinct values of a block that are listed")

    def storage(self, type: str) -> pa.DataType | None:
        """Both, of which a block has one."""
        if key_storage(type) is None:
            return None
        return pa.struct([("values", list_storage(type)), ("filter", pa.large_binary())])

    def measure(self, column: BlockColumn, parameter: float) -> pa.Array:
        """Each block's list, or else its filter."""
        lists = _LIST.measure(column, parameter)
        filters = bloom_filters(column.keys, _FILTER.parameter.default, np.asarray(lists.is_null()))
        return pa.StructArray.from_arrays([lists, filters], fields=list(self.storage(column.type) or ()))

    def serves(self, literal: InSet | Like) -> bool:
        """What the one or the other does."""
        return _LIST.serves(literal) or _FILTER.serves(literal)

    def cannot_match(self, literal: InSet | Like, stored: pa.Array, parameter: float) -> Bits:
        """What the one or the other proves."""
        by_list = _LIST.cannot_match(literal, pc.struct_field(stored, [0]), parameter)
        by_filter = _FILTER.cannot_match(literal, pc.struct_field(stored, [1]), _FILTER.parameter.default)
        return by_list | by_filter
