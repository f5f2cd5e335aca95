"""Query histories as the systems that keep them export them: which field is what, and which records are no reads.

Field names are from the systems' own documentation. What a record does not say is taken to be as it should be: an
export of the texts alone is a log too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


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
