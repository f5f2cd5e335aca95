"""Read a query log: ``.sql``, ``.jsonl`` and ``.csv`` files and system histories into entries, one a statement."""

from __future__ import annotations

import csv
import datetime as dt
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from layoutopt.workload.entries import LogEntry, strip_statement
from layoutopt.workload.history import (
    DAMAGED,
    SUFFIXES,
    SYSTEMS,
    Weigh,
    guess_system,
    open_text,
    read_entries,
    read_records,
)

__all__ = ["LogEntry", "read_log"]

_DEFAULT_COLUMN = "sql"
# Lines of a log without ``;`` by which to decide whether each is a statement.
_SAMPLED_LINES = 20
_FIELDS_SHOWN = 6
# Files of records that are not lines of text.
_RECORD_SUFFIXES: Final = (".json", ".parquet")
_STATEMENT = re.compile(r"(select|with|insert|create)\b", re.IGNORECASE)
_LOGGER = logging.getLogger("layoutopt.workload")

# After so many half-lives a statement, worth a millionth then, no longer counts.
FORGOTTEN: Final = 20.0


def read_log(
    path: str | Path,
    *,
    column: str | None = None,
    dialect: str = "spark",
    system: str | None = None,
    weigh: Weigh = "runs",
) -> Iterator[LogEntry]:
    """Yield the statements of a log, in order.

    ``.sql`` holds statements with ``;`` between them. A file without any ``;`` that is no single statement is read by
    line, if most lines are statements; the logger ``layoutopt.workload`` warns of this. ``.jsonl`` holds an object a
    line with ``sql`` and optionally ``timestamp``, ``user`` and ``count``. ``.csv`` has a header line; ``column``
    names the one with the text, and the same optional columns count. A damaged record becomes an entry with a
    ``problem``.

    An exported query history (:mod:`layoutopt.workload.history`) is recognised by its fields, unless ``column`` is
    given; ``.json`` and ``.parquet`` hold records, too. Its texts have the system's own dialect.

    Args:
        column: the name of the field with the text; by default ``sql``.
        dialect: of texts without one of their own.
        system: the history's, where its fields are ambiguous.
        weigh: the weight of a statement of a history.

    Raises:
        LogError: the file can't be read, is of another kind, has no such column, holds no record at all, or has no
            bytes to weigh.
        SettingError: unknown dialect.
    """
    path = Path(path)
    suffix = path.suffix.casefold()
    if system is not None or (column is None and suffix in SUFFIXES):
        history_system = _find_system(path, system)
        if history_system is not None:
            yield from read_entries(read_records(path), history_system, weigh)
            return
    _check_is_log(path)
    if weigh == "bytes":
        raise LogError(f"the log {str(path)!r} is no system's history with bytes scanned: leave --weigh out")
    empty = True
    try:
        for entry in _read_entries(path, column or _DEFAULT_COLUMN, dialect):
            empty = False
            yield entry
    except OSError as error:
        raise LogError(f"the log {str(path)!r} can't be read ({error.strerror}); check the path") from error
    except csv.Error as error:
        raise LogError(f"the log {str(path)!r} is no CSV file ({error}); export it again") from error
    if empty:
        raise LogError(f"the log {str(path)!r} holds no query: expected at least one statement")


def _read_entries(path: Path, column: str, dialect: str) -> Iterator[LogEntry]:
    suffix = path.suffix.casefold()
    if suffix in _RECORD_SUFFIXES:
        for number, record in enumerate(read_records(path)):
            yield _make_entry(number, dict(record), column.lower())
        return
    reader = extensions.find("log_formats", suffix, _READERS, "log format")
    with open_text(path) as stream:
        yield from reader(stream, column, dialect)


def _check_is_log(path: Path) -> None:
    known = (*extensions.names("log_formats", _READERS), *_RECORD_SUFFIXES)
    if path.suffix.casefold() not in known:
        listed = f"{', '.join(known[:-1])} or {known[-1]}"
        if path.is_dir():
            raise LogError(f"the log {str(path)!r} is a folder: expected one {listed} file")
        raise LogError(
            f"the log {str(path)!r} is no {listed} file: rename or convert it, or give --from spark-events if it is "
            "a Spark event log"
        )


def _find_system(path: Path, system: str | None) -> str | None:
    """Return the system whose history a file is; None where it is none.

    Raises:
        LogError: ``system`` is given, and the file is not of that system.
    """
    names: set[str] = set()
    for record in islice(read_records(path), _SAMPLED_LINES):
        names |= record.keys() - {DAMAGED}
    if system is None:
        return guess_system(frozenset(names))
    expected = SYSTEMS[system].text if system != "spark-events" else ("event",)
    if names.isdisjoint(expected):
        guessed = guess_system(frozenset(names))
        shown = ", ".join(sorted(names)[:_FIELDS_SHOWN]) or "no record that can be read"
        fields = f"it looks like one of {guessed}" if guessed else f"it has {shown}"
        raise LogError(f"the log {str(path)!r} is no history of {system}, which has a field {expected[0]!r}: {fields}")
    return system


