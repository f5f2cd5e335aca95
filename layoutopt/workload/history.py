"""Statements of an exported query history: whole, finished, really read, and each with its own time and parameters."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

from layoutopt.errors import LogError
from layoutopt.workload.entries import LogEntry, one_statement
from layoutopt.workload.records import DAMAGED, Record
from layoutopt.workload.spark_events import text_of_execution
from layoutopt.workload.systems import SYSTEMS, System

Weigh = Literal["runs", "bytes"]
"""What a statement weighs: 1, or the bytes that it scanned, as a multiple of what a statement scans on average."""

_YES = frozenset({"true", "t", "1", "yes"})
_EMPTY = frozenset({"", "null", "none", "[]", "{}", "0", "false"})
_TRINO_ID = re.compile(r"(\d{4})(\d\d)(\d\d)_(\d\d)(\d\d)(\d\d)_\d+_\w+")


def entries_of(records: Iterable[Record], name: str, weigh: Weigh = "runs") -> Iterator[LogEntry]:
    """The statements of a history, in its order; one that is no use has a ``problem`` and its ``code``.

    Args:
        records: as :func:`layoutopt.workload.records.records_of` reads them.
        name: of the system, see :data:`~layoutopt.workload.systems.SYSTEMS`.
        weigh: what a statement weighs; one that does not say its bytes weighs as much as the mean of those that do.

    Raises:
        LogError: bytes are to be weighed, and no statement says how many it scanned.
    """
    system = SYSTEMS[name]
    whole = [_joined(group, system) for group in _statements(records, system)]
    sizes = [_number(_first(record, system.scanned)) for record in whole]
    known = [size for size in sizes if size]
    if weigh == "bytes" and not known:
        raise LogError("no statement of the log says how many bytes it scanned; leave --weigh out")
    mean = sum(known) / len(known) if weigh == "bytes" else 0.0
    for number, (record, size) in enumerate(zip(whole, sizes, strict=True)):
        yield _entry(number, record, system, size / mean if mean and size else 1.0)


def _statements(records: Iterable[Record], system: System) -> Iterator[list[Record]]:
    """The records of each statement: one, or the pieces of its text."""
    mine = (record for record in records if DAMAGED in record or _is_one(record, system))
    if not system.pieces[0]:
        yield from ([record] for record in mine)
        return
    together: dict[object, list[Record]] = {}
    for place, record in enumerate(mine):
        shared = _first(record, system.pieces[0])
        has_order = _first(record, system.pieces[1]) is not None
        together.setdefault(("of", str(shared)) if shared is not None and has_order else place, []).append(record)
    yield from together.values()


def _is_one(record: Record, system: System) -> bool:
    return all(str(record.get(name, value)).lower() == value for name, value in system.only)


def _joined(pieces: Sequence[Record], system: System) -> Record:
    """One record with the whole text. Trailing blanks of a piece are the text's, except where columns are padded."""
    in_order = sorted(pieces, key=lambda piece: _number(_first(piece, system.pieces[1])))
    field = next((name for name in system.text if name in in_order[0]), None)
    if len(pieces) == 1 or field is None:
        return in_order[0]
    # The same piece twice is one record joined twice with another.
    texts = [
        str(next(same).get(field) or "")
        for _, same in groupby(in_order, key=lambda piece: _first(piece, system.pieces[1]))
    ]
    return {**in_order[0], field: "".join(texts)}


def _entry(number: int, record: Record, system: System, count: float) -> LogEntry:
    if DAMAGED in record:
        return LogEntry(number, "", problem=str(record[DAMAGED]))
    text = _text(record, system)
    time, user = _time(_first(record, system.time)), _first(record, system.user)
    code, problem = _problem(record, system, text)
    return LogEntry(
        number,
        one_statement(text or ""),
        time,
        None if user is None else str(user),
        count,
        problem,
        code or "bad-record",
        system.dialect,
        _parameters(_first(record, system.parameters)),
    )


def _text(record: Record, system: System) -> str | None:
    if system is SYSTEMS["spark-events"]:
        return text_of_execution(record)
    text = _first(record, system.text)
    return text if isinstance(text, str) and text.strip() else None


def _problem(record: Record, system: System, text: str | None) -> tuple[str, str]:
    """The code of what is wrong with a record and a sentence; both empty where nothing is."""
    state, kind = _first(record, system.state[0]), _first(record, system.kind[0])
    if state is not None and str(state).lower() not in system.state[1]:
        return "failed", f"the statement ended as {state}"
    if any(str(record.get(name) or "").lower() not in _EMPTY for name in system.failed):
        return "failed", "the statement failed"
    if kind is not None and str(kind).lower() not in system.kind[1]:
        return "no-read", f"the statement is a {kind}"
    if str(_first(record, system.cached)).lower() in _YES:
        return "cached", "the answer came from a cache of results"
    if text is None:
        return "bad-record", "the record has no text"
    if system.longest is not None and len(text) >= system.longest:
        return "cut-off", f"the text was cut off after {len(text):,} characters"
    return "", ""


def _first(record: Record, names: Sequence[str]) -> Any:
    """The first of these fields that has a value."""
    return next((record[name] for name in names if record.get(name) not in (None, "")), None)


def _number(value: Any) -> float:
    try:
        return max(0.0, float(value))
    except (TypeError, ValueError):
        return 0.0


def _time(value: Any) -> str | None:
    """A time in ISO 8601, of whatever a system writes: text, a moment, milliseconds since 1970, a query's name."""
    if value is None:
        return None
    if isinstance(value, dt.datetime):
        return value.isoformat()
    if isinstance(value, int | float) or re.fullmatch(r"\d{12,14}(\.\d+)?", str(value)):
        return _of_milliseconds(float(value))
    if named := _TRINO_ID.fullmatch(str(value)):
        return "{}-{}-{}T{}:{}:{}+00:00".format(*named.groups())
    text = re.sub(r" (UTC|Z)$", "+00:00", str(value).strip())
    text = re.sub(r" ([+-]\d\d):?(\d\d)$", r"\1:\2", text)
    try:
        return dt.datetime.fromisoformat(text).isoformat()
    except ValueError:
        return str(value)


def _of_milliseconds(since_1970: float) -> str | None:
    """None where no calendar has such a time."""
    try:
        return dt.datetime.fromtimestamp(since_1970 / 1000, dt.UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return None


def _parameters(value: Any) -> Sequence[object] | Mapping[str, object] | None:
    """The parameters of a statement: by place or by name; None where the record has none."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if isinstance(value, Mapping) and value:
        return {str(name).lstrip(":@$"): held for name, held in value.items()}
    if isinstance(value, list) and value and all(isinstance(held, tuple) for held in value):
        return {str(name): held for name, held in value}  # a map, as Parquet has it
    if isinstance(value, list) and value:
        return [held.get("value") if isinstance(held, Mapping) else held for held in value]
    return None
