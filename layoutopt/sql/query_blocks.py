"""Query blocks: the columns that each SELECT of a statement reads per table, and the conditions that hold there.

A block reads its FROM clause into a tree of joins, with a nested block for each query in it. It requests from nested
blocks only the columns that it uses, and pushes the conjuncts of WHERE and ON down to the from-items of its tree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from functools import cached_property, partial
from typing import Final

from sqlglot import exp

from layoutopt.functions.registry import FUNCTIONS
from layoutopt.model.predicates import And, Call, Col, Comparison, Constant, Expr, InSet, Like, Node, Or
from layoutopt.model.schema import Schema
from layoutopt.sql.equalities import Fact, infer_facts, read_facts
from layoutopt.sql.filters import split_conjuncts
from layoutopt.sql.problems import StatementError
from layoutopt.sql.scopes import (
    UNKNOWN,
    Attribute,
    ColumnNames,
    ColumnRef,
    FromItem,
    JoinNode,
    Scope,
    Source,
    excluded_names,
    from_items,
    join_kind,
    joins,
    star_qualifier,
    using_keys,
    visible_columns,
)


class Every(Enum):
    """A placeholder for the names of requested columns: all columns."""

    EVERY = "every"


EVERY: Final = Every.EVERY
# The folded names of the columns that are requested of a relation.
RequestedColumns = frozenset[str] | Every


class QueryBlock:
    """A query whose tables can't be seen (such as VALUES); the base of the blocks whose tables can.

    Attributes:
        names: the columns that it returns.
    """

    names: ColumnNames = UNKNOWN

    def read(self, requested: RequestedColumns) -> None:
        """Record what is read for these columns of the result; may be called again for more."""

    def find_type(self, name: str, names: ColumnNames) -> str | None:
        """Return the type of a column of the result, whose columns are called ``names``; None if unknown."""
        return None

    def push_condition(self, condition: exp.Expr, names: ColumnNames) -> None:
        """Accept a condition on the result, if it may be applied to the rows first.

        It refers only to columns of the result, which it calls ``names``, in order.
        """


class Mode(IntEnum):
    """When rows of a from-item for which a condition is not TRUE may be dropped; of two limits the larger holds."""

    # Before the rest of the query.
    FREE = 0
    # Before the rest of the query, but only if the condition can't be TRUE for a row of NULLs.
    NULL_REJECTING = 1
    # Never before the rest of the query.
    BLOCKED = 2


_BOUNDARIES = ("limit", "offset", "qualify", "having")
# The modes of a condition above a join on its left and right side, by the kind of join.
_ABOVE = {
    "inner": (Mode.FREE, Mode.FREE),
    "left": (Mode.FREE, Mode.NULL_REJECTING),
    "right": (Mode.NULL_REJECTING, Mode.FREE),
    "full": (Mode.NULL_REJECTING, Mode.NULL_REJECTING),
    "semi": (Mode.FREE, Mode.BLOCKED),
    "anti": (Mode.FREE, Mode.BLOCKED),
}
# The same for a condition in the join's own ON.
_IN_ON = {
    "inner": (Mode.FREE, Mode.FREE),
    "left": (Mode.BLOCKED, Mode.FREE),
    "right": (Mode.FREE, Mode.BLOCKED),
    "full": (Mode.BLOCKED, Mode.BLOCKED),
    "semi": (Mode.FREE, Mode.FREE),
    "anti": (Mode.BLOCKED, Mode.FREE),
}


@dataclass(frozen=True)
class PlacedCondition:
    """A condition that holds above a from-item and names it.

    Attributes:
        condition: what must hold.
        scope: resolves its columns.
        mode: when rows of the from-item for which it is not TRUE may be dropped.
        is_inferred: whether equalities imply it; the text has it of another column.
        crosses_types: whether one of those equalities is with a column of another or an unknown type.
    """

    condition: exp.Expr
    scope: Scope
    mode: Mode
    is_inferred: bool = False
    crosses_types: bool = False

    @cached_property
    def items(self) -> set[FromItem]:
        """The from-items that it names."""
        return self.scope.items_in(self.condition)


def _place_above(
    source: Source | None, condition: exp.Expr, scope: Scope
) -> Iterator[tuple[FromItem, PlacedCondition]]:
    """Yield a condition that holds above a source, for each from-item that it names, with its mode there.

    Below the preserved side of an outer join a condition may be applied first. Below the side that the join fills
    with NULLs it may only if it is never TRUE for NULLs: such rows would be dropped above the join anyway.
    """
    return _place(source, condition, scope, scope.items_in(condition), Mode.FREE)


def _place_in_on(join: JoinNode, condition: exp.Expr, scope: Scope) -> Iterator[tuple[FromItem, PlacedCondition]]:
    items = scope.items_in(condition)
    for side, mode in zip((join.left, join.right), _IN_ON[join.kind], strict=True):
        yield from _place(side, condition, scope, items, mode)


def _place(
    source: Source | None, condition: exp.Expr, scope: Scope, items: set[FromItem], mode: Mode
) -> Iterator[tuple[FromItem, PlacedCondition]]:
    if isinstance(source, FromItem):
        if source in items:
            yield source, PlacedCondition(condition, scope, Mode.BLOCKED if source.frozen else mode)
    elif isinstance(source, JoinNode):
        for side, limit in zip((source.left, source.right), _ABOVE[source.kind], strict=True):
            yield from _place(side, condition, scope, items, max(mode, limit))


def rejects_nulls(node: Node) -> bool:
    """Return whether a filter is certainly not TRUE for a row whose columns are all NULL; False when uncertain."""
    if isinstance(node, Constant):
        return not node.value
    if isinstance(node, And):
        return any(rejects_nulls(child) for child in node.children)
    if isinstance(node, Or):
        return all(rejects_nulls(child) for child in node.children)
    if isinstance(node, InSet):
        return not node.null and _is_null_for_nulls(node.subject)
    if isinstance(node, Like):
        return _is_null_for_nulls(node.subject)
    assert isinstance(node, Comparison)
    return _is_null_for_nulls(node.left) or _is_null_for_nulls(node.right)


def _is_null_for_nulls(expr: Expr) -> bool:
    if isinstance(expr, Call):
        function = FUNCTIONS.get(expr.fn)  # others may replace NULL
        return function is not None and function.strict and any(map(_is_null_for_nulls, expr.args))
    return isinstance(expr, Col)


def _rewrite_to_source(condition: exp.Expr, select: exp.Select, scope: Scope, names: ColumnNames) -> exp.Expr | None:
    """Return a condition on a SELECT's result in terms of its sources, if filtering its rows first changes nothing.

    None if the result would change: below LIMIT, windows, or an aggregate that the condition is not a key of.
    """
    if any(select.args.get(key) for key in _BOUNDARIES) or any(p.find(exp.Window) for p in select.expressions):
        return None
    outputs = _outputs_by_name(select, scope, names)
    if outputs is None:
        return None
    is_grouped = select.args.get("group") or any(p.find(exp.AggFunc) for p in select.expressions)
    rewritten = exp.Paren(this=condition.copy())
    for column in list(rewritten.find_all(exp.Column)):
        output = outputs.get(column.name.lower())  # whole columns of the result: no field of a struct
        if output is None or (is_grouped and not _is_group_key(select, output)):
            return None
        column.replace(exp.Paren(this=output.copy()))
    return rewritten


def _outputs_by_name(select: exp.Select, scope: Scope, names: ColumnNames) -> dict[str, exp.Expr | None] | None:
    """Map folded output names to expressions, None where no name certainly means one; None if they are ambiguous."""
    if names is UNKNOWN or scope.output_names() is UNKNOWN or any(excluded_names(p) for p in select.expressions):
        return None
    expressions: list[exp.Expr | None] = []
    for projection in select.expressions:
        if projection.is_star:
            expressions += [_column_expression(attribute, scope) for attribute in scope.expand_star(projection)]
        else:
            expressions.append(projection.unalias())
    folded = [name.lower() for name in names]
    if len(expressions) != len(folded) or len(set(folded)) != len(folded):
        return None
    return dict(zip(folded, expressions, strict=True))


def _column_expression(attribute: Attribute, scope: Scope) -> exp.Expr | None:
    if not attribute.name or not attribute.is_plain:
        return None
    column = exp.column(attribute.name, table=(attribute.qualifier or (None,))[-1], quoted=True)
    return column if scope.resolve(column).exact in attribute.columns else None


def _is_group_key(select: exp.Select, output: exp.Expr) -> bool:
    group = select.args.get("group")
    if group is None or any(value for key, value in group.args.items() if key != "expressions"):
        return False  # no key, or GROUPING SETS, ROLLUP, CUBE: those add rows of NULLs
    return isinstance(output, exp.Column) and output in group.expressions


@dataclass(eq=False)
class CommonTable:
    """One entry of a WITH clause.

    Attributes:
        query: its text.
        environment: the entries that its text may name.
        columns: its alias columns, if any.
        shared: whether it is named more than once: one block serves all references, and no condition enters it.
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
    """The tracked tables of a statement; all its blocks write here.

    Attributes:
        tables: the schemas of the tables to look for, by name.
        any_qualifier: whether ``prod.t`` means ``t``, unless ``tables`` has a qualified ``t``.
        uses: how often each name (folded) occurs in a FROM clause.
        scans: the from-items that are those tables, in order of appearance.
        conditions: the conditions that hold above a from-item and name it.
    """

    tables: Mapping[str, Schema]
    any_qualifier: bool
    uses: Mapping[str, int]
    scans: list[FromItem] = field(default_factory=list)
    conditions: dict[FromItem, list[PlacedCondition]] = field(default_factory=dict)

    def find_table(self, reference: exp.Table) -> str | None:
        """Return :func:`find_table` of the statement's tables."""
        return find_table(reference, self.tables, self.any_qualifier)


