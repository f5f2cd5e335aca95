"""Read query histories as systems export them: CSV, JSON, JSON lines or Parquet, one mapping a record.

Exports of the same system differ in the case of names and in nesting. So names are in lower case, and a nested field
has both names with a dot between. Field names are from the systems' documentation. A missing field is assumed to be in
order: an export of the texts alone is a log too. Spark's event logs have the filters of scans, and rarely SQL.
"""

from __future__ import annotations

import codecs
import csv
import datetime as dt
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Final, Literal

from layoutopt.errors import LogError
from layoutopt.workload.entries import LogEntry, strip_statement

# Values by name in lower case; the message under :data:`DAMAGED` for an unreadable line.
Record = Mapping[str, Any]

DAMAGED: Final = "\0damaged"
SUFFIXES: Final = (".csv", ".json", ".jsonl", ".parquet")
_BATCH = 1_000

_SQL = re.compile(r"\s*(select|with)\b", re.IGNORECASE)
_SCAN = re.compile(r"Scan \w+ (?:[\w.`-]*\.)?`?(\w+)`?\s*$")
_FIELD = re.compile(r"(`[^`]+`|\w+):")
_CALL = re.compile(r"(\w+)\((.*)\)$", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_COMPARISONS = {
    "EqualTo": "=", "EqualNullSafe": "<=>", "GreaterThan": ">", "GreaterThanOrEqual": ">=", "LessThan": "<",
    "LessThanOrEqual": "<=",
}  # fmt: skip
_PATTERNS = {"StringStartsWith": "{}%", "StringEndsWith": "%{}", "StringContains": "%{}%"}
# The weight of a statement: 1, or the bytes that it scanned over the mean of all statements.
Weigh = Literal["runs", "bytes"]
_TRUE_TEXTS = frozenset({"true", "t", "1", "yes"})
_EMPTY_TEXTS = frozenset({"", "null", "none", "[]", "{}", "0", "false"})
_TRINO_ID = re.compile(r"(\d{4})(\d\d)(\d\d)_(\d\d)(\d\d)(\d\d)_\d+_\w+")


def read_records(path: Path) -> Iterator[Record]:
    """Yield the records of a file, in order, by its suffix; other suffixes are read as JSON lines.

    Raises:
        LogError: the file can't be read, or does not match its suffix.
    """
    readers = {".csv": _read_csv, ".json": _read_json, ".parquet": _read_parquet}
    try:
        yield from readers.get(path.suffix.casefold(), _read_json_lines)(path)
    except OSError as error:
        raise LogError(f"the log {str(path)!r} can't be read ({error.strerror or error}); check the path") from error
    except csv.Error as error:
        raise LogError(f"the log {str(path)!r} is no CSV file ({error}); export it again") from error


# The first bytes of texts in other encodings than UTF-8; those of UTF-32 begin like those of UTF-16.
_ENCODINGS: Final = (
    (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip
_SAMPLED_BYTES: Final = 4096


def open_text(path: Path) -> IO[str]:
    """Open a log in the encoding that its byte order mark names, else in UTF-8; line ends stay as they are.

    Raises:
        OSError: the file can't be read.
        LogError: it has no mark, and every other byte is zero, as in UTF-16.
    """
    with path.open("rb") as file:
        start = file.read(_SAMPLED_BYTES)
    encoding = next((name for mark, name in _ENCODINGS if start.startswith(mark)), "utf-8-sig")
    if encoding == "utf-8-sig" and start.count(0) > len(start) // 4:
        raise LogError(
            f"the log {str(path)!r} is no UTF-8: it looks like UTF-16 without a byte order mark; convert it, for "
            "example by `iconv -f UTF-16LE -t UTF-8`"
        )
    return path.open(encoding=encoding, errors="replace", newline="")


def _read_csv(path: Path) -> Iterator[Record]:
    # Query texts may exceed the default limit of 128 KB a field.
    csv.field_size_limit(1 << 30)
    with open_text(path) as stream:
        for record in csv.DictReader(stream):
            yield {name.strip().lower(): value for name, value in record.items() if name is not None}


def _read_json_lines(path: Path) -> Iterator[Record]:
    with open_text(path) as stream:
        for line in stream:
            if line.strip():
                yield _parse_line(line)


def _parse_line(line: str) -> Record:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        return {DAMAGED: f"the record is not JSON: {error}"}
    return _flatten(value) if isinstance(value, dict) else {DAMAGED: "the record is no JSON object"}


def _read_json(path: Path) -> Iterator[Record]:
    """Yield records from an array of objects, an object with such an array, or lines of objects."""
    try:
        with open_text(path) as stream:
            value = json.load(stream)
    except (ValueError, RecursionError):
        yield from _read_json_lines(path)
        return
    lists = [items for items in value.values() if isinstance(items, list)] if isinstance(value, dict) else [value]
    items = lists[0] if lists and isinstance(lists[0], list) else [value]
    for item in items:
        yield _flatten(item) if isinstance(item, dict) else {DAMAGED: "the record is no JSON object"}


def _read_parquet(path: Path) -> Iterator[Record]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_BATCH):
                yield from (_flatten(record) for record in batch.to_pylist())
    except pa.ArrowException as error:
        raise LogError(f"the log {str(path)!r} is no Parquet file ({error}); export it again") from error


def _flatten(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, field_value in value.items():
        full = f"{prefix}{name}".lower()
        fields[full] = field_value
        if isinstance(field_value, Mapping):
            fields |= _flatten(field_value, f"{full}.")
    return fields


def text_of_execution(record: Mapping[str, Any]) -> str | None:
    """Return the statement of a ``SparkListenerSQLExecutionStart``: its own text, or one for its first table scan.

    Return None where there is neither.
    """
    description = record.get("description")
    if isinstance(description, str) and _SQL.match(description):
        return description
    plan = record.get("sparkplaninfo")
    return next(_scan_statements(plan), None) if isinstance(plan, Mapping) else None


def _scan_statements(plan: Mapping[str, Any]) -> Iterator[str]:
    match, metadata = _SCAN.match(str(plan.get("nodeName", ""))), plan.get("metadata") or {}
    if match and isinstance(metadata, Mapping) and "PushedFilters" in metadata:
        columns = _FIELD.findall(str(metadata.get("ReadSchema", "")))
        filters = [*_split_list(metadata.get("PartitionFilters", "[]")), *_split_list(metadata["PushedFilters"])]
        conditions = [text for text in map(_to_condition, filters) if text is not None]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        yield f"SELECT {', '.join(columns) or 'count(*)'} FROM {match[1]}{where}"
    for child in plan.get("children") or ():
        if isinstance(child, Mapping):
            yield from _scan_statements(child)


def _split_list(text: Any) -> list[str]:
    return _split_arguments(str(text).strip().removeprefix("[").removesuffix("]"))


def _to_condition(text: str) -> str | None:
    r"""Return a filter of Spark's data sources as a condition in SQL; None if that is impossible.

    Values have no quotes and types, so values that look like numbers are taken as numbers.

    >>> _to_condition("In(kind, [air,rail])"), _to_condition("Not(EqualTo(n,5))")
    ("kind IN ('air', 'rail')", 'NOT (n = 5)')
    >>> print(_to_condition("StringStartsWith(s,a_)"))
    s LIKE 'a\\_%'
    """
    call = _CALL.match(text.strip())
    if call is None:
        return None
    name, arguments = call.groups()
    if name in ("And", "Or", "Not"):
        parts = [_to_condition(part) for part in _split_arguments(arguments)]
        if not parts or None in parts:
            return None
        return f"NOT ({parts[0]})" if name == "Not" else f"({f' {name.upper()} '.join(map(str, parts))})"
    column, _, value = arguments.partition(",")
    if name in ("IsNotNull", "IsNull"):
        return f"{column} IS {'NOT ' if name == 'IsNotNull' else ''}NULL"
    if name in _COMPARISONS:
        return f"{column} {_COMPARISONS[name]} {_to_literal(value)}"
    if name == "In":
        values = value.strip().removeprefix("[").removesuffix("]").split(",")
        return f"{column} IN ({', '.join(map(_to_literal, values))})"
    if name in _PATTERNS:
        escaped = re.sub(r"([%_\\])", r"\\\1", value)
        return f"{column} LIKE {_quote(_PATTERNS[name].format(escaped))}"
    return None


def _split_arguments(text: str) -> list[str]:
    """Split filters at the commas outside all brackets.

    >>> _split_arguments("EqualTo(a,1),In(b, [1,2]), EqualTo(c,x, y)")
    ['EqualTo(a,1)', 'In(b, [1,2])', 'EqualTo(c,x, y)']
    """
    arguments, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            arguments.append("")
        else:
            arguments[-1] += letter
    return [part.strip() for part in arguments if part.strip()]


def _to_literal(value: str) -> str:
    value = value.strip()
    return value if _NUMBER.fullmatch(value) or value in ("true", "false") else _quote(value)


def _quote(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


# The kinds of statements that may read a table, in the words of all systems. Statements of a script have their own
# records.
_READING: Final = frozenset(
    {"select", "insert", "merge", "merge_into", "update", "delete", "ctas", "create_table_as_select"}
)


@dataclass(frozen=True)
class System:
    """The history format of a system. Names are in lower case, nested ones with dots; the first existing field counts.

    Attributes:
        dialect: of the texts, as sqlglot calls it.
        text: the statement.
        time: when it was submitted.
        user: who submitted it.
        scanned: the bytes that it scanned.
        state: how it ended, and the values (in lower case) of success.
        kind: its kind, one of :data:`_READING` if it may read a table.
        cached: whether it was answered from a cache.
        failed: exists if it failed.
        parameters: the values of its parameters: a list, or a mapping by name.
        longest: the length at which the system cuts off texts.
        pieces: what pieces of one text share, and their order; empty where texts are whole.
        only: fields and values that mark a record of a statement.
    """

    dialect: str
    text: tuple[str, ...]
    time: tuple[str, ...] = ()
    user: tuple[str, ...] = ()
    scanned: tuple[str, ...] = ()
    state: tuple[tuple[str, ...], frozenset[str]] = ((), frozenset())
    kind: tuple[str, ...] = ()
    cached: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    longest: int | None = None
    pieces: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    only: tuple[tuple[str, str], ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """Return every field of the description but the text's."""
        return frozenset(
            (*self.time, *self.user, *self.scanned, *self.state[0], *self.kind, *self.cached, *self.failed,
             *self.parameters, *self.pieces[0], *self.pieces[1], *(name for name, _ in self.only))
        )  # fmt: skip


# The systems whose histories are read, by the names of ``--from``.
SYSTEMS: Final[Mapping[str, System]] = MappingProxyType(
    {
        # ACCOUNT_USAGE.QUERY_HISTORY; texts are cut at 100,000 characters.
        "snowflake": System(
            "snowflake",
            ("query_text",),
            time=("start_time",),
            user=("user_name",),
            scanned=("bytes_scanned",),
            state=(("execution_status",), frozenset({"success"})),
            kind=("query_type",),
            longest=100_000,
        ),
        # INFORMATION_SCHEMA.JOBS
        "bigquery": System(
            "bigquery",
            ("query",),
            time=("creation_time", "start_time"),
            user=("user_email",),
            scanned=("total_bytes_processed", "total_bytes_billed"),
            state=(("state",), frozenset({"done"})),
            kind=("statement_type",),
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
            state=(("execution_status",), frozenset({"finished"})),
            kind=("statement_type",),
            cached=("from_result_cache",),
            parameters=("query_parameters.named_parameters", "query_parameters.pos_parameters"),
        ),
        # SYS_QUERY_TEXT (pieces of 4,000) joined with SYS_QUERY_HISTORY; STL_QUERYTEXT (pieces of 200) with STL_QUERY
        "redshift": System(
            "redshift",
            ("text", "querytxt", "query_text"),
            time=("start_time", "starttime"),
            user=("user_id", "userid", "username"),
            state=(("status",), frozenset({"success"})),
            kind=("query_type",),
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
            state=(("query_state", "metadata.querystate"), frozenset({"finished"})),
            kind=("query_type", "context.querytype"),
        ),
        # GetQueryExecution, or BatchGetQueryExecution
        "athena": System(
            "athena",
            ("query", "queryexecution.query"),
            time=("status.submissiondatetime", "queryexecution.status.submissiondatetime"),
            user=("workgroup", "queryexecution.workgroup"),
            scanned=("statistics.datascannedinbytes", "queryexecution.statistics.datascannedinbytes"),
            state=(("status.state", "queryexecution.status.state"), frozenset({"succeeded"})),
            kind=("substatementtype", "queryexecution.substatementtype"),
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


def guess_system(names: frozenset[str]) -> str | None:
    """Return the system whose fields a record has: its text and two more; None without a single best one.

    >>> guess_system(frozenset({"query_text", "start_time", "user_name", "bytes_scanned"}))
    'snowflake'
    >>> guess_system(frozenset({"sql", "timestamp", "user"})) is None
    True
    """
    matches = {
        name: len(names & system.names)
        for name, system in SYSTEMS.items()
        if (names & set(system.text) or name == "spark-events") and len(names & system.names) >= 2
    }
    best = [name for name, count in matches.items() if count == max(matches.values())]
    return best[0] if len(best) == 1 else None


def read_entries(records: Iterable[Record], name: str, weigh: Weigh = "runs") -> Iterator[LogEntry]:
    """Yield the statements of a history, in its order; an unusable one has a ``problem`` and its ``code``.

    ``name`` is one of :data:`SYSTEMS`. With ``weigh="bytes"`` a statement without bytes has weight 1.

    Raises:
        LogError: bytes are to be weighed, and no statement has any.
    """
    system = SYSTEMS[name]
    joined_records = [_join_pieces(group, system) for group in _group_statements(records, system)]
    sizes = [_to_number(_first_value(record, system.scanned)) for record in joined_records]
    known_sizes = [size for size in sizes if size]
    if weigh == "bytes" and not known_sizes:
        raise LogError("no statement of the log says how many bytes it scanned; leave --weigh out")
    mean = sum(known_sizes) / len(known_sizes) if weigh == "bytes" else 0.0
    for number, (record, size) in enumerate(zip(joined_records, sizes, strict=True)):
        yield _make_entry(number, record, system, size / mean if mean and size else 1.0)


def _group_statements(records: Iterable[Record], system: System) -> Iterator[list[Record]]:
    """Yield the records of each statement: one, or the pieces of its text."""
    records = (
        record
        for record in records
        if DAMAGED in record or all(str(record.get(name, value)).lower() == value for name, value in system.only)
    )
    if not system.pieces[0]:
        yield from ([record] for record in records)
        return
    groups: dict[object, list[Record]] = {}
    for place, record in enumerate(records):
        shared = _first_value(record, system.pieces[0])
        has_order = _first_value(record, system.pieces[1]) is not None
        groups.setdefault(("statement", str(shared)) if shared is not None and has_order else place, []).append(record)
    yield from groups.values()


def _join_pieces(pieces: Sequence[Record], system: System) -> Record:
    """Return one record with the whole text; trailing blanks of a piece belong to the text."""
    in_order = sorted(pieces, key=lambda piece: _to_number(_first_value(piece, system.pieces[1])))
    field = next((name for name in system.text if name in in_order[0]), None)
    if len(pieces) == 1 or field is None:
        return in_order[0]
    # A piece occurs twice where one record was joined with several others.
    texts = [
        str(next(duplicates).get(field) or "")
        for _, duplicates in groupby(in_order, key=lambda piece: _first_value(piece, system.pieces[1]))
    ]
    return {**in_order[0], field: "".join(texts)}


def _make_entry(number: int, record: Record, system: System, count: float) -> LogEntry:
    if DAMAGED in record:
        return LogEntry(number, "", problem=str(record[DAMAGED]))
    text = text_of_execution(record) if system is SYSTEMS["spark-events"] else _first_value(record, system.text)
    text = text if isinstance(text, str) and text.strip() else None
    time, user = _to_iso_time(_first_value(record, system.time)), _first_value(record, system.user)
    code, problem = _find_problem(record, system, text)
    parameters = _to_parameters(_first_value(record, system.parameters))
    user = None if user is None else str(user)
    sql, code = strip_statement(text or ""), code or "bad-record"
    return LogEntry(number, sql, time, user, count, problem, code, system.dialect, parameters)


def _find_problem(record: Record, system: System, text: str | None) -> tuple[str, str]:
    """Return the code and the description of a record's problem; both empty if there is none."""
    state, kind = _first_value(record, system.state[0]), _first_value(record, system.kind)
    if state is not None and str(state).lower() not in system.state[1]:
        return "failed", f"the statement ended as {state}"
    if any(str(record.get(name) or "").lower() not in _EMPTY_TEXTS for name in system.failed):
        return "failed", "the statement failed"
    if kind is not None and str(kind).lower() not in _READING:
        return "no-read", f"the statement is a {kind}"
    if str(_first_value(record, system.cached)).lower() in _TRUE_TEXTS:
        return "cached", "the answer came from a cache of results"
    if text is None:
        return "bad-record", "the record has no text"
    if system.longest is not None and len(text) >= system.longest:
        return "cut-off", f"the text was cut off after {len(text):,} characters"
    return "", ""


def _first_value(record: Record, names: Sequence[str]) -> Any:
    return next((record[name] for name in names if record.get(name) not in (None, "")), None)


def _to_number(value: Any) -> float:
    try:
        return max(0.0, float(value))
    except (TypeError, ValueError):
        return 0.0


def _to_iso_time(value: Any) -> str | None:
    """Return a time in ISO 8601 from text, a datetime, milliseconds since 1970, or Trino's query id."""
    if value is None:
        return None
    if isinstance(value, dt.datetime):
        return value.isoformat()
    if isinstance(value, int | float) or re.fullmatch(r"\d{12,14}(\.\d+)?", str(value)):
        return _from_milliseconds(float(value))
    if match := _TRINO_ID.fullmatch(str(value)):
        return "{}-{}-{}T{}:{}:{}+00:00".format(*match.groups())
    text = re.sub(r" (UTC|Z)$", "+00:00", str(value).strip())
    text = re.sub(r" ([+-]\d\d):?(\d\d)$", r"\1:\2", text)
    try:
        return dt.datetime.fromisoformat(text).isoformat()
    except ValueError:
        return str(value)


def _from_milliseconds(since_1970: float) -> str | None:
    try:
        return dt.datetime.fromtimestamp(since_1970 / 1000, dt.UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return None


def _to_parameters(value: Any) -> Sequence[object] | Mapping[str, object] | None:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if isinstance(value, Mapping) and value:
        return {str(name).lstrip(":@$"): item for name, item in value.items()}
    if isinstance(value, list) and value and all(isinstance(item, tuple) for item in value):
        return {str(name): item for name, item in value}  # a map of Parquet
    if isinstance(value, list) and value:
        return [item.get("value") if isinstance(item, Mapping) else item for item in value]
    return None
