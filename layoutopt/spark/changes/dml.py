"""Delete, update and merge rows of a table by Spark."""

from __future__ import annotations

from functools import partial

from layoutopt.changes import verbs
from layoutopt.changes.commit import ChangeReport
from layoutopt.events import NO_EVENTS, EventLog, Progress, silent
from layoutopt.model.requests import DeleteRequest, MergeRequest, UpdateRequest
from layoutopt.spark.changes.spark_change import open_for_change
from layoutopt.spark.core.sessions import AnySession


def delete_rows(
    spark: AnySession, request: DeleteRequest, say: Progress = silent, log: EventLog = NO_EVENTS
) -> ChangeReport:
    """Delete rows as :func:`layoutopt.changes.verbs.delete_rows`."""
    return verbs.delete_rows(partial(open_for_change, spark), request, say, log)


def update_rows(
    spark: AnySession, request: UpdateRequest, say: Progress = silent, log: EventLog = NO_EVENTS
) -> ChangeReport:
    """Update rows as :func:`layoutopt.changes.verbs.update_rows`."""
    return verbs.update_rows(partial(open_for_change, spark), request, say, log)


def merge_rows(
    spark: AnySession, request: MergeRequest, say: Progress = silent, log: EventLog = NO_EVENTS
) -> ChangeReport:
    """Merge a source as :func:`layoutopt.changes.verbs.merge_rows`."""
    return verbs.merge_rows(partial(open_for_change, spark), request, say, log)
