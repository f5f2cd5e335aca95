"""FROM clauses: the join tree of a SELECT, with a block for each derived and common table in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from layoutopt.sql.problems import StatementError
from layoutopt.sql.scopes.names import Names
from layoutopt.sql.scopes.queries import CommonTable, Environment, QueryBlock, Statement
from layoutopt.sql.scopes.sources import JoinNode, Leaf, Source, join_kind, match_table

BuildQuery = Callable[[exp.Expr, "Names | None", Environment], QueryBlock]


@dataclass(frozen=True)
class FromReader:
    """Reads one SELECT's FROM clause.

    Attributes:
        statement: what all blocks share.
        environment: the common tables that may be named.
        outer: the names that a derived table may use.
        lateral: the names that a LATERAL subquery may use: those of what stands to its left.
        build: makes the block of a query, given the names around it and the common tables that it may name.
    """

    statement: Statement
    environment: Environment
    outer: Names | None
    lateral: Callable[[Source | None], Names]
    build: BuildQuery

    def read(self, select: exp.Select) -> Source | None:
        """The join tree; None without FROM."""
        clause = select.args.get("from_")
        return None if clause is None else self._joined(self._source(clause.this), select.args.get("joins") or ())

    def _joined(self, source: Source, joined: Sequence[exp.Join]) -> Source:
        for join in joined:
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
        known, any_qualifier = self.statement.tables, self.statement.any_qualifier
        if any(match_table(table, known, any_qualifier) is not None for table in node.find_all(exp.Table)):
            raise StatementError("unsupported", f"{node.sql('spark')[:80]!r} is more than parentheses around tables")
        return False

    def _table(self, node: exp.Table) -> Leaf:
        common = self.environment.get(node.name.lower()) if len(node.parts) == 1 else None
        if common is not None:
            return self._common_table(node, common)
        name = match_table(node, self.statement.tables, self.statement.any_qualifier)
        leaf = Leaf(node.alias_or_name, reference=node)
        if name is None:
            return leaf
        if node.args.get("version") or node.args.get("when"):
            raise StatementError("unsupported", f"{node.sql('spark')!r} reads another version of the table")
        leaf.table, leaf.schema = name, self.statement.tables[name]
        leaf.names = leaf.schema.names
        leaf.frozen = bool(node.args.get("sample"))
        if node.args.get("pivots") or node.alias_column_names:
            leaf.read_all()
            leaf.names, leaf.frozen = None, True
        self.statement.scans.append(leaf)
        return leaf

    def _common_table(self, node: exp.Table, common: CommonTable) -> Leaf:
        if common.shared and common.block is None:
            common.block = self.build(common.query, None, common.environment)
        block = common.block or self.build(common.query, None, common.environment)
        columns = tuple(node.alias_column_names) or common.columns
        return _over(node, block, columns, frozen=common.shared)

    def _derived(self, node: exp.Expr, left: Source | None) -> Leaf:
        if isinstance(node, exp.Lateral):
            return _over(node, self.build(node.this, self.lateral(left), self.environment), ())
        if isinstance(node, exp.Subquery):
            return _over(node, self.build(node, self.outer, self.environment), tuple(node.alias_column_names))
        # VALUES, table functions
        return Leaf(node.alias, names=None if node.args.get("pivots") else tuple(node.alias_column_names) or None)


def _over(node: exp.Expr, block: QueryBlock, columns: tuple[str, ...], frozen: bool = False) -> Leaf:
    pivoted = bool(node.args.get("pivots"))
    names = None if pivoted else columns or block.names
    frozen = frozen or pivoted or bool(node.args.get("sample"))
    return Leaf(node.alias_or_name, query=block, names=names, frozen=frozen)


def lateral_view(view: exp.Expr) -> Leaf:
    """The leaf of a LATERAL VIEW: its columns can be named, but no table is read through it."""
    alias = view.args.get("alias")
    columns = tuple(column.name for column in alias.args.get("columns") or ()) if alias else ()
    return Leaf(view.alias_or_name, names=columns or None)
