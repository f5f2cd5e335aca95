"""Rows put beside what a table has, in the place of others that are marked as deleted in the same commit."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from layoutopt.catalog.checks import Content
from layoutopt.events import Stages
from layoutopt.spark.changing.found import FoundIn
from layoutopt.spark.changing.marking import MarkReport, marks_of
from layoutopt.spark.changing.opened import Place
from layoutopt.spark.loading.job import Basis
from layoutopt.spark.loading.load import load
from layoutopt.writer.load_report import LoadReport


def put_beside(
    place: Place,
    operation: str,
    found: Sequence[FoundIn],
    come: DataFrame,
    watch: Stages,
    content: Content | None = None,
    *,
    alone: bool = False,
) -> tuple[LoadReport, MarkReport | None]:
    """Delete rows by vectors, and add others in entries of their own, as one commit.

    Args:
        place: the table in which the rows were found.
        operation: what the history calls it.
        found: the rows that go; none, where all rows are new.
        come: the rows that come, the same ones however often they are read.
        watch: times the stages.
        content: what ``come`` must have, of the columns of which that is known without it.
        alone: whether rows that somebody else adds to the partitions meanwhile are a conflict.

    Raises:
        ContentMismatchError: the rows have something else.
        CommitConflictError: somebody else changed one of the partitions meanwhile.
        LayoutoptError: as :func:`layoutopt.spark.loading.load.load`.
    """
    marks = marks_of(place, found, watch, alone=alone)
    basis = Basis(
        place.table.catalog.snapshot,
        f"the table {place.path!r}",
        values=None if place.plan.partition_by is None else place.values_in(come),
        whole=True,
        content=content,
        operation=operation,
        marks=marks,
    )
    done = load(place.spark, come, place.path, place.plan, basis=basis, stages=watch)
    return done, MarkReport.of(done.load_id, done.snapshot, marks) if marks.deleted else None
