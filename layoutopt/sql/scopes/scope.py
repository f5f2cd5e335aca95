"""The scope of a SELECT: what its columns, stars and aliases mean, found as Spark finds them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from layoutopt.sql.problems import StatementError
from layoutopt.sql.scopes.from_items import UNKNOWN, ColumnNames, FromItem, JoinNode, Source, from_items
from layoutopt.sql.scopes.shown import Attribute, Holder, Shown, shown_within

_LONGEST_QUALIFIER = 3  # catalog, schema, table
_GENERATORS = (exp.UDTF, exp.ExplodeOuter, exp.Anonymous, exp.Aliases)


@dataclass(frozen=True)
class Resolution:
    """What a column reference means.

    Attributes:
        columns: every column that it may need, each with its item; none where it is an alias or belongs to a table that
            is not looked at.
        own: whether it is about this block's own columns, not an outer one's.
        exact: the one column whose value it surely is; None where that is not sure, or it is a field of a struct, or
            the value of several columns, or of a table that is not looked at.
        struct: the one column that it surely is a field of, or of a field of.
        fields: the names that lead there.
    """

    columns: tuple[Holder, ...]
    own: bool
    exact: Holder | None = None
    struct: Holder | None = None
    fields: tuple[str, ...] = ()


@dataclass(eq=False)
class _Search:
    """What has been found of a name so far: the columns that it means, or may mean."""

    parts: Sequence[str]
    met: list[Attribute] = field(default_factory=list)
    exact: Attribute | None = None
    struct: Attribute | None = None
    fields: Sequence[str] = ()

    def settled_in(self, shown: Shown, hidden: bool) -> bool:
        """Look among the visible or the hidden columns; whether the name surely means one of them.

        Spark takes the longest qualifier that fits. What stands after the name are fields of a struct, and if there are
        no such fields the statement fails: it does not look further.
        """
        for place in range(min(_LONGEST_QUALIFIER, len(self.parts) - 1), -1, -1):
            qualifier, name = self.parts[:place], self.parts[place]
            candidates = shown.perhaps_called(name, hidden)
            found = [(each, called) for each in candidates if (called := each.called(qualifier, name)) is not False]
            doubtful = bool(self.met)
            self.met += [each for each, _ in found]
            sure = [each for each, called in found if called]
            if sure:
                if not doubtful and len(sure) == 1:
                    self.fields = self.parts[place + 1 :]
                    self.exact, self.struct = (None, sure[0]) if self.fields else (sure[0], None)
                return True
        return False

    @property
    def columns(self) -> tuple[Holder, ...]:
        """The columns to be read."""
        return tuple(dict.fromkeys(holder for each in self.met for holder in each.columns))


class Scope:
    """The names that one SELECT, or the ON of one of its joins, can use.

    Attributes:
        source: the join tree that they come from; None without FROM.
        shown: the columns of the tree and of LATERAL VIEWs.
        parent: the names of the query around it, where it may use them.
    """

    def __init__(self, select: exp.Select, source: Source | None, shown: Shown, parent: Scope | None) -> None:
        self._select = select
        self.source = source
        self.shown = shown
        self.parent = parent
        self._resolved: dict[tuple[str, ...], Resolution] = {}

    def within(self, join: JoinNode) -> Scope:
        """The names that the ON of a join can use: those of its sides."""
        return Scope(self._select, join, shown_within(join), self.parent)

    def outputs(self) -> ColumnNames:
        """The names of the columns that the SELECT returns; an empty name for one that Spark makes up."""
        names: tuple[str, ...] = ()
        for projection in self._select.expressions:
            found = self._starred_names(projection) if projection.is_star else self._names_of(projection)
            if found is UNKNOWN:
                return UNKNOWN
            names += found
        return names

    def _starred_names(self, projection: exp.Expr) -> ColumnNames:
        excepted = excepted_from(projection)
        starred = self.starred(projection)
        if excepted is None or not starred or not self.shown.ordered:
            return UNKNOWN  # all fields of a struct, ...
        qualifier = star_qualifier(projection)
        names = [each.name for each in starred if each.prefixed(qualifier) and each.name is not None]
        if len(names) < len(starred):
            return UNKNOWN
        return tuple(name for name in names if name.lower() not in excepted)

    def _names_of(self, projection: exp.Expr) -> ColumnNames:
        if isinstance(projection, exp.Alias):
            return (projection.alias,)
        node = projection.unnest()
        if isinstance(node, _GENERATORS):
            return UNKNOWN
        if isinstance(node, exp.Cast):  # named as its column, unless that is a field of a struct
            cast = node.this.unnest()
            return self._names_of(cast) if isinstance(cast, exp.Column) and len(cast.parts) == 1 else UNKNOWN
        return (node.name if isinstance(node, exp.Column | exp.Dot | exp.Literal) else "",)

    def starred(self, projection: exp.Expr) -> tuple[Attribute, ...]:
        """The columns that a ``*`` or ``t.*`` stands for, excepted ones included."""
        return self.shown.starred(star_qualifier(projection))

    def resolve(self, column: exp.Column) -> Resolution:
        """What a column reference means.

        Raises:
            StatementError: ``unknown-column``.
        """
        parts = tuple(part.name for part in column.parts)
        if parts not in self._resolved:
            self._resolved[parts] = self._resolve(parts, column)
        return self._resolved[parts]

    def _resolve(self, parts: tuple[str, ...], column: exp.Column) -> Resolution:
        search, met_here = _Search(parts), 0
        for block in self._chain():
            settled = search.settled_in(block.shown, hidden=False) or search.settled_in(block.shown, hidden=True)
            met_here = len(search.met) if block is self else met_here
            if settled:
                exact, struct = (search.exact, search.struct) if block is self else (None, None)
                fields = tuple(search.fields)
                return Resolution(search.columns, met_here > 0, _holder(exact), _holder(struct), fields)
        if self.alias(search.parts[0]) is not None:
            return Resolution(search.columns, own=True)
        if not search.met:
            text = column.sql("spark")
            raise StatementError("unknown-column", f"there is no column {text!r} in what the query reads")
        return Resolution(search.columns, met_here > 0, self._only_chance(search))

    def _only_chance(self, search: _Search) -> Holder | None:
        """The column that a name means if it means anything: a table's with a catalog or schema before it."""
        (only, *others) = search.met
        qualifier, name = search.parts[:-1], search.parts[-1]
        is_it = not others and only.called(qualifier[-1:], name) and only.called(qualifier, name) is not False
        return _holder(only) if is_it and only in self.shown.visible else None

    def _chain(self) -> Iterator[Scope]:
        block: Scope | None = self
        while block is not None:
            yield block
            block = block.parent

    def alias(self, name: str) -> exp.Expr | None:
        """The output that has been given that name, if any."""
        for projection in self._select.expressions:
            if isinstance(projection, exp.Alias) and projection.alias.lower() == name.lower():
                return projection
        return None

    def about(self, condition: exp.Expr) -> set[FromItem]:
        """The items of this SELECT that a condition names; all of them for a constant one, such as ``1 = 0``."""
        own = set(from_items(self.source))
        if condition.find(exp.Column, exp.Query) is None:
            return own
        return {item for column in plain_columns(condition) for item, _ in self.resolve(column).columns} & own

    def only(self, condition: exp.Expr, item: FromItem) -> bool:
        """Whether a condition is built from whole columns of one item and constants, nothing else."""
        if condition.find(exp.Query) is not None:
            return False
        found = [self.resolve(column).exact for column in plain_columns(condition)]
        return all(exact is not None and exact[0] is item for exact in found)


def _holder(attribute: Attribute | None) -> Holder | None:
    if attribute is None or not attribute.whole or not attribute.columns:
        return None
    return attribute.columns[0]


def star_qualifier(projection: exp.Expr) -> tuple[str, ...]:
    """What stands before a star: ``("t",)`` for ``t.*``."""
    return tuple(part.name for part in projection.parts[:-1]) if isinstance(projection, exp.Column) else ()


def excepted_from(projection: exp.Expr) -> set[str] | None:
    """The folded names that ``* EXCEPT (...)`` leaves out; None where they are more than names."""
    stars = list(projection.find_all(exp.Star))
    if any(star.args.get("replace") or star.args.get("rename") for star in stars):
        return None
    excepted = [each for star in stars for each in star.args.get("except_") or ()]
    if any(isinstance(each, exp.Column) and len(each.parts) > 1 for each in excepted):
        return None
    return {each.name.lower() for each in excepted}


def plain_columns(condition: exp.Expr) -> Iterator[exp.Column]:
    """The columns of a condition outside its subqueries."""
    for part in condition.walk(prune=lambda inner: isinstance(inner, exp.Query)):
        if isinstance(part, exp.Column) and not isinstance(part.this, exp.Star):
            yield part