def find_table(reference: exp.Table, tables: Mapping[str, Schema], any_qualifier: bool) -> str | None:
    """Return the table that a reference means, by its name in ``tables``; None for others."""
    parts = [part.name.lower() for part in reference.parts]
    for name in tables:
        table_parts = name.lower().split(".")
        if parts == table_parts:
            return name
        is_only = any_qualifier and not any(other.lower().endswith(f".{name.lower()}") for other in tables)
        if is_only and parts[-len(table_parts) :] == table_parts:
            return name
    return None


class CombinedBlock(QueryBlock):
    """UNION, INTERSECT or EXCEPT of two queries, or one query in parentheses with ORDER BY, LIMIT or the like outside.

    Columns correspond by position. Only UNION ALL keeps every row whatever its values are; elsewhere all columns count.
    """

    def __init__(self, parts: tuple[QueryBlock, ...], keeps_rows: bool) -> None:
        self._parts = parts
        self._keeps_rows = keeps_rows
        self.names = parts[0].names

    def read(self, requested: RequestedColumns) -> None:
        """Read the columns at the positions of the requested ones."""
        for part in self._parts:
            part.read(_map_requested(self.names, part.names, requested) if self._keeps_rows else EVERY)


def _map_requested(outer: ColumnNames, inner: ColumnNames, requested: RequestedColumns) -> RequestedColumns:
    """Return the inner names of the columns at the positions of the requested ones."""
    if requested is EVERY or outer is UNKNOWN or inner is UNKNOWN or len(outer) != len(inner):
        return EVERY
    pairs = zip(outer, inner, strict=True)
    return frozenset(inner_name.lower() for name, inner_name in pairs if name.lower() in requested)


