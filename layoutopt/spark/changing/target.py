"""What partitions are to be laid out by when a table is optimized: which plan, and what queries would read by it."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace

import numpy as np
from pyspark.sql import SparkSession

from layoutopt.config.changing import OptimizeSettings
from layoutopt.config.documents import read_plan
from layoutopt.config.fields import parse_age
from layoutopt.errors import SchemaError, SettingError
from layoutopt.events import Progress
from layoutopt.inspect.entry_bytes import EntryBytes, entry_bytes
from layoutopt.inspect.losses import DatedLog
from layoutopt.model.arrays import Floats
from layoutopt.model.layout import Plan
from layoutopt.model.query import Query
from layoutopt.scan.table import Table
from layoutopt.spark.changing.fresh import fresh_plan
from layoutopt.spark.core.functions import check_plan
from layoutopt.workload.analyze import analyze
from layoutopt.workload.decay import decayed, times_of
from layoutopt.workload.log import read_log


@dataclass(frozen=True, eq=False)
class Target:
    """What partitions are to be laid out by.

    Attributes:
        plan: the plan.
        reads: what queries read of the table as it is.
        shares: what each of them would read by the plan of a full scan of what it reaches, ``float64[n_queries]``.
        log: the recent log with the times of its queries; None where that is not needed.
        half_life: of the statements of the log; None where all count alike.
    """

    plan: Plan
    reads: EntryBytes
    shares: Floats
    log: DatedLog | None = None
    half_life: dt.timedelta | None = None


def target_of(spark: SparkSession, table: Table, newest: Plan, settings: OptimizeSettings, say: Progress) -> Target:
    """The plan that settings ask for: a given one, one for the recent log, or the table's newest.

    Raises:
        SettingError: --auto or --half-life without a log.
        SchemaError: the given plan is of another table.
        LogError: the log can't be used; for --auto or a half-life also where a statement has no time.
        PlanError: the log has nothing to plan by.
    """
    if settings.log is None:
        for flag, given in (("--auto", settings.auto), ("--half-life", settings.half_life is not None)):
            if given:
                raise SettingError(f"{flag} goes by a recent log; give --log LOG too")
    plan = newest if settings.plan is None else _given(spark, settings, newest)
    if settings.log is None:
        return _by_plan(table, plan, plan.queries)
    queries = _queries_of(table, settings.log, settings)
    log, half_life = None, None
    if settings.auto or settings.half_life is not None:
        log = DatedLog(queries, times_of(queries, table.settings.time_zone))
        half_life = log.half_life() if settings.half_life is None else parse_age(settings.half_life)
        queries = decayed(queries, half_life, table.settings.time_zone)
    if settings.plan is not None:
        return replace(_by_plan(table, plan, queries), log=log, half_life=half_life)
    say("planning for the log")
    fresh = fresh_plan(spark, table, newest, queries, say)
    return Target(fresh.plan, fresh.reads, fresh.shares, log, half_life)


def _queries_of(table: Table, path: str, settings: OptimizeSettings) -> tuple[Query, ...]:
    entries = read_log(path, column=settings.column, dialect=settings.dialect)
    return analyze(entries, table.schema, table.name, settings.dialect, table.settings, table.udfs).queries


def _given(spark: SparkSession, settings: OptimizeSettings, newest: Plan) -> Plan:
    """The plan of a file, if it can be one of the table's."""
    assert settings.plan is not None
    plan = read_plan(settings.plan)
    check_plan(spark, plan, "the plan")
    if (plan.schema, plan.partition_by) != (newest.schema, newest.partition_by):
        raise SchemaError(
            f"the plan {str(settings.plan)!r} has other columns or partitions than the table; plan for the table's"
        )
    return plan


def _by_plan(table: Table, plan: Plan, queries: tuple[Query, ...]) -> Target:
    """What queries would read by a plan: as of the partitions that are by it, or as it predicts where there is none."""
    reads = entry_bytes(table, queries)
    there = [place for place, entry in enumerate(table.catalog.partitions) if _is_as_wanted(table, place, plan)]
    shares = reads.shares_of(there)
    if shares is None:
        full, reached = (float((reads.weights @ of).sum()) for of in (reads.full, reads.full * reads.reached))
        predicted = float(plan.predicted.get("bytes_fraction", 1.0))
        shares = np.full(len(reads.queries), predicted * full / reached if reached else 1.0)
    return Target(plan, reads, shares)


def _is_as_wanted(table: Table, place: int, plan: Plan) -> bool:
    entry = table.catalog.partitions[place]
    return entry.plan == plan.digest and len(table.catalog.snapshot.by_key[entry.key]) == 1
