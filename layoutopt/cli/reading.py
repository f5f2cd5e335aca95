"""What a table answers and what that reads: `query`, `explain` and `files`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import typer

from layoutopt.cli.console import Session, add_verb
from layoutopt.cli.opening import calibration_of, open_at, start_spark
from layoutopt.config.keeping import FilesSettings
from layoutopt.config.settings import ExplainSettings, QuerySettings
from layoutopt.errors import SettingError

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console

    from layoutopt.catalog.storage.traffic import Amount
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
    how = {} if settings.read_through is None else {"read_through": settings.read_through}
    table = open_at(session, settings.table_path, settings, indexed=True, **how)
    from layoutopt.report.tables import answer_report, print_answer

    scan = table.scan(settings.sql)
    catalog = _asked(table)
    with session.working("reading"):
        answer = _answer(scan, settings, session)
    data = _asked(table) - catalog
    limit = settings.limit or (None if session.json else 100)
    traffic = {"traffic": {"catalog": catalog.to_json(), "data": data.to_json()}} if settings.stats else {}

    def show(console: Console) -> None:
        print_answer(console, answer, limit)
        if settings.stats:
            console.print(_traffic_text(table, f"the catalog took {catalog}, data files {data}"))

    session.show({**answer_report(answer, limit), **traffic}, show)


def _asked(table: Table) -> Amount:
    """What was asked of the table's store by now."""
    return table.catalog.files.traffic.so_far


def _traffic_text(table: Table, said: str) -> str:
    return said if table.catalog.files.local_root is None else "files on a local disk: requests are not counted"


def _answer(scan: Scan, settings: QuerySettings, session: Session) -> pa.Table:
    from layoutopt.cli.startup import keep_what_is_loaded

    if settings.engine == "spark":
        from layoutopt.spark.core.variants import with_binaries

        return with_binaries(scan.to_spark(start_spark(session, table=settings.table_path))).toArrow()
    keep_what_is_loaded()
    return scan.to_arrow(settings.engine)


@add_verb(
    verbs, ExplainSettings, example="layoutopt explain tables/events \"SELECT * FROM events WHERE country = 'FR'\""
)
def explain(settings: ExplainSettings, session: Session) -> None:
    """Say which blocks a query reads, what skips the others, and for each predicate why it skips no more.

    Of the query only what it reads matters, so a bare condition will do.
    """
    if settings.predicate and settings.bytes:
        raise SettingError("--predicate and --bytes each print one thing and no more; give one of them")
    table = open_at(session, settings.table_path, settings, indexed=True)
    scan = _scan(table, settings.sql)
    result: BlockConditions | DryRun | Explanation
    if settings.predicate:
        from layoutopt.inspect.condition import block_conditions

        result = block_conditions(scan)
    elif settings.bytes:
        from layoutopt.inspect.dry_run import dry_run

        result = dry_run(scan)
    else:
        result = scan.explain()
    value, text = result.to_json(), str(result)
    if not settings.predicate and not settings.bytes:
        from layoutopt.inspect.work import costs_for, predicted_seconds, scan_work
        from layoutopt.report.texts import seconds_text

        seconds = predicted_seconds(costs_for(table, calibration_of(settings.calibration)), scan_work(scan))
        value, text = {**value, "predicted_seconds": seconds}, f"{text}\npredicted: {seconds_text(seconds)}"
    if table.catalog.files.local_root is None and not settings.predicate and not settings.bytes:
        asked = _asked(table)
        value, text = {**value, "traffic": {"catalog": asked.to_json()}}, f"{text}\nthe catalog took {asked}"
    if table.catalog.others is not None:
        from layoutopt.foreign.opening import not_indexed

        count = not_indexed(table.catalog)
        value = {**value, "files_not_indexed": count}
        text += f"\n{count:,} files are newer than the indexes and read whole; `refresh` measures them" if count else ""
    session.show(value, text)


def _scan(table: Table, text: str) -> Scan:
    """The scan of a SQL text, or of a condition alone."""
    is_query = re.match(r"[\s(]*(select|with|from|values|table)\b", text, re.IGNORECASE)
    return table.scan(text) if is_query else table.scan(where=text)


@add_verb(verbs, FilesSettings, example="layoutopt files tables/events")
def files(settings: FilesSettings, session: Session) -> None:
    """List the current snapshot's data files of one layout, for engines that read plain Parquet."""
    paths = open_at(session, settings.table_path, indexed=True).files(settings.layout)
    session.show(list(paths), "\n".join(paths))