_READ_ALWAYS = ("where", "group", "having", "sort", "cluster", "distribute", "qualify", "windows", "laterals", "limit")
_COLUMN_PARTS = ("this", "table", "db", "catalog")
# Clauses around a query that depend on all of its rows.
_WHOLE_RESULT_CLAUSES = ("limit", "offset", "order", "sort", "cluster", "distribute", "sample")


def trace_tables(query: exp.Expr, tables: Mapping[str, Schema], any_qualifier: bool = False) -> Statement:
    """Return what a query reads of these tables, and the conditions there.

    Raises:
        StatementError: ``unsupported`` or ``unknown-column``.

    Only the used columns of a derived table are requested; it accepts conditions that may be applied to its rows:

    >>> from layoutopt.model.schema import Column
    >>> from layoutopt.sql.dialect import parse_statement
    >>> schema = Schema(tuple(Column(name, "int") for name in "abcd"))
    >>> query = parse_statement("SELECT q.a FROM (SELECT * FROM t WHERE b > 1) q LEFT JOIN u ON q.c = 2 WHERE q.d = 3")
    >>> statement = trace_tables(query, {"t": schema})
    >>> (item,) = statement.scans
    >>> sorted(item.columns)
    ['a', 'b', 'c', 'd']
    >>> [(placed.condition.sql(), placed.mode.name) for placed in statement.conditions[item]]
    [('b > 1', 'FREE'), ('(("t"."d") = 3)', 'FREE')]
    """
    uses = Counter(table.name.lower() for table in query.root().find_all(exp.Table))
    statement = Statement(tables, any_qualifier, uses)
    _build_block(query, statement, None, {}).read(EVERY)
    return statement


