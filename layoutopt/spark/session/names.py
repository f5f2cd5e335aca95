"""What the names in a text mean to a session: tables called by path get a name, views made by a text give way to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from layoutopt.model.types import quoted
from layoutopt.spark.core.sessions import Meaning
from layoutopt.spark.session.tables import FORMAT, Registered, SessionTables, TextView, current, is_view, register_path
from layoutopt.sql.references import Kind, References, Span, references_of, splice_relations

_DEEPEST = 20  # views over views; a chain that long is an error of ours


@dataclass(frozen=True, eq=False)
class Named:
    """A text in which every optimised table is called by the name of its view.

    Attributes:
        text: the text, which Spark could run as it is.
        references: where ``text`` names tables.
        expanded: the text with the queries of views over optimised tables in the place of their names.
        tables: those registered, by the folded name that ``expanded`` has.
    """

    text: str
    references: References
    expanded: str
    tables: Mapping[str, Registered]

    @property
    def kind(self) -> Kind:
        """What the statement is."""
        return self.references.kind


def name_tables(spark: SparkSession, known: SessionTables, sql: str, meaning: Meaning) -> Named:
    """A text with plain names for all optimised tables in it, those called by path and through views included.

    Raises:
        StatementError: the text can't be parsed, or holds several statements.
        NotATableError: a path holds no table.
        CatalogError: a table's catalog is damaged.
    """
    references = references_of(sql)
    paths = {
        each.span: quoted(register_path(spark, known, each.parts[1]))
        for each in references.tables
        if len(each.parts) == 2 and each.parts[0].lower() == FORMAT and each.replaceable
    }
    if paths:
        sql = splice_relations(sql, paths)
        references = references_of(sql)
    expanded, inside = sql, references
    for _ in range(_DEEPEST if references.kind in (Kind.QUERY, Kind.WRITE) else 0):
        relations = _views_in(spark, known, inside, meaning)
        if not relations:
            break
        expanded = splice_relations(expanded, relations)
        inside = references_of(expanded)
    names = {each.parts[0].lower() for each in inside.tables if len(each.parts) == 1}
    found = {name: current(spark, known, name) for name in sorted(names)}
    tables = {name: entry for name, entry in found.items() if entry is not None}
    return Named(sql, references, expanded, tables)


def _views_in(spark: SparkSession, known: SessionTables, references: References, meaning: Meaning) -> dict[Span, str]:
    """The queries to put in the place of views."""
    relations = {}
    for each in references.tables:
        name = each.parts[0]
        view = known.views.get(name.lower()) if len(each.parts) == 1 and each.replaceable else None
        if view is None or name.lower() in references.common:
            continue
        if _still_means(spark, known, name, view, references, meaning):
            relations[each.span] = _query_of(name, view)
    return relations


def _query_of(name: str, view: TextView) -> str:
    # A comment may end the text.
    if not view.columns:
        return f"({view.text}\n)"
    names = ", ".join(quoted(each) for each in view.columns)
    return f"(SELECT * FROM ({view.text}\n) AS {quoted(name)}({names}))"


def _still_means(
    spark: SparkSession, known: SessionTables, name: str, view: TextView, around: References, meaning: Meaning
) -> bool:
    """Whether a view's text would mean in the place of its name what the view means."""
    if not is_view(spark, name, view.handle):
        known.views.pop(name.lower(), None)
        return False
    if view.meaning != meaning or around.common & view.names:
        return False
    for read, then in view.reads.items():
        if isinstance(then, TextView):
            if known.views.get(read) is not then:
                return False
            continue
        now = current(spark, known, read)
        if now is None or now.table.schema != then.table.schema:
            return False
    return True
