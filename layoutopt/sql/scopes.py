"""Which table a name in a text belongs to, and which conditions reach which scan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from functools import cached_property, lru_cache
from typing import Final

from sqlglot import exp

from layoutopt.model.predicates import And, Call, Col, Comparison, Constant, Expr, InSet, Like, Node, Or
from layoutopt.model.schema import Schema
from layoutopt.sql.filters import conjuncts
from layoutopt.sql.problems import StatementError

# ----------------------------------------------------------------------------------------------------
# What a SELECT reads from: from-items (tables, queries, functions) and the joins between them.


class Unknown(Enum):
    """In place of the names of columns that can't be known: another table's, a generator's, a pivot's."""

    UNKNOWN = "unknown"


class Every(Enum):
    """In place of the names of wanted columns: all that there are."""

    EVERY = "every"


UNKNOWN: Final = Unknown.UNKNOWN
EVERY: Final = Every.EVERY
ColumnNames = tuple[str, ...] | Unknown
"""The names of a relation's columns, in order."""
Wanted = frozenset[str] | Every
"""The folded names of the columns that are wanted of a relation."""


class QueryBlock:
    """A query whose tables can't be seen (VALUES and the like); the base of those whose can.

    Attributes:
        names: the columns that it returns.
    """

    names: ColumnNames = UNKNOWN

    def read(self, wanted: Wanted) -> None:
        """Note what is read for these columns of the result; may be called again for more."""

    def accept(self, condition: exp.Expr, called: ColumnNames) -> None:
        """Take over a condition on the result, if it may be applied to the rows first.

        Args:
            condition: names columns of the result and nothing else.
            called: what it calls them, in order.
        """


@lru_cache(maxsize=256)
def _by_folded_name(names: tuple[str, ...]) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name in names:
        found[name.lower()] = (*found.get(name.lower(), ()), name)
    return found


