"""What a table answers and what that reads: `query`, `explain` and `files`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import typer

from layoutopt.cli.console import Session, add_verb
from layoutopt.cli.opening import open_at, start_spark
from layoutopt.config.settings import ExplainSettings, FilesSettings, QuerySettings

if TYPE_CHECKING:
    import pyarrow as pa

    from layoutopt.inspect.condition import BlockConditions
    from layoutopt.inspect.dry_run import DryRun
    from layoutopt.scan.explain import Explanation
    from layoutopt.scan.table import Scan, Table

verbs = typer.Typer()


@add_verb(
    verbs, QuerySettings, example="layoutopt query tables/events \"SELECT count(*) FROM events WHERE country = 'FR'\""
)
def query(settings: QuerySettings, session: Session) -> None:
    """Answer a query, reading only the blocks that may match."""
    table = open_at(settings.table_path, settings)
    from layoutopt.report.tables import answer_report, print_answer

    with session.working("reading"):
        answer = _answer(table, settings, session)
    limit = settings.limit or (None if session.json else 100)
    session.show(answer_report(answer, limit), lambda console: print_answer(console, answer, limit))


def _answer(table: Table, settings: QuerySettings, session: Session) -> pa.Table:
    from layoutopt.cli.startup import keep_what_is_loaded

    scan = table.scan(settings.sql)
    if settings.engine == "spark":
        return scan.to_spark(start_spark(session)).toArrow()
    keep_what_is_loaded()
    return scan.to_arrow(settings.engine)


@add_verb(
    verbs, ExplainSettings, example="layoutopt explain tables/events \"SELECT * FROM events WHERE country = 'FR'\""
)
def explain(settings: ExplainSettings, session: Session) -> None:
    """Say which blocks a query reads, what skips the others, and for each predicate why it skips no more.

    Of the query only what it reads matters, so a bare condition will do.
    """
    scan = _scan(open_at(settings.table_path, settings), settings.sql)
    result: BlockConditions | DryRun | Explanation
    if settings.predicate:
        from layoutopt.inspect.condition import block_conditions

        result = block_conditions(scan)
    elif settings.bytes:
        from layoutopt.inspect.dry_run import dry_run

        result = dry_run(scan)
    else:
        result = scan.explain()
    session.show(result.to_json(), str(result))


def _scan(table: Table, text: str) -> Scan:
    """The scan of a SQL text, or of a condition alone."""
    is_query = re.match(r"[\s(]*(select|with|from|values|table)\b", text, re.IGNORECASE)
    return table.scan(text) if is_query else table.scan(where=text)


@add_verb(verbs, FilesSettings, example="layoutopt files tables/events")
def files(settings: FilesSettings, session: Session) -> None:
    """List the current snapshot's data files of one layout, for engines that read plain Parquet."""
    paths = open_at(settings.table_path).files(settings.layout)
    session.show(list(paths), "\n".join(paths))
