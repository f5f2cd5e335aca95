"""Files that somebody else keeps: `index` and `refresh`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from layoutopt.cli.console import Session, add_verb
from layoutopt.config.indexing import IndexSettings, RefreshSettings
from layoutopt.errors import SettingError

if TYPE_CHECKING:
    from layoutopt.foreign.choosing import Trial
    from layoutopt.foreign.refreshing import ChooseIndexes
    from layoutopt.model.index_spec import IndexSpec
    from layoutopt.model.schema import Schema

verbs = typer.Typer()


@add_verb(
    verbs,
    IndexSettings,
    example="layoutopt index data/events --into indexes/events --index user:bloom --index url:ngrams",
)
def index(settings: IndexSettings, session: Session) -> None:
    """Index files that somebody else writes and keeps, so that `query` skips their row groups; they stay as they are.

    SOURCE is a folder of Parquet (names end in .parquet, .parq or .pq; Hive-style folders too), or a Delta or Iceberg
    table at its newest version. Files that are written later are read whole until `refresh` has measured them.
    """
    from layoutopt.foreign.listing import canonical

    _refresh(session, settings.into, canonical(settings.source), settings.table, _choice(settings))


@add_verb(verbs, RefreshSettings, example="layoutopt refresh indexes/events")
def refresh(settings: RefreshSettings, session: Session) -> None:
    """Bring the indexes of a source up to date: what is new or changed is measured, what is gone is forgotten."""
    from layoutopt.catalog.snapshots import source_of_index

    _refresh(session, settings.index, source_of_index(settings.index), None, None)


def _refresh(session: Session, into: str, source: str, table: str | None, choose: ChooseIndexes | None) -> None:
    from layoutopt.foreign import refreshing
    from layoutopt.report.changes import print_refresh
    from layoutopt.scan.arrow_types import any_arrow_type

    with session.working("indexing") as work:
        found = refreshing.refresh(into, source, table, choose, any_arrow_type, work.step)
    session.show(found.to_json(), lambda console: print_refresh(console, found))


def _choice(settings: IndexSettings) -> ChooseIndexes | None:
    """What names the indexes that are asked for; None where nobody asks."""
    if settings.log is None and settings.index_budget is not None:
        raise SettingError(f"--index-budget {settings.index_budget:g} chooses by a log, and there is none; give --log")
    if not settings.index and settings.log is None:
        return None

    def choose(schema: Schema, trial: Trial) -> tuple[IndexSpec, ...]:
        from layoutopt.indexes.asking import indexes_asked

        asked = indexes_asked(settings.index, schema)
        return tuple(dict.fromkeys((*asked, *_asked_by_log(settings, schema, trial))))

    return choose


def _asked_by_log(settings: IndexSettings, schema: Schema, trial: Trial) -> tuple[IndexSpec, ...]:
    if settings.log is None:
        return ()
    from layoutopt.foreign.choosing import within_budget
    from layoutopt.indexes.expressions import is_computed_here
    from layoutopt.indexes.suggesting import suggested_indexes
    from layoutopt.model.feature import FeatureSet
    from layoutopt.workload.analyze import analyze
    from layoutopt.workload.log import read_log

    entries = read_log(settings.log, column=settings.column, dialect=settings.dialect)
    queries = analyze(entries, schema, settings.table, settings.dialect).queries
    if settings.index_budget is not None:
        return within_budget(queries, trial, settings.index_budget)
    suggested = suggested_indexes(queries, FeatureSet(()))
    return tuple(one.spec for one in suggested if is_computed_here(one.spec.subject))
