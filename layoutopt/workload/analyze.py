"""Turn a query log into the model's queries: one for each scan of the table, or a reason for each skipped statement."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias

from layoutopt.errors import LogError
from layoutopt.model.feature import SessionSettings
from layoutopt.model.features_document import SkippedStatement
from layoutopt.model.query import Query, sample_queries
from layoutopt.model.schema import Schema
from layoutopt.model.udf import NO_UDFS, Udfs
from layoutopt.sql.bind_log import bind_text
from layoutopt.sql.dialect import get_dialect, guess_dialect
from layoutopt.sql.problems import StatementError
from layoutopt.sql.scans import qualified_names, table_names
from layoutopt.sql.templates import ScanFinder, take_constants
from layoutopt.workload.entries import LogEntry

# The prefix, in the counts of an analysis, of the code of a condition that a filter leaves out.
UNUSABLE: Final = "unusable:"

# Queries are thinned to a sample whenever there are so many times more, so that a long log takes little memory.
_GROUPS: Final = 10
# Statements by which a dialect is guessed.
_GUESSING_STATEMENTS = 20


@dataclass(frozen=True)
class Analysis:
    """The queries of a log on one table.

    Attributes:
        queries: one for each scan, in the log's order; the scans of one statement share its id.
        skipped: the statements without a query, in the log's order.
        counts: how many ``statements`` there were, how many were ``used`` and ``skipped``, how many ``scans`` they
            hold, how many queries were ``sampled`` if not all; ``skipped:CODE`` for each reason, and ``unusable:CODE``
            for the conditions that filters leave out.
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
    settings: SessionSettings | None = None,
    udfs: Udfs = NO_UDFS,
    sample: int | None = None,
) -> Analysis:
    """Return the queries of a log that read a table.

    Args:
        table: the table's name in the texts, with or without a qualifier; by default the name that most statements
            read. Where tables of several schemas have the name and no schema is given, it is the schema's that most
            statements read, and the one without a schema.
        settings: the session's; Spark's defaults in UTC by default.
        udfs: the user's deterministic functions, by name.
        sample: return at most so many queries, drawn by weight; by default all.

    Raises:
        LogError: no statement can be used; the message has the problem of the first one.
        SettingError: unknown dialect.
    """
    entries = check_log(entries, dialect)
    skeletons = _count_skeletons(entries, dialect)
    name = table if table is not None else _find_most_read_table(skeletons, dialect)
    in_schema = None if "." in name else _find_most_read_schema(skeletons, name)
    read_as = name if in_schema is None else f"{in_schema}.{name}"
    groups: list[Sequence[Query]] = []
    queries: list[Query] = []
    skipped: list[SkippedStatement] = []
    counts: Counter[str] = Counter(statements=len(entries), used=0, skipped=0, scans=0)

    finder = ScanFinder({read_as: schema, name: schema}, settings, udfs, any_qualifier=True)
    zone = SessionSettings().time_zone if settings is None else settings.time_zone
    for entry in entries:
        try:
            if entry.problem:
                raise StatementError(entry.code, entry.problem)
            own_dialect = entry.dialect or dialect
            scans = finder.find(*bind_text(entry.sql, own_dialect, entry.timestamp, entry.parameters, zone))
            if not scans:
                raise StatementError("no-table", f"the statement does not read the table {read_as!r}")
        except StatementError as problem:
            skipped.append(SkippedStatement(entry.id, problem.code, problem.detail, entry.sql))
            counts.update(["skipped", f"skipped:{problem.code}"])
            continue
        counts.update(["used"])
        counts.update(scans=len(scans))
        counts.update(UNUSABLE + condition.code for scan in scans for condition in scan.unusable)
        logged = (entry.count, entry.timestamp, entry.user, entry.sql)
        if sample is not None and len(queries) >= _GROUPS * sample:
            groups.append(sample_queries(queries, sample))
            queries = []
        queries += [Query(entry.id, name, scan.columns, scan.filter, *logged, scan.exact) for scan in scans]
    queries = [query for group in groups for query in group] + queries
    if not queries:
        details = f"; the first: {skipped[0].detail}" if skipped else ""
        if table is not None and skipped and skipped[0].reason == "no-table":
            read = _find_most_read_table(skeletons, dialect)
            details = f": the log reads {read!r}; give a log of {name!r}, or analyze and plan with --table {read}"
        details += _hint_dialect([statement.sql for statement in skipped if statement.reason == "parse-error"], dialect)
        raise LogError(f"no statement of the log can be used on the table {name!r}{details}")
    if sample is not None and (groups or len(queries) > sample):
        queries = list(sample_queries(queries, sample))
        counts.update(sampled=len(queries))
    return Analysis(name, tuple(queries), tuple(skipped), dict(sorted(counts.items())))


def check_log(entries: Iterable[LogEntry], dialect: str) -> list[LogEntry]:
    """Return the entries of a log.

    Raises:
        LogError: no record has a statement.
        SettingError: unknown dialect.
    """
    get_dialect(dialect)
    entries = list(entries)
    if entries and all(entry.problem for entry in entries):
        raise LogError(f"no record of the log has a statement; the first: {entries[0].problem}")
    return entries


# A text and how many differ from it in constants alone, by skeleton and dialect.
_Skeletons: TypeAlias = Mapping[tuple[str, str], tuple[str, int]]


def _find_most_read_table(skeletons: _Skeletons, dialect: str) -> str:
    """Return the table that most statements name; of several, the one named first."""
    names: Counter[str] = Counter()
    spelled: dict[str, str] = {}
    unreadable: list[str] = []
    for (_, own_dialect), (sql, count) in skeletons.items():
        try:
            tables = table_names(sql, own_dialect)
        except StatementError:
            unreadable += [sql] * count
            continue
        for name in tables:
            spelled.setdefault(name.lower(), name)
            names[name.lower()] += count
    if not names:
        hint = _hint_dialect(unreadable, dialect) or "; give a log of queries with FROM"
        raise LogError(f"no statement of the log reads a table{hint}")
    return spelled[names.most_common(1)[0][0]]


def _find_most_read_schema(skeletons: _Skeletons, table: str) -> str | None:
    """Return the schema whose table of a name most statements read; None unless several schemas have such a table."""
    qualified = re.compile(rf"\.\W*{re.escape(table)}\b", re.IGNORECASE)
    schemas: Counter[str] = Counter()
    for (_, own_dialect), (sql, count) in skeletons.items():
        if qualified.search(sql):
            with suppress(StatementError):
                read = qualified_names(sql, own_dialect)
                schemas.update(
                    {schema.lower(): count for schema, name in read if schema and name.lower() == table.lower()}
                )
    return schemas.most_common(1)[0][0] if len(schemas) > 1 else None


def _count_skeletons(entries: Iterable[LogEntry], dialect: str) -> _Skeletons:
    counts: dict[tuple[str, str], tuple[str, int]] = {}
    for entry in entries:
        if not entry.problem:
            key = take_constants(entry.sql)[0], entry.dialect or dialect
            text, count = counts.get(key, (entry.sql, 0))
            counts[key] = text, count + 1
    return counts


def _hint_dialect(unreadable: Sequence[str], dialect: str) -> str:
    if not unreadable:
        return ""
    guess = guess_dialect(list(dict.fromkeys(unreadable))[:_GUESSING_STATEMENTS])
    advice = f"--dialect {guess} reads them" if guess and guess != dialect else "name the log's own with --dialect"
    return f"; {len(unreadable)} can't be read in the dialect {dialect}: {advice}"
