"""What partitions are to be laid out by when a table is optimized: which plan, and what queries would read by it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from pyspark.sql import SparkSession

from layoutopt.config.documents import read_plan
from layoutopt.config.fields import parse_age
from layoutopt.config.settings import OptimizeSettings
from layoutopt.errors import PlanError, SchemaError, SettingError
from layoutopt.events import Progress
from layoutopt.features.selection import mine_all
from layoutopt.inspect.cost import EntryBytes, entry_bytes, shares
from layoutopt.inspect.drift import DatedLog
from layoutopt.methods.interface import BOTH, CUTS, FEATURES, PlanRequest
from layoutopt.model.arrays import Floats
from layoutopt.model.feature import FeatureSet
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.layout import WEIGHTS, ByCuts, ByVectors, Plan
from layoutopt.model.query import Query, classes
from layoutopt.scan.table import Table
from layoutopt.spark.core.functions import check_plan
from layoutopt.spark.loading.verify import rows_of_entries
from layoutopt.spark.planning.plan import plan_and_rehearse
from layoutopt.spark.planning.row_order import NONE
from layoutopt.workload.analyze import analyze
from layoutopt.workload.log import decayed, read_log, times_of

# ----------------------------------------------------------------------------------------------------
# A fresh plan: what the table would be planned as today, for the queries of a recent log.
#
# It is planned on the table's own rows, by the method and parameters of the table's newest plan, so no source is needed
# and nothing has to be asked of the user again.


@dataclass(frozen=True, eq=False)
class FreshPlan:
    """A plan for a log's queries, and what they would read by it.

    Attributes:
        plan: it may be in the table already.
        reads: what the queries read of the table as it is.
        shares: what each of them would read by the plan of a full scan of the partitions that it reaches,
            ``float64[n_queries]``.
    """

    plan: Plan
    reads: EntryBytes
    shares: Floats


def fresh_plan(spark: SparkSession, table: Table, newest: Plan, queries: Sequence[Query], say: Progress) -> FreshPlan:
    """Plan a table anew for a log's queries; a plan that the table has for just these is taken as it is.

    Args:
        spark: the session.
        table: at its newest snapshot.
        newest: its newest plan, whose method and parameters the fresh one has.
        queries: of the log, analysed.
        say: called with a short sentence at each stage.

    Raises:
        PlanError: no predicate of the log is worth a feature.
        LayoutoptError: as :func:`layoutopt.spark.planning.plan.make_plan`.
    """
    reads = entry_bytes(table, queries)
    features = mine_all(queries, newest.schema, settings=newest.settings)
    if not len(features):
        raise PlanError("no predicate recurs in the log often enough to plan by; give a longer log, or leave it out")
    for plan in table.catalog.plans.values():
        if plan.older_layouts:  # made so that little had to be written, not as a fresh plan would have it
            continue
        if _same_features(plan.features, features) and _same_queries(plan.queries, queries):
            mine = [place for place, entry in enumerate(table.catalog.partitions) if entry.plan == plan.digest]
            if (known := reads.shares_of(mine)) is not None:
                return FreshPlan(plan, reads, known)
    document = FeaturesDocument(newest.table, newest.schema, features, tuple(queries))
    rows = rows_of_entries(spark, table, table.catalog.partitions)
    plan, rehearsed = plan_and_rehearse(spark, rows, document, request_like(newest), say)
    plan, found = _written_as(plan, newest), None
    if rehearsed is not None and rehearsed.reached:
        found = shares(np.array(rehearsed.read), np.array(rehearsed.reached), reads.weights)
    if found is None:
        raise PlanError("no query of the log reads a partition of the table; give a log of queries that do")
    return FreshPlan(plan, reads, found)


def _written_as(plan: Plan, other: Plan) -> Plan:
    """The plan with the indexes and the kind of files of another."""
    return replace(plan, indexes=other.indexes, file_bytes=other.file_bytes, parquet_indexes=other.parquet_indexes)


def _same_features(some: FeatureSet, others: FeatureSet) -> bool:
    return [feature.predicates for feature in some] == [feature.predicates for feature in others]


def _same_queries(some: Sequence[Query], others: Sequence[Query]) -> bool:
    def weighed(queries: Sequence[Query]) -> set[tuple[object, ...]]:
        return {(query.filter.root, query.columns, round(query.weight, 9)) for query in classes(queries)}

    return weighed(some) == weighed(others)


def request_like(plan: Plan) -> PlanRequest:
    """What was asked of a plan, as far as the plan tells: as a storage budget, what it stores.

    A plan doesn't tell how its layouts were searched for, so they are searched for as by default.
    """
    first = plan.scheme.layouts[0].blocking
    vectors = next((each.blocking for each in plan.scheme.layouts if isinstance(each.blocking, ByVectors)), None)
    usual = PlanRequest()
    guides = FEATURES
    if isinstance(first, ByCuts):
        guides = BOTH if plan.scheme.layouts[0].features else CUTS
    return PlanRequest(
        method=plan.method,
        partition_by=plan.partition_by,
        guides=guides if plan.method == "sop" else FEATURES,
        partitioner=usual.partitioner if vectors is None else vectors.algorithm,
        weights=usual.weights if vectors is None else str(dict(vectors.params).get(WEIGHTS, usual.weights)),
        block_rows=plan.block_rows,
        segment_rows=plan.segment_rows,
        max_vectors=plan.max_vectors,
        seed=plan.seed,
        codec=plan.codec,
        storage_budgets=(max(1.0, plan.predicted.get("storage_cells", usual.chosen_budget)),),
        row_order=None if any(layout.row_order for layout in plan.scheme.layouts) else (NONE,),
    )


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
