"""Reading a query log: ``.sql``, ``.jsonl`` and ``.csv`` files into entries, one a statement."""

from __future__ import annotations

import csv
import datetime as dt
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import IO, Final

import numpy as np

from layoutopt import extensions
from layoutopt.errors import LogError
from layoutopt.model.arrays import Floats
from layoutopt.model.query import Query
from layoutopt.sql.dialect import is_readable, split_statements
from layoutopt.sql.problems import Unusable
from layoutopt.sql.types import zone_of
from layoutopt.workload.entries import LogEntry, one_statement
from layoutopt.workload.history import DAMAGED, SUFFIXES, SYSTEMS, Record, Weigh, entries_of, guess_system, records_of

__all__ = ["LogEntry", "read_log"]

_DEFAULT_COLUMN = "sql"
_SAMPLE = 20
"""So many lines of a log without ``;`` tell whether each is a statement."""
_SHOWN = 6
_RECORDS: Final = (".json", ".parquet")
"""Files of records that are no lines of text."""
_STATEMENT = re.compile(r"(select|with|insert|create)\b", re.IGNORECASE)
_LOGGER = logging.getLogger("layoutopt.workload")


def read_log(
    path: str | Path,
    *,
    column: str | None = None,
    dialect: str = "spark",
    system: str | None = None,
    weigh: Weigh = "runs",
) -> Iterator[LogEntry]:
    """The statements of a log, in order.

    ``.sql`` holds statements with ``;`` between them. A file without any ``;`` that is no single statement is read by
    line, if most of its lines are statements; a warning on the logger ``layoutopt.workload`` says so. ``.jsonl`` holds
    an object a line with ``sql`` and optionally ``timestamp``, ``user`` and ``count``. ``.csv`` has a header line;
    ``column`` names the one with the text (``sql`` when left out), the same optional columns count. A damaged record
    becomes an entry with a ``problem``.

    A query history as a system exports it (:mod:`layoutopt.workload.history`) is known by its fields, unless ``column``
    says where the text is; ``.json`` and ``.parquet`` hold records, too. Its texts have the system's own dialect.

    Args:
        path: the file.
        column: the name of the field with the text.
        dialect: of texts that don't say.
        system: the history's, where its fields don't tell.
        weigh: what a statement of a history weighs.

    Raises:
        LogError: the file can't be read, is of another kind, has no such column, holds no record at all, or says no
            bytes, which are to be weighed.
        SettingError: unknown dialect.
    """
    path = Path(path)
    suffix = path.suffix.casefold()
    if system is not None or (column is None and suffix in SUFFIXES):
        found = _history_of(path, system)
        if found is not None:
            yield from entries_of(records_of(path), found, weigh)
            return
    _check_is_log(path)
    if weigh == "bytes":
        raise LogError(f"the log {str(path)!r} is no system's history, which says what it scanned; leave --weigh out")
    empty = True
    try:
        if suffix in _RECORDS:
            for entry in _read_records(records_of(path), column or _DEFAULT_COLUMN):
                empty = False
                yield entry
            if empty:
                raise LogError(f"the log {str(path)!r} holds no query; give one with at least one statement")
            return
        reader = extensions.find("log_formats", suffix, _READERS, "log format")
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
            for entry in reader(stream, column or _DEFAULT_COLUMN, dialect):
                empty = False
                yield entry
    except OSError as error:
        raise LogError(f"the log {str(path)!r} can't be read ({error.strerror}); check the path") from error
    except csv.Error as error:
        raise LogError(f"the log {str(path)!r} is no CSV file ({error}); export it again") from error
    if empty:
        raise LogError(f"the log {str(path)!r} holds no query; give one with at least one statement")


def _check_is_log(path: Path) -> None:
    known = (*extensions.names("log_formats", _READERS), *_RECORDS)
    if path.suffix.casefold() not in known:
        listed = f"{', '.join(known[:-1])} or {known[-1]}"
        if path.is_dir():
            raise LogError(f"the log {str(path)!r} is a folder; name one {listed} file")
        raise LogError(
            f"the log {str(path)!r} is no {listed} file; rename or convert it, or say --from spark-events if it is "
            "an event log of Spark's"
        )


def _history_of(path: Path, asked: str | None) -> str | None:
    """The system that a file is a history of; None where it is none.

    Raises:
        LogError: it is asked for, and not one of that system.
    """
    names: set[str] = set()
    for record in islice(records_of(path), _SAMPLE):
        names |= record.keys() - {DAMAGED}
    if asked is None:
        return guess_system(frozenset(names))
    expected = SYSTEMS[asked].text if asked != "spark-events" else ("event",)
    if names.isdisjoint(expected):
        guessed = guess_system(frozenset(names))
        shown = ", ".join(sorted(names)[:_SHOWN]) or "no record that can be read"
        has = f"it looks like one of {guessed}" if guessed else f"it has {shown}"
        raise LogError(f"the log {str(path)!r} is no history of {asked}, which has a field {expected[0]!r}: {has}")
    return asked


def _read_records(records: Iterable[Record], column: str) -> Iterator[LogEntry]:
    for number, record in enumerate(records):
        yield _entry(number, dict(record), column.lower())


