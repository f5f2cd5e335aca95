"""Query blocks: which columns each SELECT of a statement reads from each table, and which conditions hold there.

A block resolves names as Spark does (the FROM clause, then aliases, then outer queries), asks its derived tables for
the columns that it uses and no others, and places the conjuncts of WHERE and ON on the leaves of its join tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from layoutopt.model.schema import Schema
from layoutopt.workload.filters import conjuncts
from layoutopt.workload.problems import StatementError
from layoutopt.workload.sources import (
    JoinNode,
    Leaf,
    Source,
    join_kind,
    joins,
    leaves,
    match_table,
    place,
    place_on,
    visible_leaves,
)

_READ_ALWAYS = ("where", "group", "having", "sort", "cluster", "distribute", "qualify", "windows", "laterals", "limit")


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
    """What all blocks of one statement share.

    Attributes:
        tables: the schemas of the tables that are looked for, by name.
        any_qualifier: whether ``prod.t`` means ``t``.
        uses: how often each name (folded) stands in a FROM clause.
        scans: the leaves over those tables, with the block that each is in, in order of appearance.
    """

    tables: Mapping[str, Schema]
    any_qualifier: bool = False
    uses: dict[str, int] = field(default_factory=dict)
    scans: list[tuple[Leaf, SelectBlock]] = field(default_factory=list)


class QueryBlock:
    """A query whose tables can't be seen (VALUES and the like); the base of those whose can."""

    names: tuple[str, ...] | None = None
    """The names of the columns that it returns; None where they are unknown."""

    def read(self, required: frozenset[str] | None) -> None:
        """Note what is read for these output columns (folded names; None: all). May be called again for more."""

    def accept(self, condition: exp.Expr, names: tuple[str, ...] | None) -> bool:
        """Take over a condition on the result (which it calls ``names``), if it may be applied to the rows first."""
        return False


class UnionBlock(QueryBlock):
    """UNION, INTERSECT or EXCEPT of two queries."""

    def __init__(self, sides: tuple[QueryBlock, QueryBlock], keeps_rows: bool) -> None:
        self._sides = sides
        self._keeps_rows = keeps_rows
        self.names = sides[0].names

    def read(self, required: frozenset[str] | None) -> None:
        """Columns correspond by place; where equal rows are dropped, every column counts."""
        for side in self._sides:
            side.read(self._corresponding(side, required) if self._keeps_rows else None)

    def _corresponding(self, side: QueryBlock, required: frozenset[str] | None) -> frozenset[str] | None:
        if required is None or self.names is None or side.names is None or len(self.names) != len(side.names):
            return None
        pairs = zip(self.names, side.names, strict=True)
        return frozenset(theirs.casefold() for ours, theirs in pairs if ours.casefold() in required)


def build(query: exp.Expr, statement: Statement, parent: SelectBlock | None, environment: Environment) -> QueryBlock:
    """The block of a query; nothing is read yet."""
    environment = _with_common_tables(query, statement, environment)
    if isinstance(query, exp.Subquery):
        return build(query.this, statement, parent, environment)
    if isinstance(query, exp.SetOperation):
        left = build(query.this, statement, parent, environment)
        right = build(query.expression, statement, parent, environment)
        return UnionBlock((left, right), isinstance(query, exp.Union) and not query.args.get("distinct"))
    if isinstance(query, exp.Select):
        return SelectBlock(query, statement, parent, environment)
    return QueryBlock()


def _with_common_tables(query: exp.Expr, statement: Statement, environment: Environment) -> Environment:
    clause = query.args.get("with_")
    if clause is None:
        return environment
    extended = dict(environment)
    for entry in clause.expressions:
        name = entry.alias.casefold()
        visible = {**extended, name: _UNFOLLOWED} if clause.args.get("recursive") else dict(extended)
        columns = tuple(column.name for column in entry.args["alias"].args.get("columns") or ())
        extended[name] = CommonTable(entry.this, visible, columns, statement.uses.get(name, 0) > 1)
    return extended


# What a recursive common table means inside itself: its rows are those of the scans outside the recursion.
_UNFOLLOWED = CommonTable(exp.Values(expressions=[]), {}, (), shared=True, block=QueryBlock())