@dataclass(eq=False)
class FromItem:
    """One thing in a FROM clause, and which of its columns have been read so far.

    Attributes:
        alias: the name that columns are qualified with.
        table: the name of the table that is looked for, where it is one.
        schema: that table's columns.
        query: the derived table or common table expression, where it is one.
        names: its columns, as they can be named.
        reference: the table's reference in the text.
        frozen: a condition must not go below this reference (a sample, a pivot, another version).
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
        """What its columns are qualified with, and whether a catalog and schema may stand before that."""
        if self.reference is None or self.reference.alias:
            return ((self.alias,) if self.alias else ()), False
        return tuple(part.name for part in self.reference.parts), True

    @property
    def known_names(self) -> tuple[str, ...]:
        """The names that are known."""
        return () if self.names is UNKNOWN else self.names

    def has(self, name: str) -> bool | None:
        """Whether a column of that name is here; None where that is unknown."""
        return None if self.names is UNKNOWN else name.lower() in _by_folded_name(self.names)

    def read(self, name: str) -> None:
        """Note that a column is read."""
        known = self.known_names
        for each in _by_folded_name(known).get(name.lower(), ()) if known else (name,):
            self.columns[each] = None

    def read_all(self) -> None:
        """Note that every column is read."""
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
    """All from-items, left to right."""
    if isinstance(source, FromItem):
        yield source
    elif isinstance(source, JoinNode):
        yield from from_items(source.left)
        yield from from_items(source.right)


def joins(source: Source | None) -> Iterator[JoinNode]:
    """All joins, innermost first."""
    if isinstance(source, JoinNode):
        yield from joins(source.left)
        yield from joins(source.right)
        yield source


def join_kind(join: exp.Join) -> str:
    """The kind of a join, as :class:`JoinNode` names it.

    Raises:
        StatementError: ``unsupported``: a kind of join that Spark does not have.
    """
    side, kind = (join.side or "").upper(), (join.kind or "").upper()
    if kind in ("SEMI", "ANTI"):
        if side not in ("", "LEFT"):
            raise StatementError("unsupported", f"a {side} {kind} JOIN is not followed")
        return kind.lower()
    if side in ("LEFT", "RIGHT", "FULL"):
        return side.lower()
    if kind in ("", "INNER", "CROSS", "OUTER") and (join.args.get("method") or "").upper() in ("", "NATURAL"):
        return "full" if kind == "OUTER" else "inner"
    raise StatementError("unsupported", f"the join {join.sql('spark')[:60]!r} is not followed")


# ----------------------------------------------------------------------------------------------------
# What a FROM clause shows: its columns in Spark's order, and those that USING and NATURAL leave to qualified names.

Holder = tuple[FromItem, str]
"""A from-item and the name of one of its columns there."""


@dataclass(frozen=True, eq=False)
class Attribute:
    """A column that can be named, or any number of columns of unknown names.

    Attributes:
        name: as it is written where it comes from; None for columns of unknown names.
        qualifier: the parts that may stand before the name.
        open: whether more parts may stand before those: the catalog and schema of a table without an alias.
        columns: what has to be read for it; of an item with unknown names nothing is known.
        whole: whether its value is that of its one column.
        sure: whether it surely is there under that name.
    """

    name: str | None
    qualifier: tuple[str, ...] = ()
    open: bool = False
    columns: tuple[Holder, ...] = ()
    whole: bool = True
    sure: bool = True

    def called(self, qualifier: Sequence[str], name: str) -> bool | None:
        """Whether a qualified name means it: True, False, or None where it may."""
        prefixed = self.prefixed(qualifier)
        if prefixed is False or not self.may_be(name):
            return False
        return True if prefixed and self.sure and self._is_surely(name) else None

    def may_be(self, name: str) -> bool:
        """Whether it may have that name."""
        return self.name is None or self.name.lower() == name.lower()

    def prefixed(self, qualifier: Sequence[str]) -> bool | None:
        """Whether ``qualifier.*`` stands for it; None where it may."""
        given = [part.lower() for part in qualifier]
        own = [part.lower() for part in self.qualifier]
        if len(given) <= len(own):
            return own[len(own) - len(given) :] == given
        return None if self.open and given[len(given) - len(own) :] == own else not given

    def _is_surely(self, name: str) -> bool:
        # Spark tells apart what only case folding makes equal: ss and ß.
        return self.name is not None and len(self.name) == len(name) and self.name.lower() == name.lower()


@dataclass(frozen=True, eq=False)
class Shown:
    """The columns that names can mean.

    Attributes:
        visible: what ``*`` stands for.
        hidden: the keys of USING and NATURAL joins that only a qualified name reaches, once nothing visible is meant.
        ordered: whether ``visible`` is in Spark's order.
    """

    visible: tuple[Attribute, ...] = ()
    hidden: tuple[Attribute, ...] = ()
    ordered: bool = True

    @cached_property
    def _by_name(self) -> tuple[Mapping[str | None, tuple[Attribute, ...]], ...]:
        return tuple(_columns_by_folded_name(each) for each in (self.visible, self.hidden))

    def perhaps_called(self, name: str, hidden: bool) -> tuple[Attribute, ...]:
        """The visible, or the hidden, columns that may have that name."""
        by_name = self._by_name[hidden]
        return by_name.get(name.lower(), ()) + by_name.get(None, ())

    def starred(self, qualifier: Sequence[str]) -> tuple[Attribute, ...]:
        """The columns that ``*``, or ``qualifier.*``, stands for, in order."""
        if not qualifier:
            return self.visible
        return tuple(each for each in (*self.hidden, *self.visible) if each.prefixed(qualifier) is not False)

    def beside(self, other: Shown) -> Shown:
        """The columns of two sources next to each other."""
        return Shown(self.visible + other.visible, self.hidden + other.hidden, self.ordered and other.ordered)


def _columns_by_folded_name(attributes: Iterable[Attribute]) -> Mapping[str | None, tuple[Attribute, ...]]:
    found: dict[str | None, list[Attribute]] = {}
    for each in attributes:
        found.setdefault(None if each.name is None else each.name.lower(), []).append(each)
    return {name: tuple(those) for name, those in found.items()}


def shown_by(source: Source | None, laterals: Iterable[FromItem] = ()) -> Shown:
    """What can be named above a join tree, and above the LATERAL VIEWs over it."""
    shown = Shown() if source is None else _of(source)
    for view in laterals:
        shown = shown.beside(Shown(_of_item(view)))
    return shown


def shown_within(join: JoinNode) -> Shown:
    """What a join's own ON condition can name: both sides, whatever the join returns."""
    return _of(join.left).beside(_of(join.right))


def _of(source: Source) -> Shown:
    if isinstance(source, FromItem):
        return Shown(_of_item(source))
    left, right = _of(source.left), _of(source.right)
    if source.using:
        return _using(source.kind, left, right, source.using)
    if source.natural:
        return _natural(source.kind, left, right)
    return left if source.kind in ("semi", "anti") else left.beside(right)


def _of_item(item: FromItem) -> tuple[Attribute, ...]:
    qualifier, open_ended = item.qualifier
    if item.names is UNKNOWN:
        return (Attribute(None, qualifier, open_ended, sure=False),)
    return tuple(Attribute(name, qualifier, open_ended, ((item, name),)) for name in item.names)


