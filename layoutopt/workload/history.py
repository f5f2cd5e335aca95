"""Statements of an exported query history: whole, finished, really read, and each with its own time and parameters."""

from __future__ import annotations

import csv
import datetime as dt
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from layoutopt.errors import LogError
from layoutopt.workload.entries import LogEntry, one_statement

# ----------------------------------------------------------------------------------------------------
# The records of an exported query history: CSV, JSON, JSON lines or Parquet, one mapping a record.
#
# Exports of the same system differ in the case of names, and in whether objects lie in each other; so names are told in
# lower case, and a field of an object within an object has both names with a dot between.

Record = Mapping[str, Any]
"""Values by name in lower case; the message under :data:`DAMAGED` where a line can't be read."""

DAMAGED: Final = "\0damaged"
SUFFIXES: Final = (".csv", ".json", ".jsonl", ".parquet")
_BATCH = 1_000


def records_of(path: Path) -> Iterator[Record]:
    """The records of a file, in order, by its suffix; a file of any other is taken for JSON lines.

    Raises:
        LogError: the file can't be read, or is not what its suffix says.
    """
    readers = {".csv": _csv, ".json": _json, ".parquet": _parquet}
    try:
        yield from readers.get(path.suffix.casefold(), _jsonl)(path)
    except OSError as error:
        raise LogError(f"the log {str(path)!r} can't be read ({error.strerror or error}); check the path") from error
    except csv.Error as error:
        raise LogError(f"the log {str(path)!r} is no CSV file ({error}); export it again") from error


def _csv(path: Path) -> Iterator[Record]:
    # Query texts are long: the default limit of 128 KB a field is for tables.
    csv.field_size_limit(1 << 30)
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        for record in csv.DictReader(stream):
            yield {name.strip().lower(): value for name, value in record.items() if name is not None}


def _jsonl(path: Path) -> Iterator[Record]:
    with path.open(encoding="utf-8-sig", errors="replace") as stream:
        for line in stream:
            if line.strip():
                yield _parsed(line)


def _parsed(line: str) -> Record:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        return {DAMAGED: f"the record is not JSON: {error}"}
    return _flat(value) if isinstance(value, dict) else {DAMAGED: "the record is no JSON object"}


def _json(path: Path) -> Iterator[Record]:
    """An array of objects, an object with one, or lines of objects all the same."""
    try:
        value = json.loads(path.read_text(encoding="utf-8-sig", errors="replace"))
    except (ValueError, RecursionError):
        yield from _jsonl(path)
        return
    lists = [each for each in value.values() if isinstance(each, list)] if isinstance(value, dict) else [value]
    items = lists[0] if lists and isinstance(lists[0], list) else [value]
    for item in items:
        yield _flat(item) if isinstance(item, dict) else {DAMAGED: "the record is no JSON object"}


def _parquet(path: Path) -> Iterator[Record]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_BATCH):
                yield from (_flat(record) for record in batch.to_pylist())
    except pa.ArrowException as error:
        raise LogError(f"the log {str(path)!r} is no Parquet file ({error}); export it again") from error