class SelectBlock(QueryBlock):
    """One SELECT.

    Attributes:
        source: its join tree; None without FROM.
        names: the columns that it returns.
    """

    def __init__(
        self, select: exp.Select, statement: Statement, parent: SelectBlock | None, environment: Environment
    ) -> None:
        self._select = select
        self._statement = statement
        self._parent = parent
        self._environment = environment
        self._seen: set[int] = set()
        self._pushed: list[exp.Expr] = []
        self._read_once = False
        self.source: Source | None = None
        clause = select.args.get("from_")
        if clause is not None:
            self.source = self._joined(self._source(clause.this), select.args.get("joins") or ())
        self._laterals = [self._lateral_view(view) for view in select.args.get("laterals") or ()]
        self.names = self._output_names()

    # --- the FROM clause

    def _joined(self, source: Source, joined: list[exp.Join] | tuple[exp.Join, ...]) -> Source:
        for join in joined:
            using = tuple(column.name for column in join.args.get("using") or ())
            natural = (join.args.get("method") or "").upper() == "NATURAL"
            source = JoinNode(join_kind(join), source, self._source(join.this), join.args.get("on"), using, natural)
        return source

    def _source(self, node: exp.Expr) -> Source:
        nested = node.args.get("joins") or ()
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table) and not node.alias:
            return self._joined(self._source(node.this), nested)
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            return self._joined(self._table(node), nested)
        return self._joined(self._derived(node), nested)

    def _table(self, node: exp.Table) -> Leaf:
        common = self._environment.get(node.name.casefold()) if len(node.parts) == 1 else None
        if common is not None:
            return self._common_table(node, common)
        name = match_table(node, self._statement.tables, self._statement.any_qualifier)
        leaf = Leaf(node.alias_or_name, reference=node)
        if name is None:
            return leaf
        if node.args.get("version") or node.args.get("when"):
            raise StatementError("unsupported", f"{node.sql('spark')!r} reads another version of the table")
        leaf.table, leaf.schema = name, self._statement.tables[name]
        leaf.names = leaf.schema.names
        leaf.frozen = bool(node.args.get("sample"))
        if node.args.get("pivots") or node.alias_column_names:
            leaf.read_all()
            leaf.names, leaf.frozen = None, True
        self._statement.scans.append((leaf, self))
        return leaf

    def _common_table(self, node: exp.Table, common: CommonTable) -> Leaf:
        if common.shared and common.block is None:
            common.block = build(common.query, self._statement, None, common.environment)
        block = common.block or build(common.query, self._statement, None, common.environment)
        columns = tuple(node.alias_column_names) or common.columns
        return self._over(node, block, columns, frozen=common.shared)

    def _derived(self, node: exp.Expr) -> Leaf:
        if isinstance(node, exp.Lateral):
            return self._over(node, build(node.this, self._statement, self, self._environment), ())
        if isinstance(node, exp.Subquery):
            block = build(node, self._statement, self._parent, self._environment)
            return self._over(node, block, tuple(node.alias_column_names))
        return Leaf(node.alias_or_name)  # VALUES, table functions

    @staticmethod
    def _over(node: exp.Expr, block: QueryBlock, columns: tuple[str, ...], frozen: bool = False) -> Leaf:
        changed = bool(node.args.get("pivots") or node.args.get("sample"))
        leaf = Leaf(node.alias_or_name, query=block, names=columns or block.names, frozen=frozen or changed)
        if node.args.get("pivots"):
            leaf.names = None
        return leaf

    @staticmethod
    def _lateral_view(view: exp.Expr) -> Leaf:
        alias = view.args.get("alias")
        columns = tuple(column.name for column in alias.args.get("columns") or ()) if alias else ()
        return Leaf(view.alias_or_name, names=columns or None)

    # --- names

    def _output_names(self) -> tuple[str, ...] | None:
        names: list[str] = []
        for projection in self._select.expressions:
            if not projection.is_star:
                names.append(projection.alias_or_name)
                continue
            for leaf in self._starred(projection):
                if leaf.names is None:
                    return None
                names += leaf.names
        excepted = self._excepted()
        return tuple(name for name in names if name.casefold() not in excepted)

    def _excepted(self) -> set[str]:
        stars = (s for p in self._select.expressions if p.is_star for s in p.find_all(exp.Star))
        return {each.name.casefold() for star in stars for each in star.args.get("except_") or ()}

    def _starred(self, projection: exp.Expr) -> list[Leaf]:
        qualifier = projection.table.casefold() if isinstance(projection, exp.Column) else ""
        visible = [*visible_leaves(self.source), *self._laterals]
        return [leaf for leaf in visible if not qualifier or leaf.alias.casefold() == qualifier]

    def resolve(self, column: exp.Column) -> tuple[list[tuple[Leaf, str]], bool]:
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

    def _chain(self) -> Iterator[SelectBlock]:
        block: SelectBlock | None = self
        while block is not None:
            yield block
            block = block._parent

    def _everything(self) -> list[Leaf]:
        return [*leaves(self.source), *self._laterals]

    def _own(self, parts: list[str]) -> list[tuple[Leaf, str]] | None:
        """The leaves of this block that have the column; empty where it is elsewhere but explained; None if not."""
        everything = self._everything()
        # the last part may be a field of a struct, so the qualifier may stand further left
        for place_of_name in range(len(parts) - 1, 0, -1):
            qualifier, name = parts[place_of_name - 1].casefold(), parts[place_of_name]
            for leaf in everything:
                if leaf.alias.casefold() == qualifier and (leaf.has(name) is not False):
                    return [(leaf, name)] if leaf.has(name) else self._over_unknown(leaf, name)
        if len(parts) > 1 and any(leaf.alias.casefold() == parts[-2].casefold() for leaf in everything):
            return None
        if len(parts) > 1:
            return [(leaf, parts[0]) for leaf in everything if leaf.has(parts[0])] or None
        return self._unqualified(parts[0], everything)

    @staticmethod
    def _over_unknown(leaf: Leaf, name: str) -> list[tuple[Leaf, str]]:
        return [(leaf, name)] if leaf.query is not None else []

    def _unqualified(self, name: str, everything: list[Leaf]) -> list[tuple[Leaf, str]] | None:
        holders = [leaf for leaf in everything if leaf.has(name)]
        if holders:
            return [(leaf, name) for leaf in holders]
        if self._alias(name) is not None:
            return []
        unknown = [leaf for leaf in everything if leaf.has(name) is None]
        if not unknown:
            return None
        # It may still be an outer query's: reading a column too many there is harmless.
        outer = [leaf for block in list(self._chain())[1:] for leaf in block._everything() if leaf.has(name)]
        return [(leaf, name) for leaf in unknown if leaf.query is not None] + [(leaf, name) for leaf in outer]

    def _alias(self, name: str) -> exp.Expr | None:
        for projection in self._select.expressions:
            if isinstance(projection, exp.Alias) and projection.alias.casefold() == name.casefold():
                return projection
        return None

    # --- reading

    def read(self, required: frozenset[str] | None) -> None:
        """Note the columns of the SELECT list (of a ``*`` only what is required), and once those of all clauses."""
        if self._select.args.get("distinct"):
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
        for leaf in leaves(self.source):
            if leaf.query is not None:
                leaf.query.read(_required_of(leaf))

    def _read_star(self, projection: exp.Expr, required: frozenset[str] | None) -> None:
        explicit = {p.alias_or_name.casefold() for p in self._select.expressions if not p.is_star}
        for part in projection.find_all(exp.Column):
            if not isinstance(part.this, exp.Star):
                self._note(part)  # * EXCEPT (a), * REPLACE (a + 1 AS a)
        for leaf in self._starred(projection):
            for name in leaf.names or ():
                folded = name.casefold()
                if folded not in self._excepted() and (required is None or (folded in required - explicit)):
                    leaf.read(name)

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
        for join in joins(self.source):
            self._read_join(join)

    def _read_join(self, join: JoinNode) -> None:
        if join.on is not None:
            self._note(join.on)
        left, right = list(leaves(join.left)), list(leaves(join.right))
        names = set(join.using)
        if join.natural:
            names |= {name for leaf in left + right for name in leaf.names or ()}
        for leaf in left + right:
            for name in names:
                others = right if leaf in left else left
                if leaf.has(name) and (not join.natural or any(each.has(name) is not False for each in others)):
                    leaf.read(name)

    def _note(self, node: exp.Expr, aliases_first: bool = False, ordinals: bool = False) -> None:
        """Note all columns in an expression, and read its subqueries."""
        if id(node) in self._seen:
            return
        self._seen.add(id(node))
        for part in node.walk(prune=lambda inner: isinstance(inner, exp.Query)):
            if isinstance(part, exp.Query):
                inner = build(part, self._statement, self, self._environment)
                inner.read(frozenset() if isinstance(part.parent, exp.Exists) else None)
            elif isinstance(part, exp.Column):
                self._note_column(part, aliases_first)
            elif isinstance(part, exp.Star) and not isinstance(part.parent, exp.Column | exp.Count):
                self._note_star()
            elif ordinals and isinstance(part, exp.Literal) and isinstance(part.parent, exp.Group | exp.Ordered):
                self._note_ordinal(part)

    def _note_column(self, column: exp.Column, aliases_first: bool) -> None:
        if isinstance(column.this, exp.Star):
            if not isinstance(column.parent, exp.Count):
                self._note_star(column)
            return
        alias = self._alias(column.name) if not column.table else None
        if aliases_first and alias is not None:
            self._note(alias)
            return
        found, _ = self.resolve(column)
        for leaf, name in found:
            leaf.read(name)
        if not found and alias is not None:
            self._note(alias)

    def _note_star(self, column: exp.Column | None = None) -> None:
        for leaf in self._starred(column or exp.Star()):
            leaf.read_all()

    def _note_ordinal(self, literal: exp.Literal) -> None:
        projections = self._select.expressions
        if any(projection.is_star for projection in projections):
            self._note_star()
        elif not literal.is_string and literal.name.isdigit() and 1 <= int(literal.name) <= len(projections):
            self._note(projections[int(literal.name) - 1])

    # --- conditions

    def _place_conditions(self) -> None:
        where = self._select.args.get("where")
        for condition in [*(conjuncts(where.this) if where else ()), *self._pushed]:
            place(self.source, condition, self.about(condition))
        for join in joins(self.source):
            for condition in conjuncts(join.on) if join.on is not None else ():
                place_on(join, condition, self.about(condition))
        for leaf in leaves(self.source):
            self._hand_down(leaf)

    def about(self, condition: exp.Expr) -> set[Leaf]:
        """The leaves of this block that a condition names; all of them for a constant one, such as ``1 = 0``."""
        named = {leaf for column in _plain_columns(condition) for leaf, _ in self.resolve(column)[0]}
        own = set(leaves(self.source))
        return named & own if condition.find(exp.Column, exp.Query) is not None else own

    def _hand_down(self, leaf: Leaf) -> None:
        """Give conditions on a derived table alone to the query that derives it."""
        if leaf.query is None or leaf.frozen:
            return
        for placed in leaf.conditions:
            if placed.way == "free" and self._names_only(placed.condition, leaf):
                leaf.query.accept(placed.condition, leaf.names)

    def _names_only(self, condition: exp.Expr, leaf: Leaf) -> bool:
        """Whether a condition is built from the columns of one leaf of this block and constants, nothing else."""
        if condition.find(exp.Query) is not None:
            return False
        found = [self.resolve(column) for column in _plain_columns(condition)]
        return all(own and [each for each, _ in holders] == [leaf] for holders, own in found)

    def accept(self, condition: exp.Expr, names: tuple[str, ...] | None) -> bool:
        """Take over a condition on this SELECT's result where filtering its rows first gives the same result."""
        args = self._select.args
        if any(args.get(key) for key in ("limit", "offset", "qualify", "having")) or self._read_once:
            return False
        outputs = self._outputs(names)
        rewritten = condition.copy()
        grouped = args.get("group") or any(p.find(exp.AggFunc) for p in self._select.expressions)
        if outputs is None or any(p.find(exp.Window) for p in self._select.expressions):
            return False
        for column in list(rewritten.find_all(exp.Column)):
            output = outputs.get(column.name.casefold())
            if output is None or (grouped and not self._is_group_key(output)):
                return False
            replacement = exp.Paren(this=output.copy())
            if column is rewritten:
                rewritten = replacement
            else:
                column.replace(replacement)
        self._pushed.append(rewritten)
        return True

    def _outputs(self, called: tuple[str, ...] | None) -> dict[str, exp.Expr] | None:
        """Folded output name -> its expression; None where they can't be told apart."""
        if called is None or self.names is None:
            return None
        expressions: list[exp.Expr] = []
        for projection in self._select.expressions:
            if not projection.is_star:
                expressions.append(projection.unalias())
            else:
                starred = [(source.alias, name) for source in self._starred(projection) for name in source.names or ()]
                expressions += [exp.column(name, table=alias or None, quoted=True) for alias, name in starred]
        names = [name.casefold() for name in called]
        if len(expressions) != len(names) or len(set(names)) != len(names) or self._excepted():
            return None
        return dict(zip(names, expressions, strict=True))

    def _is_group_key(self, output: exp.Expr) -> bool:
        group = self._select.args.get("group")
        if group is None or any(value for key, value in group.args.items() if key != "expressions"):
            return False  # no key, or GROUPING SETS, ROLLUP, CUBE: those add rows of NULLs
        return isinstance(output, exp.Column) and output in group.expressions


def _plain_columns(condition: exp.Expr) -> Iterator[exp.Column]:
    """The columns of a condition outside its subqueries."""
    for part in condition.walk(prune=lambda inner: isinstance(inner, exp.Query)):
        if isinstance(part, exp.Column) and not isinstance(part.this, exp.Star):
            yield part


def _required_of(leaf: Leaf) -> frozenset[str] | None:
    """The output columns that are needed of a derived table, by its own names."""
    block = leaf.query
    if block is None or leaf.names is None or block.names is None or len(leaf.names) != len(block.names):
        return None
    pairs = zip(leaf.names, block.names, strict=True)
    return frozenset(theirs.casefold() for ours, theirs in pairs if ours in leaf.columns)
