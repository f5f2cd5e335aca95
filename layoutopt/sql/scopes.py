"""From-items, joins and scopes: the meaning of columns, stars and aliases in a SELECT, resolved as Spark resolves them.

A FROM clause is a tree of :class:`FromItem` and :class:`JoinNode`. :func:`visible_columns` lists its columns in
Spark's order, and the keys that USING and NATURAL leave to qualified names. A :class:`Scope` resolves references.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from layoutopt.model.schema import Schema
from layoutopt.sql.problems import StatementError, UnknownColumnError

if TYPE_CHECKING:
    from layoutopt.sql.query_blocks import QueryBlock


class Unknown(Enum):
    """A placeholder for column names that can't be known: of another table, a generator or a pivot."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Unknown.UNKNOWN
# The names of a relation's columns, in order.
ColumnNames = tuple[str, ...] | Unknown


@lru_cache(maxsize=256)
def _group_by_folded_name(names: tuple[str, ...]) -> Mapping[str, tuple[str, ...]]:
    spellings: dict[str, tuple[str, ...]] = {}
    for name in names:
        spellings[name.lower()] = (*spellings.get(name.lower(), ()), name)
    return spellings


@dataclass(eq=False)
class FromItem:
    """One relation in a FROM clause, with the columns read from it so far.

    Attributes:
        alias: the qualifier of its columns.
        table: the name of the tracked table, if it is one.
        schema: that table's columns.
        query: the block of the derived table or common table expression, if it is one.
        names: its columns, as they can be named.
        reference: the table's reference in the text.
        frozen: whether conditions must stay above it (a sample, a pivot, another version).
        columns: those of ``names`` that have been read.
    """

    alias: str
    table: str | None = None
    schema: Schema | None = None
    query: QueryBlock | None = None
    names: ColumnNames = UNKNOWN
    reference: exp.Table | None = None
    frozen: bool = False
    columns: dict[str, None] = field(default_factory=dict)

    @property
    def qualifier(self) -> tuple[tuple[str, ...], bool]:
        """Return the qualifier of its columns, and whether a catalog and schema may precede it."""
        if self.reference is None or self.reference.alias:
            return ((self.alias,) if self.alias else ()), False
        return tuple(part.name for part in self.reference.parts), True

    @property
    def known_names(self) -> tuple[str, ...]:
        """Return the column names; none if they are unknown."""
        return () if self.names is UNKNOWN else self.names

    def has(self, name: str) -> bool | None:
        """Return whether it has a column of that name; None if unknown."""
        return None if self.names is UNKNOWN else name.lower() in _group_by_folded_name(self.names)

    def find_type(self, name: str) -> str | None:
        """Return the type of one of its columns; None if unknown."""
        if self.schema is not None:
            return self.schema.find(name).type
        return None if self.query is None else self.query.find_type(name, self.names)

    def read(self, name: str) -> None:
        """Record that a column is read."""
        known = self.known_names
        for spelling in _group_by_folded_name(known).get(name.lower(), ()) if known else (name,):
            self.columns[spelling] = None

    def read_all(self) -> None:
        """Record that every column is read."""
        self.columns |= dict.fromkeys(self.known_names)


@dataclass(frozen=True, eq=False)
class JoinNode:
    """A join of two sources.

    Attributes:
        kind: inner, left, right, full, semi or anti.
        on: the join's condition, or None.
        using: column names of USING; empty for ON.
        natural: whether it joins on all common names.
    """

    kind: str
    left: Source
    right: Source
    on: exp.Expr | None = None
    using: tuple[str, ...] = ()
    natural: bool = False


Source = FromItem | JoinNode


def from_items(source: Source | None) -> Iterator[FromItem]:
    """Yield all from-items, left to right."""
    if isinstance(source, FromItem):
        yield source
    elif isinstance(source, JoinNode):
        yield from from_items(source.left)
        yield from from_items(source.right)


def joins(source: Source | None) -> Iterator[JoinNode]:
    """Yield all joins, innermost first."""
    if isinstance(source, JoinNode):
        yield from joins(source.left)
        yield from joins(source.right)
        yield source


