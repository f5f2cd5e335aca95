"""Conditions without a meaning here: Spark computes them for blocks where their columns have a single value.

See Edara 2021, 5.3.11: a deterministic function has a single value there, whatever the function is.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final, NamedTuple, TypeAlias

from layoutopt.model.predicates import TRUE, Col, InSet, Node, Opaque
from layoutopt.model.schema import Schema
from layoutopt.model.types import INTEGER_BITS, decimal_digits
from layoutopt.model.values import Key, ValueSet
from layoutopt.spark.catalyst.trees import Tree, describe, iterate_tree
from layoutopt.sql.types import normal_type

# Returns a letter for each row of constants (t, f, n or ?): see ``Scan.compute`` in ReadBlocks.java.
ComputePart: TypeAlias = Callable[[str, str, str], str]

# The types of columns whose values are sent to Spark; floats have two zeros of one key.
_TYPES: Final = frozenset({*INTEGER_BITS, "boolean", "date", "timestamp", "timestamp_ntz", "string"})
_VALUES: Final = {"t": True, "f": False, "n": None, "?": ...}
_NUMBERS: Final = count()
# Parts of one condition that Spark computes: each takes a call or two.
_MOST_PARTS: Final = 32


class OpaqueParts:
    """The parts of one condition that Spark computes.

    Args:
        root: the whole condition.
        compute: computes its parts.
    """

    def __init__(self, root: Tree, schema: Schema, compute: ComputePart) -> None:
        self._root, self._schema, self._compute, self._left = root, schema, compute, _MOST_PARTS

    def read(self, tree: Tree, truth: bool) -> Node:
        """Return the rows for which a part is TRUE (or FALSE), or the constant TRUE if Spark can't compute it."""
        columns = self._find_columns(tree) if self._left else []
        path = _find_path(self._root, tree) if columns else None
        if path is None:
            return TRUE
        self._left -= 1
        names = "\n".join(column.name for column in columns)
        known: dict[tuple[Key | None, ...], Any] = {}

        def compute(rows: Sequence[tuple[Key | None, ...]]) -> list[Any]:
            new = [row for row in rows if row not in known]
            texts = (_encode(key, column.type) for row in new for key, column in zip(row, columns, strict=True))
            letters = self._compute(",".join(map(str, path)), names, "\n".join(texts)) if new else ""
            known.update(zip(new, (_VALUES[letter] for letter in letters), strict=False))
            return [known.get(row, ...) for row in rows]

        part = Opaque(f"_opaque_{next(_NUMBERS)}", tuple(columns), "boolean", describe(tree), compute)
        return InSet(part, ValueSet.point(int(truth)))

    def _find_columns(self, tree: Tree) -> list[Col]:
        """Return the columns of a part; none if it has others than the table's, or of other types."""
        columns: dict[str, Col] = {}
        for part in iterate_tree(tree):
            if part.name == "AttributeReference":
                column = self._schema.get(part.detail("name") or "")
                type = "" if column is None else normal_type(column.type)
                if column is None or column.name != part.detail("name") or not (type in _TYPES or decimal_digits(type)):
                    return []
                columns[column.name] = Col(column.name, type)
        return list(columns.values())


class _Path(NamedTuple):
    place: int
    before: _Path | None


def _find_path(root: Tree, tree: Tree) -> list[int] | None:
    """Return the places of the operands that lead to a part; None if it is not of this very tree."""
    stack: list[tuple[Tree, _Path | None]] = [(root, None)]
    while stack:
        part, path = stack.pop()
        if part is not tree:
            stack += [(child, _Path(place, path)) for place, child in enumerate(part.children)]
            continue
        places = []
        while path is not None:
            places.append(path.place)
            path = path.before
        return places[::-1]
    return None


def _encode(key: Key | None, type: str) -> str:
    """Return a key as ``Text.value`` in ReadBlocks.java reads it."""
    if key is None:
        return "n"
    return f"v{base64.b64encode(key.encode()).decode()}" if isinstance(key, str) else f"v{key!s}"