def _build_block(query: exp.Expr, statement: Statement, outer: Scope | None, environment: Environment) -> QueryBlock:
    """Build the block of a query; nothing is read yet.

    The query may use names of the scope ``outer``, and common tables of the environment.
    """
    environment = _with_common_tables(query, statement, environment)
    needs_all_rows = any(query.args.get(key) for key in _WHOLE_RESULT_CLAUSES)
    if isinstance(query, exp.Subquery):
        inner = _build_block(query.this, statement, outer, environment)
        return CombinedBlock((inner,), keeps_rows=False) if needs_all_rows else inner
    if isinstance(query, exp.SetOperation):
        left = _build_block(query.this, statement, outer, environment)
        right = _build_block(query.expression, statement, outer, environment)
        keeps_rows = isinstance(query, exp.Union) and not query.args.get("distinct") and not needs_all_rows
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
        visible = {**extended, name: _RECURSIVE} if clause.args.get("recursive") else dict(extended)
        columns = tuple(column.name for column in entry.args["alias"].args.get("columns") or ())
        extended[name] = CommonTable(entry.this, visible, columns, statement.uses.get(name, 0) > 1)
    return extended


# A recursive common table inside its own definition: its rows are those of the scans outside the recursion.
_RECURSIVE = CommonTable(exp.Values(expressions=[]), {}, (), shared=True, block=QueryBlock())


