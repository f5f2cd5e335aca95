"""Define the verbs for external files and engines: `index`, `refresh`, `publish` and `serve`."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import typer

from layoutopt.cli.console import Session, add_verb
from layoutopt.config.settings import IndexSettings, PublishSettings, RefreshSettings, ServeSettings
from layoutopt.errors import SettingError
from layoutopt.extensions import require

if TYPE_CHECKING:
    from layoutopt.external.refresh import ChooseIndexes, Trial
    from layoutopt.model.index_spec import IndexSpec
    from layoutopt.model.schema import Schema
    from layoutopt.serve.tables import Tables


verbs = typer.Typer()


@add_verb(
    verbs,
    IndexSettings,
    example="layoutopt index data/events --into indexes/events --index user:bloom --index url:ngrams",
)
def index(settings: IndexSettings, session: Session) -> None:
    """Index external files to skip row groups.

    The files do not change. SOURCE is a folder of Parquet files (.parquet, .parq or .pq; also Hive-style folders), or a
    Delta or Iceberg table at its newest version. Later files are read whole until `refresh` has indexed them.
    """
    from layoutopt.external.listing import canonical_name

    _refresh(session, settings.into, canonical_name(settings.source), settings.table, _make_choice(settings))


@add_verb(verbs, RefreshSettings, example="layoutopt refresh indexes/events")
def refresh(settings: RefreshSettings, session: Session) -> None:
    """Update the indexes of external files.

    Indexes new and changed files, and drops entries of removed ones.
    """
    from layoutopt.catalog.table_root import source_of_index

    _refresh(session, settings.index, source_of_index(settings.index), None, None)


def _refresh(session: Session, into: str, source: str, table: str | None, choose: ChooseIndexes | None) -> None:
    from layoutopt.external import refresh as refreshing
    from layoutopt.report.changes import print_refresh

    with session.working("indexing") as work:
        report = refreshing.refresh(into, source, table, choose, work.step)
    session.show(report.to_json(), lambda console: print_refresh(console, report))


def _make_choice(settings: IndexSettings) -> ChooseIndexes | None:
    """Return the function that chooses the indexes; None to keep the existing ones."""
    if settings.log is None and settings.index_budget is not None:
        raise SettingError(f"--index-budget {settings.index_budget:g} needs a query log; give --log")
    if not settings.index and settings.log is None:
        return None

    def choose(schema: Schema, trial: Trial) -> tuple[IndexSpec, ...]:
        from layoutopt.indexes.choosing import parse_indexes

        specs = parse_indexes(settings.index, schema)
        return tuple(dict.fromkeys((*specs, *_choose_by_log(settings, schema, trial))))

    return choose


def _choose_by_log(settings: IndexSettings, schema: Schema, trial: Trial) -> tuple[IndexSpec, ...]:
    if settings.log is None:
        return ()
    from layoutopt.evaluation.expressions import is_computed_here
    from layoutopt.external.refresh import choose_within_budget
    from layoutopt.indexes.choosing import suggest_indexes
    from layoutopt.model.feature import FeatureSet
    from layoutopt.workload.analyze import analyze
    from layoutopt.workload.log import read_log

    entries = read_log(settings.log, column=settings.column, dialect=settings.dialect)
    queries = analyze(entries, schema, settings.table, settings.dialect).queries
    if settings.index_budget is not None:
        return choose_within_budget(queries, trial, settings.index_budget)
    specs = (suggestion.spec for suggestion in suggest_indexes(queries, FeatureSet(())))
    return tuple(spec for spec in specs if is_computed_here(spec.subject))


@add_verb(verbs, PublishSettings, example="layoutopt publish tables/events --as delta")
def publish(settings: PublishSettings, session: Session) -> None:
    """Publish a table as Delta or Iceberg.

    Shows the newest snapshot over the same files, without rewriting them.
    """
    from layoutopt.publish import publishing
    from layoutopt.report.changes import print_publish

    place = publishing.publication(settings.table_path, settings.format, settings.to)
    if settings.forget:
        count = publishing.stop_publishing(settings.table_path, place)
        value = {"table": settings.table_path, "format": place.format, "location": place.location, "forgotten": count}
        session.show(value, f"No files are kept for {place.location} any more: {count} records removed")
        return
    report = publishing.publish(settings.table_path, place)
    session.show(report.to_json(), lambda console: print_publish(console, report))


@add_verb(verbs, ServeSettings, example="layoutopt serve tables/events --port 8181")
def serve(settings: ServeSettings, session: Session) -> None:
    """Serve tables as an Iceberg REST catalog.

    The catalog is read-only and plans scans, so that engines read fewer files.
    """
    for library in ("pyiceberg", "starlette", "uvicorn"):
        require(library, "serve")
    from layoutopt.events import event_log
    from layoutopt.serve.app import Limits
    from layoutopt.serve.server import Service, run

    limits = Limits(
        settings.max_body_bytes,
        settings.max_body_seconds,
        settings.max_requests,
        settings.threads,
        settings.max_filter_depth,
        settings.max_bytes,
    )
    service = Service(
        settings.tables,
        settings.root,
        settings.host,
        settings.port,
        settings.token_file,
        settings.manifests,
        settings.history,
        limits,
    )

    def say(url: str, tables: Tables) -> None:
        names = [".".join((*namespace, name)) for namespace, name in sorted(tables.roots())]
        notes = tables.notes()
        text = f"serving {', '.join(names) or 'no table yet'} at {url}"
        session.show({"url": url, "tables": names, "notes": notes}, "\n".join([text, *notes]))
        sys.stdout.flush()

    with event_log(settings.log_json) as log, suppress(KeyboardInterrupt):
        run(service, say, log)