def using_keys(join: JoinNode) -> list[tuple[Attribute, Attribute]]:
    """Return the columns that USING makes equal, of the left and of the right side."""
    if not join.using:
        return []
    left, right = _source_columns(join.left), _source_columns(join.right)
    return [(_find_key(left, name), _find_key(right, name)) for name in join.using]


def join_kind(join: exp.Join) -> str:
    """Return a join's kind, as :class:`JoinNode` names it.

    Raises:
        StatementError: ``unsupported``: Spark has no such join.
    """
    side, kind = (join.side or "").upper(), (join.kind or "").upper()
    if kind in ("SEMI", "ANTI"):
        if side not in ("", "LEFT"):
            raise StatementError("unsupported", f"a {side} {kind} JOIN is not supported")
        return kind.lower()
    if side in ("LEFT", "RIGHT", "FULL"):
        return side.lower()
    if kind in ("", "INNER", "CROSS", "OUTER") and (join.args.get("method") or "").upper() in ("", "NATURAL"):
        return "full" if kind == "OUTER" else "inner"
    raise StatementError("unsupported", f"the join {join.sql('spark')[:60]!r} is not supported")


# A from-item and the name of one of its columns.
ColumnRef = tuple[FromItem, str]
# A column, or the folded name, as a statement writes it, of one whose table has unknown columns.
ValueRef = ColumnRef | str


@dataclass(frozen=True, eq=False)
class Attribute:
    """A column that can be named, or any number of columns with unknown names.

    Attributes:
        name: as its relation spells it; None for columns with unknown names.
        qualifier: the parts that may precede the name.
        is_open: whether more parts may precede those: the catalog and schema of a table without an alias.
        columns: the columns to read for it; empty for an item with unknown names.
        is_plain: whether its value is that of its one column.
        is_certain: whether it certainly exists under that name.
    """

    name: str | None
    qualifier: tuple[str, ...] = ()
    is_open: bool = False
    columns: tuple[ColumnRef, ...] = ()
    is_plain: bool = True
    is_certain: bool = True

    def matches(self, qualifier: Sequence[str], name: str) -> bool | None:
        """Return whether a qualified name means it; None if it may."""
        has_qualifier = self.matches_qualifier(qualifier)
        if has_qualifier is False or not self.may_be_named(name):
            return False
        # Spark distinguishes what only case folding makes equal: ss and ß.
        same_name = self.name is not None and len(self.name) == len(name) and self.name.lower() == name.lower()
        return True if has_qualifier and self.is_certain and same_name else None

    def may_be_named(self, name: str) -> bool:
        """Return whether it may have that name."""
        return self.name is None or self.name.lower() == name.lower()

    def matches_qualifier(self, qualifier: Sequence[str]) -> bool | None:
        """Return whether ``qualifier.*`` includes it; None if it may."""
        parts = [part.lower() for part in qualifier]
        own = [part.lower() for part in self.qualifier]
        if len(parts) <= len(own):
            return own[len(own) - len(parts) :] == parts
        return None if self.is_open and parts[len(parts) - len(own) :] == own else not parts


@dataclass(frozen=True, eq=False)
class VisibleColumns:
    """The columns that names can mean.

    Attributes:
        visible: the columns that ``*`` stands for.
        hidden: keys of USING and NATURAL joins, which only a qualified name reaches if it means nothing visible.
        ordered: whether ``visible`` is in Spark's order.
    """

    visible: tuple[Attribute, ...] = ()
    hidden: tuple[Attribute, ...] = ()
    ordered: bool = True

    @cached_property
    def _by_name(self) -> tuple[Mapping[str | None, tuple[Attribute, ...]], ...]:
        return tuple(_index_by_folded_name(attributes) for attributes in (self.visible, self.hidden))

    def find_candidates(self, name: str, hidden: bool) -> tuple[Attribute, ...]:
        """Return the visible, or the hidden, columns that may have that name."""
        by_name = self._by_name[hidden]
        return by_name.get(name.lower(), ()) + by_name.get(None, ())

    def expand_star(self, qualifier: Sequence[str]) -> tuple[Attribute, ...]:
        """Return the columns of ``*``, or of ``qualifier.*``, in order."""
        if not qualifier:
            return self.visible
        attributes = (*self.hidden, *self.visible)
        return tuple(attribute for attribute in attributes if attribute.matches_qualifier(qualifier) is not False)

    def concat(self, right: VisibleColumns) -> VisibleColumns:
        """Return the columns of two sources next to each other."""
        return VisibleColumns(self.visible + right.visible, self.hidden + right.hidden, self.ordered and right.ordered)


