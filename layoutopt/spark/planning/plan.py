"""Planning: features and queries, and what is counted of the source, become a plan."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame

from layoutopt.config.settings import PlanSettings
from layoutopt.errors import PlanError
from layoutopt.events import Progress
from layoutopt.features.sharpen import sharpest
from layoutopt.methods.interface import FEATURES, TEXT, Known, PartitionHistogram, PlanningInput, PlanRequest
from layoutopt.methods.registry import check_request, find_method, is_counted, is_sampled
from layoutopt.methods.strategies import REPLICATING
from layoutopt.model.documents import FeaturesDocument
from layoutopt.model.feature import Feature, FeatureSet
from layoutopt.model.layout import Plan, Scheme
from layoutopt.model.predicates import Comparison
from layoutopt.model.query import classes
from layoutopt.model.schema import Schema
from layoutopt.partitioning.registry import with_effort
from layoutopt.search.problem import Unit
from layoutopt.spark.core.failures import translate_spark_errors
from layoutopt.spark.core.functions import check_features
from layoutopt.spark.core.sessions import AnySession, has_local_paths, started
from layoutopt.spark.core.source import check_partition_column, conformed, open_source
from layoutopt.spark.planning.row_order import found_order, is_searched, with_order_asked
from layoutopt.spark.planning.sample_evaluation import unit_in_bytes
from layoutopt.spark.planning.segment_evaluation import Rehearsed, Trial, rehearse_segments
from layoutopt.spark.planning.source_profile import (
    Counting,
    Rows,
    count_histograms,
    get_ready,
    heaviest,
    rows_to_plan,
    sample_histograms,
)

ALONE: Final = "sop"
"""The method of a single layout; what ``auto`` is where there are no queries to choose by."""

_GROUPS: Final = "gsop"

NUM_FEATURES = 40
"""Features among which those are chosen that guide the blocking of a single layout."""


DEFAULTS = PlanRequest()
"""One layout by the features, without partitions."""


def make_plan(
    spark: AnySession,
    source: DataFrame | str | Path,
    document: FeaturesDocument,
    request: PlanRequest = DEFAULTS,
    progress: Progress | None = None,
    known: Known | None = None,
    rows: Rows | None = None,
) -> Plan:
    """Plan a table's layout from its source and the analysed workload.

    Args:
        spark: the session, whose settings must be the document's; or what starts one, which is not asked where the
            source is read without.
        source: rows, or a path to Parquet.
        document: features and queries.
        request: how to plan.
        progress: called with a short sentence at each stage, and for every feature given up.
        known: what was found for other requests about this very source and document, and is kept for the next.
        rows: the source's, where :func:`opened` has given them before.

    Raises:
        SettingError: a bad request, or settings that are not the document's.
        SchemaError: the source's schema is not the document's, or there is no such column.
        PlanError: too few features are left.
        SourceError: the source can't be read.
        BoundError: there are too many distinct vectors, even of few features.
    """
    return plan_and_rehearse(spark, source, document, request, progress, known, rows)[0]


def plan_and_rehearse(
    spark: AnySession,
    source: DataFrame | str | Path,
    document: FeaturesDocument,
    request: PlanRequest = DEFAULTS,
    progress: Progress | None = None,
    known: Known | None = None,
    rows: Rows | None = None,
) -> tuple[Plan, Rehearsed | None]:
    """A plan as by :func:`make_plan`, and what its queries read of it where it was rehearsed; None without queries."""
    say = progress or (lambda sentence: None)
    counting, request = _asked(spark, source, document, request, say, rehearsed=bool(document.queries), rows=rows)
    with translate_spark_errors(_shown(source)):
        return _planned_and_rehearsed(counting, document, request, known or Known())


def _planned_and_rehearsed(
    of: Counting, document: FeaturesDocument, request: PlanRequest, known: Known
) -> tuple[Plan, Rehearsed | None]:
    plans = [_planned(of, document, request, known, is_rehearsed=bool(of.queries))]
    if not of.queries:
        return plans[0], None
    if request.method == _GROUPS and len(plans[0].scheme.layouts) == 1 and request.search != TEXT:
        of.say(f"no columns go apart: trying all together as {ALONE} blocks them, too")
        alone = _planned(of, document, replace(request, method=ALONE, guides=FEATURES), Known())
        plans.append(replace(alone, method=request.method))
    search = is_searched(request)
    of.say("rehearsing segments, for the order of rows within blocks" if search else "rehearsing segments")
    tried = rehearse_segments(of.rows, [Trial(plan, search) for plan in plans], of.queries)
    rehearsed = min(tried, key=lambda each: each.bytes_read(of.queries))
    predicted = {**rehearsed.plan.predicted, "bytes_fraction": round(rehearsed.fraction(of.queries), 6)}
    return replace(rehearsed.plan, predicted=predicted, reads=rehearsed.shares()), rehearsed


def propose_plan(
    spark: AnySession,
    source: DataFrame | str | Path,
    document: FeaturesDocument,
    request: PlanRequest = DEFAULTS,
    known: Known | None = None,
) -> Plan:
    """A plan as its method proposes it, with the arguments and errors of :func:`make_plan`.

    Nothing is rehearsed: rows within blocks have no order but one that was named, no bytes are predicted, and where
    GSOP ends with all columns together, SOP's blocking of them is not tried.
    """
    counting, request = _asked(spark, source, document, request, lambda sentence: None, rehearsed=False)
    with translate_spark_errors(_shown(source)):
        return _planned(counting, document, request, known or Known())


def _asked(
    spark: AnySession,
    source: DataFrame | str | Path,
    document: FeaturesDocument,
    request: PlanRequest,
    say: Progress,
    *,
    rehearsed: bool,
    rows: Rows | None = None,
) -> tuple[Counting, PlanRequest]:
    """What counts the source's rows for a request that is checked, and the request for that source."""
    check_request(request)
    request = _with_names(request, document.schema)
    if rows is None and (rehearsed or is_sampled(request.method) or is_counted(request)):
        rows = opened(spark, source, document, request, say)
    elif rows is None:
        rows = opened_by_spark(spark, source, document, request.partition_by)
    queries = tuple(classes(document.queries))
    return Counting(rows, queries, document.schema, request.partition_by, request.max_vectors, say), request