@dataclass(frozen=True)
class _FromReader:
    """A reader of one SELECT's FROM clause; builds a tree of joins."""

    select: exp.Select
    statement: Statement
    outer: Scope | None
    environment: Environment

    def read(self) -> Source | None:
        clause = self.select.args.get("from_")
        if clause is None:
            return None
        return self._read_joins(self._read_source(clause.this), self.select.args.get("joins") or ())

    def _read_joins(self, source: Source, joins: Sequence[exp.Join]) -> Source:
        for join in joins:
            # PIVOT and UNPIVOT apply to all that precedes them in FROM; sqlglot attaches them to the last relation.
            if join.args.get("pivots") or join.this.args.get("pivots"):
                raise StatementError("unsupported", "PIVOT or UNPIVOT follows a join; put the join in a subquery")
            using = tuple(column.name for column in join.args.get("using") or ())
            natural = (join.args.get("method") or "").upper() == "NATURAL"
            right = self._read_source(join.this, source)
            source = JoinNode(join_kind(join), source, right, join.args.get("on"), using, natural)
        return source

    def _read_source(self, node: exp.Expr, left: Source | None = None) -> Source:
        nested = node.args.get("joins") or ()
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table) and self._is_only_parentheses(node):
            return self._read_joins(self._read_source(node.this), nested)
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            return self._read_joins(self._read_table(node), nested)
        return self._read_joins(self._read_derived(node, left), nested)

    def _is_only_parentheses(self, node: exp.Subquery) -> bool:
        """Return whether parentheses around tables have no alias, sample or pivot of their own."""
        if not node.alias and not any(node.args.get(key) for key in ("sample", "pivots")):
            return True
        if any(self.statement.find_table(table) is not None for table in node.find_all(exp.Table)):
            text = node.sql("spark")[:80]
            raise StatementError("unsupported", f"an alias, sample or pivot of {text!r} in parentheses is unsupported")
        return False

    def _read_table(self, node: exp.Table) -> FromItem:
        common = self.environment.get(node.name.lower()) if len(node.parts) == 1 else None
        if common is not None:
            return self._read_common_table(node, common)
        name = self.statement.find_table(node)
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

    def _read_common_table(self, node: exp.Table, common: CommonTable) -> FromItem:
        block = common.block or _build_block(common.query, self.statement, None, common.environment)
        if common.shared:
            common.block = block
        return _block_item(node, block, tuple(node.alias_column_names) or common.columns, frozen=common.shared)

    def _read_derived(self, node: exp.Expr, left: Source | None) -> FromItem:
        if isinstance(node, exp.Lateral):
            # It may use the columns of what precedes it.
            preceding = Scope(self.select, left, visible_columns(left), self.outer)
            return _block_item(node, _build_block(node.this, self.statement, preceding, self.environment), ())
        columns = tuple(node.alias_column_names)
        if isinstance(node, exp.Subquery):
            return _block_item(node, _build_block(node, self.statement, self.outer, self.environment), columns)
        # VALUES, table functions
        return FromItem(node.alias, names=UNKNOWN if node.args.get("pivots") else columns or UNKNOWN)


def _block_item(node: exp.Expr, block: QueryBlock, columns: tuple[str, ...], frozen: bool = False) -> FromItem:
    is_pivoted = bool(node.args.get("pivots"))
    frozen = frozen or is_pivoted or bool(node.args.get("sample"))
    return FromItem(
        node.alias_or_name, query=block, names=UNKNOWN if is_pivoted else columns or block.names, frozen=frozen
    )


def _lateral_view_item(view: exp.Expr) -> FromItem:
    """Return the from-item of a LATERAL VIEW: its columns can be named, but no table is read through it."""
    alias = view.args.get("alias")
    columns = tuple(column.name for column in alias.args.get("columns") or ()) if alias else ()
    return FromItem(view.alias_or_name, names=columns or UNKNOWN)


