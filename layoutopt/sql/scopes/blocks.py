"""Query blocks: which columns each SELECT of a statement reads from each table, and which conditions hold there.

A block asks its derived tables for the columns that it uses and no others, and places the conjuncts of WHERE and ON on
the leaves of its join tree.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from layoutopt.sql.filters import conjuncts
from layoutopt.sql.scopes.from_clause import FromReader, lateral_view
from layoutopt.sql.scopes.names import Names, excepted_from, star_qualifier
from layoutopt.sql.scopes.pushdown import pushed_condition
from layoutopt.sql.scopes.queries import ClosedBlock, CommonTable, Environment, QueryBlock, Statement, UnionBlock
from layoutopt.sql.scopes.shown import Holder
from layoutopt.sql.scopes.sources import JoinNode, Leaf, joins, leaves, place, place_on

_READ_ALWAYS = ("where", "group", "having", "sort", "cluster", "distribute", "qualify", "windows", "laterals", "limit")
_COLUMN_PARTS = ("this", "table", "db", "catalog")
_AROUND = ("limit", "offset", "order", "sort", "cluster", "distribute", "sample")


def build(query: exp.Expr, statement: Statement, outer: Names | None, environment: Environment) -> QueryBlock:
    """The block of a query; nothing is read yet.

    Args:
        query: a SELECT, a set operation, or one of them in parentheses; of others the tables can't be seen.
        statement: what all blocks share.
        outer: the names around the query that it may use.
        environment: the common tables that it may name.

    Raises:
        StatementError: ``unsupported``.
    """
    environment = _with_common_tables(query, statement, environment)
    changed = any(query.args.get(key) for key in _AROUND)
    if isinstance(query, exp.Subquery):
        inner = build(query.this, statement, outer, environment)
        return ClosedBlock(inner) if changed else inner
    if isinstance(query, exp.SetOperation):
        left = build(query.this, statement, outer, environment)
        right = build(query.expression, statement, outer, environment)
        keeps_rows = isinstance(query, exp.Union) and not query.args.get("distinct") and not changed
        return UnionBlock((left, right), keeps_rows)
    if isinstance(query, exp.Select):
        return SelectBlock(query, statement, outer, environment)
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


class SelectBlock(QueryBlock):
    """One SELECT.

    Attributes:
        names: the columns that it returns.
    """

    def __init__(self, select: exp.Select, statement: Statement, outer: Names | None, environment: Environment) -> None:
        self._select = select
        self._statement = statement
        self._environment = environment
        self._seen: set[int] = set()
        self._pushed: list[exp.Expr] = []
        self._read_once = False
        self._source = FromReader(
            statement,
            environment,
            outer,
            lambda left: Names(select, left, outer),
            lambda query, around, visible: build(query, statement, around, visible),
        ).read(select)
        laterals = [lateral_view(view) for view in select.args.get("laterals") or ()]
        self._names = Names(select, self._source, outer, laterals)
        self.names = self._names.outputs()

    def read(self, required: frozenset[str] | None) -> None:
        """Note the columns of the SELECT list (of a ``*`` only what is required), and once those of all clauses."""
        if self._needs_all():
            required = None
        for projection in self._select.expressions:
            if projection.is_star:
                self._read_star(projection, required)
            else:
                # Named in the text, so an engine asks for it, even where nothing above uses it.
                self._note(projection)
        if not self._read_once:
            self._read_once = True
            self._read_clauses()
            self._place_conditions()
        for leaf in leaves(self._source):
            if leaf.query is not None:
                leaf.query.read(_required_of(leaf))

    def _needs_all(self) -> bool:
        """Whether columns that nothing above uses decide which rows there are."""
        group, order = self._select.args.get("group"), self._select.args.get("order")
        by_all = order is not None and any(isinstance(each.this, exp.Var) for each in order.expressions)
        return bool(self._select.args.get("distinct") or (group is not None and group.args.get("all")) or by_all)

    def _read_star(self, projection: exp.Expr, required: frozenset[str] | None) -> None:
        for part in projection.find_all(exp.Column):
            if not isinstance(part.this, exp.Star):
                self._note(part)  # * EXCEPT (a), * REPLACE (a + 1 AS a)
        self._note_struct_star(projection)
        excepted = excepted_from(projection) or set()
        for each in self._names.starred(projection):
            folded = (each.name or "").lower()
            if folded not in excepted and (required is None or folded in required):
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
        for join in joins(self._source):
            self._read_join(join)

    def _read_join(self, join: JoinNode) -> None:
        if join.on is not None:
            self._note(join.on, names=self._names.within(join))
        left, right = list(leaves(join.left)), list(leaves(join.right))
        names = set(join.using)
        if join.natural:
            names |= {name for leaf in left + right for name in leaf.names or ()}
        for leaf in left + right:
            for name in names:
                others = right if leaf in left else left
                if leaf.has(name) and (not join.natural or any(each.has(name) is not False for each in others)):
                    leaf.read(name)

    def _note(
        self, node: exp.Expr, aliases_first: bool = False, ordinals: bool = False, names: Names | None = None
    ) -> None:
        """Note all columns in an expression, and read its subqueries; ``names`` are this block's unless told."""
        if id(node) in self._seen:
            return
        self._seen.add(id(node))
        names = names or self._names
        for part in node.walk(prune=lambda inner: isinstance(inner, exp.Query)):
            if isinstance(part, exp.Query):
                inner = build(part, self._statement, names, self._environment)
                inner.read(frozenset() if isinstance(part.parent, exp.Exists) else None)
            elif isinstance(part, exp.Column):
                self._note_column(part, aliases_first, names)
            elif isinstance(part, exp.Star) and not isinstance(part.parent, exp.Column | exp.Count):
                self._note_star()
            elif ordinals and isinstance(part, exp.Literal) and isinstance(part.parent, exp.Group | exp.Ordered):
                self._note_ordinal(part)

    def _note_column(self, column: exp.Column, aliases_first: bool, names: Names) -> None:
        if isinstance(column.this, exp.Star):
            self._note_struct_star(column)
            for each in self._names.starred(column):
                _read(each.columns)
        elif not (aliases_first and len(column.parts) == 1 and names.alias(column.name) is not None):
            # What an alias stands for is noted with the SELECT list.
            _read(names.resolve(column).columns)

    def _note_star(self) -> None:
        for each in self._names.starred(exp.Star()):
            _read(each.columns)

    def _note_struct_star(self, projection: exp.Expr) -> None:
        """Of ``t.*``, note what has the fields where t may be a struct."""
        qualifier = star_qualifier(projection)
        if qualifier and not any(each.prefixed(qualifier) for each in self._names.starred(projection)):
            parts = [exp.to_identifier(part, quoted=True) for part in reversed(qualifier)]
            _read(self._names.resolve(exp.Column(**dict(zip(_COLUMN_PARTS, parts, strict=False)))).columns)

    def _note_ordinal(self, literal: exp.Literal) -> None:
        projections = self._select.expressions
        if any(projection.is_star for projection in projections):
            self._note_star()
        elif not literal.is_string and literal.name.isdigit() and 1 <= int(literal.name) <= len(projections):
            self._note(projections[int(literal.name) - 1])

    def _place_conditions(self) -> None:
        where = self._select.args.get("where")
        for condition in [*(conjuncts(where.this) if where else ()), *self._pushed]:
            place(self._source, condition, self._names)
        for join in joins(self._source):
            for condition in conjuncts(join.on) if join.on is not None else ():
                place_on(join, condition, self._names.within(join))
        for leaf in leaves(self._source):
            self._hand_down(leaf)

    def _hand_down(self, leaf: Leaf) -> None:
        """Give conditions on a derived table alone to the query that derives it."""
        if leaf.query is None or leaf.frozen:
            return
        for placed in leaf.conditions:
            if placed.way == "free" and placed.names.only(placed.condition, leaf):
                leaf.query.accept(placed.condition, leaf.names)

    def accept(self, condition: exp.Expr, names: tuple[str, ...] | None) -> bool:
        """Take over a condition on this SELECT's result where filtering its rows first gives the same result."""
        rewritten = None if self._read_once else pushed_condition(condition, self._select, self._names, names)
        if rewritten is not None:
            self._pushed.append(rewritten)
        return rewritten is not None


def _read(columns: Iterable[Holder]) -> None:
    for leaf, name in columns:
        leaf.read(name)


def _required_of(leaf: Leaf) -> frozenset[str] | None:
    """The output columns that are needed of a derived table, by its own names."""
    block = leaf.query
    if block is None or leaf.names is None or block.names is None or len(leaf.names) != len(block.names):
        return None
    pairs = zip(leaf.names, block.names, strict=True)
    return frozenset(theirs.lower() for ours, theirs in pairs if ours in leaf.columns)