def _shown(source: DataFrame | str | Path) -> str:
    return "DataFrame" if isinstance(source, DataFrame) else repr(str(source))


def _planned(
    of: Counting, document: FeaturesDocument, request: PlanRequest, known: Known, is_rehearsed: bool = False
) -> Plan:
    """What a method plans, from what it needs to know of the source; whether the plan will be rehearsed."""
    features = guiding_features(document, request.method, request.num_features)
    partitions: tuple[PartitionHistogram, ...] = ()
    unit: Unit | None = None
    if is_sampled(request.method):
        of.say("sampling feature vectors")
        partitions = known.once("samples", request, lambda: sample_histograms(of, features))
        if needs_bytes(request):
            of.say("measuring the bytes of cells")
            middle = partitions[len(partitions) // 2]
            of_middle = middle.value, middle.rows
            unit = known.once("bytes", request, lambda: unit_in_bytes(of.rows, features, of_middle, request))
    elif is_counted(request):
        of.say("counting feature vectors")
        features, partitions = count_histograms(of, features)
    if (is_sampled(request.method) or is_counted(request)) and len(features) < request.min_features:
        raise PlanError(
            f"{len(features)} features fit max_vectors={request.max_vectors}, not {request.min_features}; "
            "raise max_vectors"
        )
    of.say(f"planning by {request.method}")
    if is_rehearsed:
        get_ready(of.rows)
    planning = PlanningInput(request, document.schema, features, of.queries, partitions, unit, known)
    plan = plan_from(document, planning)
    return with_order_asked(plan, request)


def opened(
    spark: AnySession,
    source: DataFrame | str | Path,
    document: FeaturesDocument,
    request: PlanRequest,
    say: Progress,
) -> Rows:
    """The source's rows as the document has their columns.

    Raises:
        SettingError, SchemaError, SourceError: as :func:`make_plan`.
    """
    partition_by = _with_names(request, document.schema).partition_by
    by_spark = partial(opened_by_spark, spark, source, document, partition_by)
    if not callable(spark):
        check_features(spark, document.features, "the features document")
        if not has_local_paths(spark):
            return by_spark()
    # Few rows alone are not worth starting Spark for.
    return rows_to_plan(
        by_spark, source, document.schema, partition_by, document.features, say, few_too=callable(spark)
    )


def _with_names(request: PlanRequest, schema: Schema) -> PlanRequest:
    """The request with columns named as the schema does."""
    partition_by = None if request.partition_by is None else schema.find(request.partition_by).name
    by = tuple(schema.find(name).name for name in request.by)
    return replace(request, partition_by=partition_by, by=by, row_order=found_order(request, schema))


def opened_by_spark(
    spark: AnySession, source: DataFrame | str | Path, document: FeaturesDocument, partition_by: str | None
) -> DataFrame:
    """The source's rows as Spark has them, and the document their columns.

    Raises:
        SettingError, SchemaError, SourceError: as :func:`make_plan`.
    """
    session = started(spark)
    check_features(session, document.features, "the features document")
    rows = conformed(open_source(session, source), document.schema, "the features document")
    check_partition_column(rows, partition_by)
    return rows


def needs_bytes(request: PlanRequest) -> bool:
    """Whether the method goes by what cells take, or predicts it."""
    copies = request.method in REPLICATING and not (request.method == "gsop-r" and request.search == TEXT)
    return is_sampled(request.method) and (request.cost == "bytes" or copies)


def plan_from(document: FeaturesDocument, planning: PlanningInput) -> Plan:
    """The plan of the method asked for, which measures every feature of the document."""
    request = planning.request
    proposal = find_method(request.method)(planning)
    return Plan(
        table=document.table,
        schema=document.schema,
        partition_by=request.partition_by,
        method=request.method,
        features=document.features,
        queries=planning.queries,
        scheme=_among(proposal.scheme, planning.features, document.features),
        block_rows=request.block_rows,
        segment_rows=request.segment_rows,
        max_vectors=request.max_vectors,
        seed=request.seed,
        codec=request.codec,
        settings=document.features.settings,
        predicted=proposal.predicted,
    )


def request_of(settings: PlanSettings) -> PlanRequest:
    """What the settings of ``layoutopt plan`` ask."""
    return PlanRequest(
        method=settings.method,
        partition_by=settings.partition_by,
        by=tuple(settings.by),
        guides=FEATURES if settings.guides == "auto" else settings.guides,
        num_features=settings.num_features,
        block_rows=settings.block_rows,
        segment_rows=settings.segment_rows,
        max_vectors=settings.max_vectors,
        seed=settings.seed,
        codec=settings.codec,
        cost=settings.cost,
        storage_budgets=tuple(settings.storage_budget),
        choose=settings.choose,
        budget_unit=settings.budget_unit,
        copies=settings.copies,
        partitioner=with_effort(settings.partitioner, settings.effort),
        weights=settings.weights,
        slices=settings.slices,
        row_order=settings.row_order,
        search=settings.search,
        local_features=settings.local_features,
    )


def guiding_features(document: FeaturesDocument, method: str, num_features: int | None) -> FeatureSet:
    """The features that guide the blocking.

    Several layouts choose among all, and a qd-tree cuts by all. Any other layout that stands alone takes the strictest,
    since they compete (Sun 2017, figure 3.7), and none about the columns that the analysis excluded (dates): it is cut
    by these, which serves constants not seen yet too.
    """
    features = document.features
    if is_sampled(method) or method == "qdtree":
        return heaviest(features, num_features)
    excluded = set(document.exclude_columns)
    free = features.only(i for i, feature in enumerate(features) if not _has_range_of(feature, excluded))
    strict = free.only(sharpest(free, document.queries))
    return heaviest(strict, NUM_FEATURES if num_features is None else num_features)


def _has_range_of(feature: Feature, columns: set[str]) -> bool:
    """Whether a predicate of the feature is about single ones of the columns; a comparison of two is not."""
    return any(
        predicate.columns <= columns and not any(isinstance(literal, Comparison) for literal in predicate.literals)
        for predicate in feature.predicates
    )


def _among(scheme: Scheme, guiding: FeatureSet, features: FeatureSet) -> Scheme:
    """The scheme with its features counted among all of the document's, which are all measured, so that all skip.

    Plans of one document then have the same bits, whatever guides their blocking.
    """
    place = {feature: i for i, feature in enumerate(features)}
    of = [place[feature] for feature in guiding]
    layouts = (
        replace(layout, features=tuple(of[i] for i in layout.features), guides=tuple(of[i] for i in layout.guides))
        for layout in scheme.layouts
    )
    return Scheme(tuple(layouts))
