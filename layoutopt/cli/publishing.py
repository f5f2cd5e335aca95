"""Showing a table to other engines: `publish`."""

from __future__ import annotations

import typer

from layoutopt.cli.console import Session, add_verb
from layoutopt.config.keeping import PublishSettings

verbs = typer.Typer()


@add_verb(verbs, PublishSettings, example="layoutopt publish tables/events --as delta")
def publish(settings: PublishSettings, session: Session) -> None:
    """Show the newest snapshot as a Delta or Iceberg table over the same files; nothing is rewritten."""
    from layoutopt.publish import publishing
    from layoutopt.report.changes import print_publish

    place = publishing.publication(settings.table_path, settings.format, settings.to)
    if settings.forget:
        gone = publishing.stop(settings.table_path, place)
        said = {"table": settings.table_path, "format": place.format, "location": place.location, "forgotten": gone}
        session.show(said, f"{place.location} is no longer kept for: {gone} notes removed")
        return
    report = publishing.publish(settings.table_path, place)
    session.show(report.to_json(), lambda console: print_publish(console, report))
