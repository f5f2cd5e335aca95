"""Writing partitions into a table: `load` and `reload`."""

from __future__ import annotations

import typer

from layoutopt.cli.console import Session, add_verb
from layoutopt.cli.opening import start_spark
from layoutopt.config.reading import make_settings
from layoutopt.config.settings import LoadSettings, ReloadSettings
from layoutopt.errors import SettingError

verbs = typer.Typer()


@add_verb(
    verbs,
    LoadSettings,
    example="layoutopt load events.parquet tables/events --plan plan.json --partition day=2026-01-31",
)
def load(settings: LoadSettings, session: Session) -> None:
    """Write a source's partitions as blocks into a table, once each, and commit them once rows and checksums agree."""
    from layoutopt.events import event_log

    _check_plan_is_there(settings)
    # Only now: Spark takes seconds to import, and a bad file should not wait for it.
    from layoutopt.report.tables import print_loads
    from layoutopt.spark.loading.loads import load_by

    with session.working("loading") as work, event_log(settings.log_json) as log:
        spark = start_spark(session, table=settings.table_path, encrypt=settings.encrypt)
        report = load_by(spark, settings, work.say, log)
    session.show(report.to_json(), lambda console: print_loads(console, report))


@add_verb(
    verbs,
    ReloadSettings,
    example="layoutopt reload tables/events events.parquet --partition day=2026-01-31 --plan new.json",
)
def reload(settings: ReloadSettings, session: Session) -> None:
    """Load partitions once more in place of what they hold, by the table's plan or a new one."""
    if not settings.partition and settings.first is None and settings.last is None:
        raise SettingError(f"no partition of {settings.table_path!r} is named; give --partition, or --from and --to")
    given = {name: getattr(settings, name) for name in type(settings).model_fields}
    load(make_settings(LoadSettings, {**given, "replace": True}), session)


def _check_plan_is_there(settings: LoadSettings) -> None:
    """Before Spark starts: the plan's file can be read, unless the table has a plan itself."""
    from layoutopt.catalog.paths import MARKER
    from layoutopt.catalog.storage.filesystem import TableFiles
    from layoutopt.config.documents import DEFAULT_PLAN, read_plan

    if settings.plan is not None or not TableFiles(settings.table_path).exists(MARKER):
        read_plan(settings.plan or DEFAULT_PLAN)
