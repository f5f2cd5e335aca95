"""``formatted``: a piece of texts of a known form, for filters on the piece and on the whole text.

What the piece is says the expression that is indexed: ``regexp_extract(agent, '^([A-Za-z]+)/', 1)``, or
``split_part(code, '-', 1)`` (Ta-Shma 2020, IV-D). Pieces are few where texts are many.
"""

from __future__ import annotations

from typing import Final

from layoutopt.indexes.protocol import Parameter
from layoutopt.indexes.value_list import ValueList
from layoutopt.model.predicates import Call, Expr

PIECES: Final = frozenset({"regexp_extract", "split_part", "substring_index", "get_json_object"})
"""The functions that give a piece of a text."""


class Formatted(ValueList):
    """The distinct pieces of a block's texts: what any literal says of them, without false positives."""

    parameter = Parameter(1024, 1, 1 << 14, "the most distinct pieces of a block that are stored")

    def suits(self, subject: Expr) -> bool:
        """Of expressions that give a piece of a text."""
        return isinstance(subject, Call) and subject.fn in PIECES and subject.type == "string"