def _using(kind: str, left: Shown, right: Shown, keys: Sequence[str]) -> Shown:
    """What a join shows that merges the columns of these names."""
    lefts, rights = [_key(left, name) for name in keys], [_key(right, name) for name in keys]
    if not all(each.sure for each in (*lefts, *rights)):
        return _doubtful(kind, left, right, keys)
    ordered = left.ordered and right.ordered
    left_rest, right_rest = _without(left.visible, lefts), _without(right.visible, rights)
    if kind in ("semi", "anti"):
        return Shown((*lefts, *left_rest), left.hidden, ordered)
    hidden = left.hidden + right.hidden
    if kind == "full":
        pairs = zip(keys, lefts, rights, strict=True)
        merged = [Attribute(key, columns=one.columns + other.columns, whole=False) for key, one, other in pairs]
        return Shown((*merged, *left_rest, *right_rest), (*lefts, *rights, *hidden), ordered)
    kept, covered = (rights, lefts) if kind == "right" else (lefts, rights)
    return Shown((*kept, *left_rest, *right_rest), (*covered, *hidden), ordered)


def _natural(kind: str, left: Shown, right: Shown) -> Shown:
    lefts = Counter(each.name.lower() for each in left.visible if each.name)
    rights = Counter(each.name.lower() for each in right.visible if each.name)
    common = lefts.keys() & rights.keys()
    keys = [each.name for each in left.visible if each.name and each.name.lower() in common]
    unknown = any(not each.name for each in left.visible + right.visible)
    if unknown or any(lefts[name] > 1 or rights[name] > 1 for name in common):
        # What Spark calls a computed column may be common, too.
        return _doubtful(kind, left, right, [each.name for each in left.visible + right.visible if each.name])
    return _using(kind, left, right, keys)


def _key(side: Shown, name: str) -> Attribute:
    """The column of a side that USING means: Spark takes the first of that name."""
    found = [each for each in side.visible if each.may_be(name)]
    if not found:
        return Attribute(name, sure=False)
    if len(found) == 1 and found[0].name is None:
        return replace(found[0], name=name, sure=True)
    is_first = side.ordered or len(found) == 1
    return found[0] if is_first and found[0].called((), name) else replace(found[0], sure=False)


def _without(visible: Iterable[Attribute], keys: Iterable[Attribute]) -> tuple[Attribute, ...]:
    taken = {id(key) for key in keys}
    return tuple(each for each in visible if id(each) not in taken)


def _doubtful(kind: str, left: Shown, right: Shown, keys: Iterable[str]) -> Shown:
    """What a join shows of which it is not known which columns of these names it merges.

    The columns of the side that a merged column has its value from can be named as before.
    """
    names = {key.lower() for key in keys}
    if kind in ("semi", "anti"):
        return replace(left, ordered=False)
    kept = {"inner": left, "left": left, "right": right}.get(kind)

    def touched(side: Shown) -> tuple[Attribute, ...]:
        if side is kept:
            return ()
        return tuple(each for each in side.visible if each.name is None or each.name.lower() in names)

    doubted = [replace(each, whole=False, sure=False) for each in (*touched(left), *touched(right))]
    merged = [replace(each, qualifier=(), open=False) for each in doubted]
    rest = [*_without(left.visible, touched(left)), *_without(right.visible, touched(right))]
    return Shown((*merged, *doubted, *rest), (*doubted, *left.hidden, *right.hidden), ordered=False)


# ----------------------------------------------------------------------------------------------------
# The scope of a SELECT: what its columns, stars and aliases mean, found as Spark finds them.

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


# ----------------------------------------------------------------------------------------------------
# Which conditions may be applied to a from-item's rows before the rest of the query is computed.


class Mode(IntEnum):
    """When rows of a from-item for which a condition is not TRUE may be dropped; of two limits the larger holds."""

    FREE = 0
    """At once."""
    NULL_REJECTING = 1
    """Only if the condition can't be TRUE for a row of NULLs."""
    BLOCKED = 2
    """Never before the rest of the query."""


