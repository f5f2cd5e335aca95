"""Choose the plan by which a table is optimized, and estimate what queries would read by it.

A fresh plan is made from the table's own rows for the queries of a recent log, with the method and parameters of the
table's newest plan, so neither the source nor these settings are needed again.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np
from pyspark.sql import SparkSession

from layoutopt.config.documents import read_plan
from layoutopt.config.fields import parse_age
from layoutopt.errors import PlanError, SchemaError, SettingError
from layoutopt.events import Progress
from layoutopt.features.selection import mine_all
from layoutopt.inspect.cost import EntryBytes, measure_entry_bytes, shares
from layoutopt.inspect.drift import DatedLog
from layoutopt.methods.interface import BOTH, CUTS, FEATURES, PlanRequest
from layoutopt.model.arrays import Floats
from layoutopt.model.feature import FeatureSet
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.layout import ByCuts, ByVectors, Plan
from layoutopt.model.query import Query, group_queries
from layoutopt.model.requests import OptimizeRequest
from layoutopt.planning.plan import plan_and_try
from layoutopt.planning.row_order import NONE
from layoutopt.scan.table import Table
from layoutopt.spark.core.functions import check_plan
from layoutopt.spark.loading.verify import rows_of_entries
from layoutopt.spark.planning.source_rows import open_source_rows
from layoutopt.workload.analyze import analyze
from layoutopt.workload.log import decay_weights, query_times, read_log

# Methods of older plans, and those that plan in their place.
_SUCCESSORS: Final = MappingProxyType(
    {
        **dict.fromkeys(("gsop-single", "gsop-hillclimb", "gsop-hyrise"), "gsop"),
        **dict.fromkeys(("gsop-selective", "gsop-fullcopy"), "gsop-r"),
    }
)


@dataclass(frozen=True, eq=False)
class Target:
    """The wanted layout of a table.

    Attributes:
        plan: the wanted plan; may be a plan of the table.
        reads: what queries read of the table now.
        shares: what each query would read by the plan, as a share of a full scan of what it reaches,
            ``float64[n_queries]``.
        log: the recent log with the times of its queries, if needed.
        half_life: the half-life of the statements' weights; None if all weigh the same.
    """

    plan: Plan
    reads: EntryBytes
    shares: Floats
    log: DatedLog | None = None
    half_life: dt.timedelta | None = None


def make_fresh_plan(spark: SparkSession, table: Table, newest: Plan, queries: Sequence[Query], say: Progress) -> Target:
    """Plan a table for a log's queries; a plan that the table already has for them is reused.

    Args:
        table: at its newest snapshot.
        newest: its newest plan, whose method and parameters are used.
        queries: the log's analysed queries.

    Raises:
        PlanError: the log has no feature, or no query that reads a partition of the table.
        LayoutoptError: as :func:`layoutopt.planning.plan.make_plan`.
    """
    reads = measure_entry_bytes(table, queries)
    features = mine_all(queries, newest.schema, settings=newest.settings)
    if not len(features):
        raise PlanError("no predicate recurs in the log often enough for a feature; use a longer log, or omit --log")
    for plan in table.catalog.plans.values():
        if plan.older_layouts:  # of a partial rewrite: chosen to write little
            continue
        if _same_features(plan.features, features) and _key_queries(plan.queries) == _key_queries(queries):
            indexes = [index for index, entry in enumerate(table.catalog.partitions) if entry.plan == plan.digest]
            if (known := reads.shares_of(indexes)) is not None:
                return Target(plan, reads, known)
    document = FeaturesDocument(newest.table, newest.schema, features, tuple(queries))
    rows = rows_of_entries(spark, table, table.catalog.partitions)
    plan, tried = plan_and_try(partial(open_source_rows, spark, rows), document, request_like(newest), say)
    plan = replace(plan, indexes=newest.indexes, file_bytes=newest.file_bytes, parquet_indexes=newest.parquet_indexes)
    expected = None
    if tried is not None and tried.reached:
        expected = shares(np.array(tried.read), np.array(tried.reached), reads.weights)
    if expected is None:
        raise PlanError("no query of the log reads a partition of the table; use a log with queries that do")
    return Target(plan, reads, expected)


def _same_features(features: FeatureSet, fresh: FeatureSet) -> bool:
    return [feature.predicates for feature in features] == [feature.predicates for feature in fresh]


def _key_queries(queries: Sequence[Query]) -> set[tuple[object, ...]]:
    return {(query.filter.root, query.columns, round(query.weight, 9)) for query in group_queries(queries)}


def request_like(plan: Plan) -> PlanRequest:
    """Return a request for a plan of the same kind; the storage budget is what the plan stores.

    A plan doesn't record how its layouts were searched for, so the search has its default request.
    """
    first = plan.scheme.layouts[0].blocking
    vectors = next((layout.blocking for layout in plan.scheme.layouts if isinstance(layout.blocking, ByVectors)), None)
    usual = PlanRequest()
    guides = FEATURES
    if isinstance(first, ByCuts):
        guides = BOTH if plan.scheme.layouts[0].features else CUTS
    return PlanRequest(
        method=_SUCCESSORS.get(plan.method, plan.method),
        partition_by=plan.partition_by,
        guides=guides if plan.method == "sop" else FEATURES,
        partitioner=usual.partitioner if vectors is None else vectors.algorithm,
        block_rows=plan.block_rows,
        segment_rows=plan.segment_rows,
        max_vectors=plan.max_vectors,
        seed=plan.seed,
        codec=plan.codec,
        storage_budget=(max(1.0, plan.predicted.get("storage_cells", usual.chosen_budget)),),
        row_order=None if any(layout.row_order for layout in plan.scheme.layouts) else (NONE,),
    )


def find_target(spark: SparkSession, table: Table, newest: Plan, request: OptimizeRequest, say: Progress) -> Target:
    """Return the target that the settings ask for: by a given plan, a fresh one for the log, or the table's newest.

    Raises:
        SettingError: --auto or --half-life without --log.
        SchemaError: the given plan is for another table.
        LogError: the log can't be used, or has statements without a time with --auto or --half-life.
        PlanError: the log has nothing to plan by.
    """
    check_flags(request)
    plan = newest if request.plan is None else _read_plan(spark, request.plan, newest)
    if request.log is None:
        return _estimate_target(table, plan, plan.queries)
    entries = read_log(request.log, column=request.column, dialect=request.dialect)
    queries = analyze(entries, table.schema, table.name, request.dialect, table.settings, table.udfs).queries
    log, half_life = None, None
    if request.auto or request.half_life is not None:
        log = DatedLog(queries, query_times(queries, table.settings.time_zone))
        half_life = log.half_life() if request.half_life is None else parse_age(request.half_life)
        queries = decay_weights(queries, half_life, table.settings.time_zone)
    if request.plan is not None:
        return replace(_estimate_target(table, plan, queries), log=log, half_life=half_life)
    say("planning for the log")
    return replace(make_fresh_plan(spark, table, newest, queries, say), log=log, half_life=half_life)


def check_flags(request: OptimizeRequest) -> None:
    """Raise SettingError for flags that need a log."""
    if request.log is None:
        for flag, is_set in (("--auto", request.auto), ("--half-life", request.half_life is not None)):
            if is_set:
                raise SettingError(f"{flag} needs a recent log; set --log LOG")


def _read_plan(spark: SparkSession, path: Path, newest: Plan) -> Plan:
    plan = read_fitting_plan(path, newest)
    check_plan(spark, plan, "the plan")
    return plan


def read_fitting_plan(path: Path, newest: Plan) -> Plan:
    """Read a plan for a table, whose newest plan is given; raise SchemaError if it is for another table."""
    plan = read_plan(path)
    if (plan.schema, plan.partition_by) != (newest.schema, newest.partition_by):
        raise SchemaError(
            f"the plan {str(path)!r} has other columns or partitions than the table; make a plan with the table's"
        )
    return plan


def _estimate_target(table: Table, plan: Plan, queries: tuple[Query, ...]) -> Target:
    """Estimate what queries read by a plan, from the partitions that have it, or else from the plan's prediction."""
    reads = measure_entry_bytes(table, queries)
    by_key = table.catalog.snapshot.by_key
    partitions = enumerate(table.catalog.partitions)
    indexes = [i for i, entry in partitions if entry.plan == plan.digest and len(by_key[entry.key]) == 1]
    shares = reads.shares_of(indexes)
    if shares is None:
        full, reached = (float((reads.weights @ sizes).sum()) for sizes in (reads.full, reads.full * reads.reached))
        predicted = float(plan.predicted.get("bytes_fraction", 1.0))
        shares = np.full(len(reads.queries), predicted * full / reached if reached else 1.0)
    return Target(plan, reads, shares)
