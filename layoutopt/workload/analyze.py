"""A query log to the model's queries: one for each scan of the table, and a reason for each statement without one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from sqlglot import exp

from layoutopt.errors import LogError
from layoutopt.model.document import SkippedStatement
from layoutopt.model.feature import Settings
from layoutopt.model.query import Query
from layoutopt.model.schema import Schema
from layoutopt.sql.dialect import parse_statement
from layoutopt.sql.problems import StatementError
from layoutopt.sql.scans import TableScan, scans_of
from layoutopt.workload.log import LogEntry

UNUSABLE: Final = "unusable:"
"""What stands before the code of a condition that a filter leaves out, in the counts of an analysis."""


@dataclass(frozen=True)
class Analysis:
    """What a log says of one table.

    Attributes:
        table: the table's name.
        queries: one for each scan, in the log's order; the scans of one statement share its id.
        skipped: the statements without a query, in the log's order.
        counts: how many ``statements`` there were, how many were ``used`` and ``skipped``, how many ``scans`` they
            hold; ``skipped:CODE`` for each reason, and ``unusable:CODE`` for the conditions that filters leave out.
    """

    table: str
    queries: tuple[Query, ...]
    skipped: tuple[SkippedStatement, ...]
    counts: Mapping[str, int]


def analyze(
    entries: Iterable[LogEntry],
    schema: Schema,
    table: str | None = None,
    dialect: str = "spark",
    settings: Settings | None = None,
    deterministic_udfs: Collection[str] = (),
) -> Analysis:
    """The queries of a log that read a table.

    Args:
        entries: the log's statements.
        schema: the table's columns.
        table: the table's name in the texts, with or without a qualifier; when left out, the name that most
            statements read.
        dialect: the texts'.
        settings: the session's; Spark's defaults in UTC when left out.
        deterministic_udfs: names of boolean functions that are deterministic and never fail.

    Raises:
        LogError: no statement can be used; the message says why the first one can't.
        SettingError: unknown dialect.
    """
    entries = list(entries)
    name = table if table is not None else _most_read(entries, dialect)
    queries: list[Query] = []
    skipped: list[SkippedStatement] = []
    counts: Counter[str] = Counter(statements=len(entries), used=0, skipped=0, scans=0)
    scans_in = _Scans({name: schema}, dialect, settings or Settings(), deterministic_udfs)
    for entry in entries:
        try:
            scans = scans_in.entry(entry)
        except StatementError as problem:
            skipped.append(SkippedStatement(entry.id, problem.code, problem.detail, entry.sql))
            counts.update(["skipped", f"skipped:{problem.code}"])
            continue
        counts.update(["used"])
        counts.update(scans=len(scans))
        counts.update(UNUSABLE + condition.code for scan in scans for condition in scan.unusable)
        queries += [_query(entry, scan) for scan in scans]
    if not queries:
        why = f"; the first: {skipped[0].detail}" if skipped else ""
        if skipped and skipped[0].reason == "parse-error":
            why += f"; if the log is not in the dialect {dialect!r}, name its own by --dialect"
        raise LogError(f"no statement of the log can be used on the table {name!r}{why}")
    return Analysis(name, tuple(queries), tuple(skipped), dict(sorted(counts.items())))


class _Scans:
    """Finds the scans of a log's statements; a text that comes again is not analysed again."""

    def __init__(self, tables: Mapping[str, Schema], dialect: str, settings: Settings, udfs: Collection[str]) -> None:
        self._table = next(iter(tables))
        self._of_text = cache(
            lambda sql: tuple(
                scans_of(sql, tables, dialect, settings=settings, deterministic_udfs=udfs, any_qualifier=True)
            )
        )

    def entry(self, entry: LogEntry) -> tuple[TableScan, ...]:
        """The scans of one statement.

        Raises:
            StatementError: it can't be used.
        """
        if entry.problem:
            raise StatementError("bad-record", entry.problem)
        scans = self._of_text(entry.sql)
        if not scans:
            raise StatementError("no-table", f"the statement does not read the table {self._table!r}")
        return scans


def _query(entry: LogEntry, scan: TableScan) -> Query:
    return Query(
        id=entry.id,
        table=scan.table,
        columns=scan.columns,
        filter=scan.filter,
        weight=entry.count,
        timestamp=entry.timestamp,
        user=entry.user,
        sql=entry.sql,
        exact=scan.exact,
    )


def _most_read(entries: Iterable[LogEntry], dialect: str) -> str:
    """The table that most statements name; of several, the one named first."""
    names: Counter[str] = Counter()
    spelled: dict[str, str] = {}
    for entry in entries:
        try:
            tree = parse_statement(entry.sql, dialect)
        except StatementError:
            continue
        common = {each.alias.lower() for each in tree.find_all(exp.CTE)}
        found = {table.name for table in tree.find_all(exp.Table)}
        for name in sorted(found):
            if name and name.lower() not in common:
                spelled.setdefault(name.lower(), name)
                names[name.lower()] += 1
    if not names:
        raise LogError(
            "no statement of the log reads a table; name the table by --table, or the log's dialect by --dialect"
        )
    return spelled[names.most_common(1)[0][0]]