_BOUNDARIES = ("limit", "offset", "qualify", "having")
# Of a condition above a join: its mode on the left and on the right side, by the kind of join.
_ABOVE = {
    "inner": (Mode.FREE, Mode.FREE),
    "left": (Mode.FREE, Mode.NULL_REJECTING),
    "right": (Mode.NULL_REJECTING, Mode.FREE),
    "full": (Mode.NULL_REJECTING, Mode.NULL_REJECTING),
    "semi": (Mode.FREE, Mode.BLOCKED),
    "anti": (Mode.FREE, Mode.BLOCKED),
}
# The same of a condition in the ON of the join itself.
_IN_ON = {
    "inner": (Mode.FREE, Mode.FREE),
    "left": (Mode.BLOCKED, Mode.FREE),
    "right": (Mode.FREE, Mode.BLOCKED),
    "full": (Mode.BLOCKED, Mode.BLOCKED),
    "semi": (Mode.FREE, Mode.FREE),
    "anti": (Mode.BLOCKED, Mode.FREE),
}
# Functions that are NULL for NULL; of others nothing is assumed, since some turn NULL into something else.
_STRICT = frozenset(
    {
        "try_cast", "try_add", "try_subtract", "try_multiply", "try_divide", "try_mod", "abs", "sqrt",
        "year", "quarter", "month", "weekofyear", "day", "dayofyear", "dayofweek", "last_day", "hour", "minute",
        "second", "lower", "upper", "reverse", "length", "substring", "left", "right", "trim", "ltrim", "rtrim",
        "instr", "concat", "datediff", "trunc", "date_trunc", "rlike",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Placed:
    """A condition that holds above a from-item and is about it.

    Attributes:
        condition: what must hold.
        scope: what its columns are looked up in.
        mode: when rows of the from-item for which it is not TRUE may be dropped.
    """

    condition: exp.Expr
    scope: Scope
    mode: Mode


def place(source: Source | None, condition: exp.Expr, scope: Scope) -> Iterator[tuple[FromItem, Placed]]:
    """A condition that holds above a source, for each from-item that it is about, with its mode there.

    Below the preserved side of an outer join a condition may be applied first. Below the side that the join fills
    with NULLs it may only if it is never TRUE for NULLs: such rows would be dropped above the join anyway.
    """
    return _place(source, condition, scope, scope.about(condition), Mode.FREE)


def place_on(join: JoinNode, condition: exp.Expr, scope: Scope) -> Iterator[tuple[FromItem, Placed]]:
    """One conjunct of a join's ON condition, for each from-item that it is about, with its mode there."""
    about = scope.about(condition)
    for side, mode in zip((join.left, join.right), _IN_ON[join.kind], strict=True):
        yield from _place(side, condition, scope, about, mode)


def _place(
    source: Source | None, condition: exp.Expr, scope: Scope, about: set[FromItem], mode: Mode
) -> Iterator[tuple[FromItem, Placed]]:
    if isinstance(source, FromItem):
        if source in about:
            yield source, Placed(condition, scope, Mode.BLOCKED if source.frozen else mode)
    elif isinstance(source, JoinNode):
        for side, limit in zip((source.left, source.right), _ABOVE[source.kind], strict=True):
            yield from _place(side, condition, scope, about, max(mode, limit))


def rejects_nulls(node: Node) -> bool:
    """Whether a filter is surely not TRUE for a row whose columns are all NULL; False when unsure."""
    if isinstance(node, Constant):
        return not node.value
    if isinstance(node, And):
        return any(rejects_nulls(child) for child in node.children)
    if isinstance(node, Or):
        return all(rejects_nulls(child) for child in node.children)
    if isinstance(node, InSet):
        return not node.null and _is_null(node.subject)
    if isinstance(node, Like):
        return _is_null(node.subject)
    assert isinstance(node, Comparison)
    return _is_null(node.left) or _is_null(node.right)


def _is_null(expr: Expr) -> bool:
    """Whether the expression is surely NULL where every column is."""
    if isinstance(expr, Call):
        return expr.fn in _STRICT and any(_is_null(argument) for argument in expr.args)
    return isinstance(expr, Col)


def pushed_condition(condition: exp.Expr, select: exp.Select, scope: Scope, called: ColumnNames) -> exp.Expr | None:
    """A condition on a SELECT's result in terms of its sources, where filtering its rows first gives the same result.

    Args:
        condition: names columns of the result and nothing else.
        select: what computes the result.
        scope: the names in ``select``.
        called: what the condition calls the result's columns, in order.

    Returns:
        None where the result would change: below LIMIT, windows, or an aggregate that the condition is not a key of.
    """
    if any(select.args.get(key) for key in _BOUNDARIES) or any(p.find(exp.Window) for p in select.expressions):
        return None
    outputs = _outputs(select, scope, called)
    if outputs is None:
        return None
    grouped = select.args.get("group") or any(p.find(exp.AggFunc) for p in select.expressions)
    rewritten = exp.Paren(this=condition.copy())
    for column in list(rewritten.find_all(exp.Column)):
        output = outputs.get(column.name.lower())  # whole columns of the result: no field of a struct
        if output is None or (grouped and not _is_group_key(select, output)):
            return None
        column.replace(exp.Paren(this=output.copy()))
    return rewritten


def _outputs(select: exp.Select, scope: Scope, called: ColumnNames) -> dict[str, exp.Expr | None] | None:
    """Folded output name -> its expression, None if no name surely means it; None where they can't be told apart."""
    if called is UNKNOWN or scope.outputs() is UNKNOWN or any(excepted_from(each) for each in select.expressions):
        return None
    expressions: list[exp.Expr | None] = []
    for projection in select.expressions:
        if projection.is_star:
            expressions += [_spelled(each, scope) for each in scope.starred(projection)]
        else:
            expressions.append(projection.unalias())
    folded = [name.lower() for name in called]
    if len(expressions) != len(folded) or len(set(folded)) != len(folded):
        return None
    return dict(zip(folded, expressions, strict=True))


def _spelled(attribute: Attribute, scope: Scope) -> exp.Expr | None:
    """A name that surely means a column that a star stands for."""
    if not attribute.name or not attribute.whole:
        return None
    spelled = exp.column(attribute.name, table=(attribute.qualifier or (None,))[-1], quoted=True)
    return spelled if scope.resolve(spelled).exact in attribute.columns else None


def _is_group_key(select: exp.Select, output: exp.Expr) -> bool:
    group = select.args.get("group")
    if group is None or any(value for key, value in group.args.items() if key != "expressions"):
        return False  # no key, or GROUPING SETS, ROLLUP, CUBE: those add rows of NULLs
    return isinstance(output, exp.Column) and output in group.expressions


# ----------------------------------------------------------------------------------------------------
# What all blocks of a statement share, and the blocks of queries that are made of others.


@dataclass(eq=False)
class CommonTable:
    """One entry of a WITH clause.

    Attributes:
        query: its text.
        environment: the entries that its text may name.
        columns: its alias columns, if any.
        shared: whether it is named more than once: then one block serves all, and no condition enters it.
        block: that one block, once it is built.
    """

    query: exp.Expr
    environment: Mapping[str, CommonTable]
    columns: tuple[str, ...]
    shared: bool
    block: QueryBlock | None = None


Environment = Mapping[str, CommonTable]


@dataclass(eq=False)
class Statement:
    """What is found of a statement's tables; all its blocks write here.

    Attributes:
        tables: the schemas of the tables that are looked for, by name.
        any_qualifier: whether ``prod.t`` means ``t``.
        uses: how often each name (folded) stands in a FROM clause.
        scans: the from-items that are those tables, in order of appearance.
        conditions: what holds above a from-item and is about it.
    """

    tables: Mapping[str, Schema]
    any_qualifier: bool
    uses: Mapping[str, int]
    scans: list[FromItem] = field(default_factory=list)
    conditions: dict[FromItem, list[Placed]] = field(default_factory=dict)

    def table_named(self, reference: exp.Table) -> str | None:
        """The table that a reference means, by its name in ``tables``; None for others."""
        parts = [part.name.lower() for part in reference.parts]
        for name in self.tables:
            wanted = name.lower().split(".")
            if parts == wanted or (self.any_qualifier and parts[-len(wanted) :] == wanted):
                return name
        return None


class CombinedBlock(QueryBlock):
    """UNION, INTERSECT or EXCEPT of two queries, or one in parentheses with ORDER BY, LIMIT or the like outside.

    Columns correspond by place. Only UNION ALL keeps every row whatever its values are; of others every column counts.
    """

    def __init__(self, parts: tuple[QueryBlock, ...], keeps_rows: bool) -> None:
        self._parts = parts
        self._keeps_rows = keeps_rows
        self.names = parts[0].names

    def read(self, wanted: Wanted) -> None:
        """Read the columns in the places of the wanted ones."""
        for part in self._parts:
            part.read(corresponding(self.names, part.names, wanted) if self._keeps_rows else EVERY)


def corresponding(ours: ColumnNames, theirs: ColumnNames, wanted: Wanted) -> Wanted:
    """The columns, by the other's names, that stand in the places of the wanted ones."""
    if wanted is EVERY or ours is UNKNOWN or theirs is UNKNOWN or len(ours) != len(theirs):
        return EVERY
    return frozenset(their.lower() for our, their in zip(ours, theirs, strict=True) if our.lower() in wanted)


# ----------------------------------------------------------------------------------------------------
# Query blocks: which columns each SELECT of a statement reads from each table, and which conditions hold there.
#
# A block reads its FROM clause into a tree of joins, with a block of its own for each query in it. It asks those for
# the
# columns that it uses and no others, and places the conjuncts of WHERE and ON on the from-items of its tree.

_READ_ALWAYS = ("where", "group", "having", "sort", "cluster", "distribute", "qualify", "windows", "laterals", "limit")
_COLUMN_PARTS = ("this", "table", "db", "catalog")
_AROUND = ("limit", "offset", "order", "sort", "cluster", "distribute", "sample")


def follow(query: exp.Expr, tables: Mapping[str, Schema], any_qualifier: bool = False) -> Statement:
    """What a query reads of these tables, and the conditions there.

    Args:
        query: the statement's query.
        tables: the schemas of the tables to look for, by name.
        any_qualifier: whether ``prod.t`` means ``t``.

    Raises:
        StatementError: ``unsupported`` or ``unknown-column``.

    A derived table is asked for what is used of it, and takes over conditions that may be applied to its rows:

    >>> from layoutopt.model.schema import Column
    >>> from layoutopt.sql.dialect import parse_statement
    >>> schema = Schema(tuple(Column(name, "int") for name in "abcd"))
    >>> query = parse_statement("SELECT q.a FROM (SELECT * FROM t WHERE b > 1) q LEFT JOIN u ON q.c = 2 WHERE q.d = 3")
    >>> found = follow(query, {"t": schema})
    >>> (item,) = found.scans
    >>> sorted(item.columns)
    ['a', 'b', 'c', 'd']
    >>> [(placed.condition.sql(), placed.mode.name) for placed in found.conditions[item]]
    [('b > 1', 'FREE'), ('(("t"."d") = 3)', 'FREE')]
    """
    uses = Counter(table.name.lower() for table in query.root().find_all(exp.Table))
    statement = Statement(tables, any_qualifier, uses)
    _build(query, statement, None, {}).read(EVERY)
    return statement


def _build(query: exp.Expr, statement: Statement, outer: Scope | None, environment: Environment) -> QueryBlock:
    """The block of a query; nothing is read yet.

    Args:
        query: a SELECT, a set operation, or one of them in parentheses; of others the tables can't be seen.
        statement: what all blocks share.
        outer: the scope around the query, where it may use its names.
        environment: the common tables that it may name.
    """
    environment = _with_common_tables(query, statement, environment)
    changed = any(query.args.get(key) for key in _AROUND)
    if isinstance(query, exp.Subquery):
        inner = _build(query.this, statement, outer, environment)
        return CombinedBlock((inner,), keeps_rows=False) if changed else inner
    if isinstance(query, exp.SetOperation):
        left = _build(query.this, statement, outer, environment)
        right = _build(query.expression, statement, outer, environment)
        keeps_rows = isinstance(query, exp.Union) and not query.args.get("distinct") and not changed
        return CombinedBlock((left, right), keeps_rows)
    if isinstance(query, exp.Select):
        return _SelectBlock(query, statement, outer, environment)
    return QueryBlock()


def _with_common_tables(query: exp.Expr, statement: Statement, environment: Environment) -> Environment:
    clause = query.args.get("with_")
    if clause is None:
        return environment
    extended = dict(environment)
    for entry in clause.expressions:
        name = entry.alias.lower()
        visible = {**extended, name: _UNFOLLOWED} if clause.args.get("recursive") else dict(extended)
        columns = tuple(column.name for column in entry.args["alias"].args.get("columns") or ())
        extended[name] = CommonTable(entry.this, visible, columns, statement.uses.get(name, 0) > 1)
    return extended


# What a recursive common table means inside itself: its rows are those of the scans outside the recursion.
_UNFOLLOWED = CommonTable(exp.Values(expressions=[]), {}, (), shared=True, block=QueryBlock())


@dataclass(frozen=True)
class _FromReader:
    """Reads one SELECT's FROM clause into a tree of joins."""

    select: exp.Select
    statement: Statement
    outer: Scope | None
    environment: Environment

    def read(self) -> Source | None:
        """The tree; None without FROM."""
        clause = self.select.args.get("from_")
        return None if clause is None else self._joined(self._source(clause.this), self.select.args.get("joins") or ())

    def _joined(self, source: Source, joined: Sequence[exp.Join]) -> Source:
        for join in joined:
            _check_is_not_pivoted(join)
            using = tuple(column.name for column in join.args.get("using") or ())
            natural = (join.args.get("method") or "").upper() == "NATURAL"
            right = self._source(join.this, source)
            source = JoinNode(join_kind(join), source, right, join.args.get("on"), using, natural)
        return source

    def _source(self, node: exp.Expr, left: Source | None = None) -> Source:
        nested = node.args.get("joins") or ()
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table) and self._only_parentheses(node):
            return self._joined(self._source(node.this), nested)
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            return self._joined(self._table(node), nested)
        return self._joined(self._derived(node, left), nested)

    def _only_parentheses(self, node: exp.Subquery) -> bool:
        """Whether parentheses around tables are no more: they may be given a name, and be sampled as a whole."""
        if not node.alias and not any(node.args.get(key) for key in ("sample", "pivots")):
            return True
        if any(self.statement.table_named(table) is not None for table in node.find_all(exp.Table)):
            raise StatementError("unsupported", f"{node.sql('spark')[:80]!r} is more than parentheses around tables")
        return False

    def _table(self, node: exp.Table) -> FromItem:
        common = self.environment.get(node.name.lower()) if len(node.parts) == 1 else None
        if common is not None:
            return self._common_table(node, common)
        name = self.statement.table_named(node)
        item = FromItem(node.alias_or_name, reference=node)
        if name is None:
            return item
        if node.args.get("version") or node.args.get("when"):
            raise StatementError("unsupported", f"{node.sql('spark')!r} reads another version of the table")
        item.table, item.schema = name, self.statement.tables[name]
        item.names = item.schema.names
        item.frozen = bool(node.args.get("sample"))
        if node.args.get("pivots") or node.alias_column_names:
            item.read_all()
            item.names, item.frozen = UNKNOWN, True
        self.statement.scans.append(item)
        return item

    def _common_table(self, node: exp.Table, common: CommonTable) -> FromItem:
        block = common.block or _build(common.query, self.statement, None, common.environment)
        if common.shared:
            common.block = block
        return _over(node, block, tuple(node.alias_column_names) or common.columns, frozen=common.shared)

    def _derived(self, node: exp.Expr, left: Source | None) -> FromItem:
        if isinstance(node, exp.Lateral):
            around = Scope(self.select, left, shown_by(left), self.outer)  # what stands to its left
            return _over(node, _build(node.this, self.statement, around, self.environment), ())
        columns = tuple(node.alias_column_names)
        if isinstance(node, exp.Subquery):
            return _over(node, _build(node, self.statement, self.outer, self.environment), columns)
        # VALUES, table functions
        return FromItem(node.alias, names=UNKNOWN if node.args.get("pivots") else columns or UNKNOWN)


def _check_is_not_pivoted(join: exp.Join) -> None:
    """PIVOT and UNPIVOT are of all that stands before them in FROM; sqlglot gives them to the last table or join."""
    if join.args.get("pivots") or join.this.args.get("pivots"):
        raise StatementError("unsupported", "PIVOT or UNPIVOT stands after a join; put the join in a subquery")


def _over(node: exp.Expr, block: QueryBlock, columns: tuple[str, ...], frozen: bool = False) -> FromItem:
    pivoted = bool(node.args.get("pivots"))
    frozen = frozen or pivoted or bool(node.args.get("sample"))
    return FromItem(
        node.alias_or_name, query=block, names=UNKNOWN if pivoted else columns or block.names, frozen=frozen
    )


def _lateral_view(view: exp.Expr) -> FromItem:
    """The from-item of a LATERAL VIEW: its columns can be named, but no table is read through it."""
    alias = view.args.get("alias")
    columns = tuple(column.name for column in alias.args.get("columns") or ()) if alias else ()
    return FromItem(view.alias_or_name, names=columns or UNKNOWN)


class _SelectBlock(QueryBlock):
    """One SELECT. Its clauses are read when it is first asked for columns; from then on it accepts no condition."""

    def __init__(self, select: exp.Select, statement: Statement, outer: Scope | None, environment: Environment) -> None:
        self._select = select
        self._statement = statement
        self._environment = environment
        self._seen: set[int] = set()
        self._pushed: list[exp.Expr] = []
        self._read_once = False
        self._source = _FromReader(select, statement, outer, environment).read()
        laterals = [_lateral_view(view) for view in select.args.get("laterals") or ()]
        self._scope = Scope(select, self._source, shown_by(self._source, laterals), outer)
        self.names = self._scope.outputs()

    def read(self, wanted: Wanted) -> None:
        """Note the columns of the SELECT list (of a ``*`` only what is wanted), and once those of all clauses."""
        if self._needs_all():
            wanted = EVERY
        for projection in self._select.expressions:
            if projection.is_star:
                self._read_star(projection, wanted)
            else:
                # Named in the text, so an engine asks for it, even where nothing above uses it.
                self._note(projection)
        if not self._read_once:
            self._read_once = True
            self._read_clauses()
            self._place_conditions()
        # From right to left: what is LATERAL reads columns of what stands before it.
        for item in reversed(list(from_items(self._source))):
            if item.query is not None:
                used = frozenset(name.lower() for name in item.columns)
                item.query.read(corresponding(item.names, item.query.names, used))

    def _needs_all(self) -> bool:
        """Whether columns that nothing above uses decide which rows there are."""
        group, order = self._select.args.get("group"), self._select.args.get("order")
        by_all = order is not None and any(isinstance(each.this, exp.Var) for each in order.expressions)
        return bool(self._select.args.get("distinct") or (group is not None and group.args.get("all")) or by_all)

    def _read_star(self, projection: exp.Expr, wanted: Wanted) -> None:
        for part in projection.find_all(exp.Column):
            if not isinstance(part.this, exp.Star):
                self._note(part)  # * EXCEPT (a), * REPLACE (a + 1 AS a)
        self._note_struct_star(projection)
        excepted = excepted_from(projection) or set()
        for each in self._scope.starred(projection):
            folded = (each.name or "").lower()
            if folded not in excepted and (wanted is EVERY or folded in wanted):
                _read(each.columns)

    def _read_clauses(self) -> None:
        for key in _READ_ALWAYS:
            clause = self._select.args.get(key)
            for node in clause if isinstance(clause, list) else [clause]:
                if isinstance(node, exp.Expr):
                    self._note(node, ordinals=key == "group")
        if self._select.args.get("order"):
            self._note(self._select.args["order"], aliases_first=True, ordinals=True)
        for clause in [self._select.args.get("from_"), *(self._select.args.get("joins") or ())]:
            for table in clause.find_all(exp.Table) if isinstance(clause, exp.Expr) else ():
                if not isinstance(table.this, exp.Identifier) and table.find_ancestor(exp.Select) is self._select:
                    self._note(table.this)  # the arguments of a table function
            for lateral in clause.find_all(exp.Lateral) if isinstance(clause, exp.Expr) else ():
                if not isinstance(lateral.this, exp.Query) and lateral.find_ancestor(exp.Select) is self._select:
                    self._note(lateral.this)
        for join in joins(self._source):
            self._read_join(join)

    def _read_join(self, join: JoinNode) -> None:
        if join.on is not None:
            self._note(join.on, scope=self._scope.within(join))
        left, right = list(from_items(join.left)), list(from_items(join.right))
        names = set(join.using)
        if join.natural:
            names |= {name for item in left + right for name in item.known_names}
        for item in left + right:
            for name in names:
                others = right if item in left else left
                if item.has(name) and (not join.natural or any(each.has(name) is not False for each in others)):
                    item.read(name)

    def _note(
        self, node: exp.Expr, aliases_first: bool = False, ordinals: bool = False, scope: Scope | None = None
    ) -> None:
        """Note all columns in an expression, and read its subqueries; ``scope`` is this block's unless told."""
        if id(node) in self._seen:
            return
        self._seen.add(id(node))
        scope = scope or self._scope
        for part in node.walk(prune=lambda inner: isinstance(inner, exp.Query)):
            if isinstance(part, exp.Query):
                inner = _build(part, self._statement, scope, self._environment)
                inner.read(frozenset() if isinstance(part.parent, exp.Exists) else EVERY)
            elif isinstance(part, exp.Column):
                self._note_column(part, aliases_first, scope)
            elif isinstance(part, exp.Star) and not isinstance(part.parent, exp.Column | exp.Count):
                self._note_star()
            elif ordinals and isinstance(part, exp.Literal) and isinstance(part.parent, exp.Group | exp.Ordered):
                self._note_ordinal(part)

    def _note_column(self, column: exp.Column, aliases_first: bool, scope: Scope) -> None:
        if isinstance(column.this, exp.Star):
            self._note_struct_star(column)
            for each in self._scope.starred(column):
                _read(each.columns)
        elif not (aliases_first and len(column.parts) == 1 and scope.alias(column.name) is not None):
            # What an alias stands for is noted with the SELECT list.
            _read(scope.resolve(column).columns)

    def _note_star(self) -> None:
        for each in self._scope.starred(exp.Star()):
            _read(each.columns)

    def _note_struct_star(self, projection: exp.Expr) -> None:
        """Of ``t.*``, note what has the fields where t may be a struct."""
        qualifier = star_qualifier(projection)
        if qualifier and not any(each.prefixed(qualifier) for each in self._scope.starred(projection)):
            parts = [exp.to_identifier(part, quoted=True) for part in reversed(qualifier)]
            _read(self._scope.resolve(exp.Column(**dict(zip(_COLUMN_PARTS, parts, strict=False)))).columns)

    def _note_ordinal(self, literal: exp.Literal) -> None:
        projections = self._select.expressions
        if any(projection.is_star for projection in projections):
            self._note_star()
        elif not literal.is_string and literal.name.isdigit() and 1 <= int(literal.name) <= len(projections):
            self._note(projections[int(literal.name) - 1])

    def _place_conditions(self) -> None:
        where = self._select.args.get("where")
        for condition in [*(conjuncts(where.this) if where else ()), *self._pushed]:
            self._put(place(self._source, condition, self._scope))
        for join in joins(self._source):
            for condition in conjuncts(join.on) if join.on is not None else ():
                self._put(place_on(join, condition, self._scope.within(join)))

    def _put(self, placed: Iterable[tuple[FromItem, Placed]]) -> None:
        """Keep conditions where they are placed; those on a derived table alone go to its query."""
        for item, each in placed:
            self._statement.conditions.setdefault(item, []).append(each)
            if item.query is not None and each.mode == Mode.FREE and each.scope.only(each.condition, item):
                item.query.accept(each.condition, item.names)

    def accept(self, condition: exp.Expr, called: ColumnNames) -> None:
        """Take over a condition where filtering this SELECT's rows first gives the same result."""
        rewritten = None if self._read_once else pushed_condition(condition, self._select, self._scope, called)
        if rewritten is not None:
            self._pushed.append(rewritten)


def _read(columns: Iterable[Holder]) -> None:
    for item, name in columns:
        item.read(name)
