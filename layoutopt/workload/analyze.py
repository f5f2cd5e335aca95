"""A query log to the model's queries: one for each scan of the table, and a reason for each statement without one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from layoutopt.errors import LogError
from layoutopt.model.documents import SkippedStatement
from layoutopt.model.feature import Settings
from layoutopt.model.query import Query
from layoutopt.model.schema import Schema
from layoutopt.model.udf import NO_UDFS, Udfs
from layoutopt.sql.bind_log import bound_text
from layoutopt.sql.dialect import guess_dialect
from layoutopt.sql.problems import StatementError
from layoutopt.sql.scans import TableScan, scans_of, tables_named
from layoutopt.workload.entries import LogEntry

UNUSABLE: Final = "unusable:"
"""What stands before the code of a condition that a filter leaves out, in the counts of an analysis."""

_TRIED = 20
"""A dialect is guessed from so many statements."""


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
    udfs: Udfs = NO_UDFS,
) -> Analysis:
    """The queries of a log that read a table.

    Args:
        entries: the log's statements.
        schema: the table's columns.
        table: the table's name in the texts, with or without a qualifier; when left out, the name that most
            statements read.
        dialect: the texts'.
        settings: the session's; Spark's defaults in UTC when left out.
        udfs: the deterministic functions that the user declared, by name.

    Raises:
        LogError: no statement can be used; the message says why the first one can't.
        SettingError: unknown dialect.
    """
    entries = list(entries)
    name = table if table is not None else _most_read(entries, dialect)
    queries: list[Query] = []
    skipped: list[SkippedStatement] = []
    counts: Counter[str] = Counter(statements=len(entries), used=0, skipped=0, scans=0)

    @cache
    def scans_of_text(sql: str, own: str) -> list[TableScan]:
        return scans_of(
            sql,
            {name: schema},
            own,
            settings=settings,
            udfs=udfs,
            any_qualifier=True,
        )

    zone = Settings().time_zone if settings is None else settings.time_zone
    for entry in entries:
        try:
            if entry.problem:
                raise StatementError(entry.code, entry.problem)
            own = entry.dialect or dialect
            scans = scans_of_text(*bound_text(entry.sql, own, entry.timestamp, entry.parameters, zone))
            if not scans:
                raise StatementError("no-table", f"the statement does not read the table {name!r}")
        except StatementError as problem:
            skipped.append(SkippedStatement(entry.id, problem.code, problem.detail, entry.sql))
            counts.update(["skipped", f"skipped:{problem.code}"])
            continue
        counts.update(["used"])
        counts.update(scans=len(scans))
        counts.update(UNUSABLE + condition.code for scan in scans for condition in scan.unusable)
        logged = (entry.count, entry.timestamp, entry.user, entry.sql)
        queries += [Query(entry.id, name, scan.columns, scan.filter, *logged, scan.exact) for scan in scans]
    if not queries:
        why = f"; the first: {skipped[0].detail}" if skipped else ""
        if table is not None and skipped and skipped[0].reason == "no-table":
            why += f"; the log reads {_most_read(entries, dialect)!r}: name it with --table if that is meant"
        why += _dialect_hint([each.sql for each in skipped if each.reason == "parse-error"], dialect)
        raise LogError(f"no statement of the log can be used on the table {name!r}{why}")
    return Analysis(name, tuple(queries), tuple(skipped), dict(sorted(counts.items())))


def _most_read(entries: Iterable[LogEntry], dialect: str) -> str:
    """The table that most statements name; of several, the one named first."""
    names: Counter[str] = Counter()
    spelled: dict[str, str] = {}
    unreadable = []
    for entry in entries:
        if entry.problem:
            continue
        try:
            found = tables_named(entry.sql, entry.dialect or dialect)
        except StatementError:
            unreadable.append(entry.sql)
            continue
        for name in found:
            spelled.setdefault(name.lower(), name)
            names[name.lower()] += 1
    if not names:
        hint = _dialect_hint(unreadable, dialect) or "; name the table or check the log's dialect (--dialect)"
        raise LogError(f"no statement of the log reads a table{hint}")
    return spelled[names.most_common(1)[0][0]]


def _dialect_hint(unreadable: Sequence[str], dialect: str) -> str:
    """What to do about statements that can't be parsed; nothing where there are none."""
    if not unreadable:
        return ""
    guess = guess_dialect(list(dict.fromkeys(unreadable))[:_TRIED])
    advice = f"--dialect {guess} reads them" if guess and guess != dialect else "name the log's own with --dialect"
    return f"; {len(unreadable)} can't be read in the dialect {dialect}: {advice}"