def _index_by_folded_name(attributes: Iterable[Attribute]) -> Mapping[str | None, tuple[Attribute, ...]]:
    by_name: dict[str | None, list[Attribute]] = {}
    for attribute in attributes:
        by_name.setdefault(None if attribute.name is None else attribute.name.lower(), []).append(attribute)
    return {name: tuple(group) for name, group in by_name.items()}


def visible_columns(source: Source | None, laterals: Iterable[FromItem] = ()) -> VisibleColumns:
    """Return the columns that can be named above a join tree and the LATERAL VIEWs over it."""
    columns = VisibleColumns() if source is None else _source_columns(source)
    for view in laterals:
        columns = columns.concat(VisibleColumns(_item_columns(view)))
    return columns


def _source_columns(source: Source) -> VisibleColumns:
    if isinstance(source, FromItem):
        return VisibleColumns(_item_columns(source))
    left, right = _source_columns(source.left), _source_columns(source.right)
    if source.using:
        return _merge_using(source.kind, left, right, source.using)
    if source.natural:
        return _merge_natural(source.kind, left, right)
    return left if source.kind in ("semi", "anti") else left.concat(right)


def _item_columns(item: FromItem) -> tuple[Attribute, ...]:
    qualifier, is_open = item.qualifier
    if item.names is UNKNOWN:
        return (Attribute(None, qualifier, is_open, is_certain=False),)
    return tuple(Attribute(name, qualifier, is_open, ((item, name),)) for name in item.names)


def _merge_using(kind: str, left: VisibleColumns, right: VisibleColumns, names: Sequence[str]) -> VisibleColumns:
    left_keys, right_keys = [_find_key(left, name) for name in names], [_find_key(right, name) for name in names]
    if not all(key.is_certain for key in (*left_keys, *right_keys)):
        return _merge_uncertain(kind, left, right, names)
    ordered = left.ordered and right.ordered
    left_rest, right_rest = _without(left.visible, left_keys), _without(right.visible, right_keys)
    if kind in ("semi", "anti"):
        return VisibleColumns((*left_keys, *left_rest), left.hidden, ordered)
    hidden = left.hidden + right.hidden
    if kind == "full":
        merged = [
            Attribute(name, columns=left_key.columns + right_key.columns, is_plain=False)
            for name, left_key, right_key in zip(names, left_keys, right_keys, strict=True)
        ]
        return VisibleColumns((*merged, *left_rest, *right_rest), (*left_keys, *right_keys, *hidden), ordered)
    kept, covered = (right_keys, left_keys) if kind == "right" else (left_keys, right_keys)
    return VisibleColumns((*kept, *left_rest, *right_rest), (*covered, *hidden), ordered)


def _merge_natural(kind: str, left: VisibleColumns, right: VisibleColumns) -> VisibleColumns:
    left_counts = Counter(attribute.name.lower() for attribute in left.visible if attribute.name)
    right_counts = Counter(attribute.name.lower() for attribute in right.visible if attribute.name)
    common = left_counts.keys() & right_counts.keys()
    keys = [attribute.name for attribute in left.visible if attribute.name and attribute.name.lower() in common]
    both = left.visible + right.visible
    unknown = any(not attribute.name for attribute in both)
    if unknown or any(left_counts[name] > 1 or right_counts[name] > 1 for name in common):
        # Spark's name of a computed column may be common, too.
        return _merge_uncertain(kind, left, right, [attribute.name for attribute in both if attribute.name])
    return _merge_using(kind, left, right, keys)


