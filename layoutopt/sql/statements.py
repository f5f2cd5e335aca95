"""What statements read: each kind of statement as the queries whose tables and conditions it has.

A change of another table reads like a query: ``DELETE FROM o WHERE k IN (SELECT a FROM t)`` reads ``t``. Such a query
has the statement's own nodes, so that places in the text stay known, but its result has no meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from sqlglot import exp

from layoutopt.sql.problems import StatementError

# The verb that changes an optimised table as a statement asks for.
_VERBS: Final[dict[type[exp.Expr], str]] = {
    exp.Delete: "delete", exp.Update: "update", exp.Merge: "merge", exp.Insert: "append",
}  # fmt: skip


def list_queries(tree: exp.Expr, is_known: Callable[[exp.Table], bool]) -> list[exp.Expr]:
    """Return the queries that a statement consists of, to find what it reads.

    Args:
        tree: the statement; it is not changed.
        is_known: whether a reference means a table whose scans are looked for: such a table is no target of changes.

    Raises:
        StatementError: ``not-a-query``.

    >>> from layoutopt.sql.dialect import parse_statement
    >>> def show(text):
    ...     return [query.sql() for query in list_queries(parse_statement(text), lambda table: table.name == "t")]
    >>> show("DELETE FROM o WHERE k IN (SELECT a FROM t)")
    ['SELECT 1 FROM o WHERE k IN (SELECT a FROM t)']
    >>> show("MERGE INTO o USING t ON t.a = o.k WHEN NOT MATCHED THEN INSERT *")
    ['SELECT * FROM t LEFT JOIN o ON t.a = o.k']
    >>> show("FROM t INSERT INTO p SELECT a WHERE a > 1 INSERT INTO q SELECT b")
    ['SELECT a FROM t WHERE a > 1', 'SELECT b FROM t']
    """
    if isinstance(tree, exp.Query):
        return [tree]
    if isinstance(tree, exp.MultitableInserts):
        parts = [insert.expression for insert in tree.expressions]
        if isinstance(tree.args.get("source"), exp.Table | exp.Subquery) and all(map(_lacks_source, parts)):
            return [_with_common(_copy_select(part, tree.args["source"]), tree) for part in parts]
    elif isinstance(tree, exp.Insert | exp.Create | exp.Cache):
        query = tree.expression if tree.expression is not None else tree.args.get("source")
        if isinstance(query, exp.Table):
            return [_with_common(exp.Select(expressions=[exp.Star()], from_=exp.From(this=query.copy())), tree)]
        if isinstance(query, exp.Query):
            return [_with_common(query, tree)]
    elif isinstance(tree, exp.Delete | exp.Update | exp.Merge) and not is_known(tree.this):
        return [_with_common(_read_merge(tree) if isinstance(tree, exp.Merge) else _read_change(tree), tree)]
    verb = next((verb for kind, verb in _VERBS.items() if isinstance(tree, kind)), None)
    hint = f"; use `layoutopt {verb}`" if verb else "; write SELECT"
    raise StatementError("not-a-query", f"{tree.sql('spark')[:60]!r} is not a query{hint}")


def _lacks_source(query: exp.Expr | None) -> bool:
    return isinstance(query, exp.Select) and query.args.get("from_") is None


def _copy_select(select: exp.Select, source: exp.Expr) -> exp.Select:
    copied: exp.Select = select.copy()
    copied.set("from_", exp.From(this=source.copy()))
    return copied


def _with_common(query: exp.Expr, statement: exp.Expr) -> exp.Expr:
    """Return a query with the common tables that stand before the statement; its own ones come after them."""
    clause = statement.args.get("with_")
    if clause is None:
        return query
    copied, own = query.copy(), query.args.get("with_")
    entries = [entry.copy() for part in (clause, own) if part is not None for entry in part.expressions]
    is_recursive = any(part is not None and part.args.get("recursive") for part in (clause, own))
    copied.set("with_", exp.With(expressions=entries, recursive=is_recursive))
    return copied


def _read_change(tree: exp.Expr) -> exp.Select:
    """Return what DELETE or UPDATE reads: the new values of the rows that the condition selects."""
    sources = [*(tree.args.get("using") or ()), *([tree.args["from_"].this] if tree.args.get("from_") else ())]
    values = [part.expression.copy() for part in tree.expressions if isinstance(part, exp.EQ)]
    where = tree.args.get("where")
    return exp.Select(
        expressions=values or [exp.Literal.number(1)],
        from_=exp.From(this=tree.this.copy()),
        joins=[exp.Join(this=source.copy()) for source in sources],
        where=None if where is None else where.copy(),
    )


def _read_merge(tree: exp.Merge) -> exp.Select:
    """Return what MERGE reads: a join that keeps the rows of either side for which there is an action."""
    whens = tree.args["whens"].expressions
    keeps_source = any(not when.args.get("matched") and not when.args.get("source") for when in whens)
    keeps_target = any(when.args.get("source") for when in whens)
    side = {(True, True): "FULL", (True, False): "LEFT", (False, True): "RIGHT"}.get((keeps_source, keeps_target))
    values = [value.copy() for when in whens for value in _list_values(when)]
    return exp.Select(
        expressions=values or [exp.Literal.number(1)],
        from_=exp.From(this=tree.args["using"].copy()),
        joins=[exp.Join(this=tree.this.copy(), side=side, on=tree.args["on"].copy())],
    )


def _list_values(when: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the expressions of a WHEN: its condition, and the values that it writes."""
    condition, then = when.args.get("condition"), when.args["then"]
    if condition is not None:
        yield condition
    if isinstance(then, exp.Update):
        yield from (part.expression if isinstance(part, exp.EQ) else exp.Star() for part in then.expressions)
    elif isinstance(then, exp.Insert):
        is_listed = isinstance(then.expression, exp.Tuple)
        yield from then.expression.expressions if is_listed else [exp.Star()]
