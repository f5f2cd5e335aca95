"""Changes of a table's rows by Arrow alone."""

from __future__ import annotations

from functools import partial

from layoutopt.changes.arrow_change import open_without_spark
from layoutopt.changes.commit import ChangeReport
from layoutopt.changes.verbs import change_rows
from layoutopt.model.requests import ChangeRequest
from layoutopt.sources.door import Door


def change_without_spark(request: ChangeRequest, most_rows: int | None = None) -> ChangeReport:
    """Change a table's rows by Arrow alone."""
    return change_rows(Door(lambda _: partial(open_without_spark, most_rows)), request)