def _find_key(side: VisibleColumns, name: str) -> Attribute:
    """Return the column of a side that USING means: Spark takes the first of that name."""
    candidates = [attribute for attribute in side.visible if attribute.may_be_named(name)]
    if not candidates:
        return Attribute(name, is_certain=False)
    first = candidates[0]
    if len(candidates) == 1 and first.name is None:
        return replace(first, name=name, is_certain=True)
    is_first = side.ordered or len(candidates) == 1
    return first if is_first and first.matches((), name) else replace(first, is_certain=False)


def _without(visible: Iterable[Attribute], keys: Iterable[Attribute]) -> tuple[Attribute, ...]:
    key_ids = {id(key) for key in keys}
    return tuple(attribute for attribute in visible if id(attribute) not in key_ids)


def _merge_uncertain(kind: str, left: VisibleColumns, right: VisibleColumns, keys: Iterable[str]) -> VisibleColumns:
    """Return what a join shows if it is unknown which columns of these names it merges.

    Columns of the side that merged columns take their values from can be named as before.
    """
    names = {key.lower() for key in keys}
    if kind in ("semi", "anti"):
        return replace(left, ordered=False)
    kept = {"inner": left, "left": left, "right": right}.get(kind)

    def affected(side: VisibleColumns) -> tuple[Attribute, ...]:
        if side is kept:
            return ()
        return tuple(column for column in side.visible if column.name is None or column.name.lower() in names)

    uncertain = [replace(column, is_plain=False, is_certain=False) for column in (*affected(left), *affected(right))]
    merged = [replace(column, qualifier=(), is_open=False) for column in uncertain]
    rest = [*_without(left.visible, affected(left)), *_without(right.visible, affected(right))]
    return VisibleColumns((*merged, *uncertain, *rest), (*uncertain, *left.hidden, *right.hidden), ordered=False)


_LONGEST_QUALIFIER = 3  # catalog, schema, table
_GENERATORS = (exp.UDTF, exp.ExplodeOuter, exp.Anonymous, exp.Aliases)
# BigQuery's columns that no table lists: when a row's partition was loaded, and which table of a wildcard it is from.
PSEUDO_COLUMNS: Final = frozenset({"_partitiontime", "_partitiondate", "_table_suffix"})


@dataclass(frozen=True)
class Resolution:
    """The meaning of a column reference.

    Attributes:
        columns: every column that it may need: all of a relation for its alias, which means its row; none for a
            column's alias or a column of an untracked table.
        is_own: whether it is a column of this block, not of an outer one.
        exact: the one column whose value it certainly is; None if that is uncertain, or it is a field of a struct, the
            value of several columns, or a column of an untracked table.
        struct: the one column that it certainly is a (nested) field of.
        fields: the names that lead to the field.
    """

    columns: tuple[ColumnRef, ...]
    is_own: bool
    exact: ColumnRef | None = None
    struct: ColumnRef | None = None
    fields: tuple[str, ...] = ()


@dataclass(eq=False)
class _Search:
    """The state of a name's resolution: the columns that it means, or may mean."""

    parts: Sequence[str]
    matches: list[Attribute] = field(default_factory=list)
    exact: Attribute | None = None
    struct: Attribute | None = None
    fields: Sequence[str] = ()

    def settle_in(self, columns: VisibleColumns, hidden: bool) -> bool:
        """Search the visible or the hidden columns; return whether the name certainly means one of them.

        Spark takes the longest qualifier that fits. Parts after the name are fields of a struct. If there are no such
        fields the statement fails; Spark searches no further.
        """
        for place in range(min(_LONGEST_QUALIFIER, len(self.parts) - 1), -1, -1):
            qualifier, name = self.parts[:place], self.parts[place]
            candidates = [(column, column.matches(qualifier, name)) for column in columns.find_candidates(name, hidden)]
            is_ambiguous = bool(self.matches)
            self.matches += [column for column, match in candidates if match is not False]
            certain = [column for column, match in candidates if match]
            if certain:
                if not is_ambiguous and len(certain) == 1:
                    self.fields = self.parts[place + 1 :]
                    self.exact, self.struct = (None, certain[0]) if self.fields else (certain[0], None)
                return True
        return False

    @property
    def columns(self) -> tuple[ColumnRef, ...]:
        return tuple(dict.fromkeys(column for attribute in self.matches for column in attribute.columns))


