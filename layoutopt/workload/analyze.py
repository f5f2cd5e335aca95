"""Turn a query log into the model's queries: one for each scan of the table, or a reason for each skipped statement."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np

from layoutopt.errors import LogError
from layoutopt.model.feature import SessionSettings
from layoutopt.model.features_document import SkippedStatement
from layoutopt.model.query import Query, draw_by_weight
from layoutopt.model.schema import Schema
from layoutopt.model.udf import NO_UDFS, Udfs
from layoutopt.sql.bind_log import bind_text
from layoutopt.sql.dialect import get_dialect, guess_dialect, split_statements
from layoutopt.sql.problems import StatementError
from layoutopt.sql.scans import TableScan, qualified_names, table_names
from layoutopt.sql.templates import ScanFinder, take_constants
from layoutopt.workload.entries import LogEntry

# The prefixes, in the counts of an analysis, of the code of a skipped statement, and of a condition that a filter
# leaves out.
_SKIPPED: Final = "skipped:"
UNUSABLE: Final = "unusable:"
_NO_TABLE: Final = "no-table"

# Skipped statements that are kept with their texts; more are only counted.
MOST_SKIPPED: Final = 1_000
# Statements by which a dialect is guessed.
_GUESSING_STATEMENTS = 20


@dataclass(frozen=True)
class Analysis:
    """The queries of a log on one table.

    Attributes:
        queries: one for each scan, in the log's order; the scans of one statement share its id.
        skipped: the first statements without a query, at most :data:`MOST_SKIPPED`.
        counts: how many ``statements`` there were, how many were ``used`` and ``skipped``, how many ``scans`` they
            hold, how many queries were ``sampled`` if not all; ``skipped:CODE`` for each reason, and ``unusable:CODE``
            for the conditions that filters leave out, estimated if queries were sampled.
    """

    table: str
    queries: tuple[Query, ...]
    skipped: tuple[SkippedStatement, ...]
    counts: Mapping[str, int]

    @property
    def reasons(self) -> dict[str, int]:
        """Return :func:`skip_reasons` of the counts."""
        return skip_reasons(self.counts)


def skip_reasons(counts: Mapping[str, int]) -> dict[str, int]:
    """Return why statements were skipped, given the counts of an analysis: reason code -> how many, most first."""
    reasons = {key.removeprefix(_SKIPPED): count for key, count in counts.items() if key.startswith(_SKIPPED)}
    return dict(sorted(reasons.items(), key=lambda item: -item[1]))


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
        sample: return at most so many queries, drawn by weight, and read the conditions of these alone; by default
            all.

    Raises:
        LogError: no statement can be used; the message has the problem of the first one.
        SettingError: unknown dialect.
    """
    entries = check_log(entries, dialect)
    taken = _take_skeletons(entries, dialect)
    skeletons = _count_skeletons(entries, taken)
    name = table if table is not None else _find_most_read_table(skeletons, dialect)
    in_schema = None if "." in name else _find_most_read_schema(skeletons, name)
    read_as = name if in_schema is None else f"{in_schema}.{name}"
    finder = ScanFinder({read_as: schema, name: schema}, settings, udfs, any_qualifier=True)
    reader = _StatementReader(finder, read_as, dialect, (settings or SessionSettings()).time_zone)
    queries: list[Query] = []
    unusable: dict[str, float] = {}
    drawn: Iterable[tuple[LogEntry, Mapping[int, float] | None]] = ((entry, None) for entry in entries)
    if sample is not None:
        drawn = _draw_scans(entries, taken, reader, sample)
    for entry, weights in drawn:
        scans = reader.read(entry, is_counted=weights is not None)
        for number, weight in _weigh_scans(len(scans), entry.count, weights).items():
            scan = scans[number]
            logged = (weight, entry.timestamp, entry.user, entry.sql)
            queries.append(Query(entry.id, name, scan.columns, scan.filter, *logged, scan.exact))
            for condition in scan.unusable:
                unusable[condition.code] = unusable.get(condition.code, 0) + weight / entry.count
    counts, skipped = Counter({"statements": len(entries), **reader.counts}), reader.skipped
    if not queries:
        details = f"; the first: {skipped[0].detail}" if skipped else ""
        if table is not None and skipped and skipped[0].reason == _NO_TABLE:
            read = _find_most_read_table(skeletons, dialect)
            details = f": the log reads {read!r}; give a log of {name!r}, or analyze and plan with --table {read}"
        unreadable = [statement.sql for statement in skipped if statement.reason == "parse-error"]
        details += _hint_dialect(unreadable, counts[_SKIPPED + "parse-error"], dialect)
        raise LogError(f"no statement of the log can be used on the table {name!r}{details}")
    counts.update({UNUSABLE + code: max(1, round(count)) for code, count in unusable.items()})
    if len(queries) < counts["scans"]:
        counts.update(sampled=len(queries))
    return Analysis(name, tuple(queries), tuple(skipped), dict(sorted(counts.items())))


def _weigh_scans(scans: int, count: float, drawn: Mapping[int, float] | None) -> Mapping[int, float]:
    """Return the weights of a statement's scans by number, if all were drawn or some."""
    if drawn is None:
        return dict.fromkeys(range(scans), count)
    weights: dict[int, float] = {}
    for number, weight in drawn.items() if scans else ():
        number = min(number, scans - 1)  # constants of another text of the kind may have folded a subquery away
        weights[number] = weights.get(number, 0.0) + weight
    return weights