def _read_sql(stream: IO[str], column: str, dialect: str) -> Iterator[LogEntry]:
    statements = split_statements(stream.read(), dialect)
    if len(statements) == 1:
        statements = _one_a_line(statements[0], dialect)
    for number, sql in enumerate(statements):
        yield LogEntry(number, sql)


def _one_a_line(text: str, dialect: str) -> list[str]:
    """The statements of a text without ``;``: its lines, where it can't be read as a whole and most of them can."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("--")]
    sample = lines[:_SAMPLE]
    if len(lines) < 2 or is_readable(text, dialect):
        return [text]
    if sum(bool(_STATEMENT.match(line)) and is_readable(line, dialect) for line in sample) <= len(sample) / 2:
        return [text]
    _LOGGER.warning("the log has no ';' between statements; each of its %d lines was read as one", len(lines))
    return lines


def _read_jsonl(stream: IO[str], column: str, dialect: str) -> Iterator[LogEntry]:
    lines = (line for line in stream if line.strip())
    for number, line in enumerate(lines):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield LogEntry(number, line.strip(), problem=f"the record is not JSON: {error}")
            continue
        if isinstance(record, dict):
            yield _entry(number, record, column)
        else:
            yield LogEntry(number, line.strip(), problem="the record is no JSON object")


def _read_csv(stream: IO[str], column: str, dialect: str) -> Iterator[LogEntry]:
    # Query texts are long: the default limit of 128 KB a field is for tables.
    csv.field_size_limit(1 << 30)
    reader = csv.DictReader(stream)
    names = reader.fieldnames or ()
    if names and column not in names:
        raise LogError(
            f"the log has no column {column!r}; its columns are {', '.join(names)}: name the one with the SQL"
        )
    for number, record in enumerate(reader):
        yield _entry(number, record, column)


def _entry(number: int, record: dict[str, object], column: str) -> LogEntry:
    sql = record.get(column)
    if not isinstance(sql, str) or not sql.strip():
        there = ", ".join(list(record)[:_SHOWN])
        has = f", it has {there}: --column names the one with the SQL" if there and column not in record else ""
        problem = record.get(DAMAGED, f"the record has no text in {column!r}{has}")
        return LogEntry(number, "", problem=str(problem))
    count = _count(record.get("count"))
    if count is None:
        return LogEntry(number, sql, problem=f"the record's count {record.get('count')!r} is no positive number")
    return LogEntry(number, one_statement(sql), _text(record.get("timestamp")), _text(record.get("user")), count)


def _count(value: object) -> float | None:
    if value is None or value == "":
        return 1.0
    try:
        count = float(str(value))
    except ValueError:
        return None
    return count if 0 < count < float("inf") else None


def _text(value: object) -> str | None:
    return None if value is None or value == "" else str(value)


LogReader = Callable[[IO[str], str, str], Iterator[LogEntry]]
"""Reads an open log: the stream, the name of the column or key with the SQL, and the dialect."""
_READERS: Final[Mapping[str, LogReader]] = MappingProxyType(
    {".sql": _read_sql, ".jsonl": _read_jsonl, ".csv": _read_csv}
)


# ----------------------------------------------------------------------------------------------------
# Statements that count less the older they are, so that what a log says follows what people ask now.

FORGOTTEN: Final = 20.0
"""After so many half-lives a statement, which is worth a millionth then, counts no more."""


def decayed(queries: Sequence[Query], half_life: dt.timedelta, time_zone: str = "UTC") -> tuple[Query, ...]:
    """The queries with weights that halve with each half-life that they are older than the newest one.

    Those of more than :data:`FORGOTTEN` half-lives are left out.

    Args:
        queries: of one log, in any order, each with the time when it ran.
        half_life: longer than nothing.
        time_zone: of times without one.

    Raises:
        LogError: a statement has no time, or one that can't be read.
    """
    times = times_of(queries, time_zone)
    ages = (times.max(initial=0.0) - times) / half_life.total_seconds()
    return tuple(
        replace(query, weight=query.weight * 0.5**age)
        for query, age in zip(queries, ages.tolist(), strict=True)
        if age <= FORGOTTEN
    )


def times_of(queries: Sequence[Query], time_zone: str = "UTC") -> Floats:
    """When each query ran, in seconds since 1970, ``float64[n_queries]``.

    Raises:
        LogError: a statement has no time, or one that can't be read; or the zone's clocks are not known.
    """
    try:
        zone = zone_of(time_zone)
    except Unusable as error:
        raise LogError(f"{error}, so times without one can't be read; name a region, as Europe/Prague") from error
    return np.array([_seconds(query, zone) for query in queries], dtype=np.float64)


def _seconds(query: Query, zone: dt.tzinfo) -> float:
    try:
        moment = dt.datetime.fromisoformat(query.timestamp or "")
    except ValueError:
        has = f"the timestamp {query.timestamp!r}" if query.timestamp else "no timestamp"
        raise LogError(
            f"statement {query.id} of the log has {has}; give each the time when it ran, like 2026-11-22T10:00:00"
        ) from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)).timestamp()
