"""A fresh plan: what the table would be planned as today, for the queries of a recent log.

It is planned on the table's own rows, by the method and parameters of the table's newest plan, so no source is needed
and nothing has to be asked of the user again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from pyspark.sql import SparkSession

from layoutopt.errors import PlanError
from layoutopt.events import Progress
from layoutopt.features.choose import mine_all
from layoutopt.inspect.entry_bytes import EntryBytes, entry_bytes, shares
from layoutopt.methods.proposals import BOTH, CUTS, FEATURES, PlanRequest
from layoutopt.model.arrays import Floats
from layoutopt.model.document import FeaturesDocument
from layoutopt.model.feature import FeatureSet
from layoutopt.model.layout import WEIGHTS, ByCuts, ByVectors, Plan
from layoutopt.model.query import Query, classes
from layoutopt.scan.table import Table
from layoutopt.spark.loading.same_rows import rows_of_entries
from layoutopt.spark.planning.plan import plan_and_rehearse
from layoutopt.spark.planning.row_order import NONE


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