class _StatementReader:
    """Reads statements' scans of a table, and keeps why others have none.

    Attributes:
        counts, skipped: as in an analysis, so far.
    """

    def __init__(self, finder: ScanFinder, table: str, dialect: str, time_zone: str) -> None:
        self._finder, self._table, self._dialect, self._time_zone = finder, table, dialect, time_zone
        self._scans: dict[_Skeleton | None, int] = {}
        self.counts: Counter[str] = Counter(used=0, skipped=0, scans=0)
        self.skipped: list[SkippedStatement] = []

    def count(self, entry: LogEntry, skeleton: _Skeleton | None) -> int:
        """Return how many scans a statement has; texts with the same skeleton have the same number."""
        count = self._scans.get(skeleton)
        if count is None:
            count = len(self.read(entry))
            if count:
                self._scans[skeleton] = count
        else:
            self.counts.update(used=1, scans=count)
        return count

    def read(self, entry: LogEntry, is_counted: bool = False) -> list[TableScan]:
        """Return a statement's scans; ``is_counted`` says whether they are counted already."""
        try:
            if entry.problem:
                raise StatementError(entry.code, entry.problem)
            scans = self._finder.find(*self._bind(entry))
            if not scans:
                raise StatementError(_NO_TABLE, f"the statement does not read the table {self._table!r}")
        except StatementError as problem:
            if not is_counted:
                self._skip(entry, problem)
            return []
        if not is_counted:
            self.counts.update(used=1, scans=len(scans))
        return scans

    def _bind(self, entry: LogEntry) -> tuple[str, str]:
        return bind_text(entry.sql, entry.dialect or self._dialect, entry.timestamp, entry.parameters, self._time_zone)

    def _skip(self, entry: LogEntry, problem: StatementError) -> None:
        self.counts.update(("skipped", _SKIPPED + problem.code))
        if len(self.skipped) < MOST_SKIPPED:
            is_own = bool(entry.problem) or problem.code == _NO_TABLE
            detail = problem.detail if is_own else self._find_detail(entry) or problem.detail
            self.skipped.append(SkippedStatement(entry.id, problem.code, detail, entry.sql))

    def _find_detail(self, entry: LogEntry) -> str | None:
        """Return what is wrong with the very text; the finder may name another one of the same template."""
        try:
            self._finder.find_whole(*self._bind(entry))
        except StatementError as problem:
            return problem.detail
        return None


def _draw_scans(
    entries: Sequence[LogEntry], skeletons: Sequence[_Skeleton | None], reader: _StatementReader, most: int
) -> Iterator[tuple[LogEntry, dict[int, float]]]:
    """Yield the statements with drawn scans, and the weight of each drawn scan by its number in the statement."""
    scans = np.array(list(map(reader.count, entries, skeletons)), dtype=np.int64)
    statements = np.repeat(np.arange(len(entries)), scans)
    first = np.cumsum(scans) - scans
    places, weights = draw_by_weight(np.repeat([entry.count for entry in entries], scans), most)
    drawn: dict[int, dict[int, float]] = {}
    for place, statement, weight in zip(places, statements[places], weights, strict=True):
        drawn.setdefault(int(statement), {})[int(place - first[statement])] = float(weight)
    yield from ((entries[statement], chosen) for statement, chosen in drawn.items())


def check_log(entries: Iterable[LogEntry], dialect: str) -> list[LogEntry]:
    """Return the entries of a log, one for each statement: a record may have several.

    Raises:
        LogError: no record has a statement.
        SettingError: unknown dialect.
    """
    get_dialect(dialect)
    records = list(entries)
    entries = [entry for record in records for entry in _split_record(record, dialect)]
    if len(entries) > len(records):
        entries = [replace(entry, id=number) for number, entry in enumerate(entries)]
    if entries and all(entry.problem for entry in entries):
        raise LogError(f"no record of the log has a statement; the first: {entries[0].problem}")
    return entries


def _split_record(record: LogEntry, dialect: str) -> list[LogEntry]:
    """Return an entry for each statement of a record; values of parameters by place belong to one statement only."""
    if record.problem or ";" not in record.sql or (record.parameters and not isinstance(record.parameters, Mapping)):
        return [record]
    statements = split_statements(record.sql, record.dialect or dialect)
    return [replace(record, sql=sql) for sql in statements] if len(statements) > 1 else [record]


# A text without its constants, and its dialect.
_Skeleton: TypeAlias = tuple[str, str]
# A text of each skeleton, and how many there are.
_Skeletons: TypeAlias = Mapping[_Skeleton, tuple[str, int]]


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
        hint = _hint_dialect(unreadable, len(unreadable), dialect) or "; give a log of queries with FROM"
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


def _take_skeletons(entries: Iterable[LogEntry], dialect: str) -> list[_Skeleton | None]:
    """Return each statement's skeleton, equal ones as one object; None for a damaged record."""
    known: dict[_Skeleton, _Skeleton] = {}

    def take(entry: LogEntry) -> _Skeleton:
        skeleton = take_constants(entry.sql)[0], entry.dialect or dialect
        return known.setdefault(skeleton, skeleton)

    return [None if entry.problem else take(entry) for entry in entries]


def _count_skeletons(entries: Iterable[LogEntry], skeletons: Iterable[_Skeleton | None]) -> _Skeletons:
    counts: dict[_Skeleton, tuple[str, int]] = {}
    for entry, skeleton in zip(entries, skeletons, strict=True):
        if skeleton is not None:
            text, count = counts.get(skeleton, (entry.sql, 0))
            counts[skeleton] = text, count + 1
    return counts


def _hint_dialect(unreadable: Sequence[str], count: int, dialect: str) -> str:
    """Return what to do about so many texts that can't be read, given some of them."""
    if not unreadable:
        return ""
    guess = guess_dialect(list(dict.fromkeys(unreadable))[:_GUESSING_STATEMENTS])
    advice = f"--dialect {guess} reads them" if guess and guess != dialect else "name the log's own with --dialect"
    return f"; {count} can't be read in the dialect {dialect}: {advice}"
