"""Tables as an Iceberg REST catalog: `serve`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import typer

from layoutopt.cli.console import Session, add_verb
from layoutopt.config.serving import ServeSettings
from layoutopt.extensions import require

if TYPE_CHECKING:
    from layoutopt.serve.tables import Tables

verbs = typer.Typer()


@add_verb(verbs, ServeSettings, example="layoutopt serve tables/events --port 8181")
def serve(settings: ServeSettings, session: Session) -> None:
    """Serve tables as an Iceberg REST catalog that plans scans, so that engines read few files; read only."""
    for library in ("pyiceberg", "starlette", "uvicorn"):
        require(library, "serve")
    from layoutopt.events import event_log
    from layoutopt.serve.guard import Limits
    from layoutopt.serve.running import Service, run

    limits = Limits(
        settings.max_body_bytes,
        settings.max_body_seconds,
        settings.max_requests,
        settings.threads,
        settings.max_filter_depth,
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
        session.show({"url": url, "tables": names}, f"serving {', '.join(names) or 'no table yet'} at {url}")
        sys.stdout.flush()

    with event_log(settings.log_json) as log, _ending_as_interrupted(), suppress(KeyboardInterrupt):
        run(service, say, log)


@contextmanager
def _ending_as_interrupted() -> Iterator[None]:
    """While the block runs, SIGTERM ends it as Ctrl-C does, so that what it made for itself is cleaned up."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
