"""Query blocks: which columns each SELECT of a statement reads from each table, and which conditions hold there.

A block reads its FROM clause into a tree of joins, with a block of its own for each query in it. It asks those for the
columns that it uses and no others, and places the conjuncts of WHERE and ON on the from-items of its tree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from layoutopt.model.schema import Schema
from layoutopt.sql.filters import conjuncts
from layoutopt.sql.problems import StatementError
from layoutopt.sql.scopes.from_items import (
    EVERY,
    UNKNOWN,
    ColumnNames,
    FromItem,
    JoinNode,
    QueryBlock,
    Source,
    Wanted,
    from_items,
    join_kind,
    joins,
)
from layoutopt.sql.scopes.pushdown import Mode, Placed, place, place_on, pushed_condition
from layoutopt.sql.scopes.queries import (
    CombinedBlock,
    CommonTable,
    Environment,
    Statement,
    corresponding,
)
from layoutopt.sql.scopes.scope import Scope, excepted_from, star_qualifier
from layoutopt.sql.scopes.shown import Holder, shown_by

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
