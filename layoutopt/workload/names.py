"""Names in a SELECT: what its columns, stars and aliases mean, found as Spark finds them."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from layoutopt.workload.problems import StatementError
from layoutopt.workload.sources import Leaf, Source, leaves, visible_leaves

Holder = tuple[Leaf, str]
"""A leaf that may hold a column, and the column's name there."""


class Names:
    """The names that one SELECT can use.

    Attributes:
        source: its join tree; None without FROM.
        parent: the names of the query around it, where it may use them.
    """

    def __init__(self, select: exp.Select, source: Source | None, laterals: list[Leaf], parent: Names | None) -> None:
        self._select = select
        self._laterals = laterals
        self.source = source
        self.parent = parent

    def outputs(self) -> tuple[str, ...] | None:
        """The names of the columns that the SELECT returns; None where they are unknown."""
        names: list[str] = []
        for projection in self._select.expressions:
            if not projection.is_star:
                names.append(projection.alias_or_name)
                continue
            for leaf in self.starred(projection):
                if leaf.names is None:
                    return None
                names += leaf.names
        excepted = self.excepted()
        return tuple(name for name in names if name.lower() not in excepted)

    def excepted(self) -> set[str]:
        """The folded names that ``* EXCEPT (...)`` leaves out."""
        stars = (s for p in self._select.expressions if p.is_star for s in p.find_all(exp.Star))
        return {each.name.lower() for star in stars for each in star.args.get("except_") or ()}

    def starred(self, projection: exp.Expr) -> list[Leaf]:
        """The leaves whose columns a ``*`` or ``t.*`` stands for."""
        qualifier = projection.table.lower() if isinstance(projection, exp.Column) else ""
        visible = [*visible_leaves(self.source), *self._laterals]
        return [leaf for leaf in visible if not qualifier or leaf.alias.lower() == qualifier]

    def resolve(self, column: exp.Column) -> tuple[list[Holder], bool]:
        """What a column reference means.

        Returns:
            the leaves that it may come from, each with the column's name there (none where it is an alias or
            belongs to a table that is not looked at), and whether they are this block's own, not an outer one's.

        Raises:
            StatementError: ``unknown-column``.
        """
        parts = [part.name for part in column.parts]
        chain = list(self._chain())
        for block in chain:
            found = block._own(parts)
            if found is not None:
                return found, block is self
        if any(leaf.names is None for block in chain for leaf in block._everything()):
            return [], True  # a field of a struct of another table
        raise StatementError("unknown-column", f"there is no column {column.sql('spark')!r} in what the query reads")

    def _chain(self) -> Iterator[Names]:
        block: Names | None = self
        while block is not None:
            yield block
            block = block.parent

    def _everything(self) -> list[Leaf]:
        return [*leaves(self.source), *self._laterals]

    def _own(self, parts: list[str]) -> list[Holder] | None:
        """The leaves of this block that have the column; empty where it is elsewhere but explained; None if not."""
        everything = self._everything()
        # the last part may be a field of a struct, so the qualifier may stand further left
        for place_of_name in range(len(parts) - 1, 0, -1):
            qualifier, name = parts[place_of_name - 1].lower(), parts[place_of_name]
            for leaf in everything:
                if leaf.alias.lower() == qualifier and (leaf.has(name) is not False):
                    return [(leaf, name)] if leaf.has(name) else self._over_unknown(leaf, name)
        if len(parts) > 1 and any(leaf.alias.lower() == parts[-2].lower() for leaf in everything):
            return None
        if len(parts) > 1:
            return [(leaf, parts[0]) for leaf in everything if leaf.has(parts[0])] or None
        return self._unqualified(parts[0], everything)

    @staticmethod
    def _over_unknown(leaf: Leaf, name: str) -> list[Holder]:
        return [(leaf, name)] if leaf.query is not None else []

    def _unqualified(self, name: str, everything: list[Leaf]) -> list[Holder] | None:
        holders = [leaf for leaf in everything if leaf.has(name)]
        if holders:
            return [(leaf, name) for leaf in holders]
        if self.alias(name) is not None:
            return []
        unknown = [leaf for leaf in everything if leaf.has(name) is None]
        if not unknown:
            return None
        # It may still be an outer query's: reading a column too many there is harmless.
        outer = [leaf for block in list(self._chain())[1:] for leaf in block._everything() if leaf.has(name)]
        return [(leaf, name) for leaf in unknown if leaf.query is not None] + [(leaf, name) for leaf in outer]

    def alias(self, name: str) -> exp.Expr | None:
        """The output that has been given that name, if any."""
        for projection in self._select.expressions:
            if isinstance(projection, exp.Alias) and projection.alias.lower() == name.lower():
                return projection
        return None

    def about(self, condition: exp.Expr) -> set[Leaf]:
        """The leaves of this SELECT that a condition names; all of them for a constant one, such as ``1 = 0``."""
        own = set(leaves(self.source))
        if condition.find(exp.Column, exp.Query) is None:
            return own
        return {leaf for column in plain_columns(condition) for leaf, _ in self.resolve(column)[0]} & own

    def only(self, condition: exp.Expr, leaf: Leaf) -> bool:
        """Whether a condition is built from the columns of one leaf and constants, nothing else."""
        if condition.find(exp.Query) is not None:
            return False
        found = [self.resolve(column) for column in plain_columns(condition)]
        return all(own and [each for each, _ in holders] == [leaf] for holders, own in found)


def plain_columns(condition: exp.Expr) -> Iterator[exp.Column]:
    """The columns of a condition outside its subqueries."""
    for part in condition.walk(prune=lambda inner: isinstance(inner, exp.Query)):
        if isinstance(part, exp.Column) and not isinstance(part.this, exp.Star):
            yield part