def _read_sql(stream: IO[str], column: str, dialect: str) -> Iterator[LogEntry]:
    statements = split_statements(stream.read(), dialect)
    if len(statements) == 1:
        statements = _split_lines(statements[0], dialect)
    for number, sql in enumerate(statements):
        yield LogEntry(number, sql)


def _split_lines(text: str, dialect: str) -> list[str]:
    """Return the lines of a text without ``;``, if only most of its lines can be parsed; else the whole text."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("--")]
    sample = lines[:_SAMPLED_LINES]
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
            yield _make_entry(number, record, column)
        else:
            yield LogEntry(number, line.strip(), problem="the record is no JSON object")


def _read_csv(stream: IO[str], column: str, dialect: str) -> Iterator[LogEntry]:
    # Query texts may exceed the default limit of 128 KB a field.
    csv.field_size_limit(1 << 30)
    reader = csv.DictReader(stream)
    names = reader.fieldnames or ()
    if names and column not in names:
        raise LogError(
            f"the log {str(stream.name)!r} has no column {column!r}, it has {', '.join(names)}: name the one with the "
            "SQL by --column"
        )
    for number, record in enumerate(reader):
        yield _make_entry(number, record, column)


def _make_entry(number: int, record: dict[str, object], column: str) -> LogEntry:
    sql = record.get(column)
    if not isinstance(sql, str) or not sql.strip():
        problem = record.get(DAMAGED, f"the record has no text in {column!r}{_hint_column(record, column)}")
        return LogEntry(number, "", problem=str(problem))
    count = _to_count(record.get("count"))
    if count is None:
        return LogEntry(number, sql, problem=f"the record's count {record.get('count')!r} is no positive number")
    return LogEntry(
        number, strip_statement(sql), _to_text(record.get("timestamp")), _to_text(record.get("user")), count
    )


def _hint_column(record: Mapping[str, object], column: str) -> str:
    """Return which field to name by --column: the one with a statement, if any."""
    if not record or column in record:
        return ""
    statements = [name for name, value in record.items() if isinstance(value, str) and _STATEMENT.match(value.strip())]
    fields, name = ", ".join(list(record)[:_FIELDS_SHOWN]), statements[0] if statements else "NAME"
    return f", it has {fields}: give --column {name}"


def _to_count(value: object) -> float | None:
    if value is None or value == "":
        return 1.0
    try:
        count = float(str(value))
    except ValueError:
        return None
    return count if 0 < count < float("inf") else None


def _to_text(value: object) -> str | None:
    return None if value is None or value == "" else str(value)


# Reads an open log: the stream, the name of the column or key with the SQL, and the dialect.
LogReader = Callable[[IO[str], str, str], Iterator[LogEntry]]
_READERS: Final[Mapping[str, LogReader]] = MappingProxyType(
    {".sql": _read_sql, ".jsonl": _read_jsonl, ".csv": _read_csv}
)


def decay_weights(queries: Sequence[Query], half_life: dt.timedelta, time_zone: str = "UTC") -> tuple[Query, ...]:
    """Return the queries with weights that halve with each half-life by which they are older than the newest.

    Queries older than :data:`FORGOTTEN` half-lives are dropped. ``half_life`` is positive; ``time_zone`` is that of
    times without one.

    Raises:
        LogError: a statement has no time, or an unreadable one.
    """
    times = query_times(queries, time_zone)
    ages = (times.max(initial=0.0) - times) / half_life.total_seconds()
    return tuple(
        replace(query, weight=query.weight * 0.5**age)
        for query, age in zip(queries, ages.tolist(), strict=True)
        if age <= FORGOTTEN
    )


def query_times(queries: Sequence[Query], time_zone: str = "UTC") -> Floats:
    """Return when each query ran, in seconds since 1970, ``float64[n_queries]``.

    Raises:
        LogError: a statement has no time, or an unreadable one; or the time zone is unknown.
    """
    try:
        zone = zone_of(time_zone)
    except Unusable as error:
        raise LogError(f"{error}, so times without one can't be read: name a region, as Europe/Prague") from error
    return np.array([_to_seconds(query, zone) for query in queries], dtype=np.float64)


def _to_seconds(query: Query, zone: dt.tzinfo) -> float:
    try:
        moment = dt.datetime.fromisoformat(query.timestamp or "")
    except ValueError:
        problem = f"the timestamp {query.timestamp!r}" if query.timestamp else "no timestamp"
        raise LogError(
            f"statement {query.id} of the log has {problem}: expected the time when it ran, like 2026-11-22T10:00:00; "
            "without times, leave out what weighs statements by age (--half-life, --auto)"
        ) from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)).timestamp()