class Scope:
    """The names that one SELECT, or the ON of one of its joins, can use.

    Attributes:
        source: the join tree that they come from; None without FROM.
        columns: the visible columns of the tree and of LATERAL VIEWs.
        parent: the scope of the enclosing query, if its names can be used.
    """

    def __init__(
        self, select: exp.Select, source: Source | None, columns: VisibleColumns, parent: Scope | None
    ) -> None:
        self._select = select
        self.source = source
        self.columns = columns
        self.parent = parent
        self._resolutions: dict[tuple[str, ...], Resolution] = {}

    def for_join(self, join: JoinNode) -> Scope:
        """Return the scope of a join's ON: the columns of both sides, whatever the join returns."""
        columns = _source_columns(join.left).concat(_source_columns(join.right))
        return Scope(self._select, join, columns, self.parent)

    def output_names(self) -> ColumnNames:
        """Return the names of the SELECT's columns; an empty name where Spark makes one up."""
        names: tuple[str, ...] = ()
        for projection in self._select.expressions:
            added = self._star_names(projection) if projection.is_star else self._projection_names(projection)
            if added is UNKNOWN:
                return UNKNOWN
            names += added
        return names

    def _star_names(self, projection: exp.Expr) -> ColumnNames:
        excluded = excluded_names(projection)
        columns = self.expand_star(projection)
        if excluded is None or not columns or not self.columns.ordered:
            return UNKNOWN  # all fields of a struct, ...
        qualifier = star_qualifier(projection)
        names = [column.name for column in columns if column.matches_qualifier(qualifier) and column.name is not None]
        if len(names) < len(columns):
            return UNKNOWN
        return tuple(name for name in names if name.lower() not in excluded)

    def _projection_names(self, projection: exp.Expr) -> ColumnNames:
        if isinstance(projection, exp.Alias):
            return (projection.alias,)
        node = projection.unnest()
        if isinstance(node, _GENERATORS):
            return UNKNOWN
        if isinstance(node, exp.Cast):  # named as its column, unless that is a field of a struct
            operand = node.this.unnest()
            is_column = isinstance(operand, exp.Column) and len(operand.parts) == 1
            return self._projection_names(operand) if is_column else UNKNOWN
        return (node.name if isinstance(node, exp.Column | exp.Dot | exp.Literal) else "",)

    def expand_star(self, projection: exp.Expr) -> tuple[Attribute, ...]:
        """Return the columns of a ``*`` or ``t.*``, excluded ones too."""
        return self.columns.expand_star(star_qualifier(projection))

    def resolve(self, column: exp.Column) -> Resolution:
        """Return the meaning of a column reference.

        Raises:
            UnknownColumnError: no table has such a column.
        """
        parts = tuple(part.name for part in column.parts)
        if parts not in self._resolutions:
            self._resolutions[parts] = self._resolve_parts(parts, column)
        return self._resolutions[parts]

    def _resolve_parts(self, parts: tuple[str, ...], column: exp.Column) -> Resolution:
        search, own_matches = _Search(parts), 0
        scope: Scope | None = self
        while scope is not None:
            is_settled = search.settle_in(scope.columns, hidden=False) or search.settle_in(scope.columns, hidden=True)
            own_matches = len(search.matches) if scope is self else own_matches
            if is_settled:
                exact, struct = (search.exact, search.struct) if scope is self else (None, None)
                fields = tuple(search.fields)
                return Resolution(search.columns, own_matches > 0, _only_column(exact), _only_column(struct), fields)
            scope = scope.parent
        if self.find_alias(parts[0]) is not None:
            return Resolution(search.columns, is_own=True)
        rows = self._find_rows(parts) or self._find_pseudo_columns(parts)
        if rows:
            columns = tuple(dict.fromkeys((*search.columns, *rows)))
            return Resolution(columns, own_matches > 0 or rows[0][0] in from_items(self.source))
        if not search.matches:
            known = [attribute.name for attribute in self.columns.visible if attribute.name is not None]
            raise UnknownColumnError(column.sql("spark"), column.name, known)
        return Resolution(search.columns, own_matches > 0, self._only_candidate(search))

    def find_value(self, column: exp.Column) -> tuple[ValueRef, Scope] | None:
        """Return the column that a reference certainly means, and the scope that it belongs to: this or an outer one.

        The name of a column of unknown columns means the same in all scopes of a statement that have no outer one.
        """
        resolution = self.resolve(column)
        if resolution.exact is not None:
            return resolution.exact, self
        if self.parent is not None:
            return None if resolution.is_own else self.parent.find_value(column)
        is_unknown = not resolution.columns and self.find_alias(column.parts[0].name) is None
        return (".".join(part.name.lower() for part in column.parts), self) if is_unknown else None

    def _find_rows(self, parts: Sequence[str]) -> tuple[ColumnRef, ...]:
        """Return the columns of the relations, also of outer queries, whose rows a name of no certain column means."""
        scope: Scope | None = self
        while scope is not None:
            relations = [column for column in scope.columns.expand_star(parts) if column.qualifier]
            if relations:
                return tuple(column for attribute in relations for column in attribute.columns)
            scope = scope.parent
        return ()

    def _find_pseudo_columns(self, parts: Sequence[str]) -> tuple[ColumnRef, ...]:
        """Return the pseudo columns of tables that a name of no column may mean; no table has them, so none is read."""
        if parts[-1].lower() not in PSEUDO_COLUMNS:
            return ()
        tables = [item for item in from_items(self.source) if item.table is not None]
        own = [item for item in tables if item.qualifier[0][-len(parts) + 1 :] == tuple(parts[:-1])]
        return tuple((item, parts[-1]) for item in own or tables)

    def _only_candidate(self, search: _Search) -> ColumnRef | None:
        """Return the one column that a name can mean: a table's with a catalog or schema before it."""
        (first, *rest) = search.matches
        qualifier, name = search.parts[:-1], search.parts[-1]
        matches = not rest and first.matches(qualifier[-1:], name) and first.matches(qualifier, name) is not False
        return _only_column(first) if matches and first in self.columns.visible else None

    def find_alias(self, name: str) -> exp.Expr | None:
        """Return the projection with that alias, if any."""
        for projection in self._select.expressions:
            if isinstance(projection, exp.Alias) and projection.alias.lower() == name.lower():
                return projection
        return None

    def items_in(self, condition: exp.Expr) -> set[FromItem]:
        """Return the items of this SELECT that a condition names; all of them for a constant one such as ``1 = 0``."""
        own = set(from_items(self.source))
        if condition.find(exp.Column, exp.Query) is None:
            return own
        return {item for column in plain_columns(condition) for item, _ in self.resolve(column).columns} & own

    def reads_only(self, condition: exp.Expr, item: FromItem) -> bool:
        """Return whether a condition consists of whole columns of one item and constants."""
        if condition.find(exp.Query) is not None:
            return False
        columns = [self.resolve(column).exact for column in plain_columns(condition)]
        return all(column is not None and column[0] is item for column in columns)


def _only_column(attribute: Attribute | None) -> ColumnRef | None:
    if attribute is None or not attribute.is_plain or not attribute.columns:
        return None
    return attribute.columns[0]


def star_qualifier(projection: exp.Expr) -> tuple[str, ...]:
    """Return the parts before a star: ``("t",)`` for ``t.*``."""
    return tuple(part.name for part in projection.parts[:-1]) if isinstance(projection, exp.Column) else ()


def excluded_names(projection: exp.Expr) -> set[str] | None:
    """Return the folded names that ``* EXCEPT (...)`` leaves out; None if the star does more than that."""
    stars = list(projection.find_all(exp.Star))
    if any(star.args.get("replace") or star.args.get("rename") for star in stars):
        return None
    excluded = [name for star in stars for name in star.args.get("except_") or ()]
    if any(isinstance(name, exp.Column) and len(name.parts) > 1 for name in excluded):
        return None
    return {name.name.lower() for name in excluded}


def plain_columns(condition: exp.Expr) -> Iterator[exp.Column]:
    """Yield the columns of a condition outside its subqueries."""
    for part in condition.walk(prune=lambda node: isinstance(node, exp.Query)):
        if isinstance(part, exp.Column) and not isinstance(part.this, exp.Star):
            yield part