def _flat(value: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, held in value.items():
        full = f"{before}{name}".lower()
        found[full] = held
        if isinstance(held, Mapping):
            found |= _flat(held, f"{full}.")
    return found


# ----------------------------------------------------------------------------------------------------
# What a Spark application asked of a table, by its event log, which has the filters of scans and hardly ever SQL.

_SQL = re.compile(r"\s*(select|with)\b", re.IGNORECASE)
_SCAN = re.compile(r"Scan \w+ (?:[\w.`-]*\.)?`?(\w+)`?\s*$")
_FIELD = re.compile(r"(`[^`]+`|\w+):")
_CALL = re.compile(r"(\w+)\((.*)\)$", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_COMPARED = {
    "EqualTo": "=", "EqualNullSafe": "<=>", "GreaterThan": ">", "GreaterThanOrEqual": ">=", "LessThan": "<",
    "LessThanOrEqual": "<=",
}  # fmt: skip
_PATTERNS = {"StringStartsWith": "{}%", "StringEndsWith": "%{}", "StringContains": "%{}%"}


def text_of_execution(record: Mapping[str, Any]) -> str | None:
    """The statement of a ``SparkListenerSQLExecutionStart``: its own text, or one that its first table scan amounts to.

    None where there is neither.
    """
    description = record.get("description")
    if isinstance(description, str) and _SQL.match(description):
        return description
    plan = record.get("sparkplaninfo")
    return next(_scans(plan), None) if isinstance(plan, Mapping) else None


def _scans(plan: Mapping[str, Any]) -> Iterator[str]:
    """A statement for each scan of a table that a plan names."""
    named, metadata = _SCAN.match(str(plan.get("nodeName", ""))), plan.get("metadata") or {}
    if named and isinstance(metadata, Mapping) and "PushedFilters" in metadata:
        columns = _FIELD.findall(str(metadata.get("ReadSchema", "")))
        filters = [*_parts(metadata.get("PartitionFilters", "[]")), *_parts(metadata["PushedFilters"])]
        conditions = [text for text in map(_condition, filters) if text is not None]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        yield f"SELECT {', '.join(columns) or 'count(*)'} FROM {named[1]}{where}"
    for child in plan.get("children") or ():
        if isinstance(child, Mapping):
            yield from _scans(child)


def _parts(text: Any) -> list[str]:
    """What stands in a list as Spark writes it."""
    return _arguments(str(text).strip().removeprefix("[").removesuffix("]"))


def _condition(text: str) -> str | None:
    """A filter of Spark's data sources as a condition in SQL; None for one that can't be told.

    Values are written without quotes and types, so one that looks like a number is taken for one.

    >>> _condition("In(kind, [air,rail])"), _condition("Not(EqualTo(n,5))"), _condition("StringStartsWith(s,a_)")
    ("kind IN ('air', 'rail')", 'NOT (n = 5)', "s LIKE 'a\\\\\\\\_%'")
    """
    call = _CALL.match(text.strip())
    if call is None:
        return None
    name, inside = call.groups()
    if name in ("And", "Or", "Not"):
        parts = [_condition(part) for part in _arguments(inside)]
        if not parts or None in parts:
            return None
        return f"NOT ({parts[0]})" if name == "Not" else f"({f' {name.upper()} '.join(map(str, parts))})"
    column, _, value = inside.partition(",")
    if name in ("IsNotNull", "IsNull"):
        return f"{column} IS {'NOT ' if name == 'IsNotNull' else ''}NULL"
    if name in _COMPARED:
        return f"{column} {_COMPARED[name]} {_literal(value)}"
    if name == "In":
        values = value.strip().removeprefix("[").removesuffix("]").split(",")
        return f"{column} IN ({', '.join(map(_literal, values))})"
    if name in _PATTERNS:
        escaped = re.sub(r"([%_\\])", r"\\\1", value)
        return f"{column} LIKE {_quoted(_PATTERNS[name].format(escaped))}"
    return None


def _arguments(inside: str) -> list[str]:
    """The filters in another one or in a list, which may have commas of their own: cut where all brackets are closed.

    >>> _arguments("EqualTo(a,1),In(b, [1,2]), EqualTo(c,x, y)")
    ['EqualTo(a,1)', 'In(b, [1,2])', 'EqualTo(c,x, y)']
    """
    found, depth = [""], 0
    for letter in inside:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            found.append("")
        else:
            found[-1] += letter
    return [part.strip() for part in found if part.strip()]


def _literal(value: str) -> str:
    value = value.strip()
    return value if _NUMBER.fullmatch(value) or value in ("true", "false") else _quoted(value)


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


# ----------------------------------------------------------------------------------------------------
# Query histories as the systems that keep them export them: which field is what, and which records are no reads.
#
# Field names are from the systems' own documentation. What a record does not say is taken to be as it should be: an
# export of the texts alone is a log too.


@dataclass(frozen=True)
class System:
    """How one system keeps its history. Names are in lower case, those of nested fields with dots; the first there is.

    Attributes:
        dialect: of the texts, as sqlglot calls it.
        text: the statement.
        time: when it was submitted.
        user: who asked.
        scanned: the bytes that it scanned.
        state: how it ended, and the values (in lower case) that mean well.
        kind: what it is, and the values that mean a query.
        cached: whether it was answered without reading.
        failed: is there where it failed.
        parameters: the values that it ran with: a list, or a mapping by name.
        longest: texts of so many characters were cut off by the system; None for none.
        pieces: what pieces of one text share, and their order; none where texts are whole.
        only: fields and the values that a record must have to be one of a statement at all.
    """

    dialect: str
    text: tuple[str, ...]
    time: tuple[str, ...] = ()
    user: tuple[str, ...] = ()
    scanned: tuple[str, ...] = ()
    state: tuple[tuple[str, ...], frozenset[str]] = ((), frozenset())
    kind: tuple[tuple[str, ...], frozenset[str]] = ((), frozenset())
    cached: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    longest: int | None = None
    pieces: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    only: tuple[tuple[str, str], ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """Every field that the description knows, but the text's."""
        return frozenset(
            (*self.time, *self.user, *self.scanned, *self.state[0], *self.kind[0], *self.cached, *self.failed,
             *self.parameters, *self.pieces[0], *self.pieces[1], *(name for name, _ in self.only))
        )  # fmt: skip


def _values(*values: str) -> frozenset[str]:
    return frozenset(values)


SYSTEMS: Final[Mapping[str, System]] = MappingProxyType(
    {
        # ACCOUNT_USAGE.QUERY_HISTORY; texts are cut at 100,000 characters.
        "snowflake": System(
            "snowflake",
            ("query_text",),
            time=("start_time",),
            user=("user_name",),
            scanned=("bytes_scanned",),
            state=(("execution_status",), _values("success")),
            kind=(("query_type",), _values("select")),
            longest=100_000,
        ),
        # INFORMATION_SCHEMA.JOBS
        "bigquery": System(
            "bigquery",
            ("query",),
            time=("creation_time", "start_time"),
            user=("user_email",),
            scanned=("total_bytes_processed", "total_bytes_billed"),
            state=(("state",), _values("done")),
            kind=(("statement_type",), _values("select")),
            cached=("cache_hit",),
            failed=("error_result.reason", "error_result"),
        ),
        # system.query.history
        "databricks": System(
            "databricks",
            ("statement_text",),
            time=("start_time",),
            user=("executed_by",),
            scanned=("read_bytes",),
            state=(("execution_status",), _values("finished")),
            kind=(("statement_type",), _values("select")),
            cached=("from_result_cache",),
            parameters=("query_parameters.named_parameters", "query_parameters.pos_parameters"),
        ),
        # SYS_QUERY_TEXT (pieces of 4,000) joined with SYS_QUERY_HISTORY; STL_QUERYTEXT (pieces of 200) with STL_QUERY
        "redshift": System(
            "redshift",
            ("text", "querytxt", "query_text"),
            time=("start_time", "starttime"),
            user=("user_id", "userid", "username"),
            state=(("status",), _values("success")),
            kind=(("query_type",), _values("select")),
            cached=("result_cache_hit",),
            failed=("aborted",),
            pieces=(("query_id", "query"), ("sequence",)),
        ),
        # The MySQL event listener's table, and the events of the HTTP and Kafka listeners
        "trino": System(
            "trino",
            ("prepared_query", "metadata.preparedquery", "query", "metadata.query"),
            time=("create_time", "createtime", "query_id"),
            user=("user", "context.user"),
            scanned=("physical_input_bytes", "statistics.physicalinputbytes"),
            state=(("query_state", "metadata.querystate"), _values("finished")),
            kind=(("query_type", "context.querytype"), _values("select")),
        ),
        # GetQueryExecution, or BatchGetQueryExecution
        "athena": System(
            "athena",
            ("query", "queryexecution.query"),
            time=("status.submissiondatetime", "queryexecution.status.submissiondatetime"),
            user=("workgroup", "queryexecution.workgroup"),
            scanned=("statistics.datascannedinbytes", "queryexecution.statistics.datascannedinbytes"),
            state=(("status.state", "queryexecution.status.state"), _values("succeeded")),
            kind=(("substatementtype", "queryexecution.substatementtype"), _values("select")),
            cached=(
                "statistics.resultreuseinformation.reusedpreviousresult",
                "queryexecution.statistics.resultreuseinformation.reusedpreviousresult",
            ),
            parameters=("executionparameters", "queryexecution.executionparameters"),
        ),
        # The events of a Spark application; texts where it ran SQL, else what its scans were given
        "spark-events": System(
            "spark",
            ("sql",),
            time=("time",),
            only=(("event", "org.apache.spark.sql.execution.ui.sparklistenersqlexecutionstart"),),
        ),
        # duckdb_logs after enable_logging('QueryLog')
        "duckdb": System("duckdb", ("message",), time=("timestamp",), only=(("type", "querylog"),)),
    }
)
"""The systems whose histories are read, by the names of ``--from``."""


def guess_system(names: frozenset[str]) -> str | None:
    """The system whose fields a record has: its text and two others; None where none, or none alone, fits best.

    >>> guess_system(frozenset({"query_text", "start_time", "user_name", "bytes_scanned"}))
    'snowflake'
    >>> guess_system(frozenset({"sql", "timestamp", "user"})) is None
    True
    """
    found = {
        name: len(names & system.names)
        for name, system in SYSTEMS.items()
        if (names & set(system.text) or name == "spark-events") and len(names & system.names) >= 2
    }
    best = [name for name, count in found.items() if count == max(found.values())]
    return best[0] if len(best) == 1 else None


Weigh = Literal["runs", "bytes"]
"""What a statement weighs: 1, or the bytes that it scanned, as a multiple of what a statement scans on average."""

_YES = frozenset({"true", "t", "1", "yes"})
_EMPTY = frozenset({"", "null", "none", "[]", "{}", "0", "false"})
_TRINO_ID = re.compile(r"(\d{4})(\d\d)(\d\d)_(\d\d)(\d\d)(\d\d)_\d+_\w+")


def entries_of(records: Iterable[Record], name: str, weigh: Weigh = "runs") -> Iterator[LogEntry]:
    """The statements of a history, in its order; one that is no use has a ``problem`` and its ``code``.

    Args:
        records: as :func:`layoutopt.workload.history.records_of` reads them.
        name: of the system, see :data:`~layoutopt.workload.history.SYSTEMS`.
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