class _SelectBlock(QueryBlock):
    """One SELECT. The first ``read`` reads its clauses; after that it accepts no condition."""

    def __init__(self, select: exp.Select, statement: Statement, outer: Scope | None, environment: Environment) -> None:
        self._select = select
        self._statement = statement
        self._environment = environment
        self._visited: set[int] = set()
        self._pushed: list[exp.Expr] = []
        self._has_read = False
        # By the identity of their nodes, and the facts of joins.
        self._subqueries: dict[int, QueryBlock] = {}
        self._facts_in_on: dict[JoinNode, list[Fact]] = {}
        self._source = _FromReader(select, statement, outer, environment).read()
        laterals = [_lateral_view_item(view) for view in select.args.get("laterals") or ()]
        self._scope = Scope(select, self._source, visible_columns(self._source, laterals), outer)
        self.names = self._scope.output_names()

    def read(self, requested: RequestedColumns) -> None:
        """Record the columns of the SELECT list (only requested ones of a ``*``), and once those of all clauses."""
        if self._needs_all():
            requested = EVERY
        for projection in self._select.expressions:
            if projection.is_star:
                self._read_star(projection, requested)
            else:
                # An engine reads every column that the text names, even if nothing above uses it.
                self._record(projection)
        if not self._has_read:
            self._has_read = True
            self._read_clauses()
            self._place_conditions()
        # From right to left: a LATERAL item reads columns of the items before it.
        for item in reversed(list(from_items(self._source))):
            if item.query is not None:
                used = frozenset(name.lower() for name in item.columns)
                item.query.read(_map_requested(item.names, item.query.names, used))

    def _needs_all(self) -> bool:
        """Return whether columns that nothing above uses decide which rows there are."""
        group, order = self._select.args.get("group"), self._select.args.get("order")
        by_all = order is not None and any(isinstance(key.this, exp.Var) for key in order.expressions)
        return bool(self._select.args.get("distinct") or (group is not None and group.args.get("all")) or by_all)

    def _read_star(self, projection: exp.Expr, requested: RequestedColumns) -> None:
        for part in projection.find_all(exp.Column):
            if not isinstance(part.this, exp.Star):
                self._record(part)  # * EXCEPT (a), * REPLACE (a + 1 AS a)
        self._record_struct_star(projection)
        excluded = excluded_names(projection) or set()
        for attribute in self._scope.expand_star(projection):
            folded = (attribute.name or "").lower()
            if folded not in excluded and (requested is EVERY or folded in requested):
                _read_columns(attribute.columns)

    def _read_clauses(self) -> None:
        for key in _READ_ALWAYS:
            clause = self._select.args.get(key)
            for node in clause if isinstance(clause, list) else [clause]:
                if isinstance(node, exp.Expr):
                    self._record(node, ordinals=key == "group")
        if self._select.args.get("order"):
            self._record(self._select.args["order"], aliases_first=True, ordinals=True)
        for clause in [self._select.args.get("from_"), *(self._select.args.get("joins") or ())]:
            for table in clause.find_all(exp.Table) if isinstance(clause, exp.Expr) else ():
                if not isinstance(table.this, exp.Identifier) and table.find_ancestor(exp.Select) is self._select:
                    self._record(table.this)  # the arguments of a table function
            for lateral in clause.find_all(exp.Lateral) if isinstance(clause, exp.Expr) else ():
                if not isinstance(lateral.this, exp.Query) and lateral.find_ancestor(exp.Select) is self._select:
                    self._record(lateral.this)
        for join in joins(self._source):
            self._read_join(join)

    def _read_join(self, join: JoinNode) -> None:
        if join.on is not None:
            self._record(join.on, scope=self._scope.for_join(join))
        left, right = list(from_items(join.left)), list(from_items(join.right))
        names = set(join.using)
        if join.natural:
            names |= {name for item in left + right for name in item.known_names}
        for item in left + right:
            opposite = right if item in left else left
            for name in names:
                if item.has(name) and (not join.natural or any(i.has(name) is not False for i in opposite)):
                    item.read(name)

    def _record(
        self, node: exp.Expr, aliases_first: bool = False, ordinals: bool = False, scope: Scope | None = None
    ) -> None:
        """Record all columns of an expression, and read its subqueries; ``scope`` defaults to this block's."""
        if id(node) in self._visited:
            return
        self._visited.add(id(node))
        scope = scope or self._scope
        for part in node.walk(prune=lambda inner: isinstance(inner, exp.Query)):
            if isinstance(part, exp.Query):
                inner = self._subqueries[id(part)] = _build_block(part, self._statement, scope, self._environment)
                inner.read(frozenset() if isinstance(part.parent, exp.Exists) else EVERY)
            elif isinstance(part, exp.Column):
                self._record_column(part, aliases_first, scope)
            elif isinstance(part, exp.Star) and not isinstance(part.parent, exp.Column | exp.Count):
                self._record_star()
            elif ordinals and isinstance(part, exp.Literal) and isinstance(part.parent, exp.Group | exp.Ordered):
                self._record_ordinal(part)

    def _record_column(self, column: exp.Column, aliases_first: bool, scope: Scope) -> None:
        if isinstance(column.this, exp.Star):
            self._record_struct_star(column)
            for attribute in self._scope.expand_star(column):
                _read_columns(attribute.columns)
        elif not (aliases_first and len(column.parts) == 1 and scope.find_alias(column.name) is not None):
            # The expression of an alias is recorded with the SELECT list.
            _read_columns(scope.resolve(column).columns)

    def _record_star(self) -> None:
        for attribute in self._scope.expand_star(exp.Star()):
            _read_columns(attribute.columns)

    def _record_struct_star(self, projection: exp.Expr) -> None:
        """Record the struct column of ``t.*``, if t may be a struct."""
        qualifier = star_qualifier(projection)
        columns = self._scope.expand_star(projection)
        if qualifier and not any(column.matches_qualifier(qualifier) for column in columns):
            parts = [exp.to_identifier(part, quoted=True) for part in reversed(qualifier)]
            _read_columns(self._scope.resolve(exp.Column(**dict(zip(_COLUMN_PARTS, parts, strict=False)))).columns)

    def _record_ordinal(self, literal: exp.Literal) -> None:
        projections = self._select.expressions
        if any(projection.is_star for projection in projections):
            self._record_star()
        elif not literal.is_string and literal.name.isdigit() and 1 <= int(literal.name) <= len(projections):
            self._record(projections[int(literal.name) - 1])

    def _place_conditions(self) -> None:
        where = self._select.args.get("where")
        for condition in [*(split_conjuncts(where.this) if where else ()), *self._pushed]:
            self._add_conditions(_place_above(self._source, condition, self._scope))
        for join in joins(self._source):
            for condition in split_conjuncts(join.on) if join.on is not None else ():
                self._add_conditions(_place_in_on(join, condition, self._scope.for_join(join)))
        facts = self.facts()
        inferred = infer_facts(facts)
        for fact in inferred:
            self._add_inferred(fact, partial(_place_above, self._source))
        self._infer_in_joins(self._source, [*facts, *inferred])

    def facts(self) -> list[Fact]:
        """Return what is TRUE for every row that WHERE keeps."""
        where = self._select.args.get("where")
        conditions = [*(split_conjuncts(where.this) if where else ()), *self._pushed]
        subqueries = [fact for condition in conditions for fact in self._read_subquery_facts(condition)]
        return [*read_facts(conditions, self._scope), *subqueries, *self._join_facts(self._source)]

    def _read_subquery_facts(self, condition: exp.Expr) -> list[Fact]:
        """Return what IN or EXISTS says of the subquery's row that makes it TRUE."""
        condition = condition.unnest()
        query = condition.args.get("query" if isinstance(condition, exp.In) else "this")
        block = self._subqueries.get(id(query))
        if not isinstance(condition, exp.In | exp.Exists) or not isinstance(block, _SelectBlock):
            return []
        outputs = [projection.unalias() for projection in block._select.expressions]
        if isinstance(condition, exp.Exists):
            # An aggregate has a row even where there is none to aggregate.
            has_rows = all(isinstance(output, exp.Column | exp.Literal | exp.Star) for output in outputs)
            return block.facts() if has_rows and not any(map(block._select.args.get, ("group", "having"))) else []
        sides = [*read_facts([condition.this], self._scope), *read_facts(outputs, block._scope)]
        equality = exp.EQ(this=condition.this.copy(), expression=outputs[0].copy())
        columns = {value: column for side in sides for value, column in side.columns.items()}
        return [Fact(equality, columns), *block.facts()]

    def _join_facts(self, source: Source | None) -> list[Fact]:
        """Return what the ON of joins says of every row of a source."""
        if not isinstance(source, JoinNode):
            return []
        is_in_rows = set(_IN_ON[source.kind]) == {Mode.FREE}
        facts = list(self._on_facts(source)) if is_in_rows else []
        for side, limit in zip((source.left, source.right), _ABOVE[source.kind], strict=True):
            facts += self._join_facts(side) if limit == Mode.FREE else ()
        return facts

    def _on_facts(self, join: JoinNode) -> list[Fact]:
        """Return what the ON, or USING, of a join says of each pair of rows that it joins."""
        if join not in self._facts_in_on:
            scope = self._scope.for_join(join)
            keys = [[_column_expression(key, scope) for key in pair] for pair in using_keys(join)]
            equalities = [exp.EQ(this=left, expression=right) for left, right in keys if left and right]
            conditions = [*(split_conjuncts(join.on) if join.on is not None else ()), *equalities]
            self._facts_in_on[join] = list(read_facts(conditions, scope))
        return self._facts_in_on[join]

    def _infer_in_joins(self, source: Source | None, facts: Sequence[Fact]) -> None:
        """Add what facts about the rows of a source that count imply for the sides of its joins."""
        if not isinstance(source, JoinNode):
            return
        sides = (source.left, source.right)
        kept = {item for side, limit in zip(sides, _ABOVE[source.kind], strict=True) if limit == Mode.FREE
                for item in from_items(side)}  # fmt: skip
        facts = [fact for fact in facts if fact.items <= kept]
        on = self._on_facts(source)
        inferred = infer_facts([*facts, *on, *self._join_facts(source.left), *self._join_facts(source.right)])
        for fact in inferred:
            self._add_inferred(fact, partial(_place_in_on, source))
        for side, mode in zip(sides, _IN_ON[source.kind], strict=True):
            items = set(from_items(side))
            holding = [*facts, *on, *inferred] if mode == Mode.FREE else facts
            self._infer_in_joins(side, [fact for fact in holding if fact.items <= items])

    def _add_inferred(
        self, fact: Fact, place: Callable[[exp.Expr, Scope], Iterable[tuple[FromItem, PlacedCondition]]]
    ) -> None:
        ((_, scope),) = fact.columns.values()
        for item, placed in place(fact.condition, scope):
            conditions = self._statement.conditions.get(item, ())
            is_new = not any(other.mode == placed.mode and other.condition == placed.condition for other in conditions)
            if placed.mode != Mode.BLOCKED and is_new:
                placed = replace(placed, is_inferred=True, crosses_types=fact.crosses_types)
                self._add_conditions([(item, placed)])

    def _add_conditions(self, placed_conditions: Iterable[tuple[FromItem, PlacedCondition]]) -> None:
        """Store conditions by from-item; push those on a derived table alone to its query."""
        for item, placed in placed_conditions:
            self._statement.conditions.setdefault(item, []).append(placed)
            is_free = placed.mode == Mode.FREE and not placed.crosses_types
            if item.query is not None and is_free and placed.scope.reads_only(placed.condition, item):
                item.query.push_condition(placed.condition, item.names)

    def find_type(self, name: str, names: ColumnNames) -> str | None:
        """Return the type of a column of the result that is a column of its sources."""
        output = (_outputs_by_name(self._select, self._scope, names) or {}).get(name.lower())
        value = self._scope.find_value(output) if isinstance(output, exp.Column) else None
        return None if value is None or isinstance(value[0], str) else value[0][0].find_type(value[0][1])

    def push_condition(self, condition: exp.Expr, names: ColumnNames) -> None:
        """Accept a condition if filtering this SELECT's rows first gives the same result."""
        rewritten = None if self._has_read else _rewrite_to_source(condition, self._select, self._scope, names)
        if rewritten is not None:
            self._pushed.append(rewritten)


def _read_columns(columns: Iterable[ColumnRef]) -> None:
    for item, name in columns:
        item.read(name)
