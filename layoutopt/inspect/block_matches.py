"""Which blocks have a row that meets a filter, by the distinct values of each block, and by rows where needed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from layoutopt.indexes.block_values import BlockValues
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.predicates import And, Constant, Node, Or, columns_of
from layoutopt.writer.matching import KeyedRows, combined, matching_rows


class BlockMatches:
    """Rows of blocks that are asked for many filters, which share literals.

    Args:
        rows: the columns; block i has the rows ``offsets[i] .. offsets[i + 1] - 1``.
        offsets: int64[n + 1].
        values: a column by its name.
    """

    def __init__(self, rows: pa.Table, offsets: Ints, values: Callable[[str], BlockValues]) -> None:
        self._rows = KeyedRows(rows)
        self._offsets = offsets
        self._values = values
        self._keyed: dict[str, KeyedRows] = {}
        self._of_values: dict[Node, Bits | None] = {}
        self._of_rows: dict[Node, Bits | None] = {}
        self._of_blocks: dict[Node, Bits | None] = {}

    def among(self, node: Node, wanted: Bits) -> Bits | None:
        """Which of the wanted blocks, ``bool[n]``, have a row that makes a filter TRUE.

        None where :func:`~layoutopt.writer.matching.matching_rows` has no answer.
        """
        possible = self._possible(node)
        if possible is None:
            return None
        found = possible & wanted
        if _is_of_one_column(node) or not found.any():
            return found
        matched = self._matched(node)
        if matched is None:
            return None
        for i in np.flatnonzero(found).tolist():
            found[i] = matched[self._offsets[i] : self._offsets[i + 1]].any()
        return found

    def _possible(self, node: Node) -> Bits | None:
        """The blocks that have a row for each literal that must be TRUE; for one of one column that is exact."""
        if node not in self._of_blocks:
            self._of_blocks[node] = self._new_possible(node)
        return self._of_blocks[node]

    def _new_possible(self, node: Node) -> Bits | None:
        if isinstance(node, And | Or):
            return combined(node, [self._possible(child) for child in node.children])
        if _is_of_one_column(node):
            matched = self._literal(node)
            return None if matched is None else self._values(_only_column(node)).sums(matched) > 0
        return None if self._matched(node) is None else np.ones(len(self._offsets) - 1, np.bool_)

    def _literal(self, node: Node) -> Bits | None:
        """The values of its one column that make a literal TRUE, ``bool[m]``."""
        if node not in self._of_values:
            name = _only_column(node)
            if name not in self._keyed:
                self._keyed[name] = KeyedRows(pa.table({name: self._values(name).values}))
            self._of_values[node] = matching_rows(node, self._keyed[name])
        return self._of_values[node]

    def _matched(self, node: Node) -> Bits | None:
        """The rows that make a filter TRUE, ``bool[rows]``."""
        if node not in self._of_rows:
            self._of_rows[node] = self._new_matched(node)
        return self._of_rows[node]

    def _new_matched(self, node: Node) -> Bits | None:
        if isinstance(node, And | Or):
            return combined(node, [self._matched(child) for child in node.children])
        if not _is_of_one_column(node):
            return matching_rows(node, self._rows)
        of_values = self._literal(node)
        return None if of_values is None else self._values(_only_column(node)).spread(of_values)


def _is_of_one_column(node: Node) -> bool:
    return not isinstance(node, And | Or | Constant) and len(columns_of(node)) == 1


def _only_column(node: Node) -> str:
    (name,) = columns_of(node)
    return name
