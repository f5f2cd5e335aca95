"""Make a plan from features and queries, and from what is counted of the source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeAlias

from layoutopt.errors import PlanError, SettingError
from layoutopt.events import Progress, silent
from layoutopt.features.sharpen import sharpest
from layoutopt.methods.interface import FEATURES, PartitionHistogram, PlanningCache, PlanningInput, PlanRequest
from layoutopt.methods.registry import check_request, find_method, is_counted, is_sampled
from layoutopt.methods.strategies import REPLICATING
from layoutopt.model.feature import Feature, FeatureSet
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.layout import Plan, Scheme
from layoutopt.model.methods import AUTO
from layoutopt.model.predicates import Comparison
from layoutopt.model.query import group_queries
from layoutopt.model.schema import Schema
from layoutopt.planning.pairs import Pairs, digest_document
from layoutopt.planning.row_order import is_order_searched, resolve_row_order, with_requested_order
from layoutopt.planning.rows import SourceRows
from layoutopt.planning.sample_evaluation import unit_in_bytes
from layoutopt.planning.segment_evaluation import Trial, TrialResult, try_on_segments
from layoutopt.planning.source_profile import (
    CountRequest,
    count_histograms,
    count_rows,
    sample_histograms,
    select_heaviest,
)
from layoutopt.search.problem import Unit

# The method of a single layout, which ``auto`` uses where there are no queries to choose by.
SINGLE_LAYOUT: Final = "sop"
_GROUPS: Final = "gsop"
# Features from which those are chosen that guide the blocking of a single layout.
NUM_FEATURES = 40
DEFAULTS: Final = PlanRequest()


# Opens a source's rows under a document's columns, for a request; progress receives why Spark reads them.
OpenRows: TypeAlias = "Callable[[FeaturesDocument, PlanRequest, Progress], SourceRows]"


def make_plan(
    open_rows: OpenRows,
    document: FeaturesDocument,
    request: PlanRequest = DEFAULTS,
    progress: Progress = silent,
    known: PlanningCache | None = None,
    rows: SourceRows | None = None,
) -> Plan:
    """Plan a table's layout from its source and the analysed workload.

    Args:
        open_rows: opens the source.
        document: features and queries.
        request: by default without partitions. The method ``auto`` is one layout here, by features.
        progress: called with a short sentence at each stage, and for every feature given up.
        known: results for other requests about this source and document, to be reused and added to.
        rows: the source's, if they are open.

    Raises:
        SettingError: a bad request, or settings that are not the document's.
        SchemaError: the source's schema is not the document's, or there is no such column.
        PlanError: too few features are left.
        SourceError: the source can't be read.
        BoundError: there are too many distinct vectors, even of few features.
    """
    return plan_and_try(open_rows, document, request, progress, known, rows)[0]


def plan_and_try(
    open_rows: OpenRows,
    document: FeaturesDocument,
    request: PlanRequest = DEFAULTS,
    progress: Progress = silent,
    known: PlanningCache | None = None,
    rows: SourceRows | None = None,
) -> tuple[Plan, TrialResult | None]:
    """Plan as :func:`make_plan`, and return what queries read of the plan on segments; None without queries."""
    known = known or PlanningCache()
    counting, request = _prepare(open_rows, document, request, progress, rows)
    say, queries = counting.say, counting.queries
    plans = [_propose(counting, document, request, known, is_tried=bool(queries))]
    if not queries:
        return plans[0], None
    if request.method == _GROUPS and len(plans[0].scheme.layouts) == 1:
        say(f"no columns are stored apart: trying {SINGLE_LAYOUT}'s blocks of all columns, too")
        single = _propose(counting, document, replace(request, method=SINGLE_LAYOUT, guides=FEATURES), PlanningCache())
        plans.append(replace(single, method=request.method))
    search = is_order_searched(request)
    say("trying segments, for the order of rows within blocks" if search else "trying segments")
    results = try_on_segments(counting.rows, [Trial(plan, search) for plan in plans], queries)
    best = min(results, key=lambda result: result.bytes_read(queries))
    predicted = {**best.plan.predicted, "bytes_fraction": round(best.fraction(queries), 6)}
    return replace(best.plan, predicted=predicted, reads=best.shares()), best


def propose_plan(
    open_rows: OpenRows,
    document: FeaturesDocument,
    request: PlanRequest = DEFAULTS,
    known: PlanningCache | None = None,
) -> Plan:
    """Return the plan that the method proposes, with the arguments and errors of :func:`make_plan`.

    No segments are tried: rows within blocks have no order but a named one, no bytes are predicted, and where GSOP ends
    with all columns together, SOP's blocking of them is not tried.
    """
    counting, request = _prepare(open_rows, document, request, silent)
    return _propose(counting, document, request, known or PlanningCache())


def count_pairs(
    open_rows: OpenRows, document: FeaturesDocument, request: PlanRequest = DEFAULTS, progress: Progress = silent
) -> Pairs:
    """Return what :func:`make_plan` counts of the source, with its arguments and errors.

    Raises:
        SettingError: the method counts nothing.
    """
    counting, request = _prepare(open_rows, document, replace(request, pairs=None), progress)
    is_sample = is_sampled(request.method)
    if not (is_sample or is_counted(request)):
        raise SettingError(
            f"the method {request.method!r} counts no feature vectors; plan by it without pairs, or name another"
        )
    features = guiding_features(document, request.method, request.num_features)
    progress("counting feature vectors")
    counts = count_rows(counting, features, is_sample=is_sample)
    return Pairs(digest_document(document), features, is_sample, counts)


def _prepare(
    open_rows: OpenRows,
    document: FeaturesDocument,
    request: PlanRequest,
    say: Progress,
    rows: SourceRows | None = None,
) -> tuple[CountRequest, PlanRequest]:
    """Check the request, and return what counts the source's rows for it, and the request with its columns' names."""
    if request.method == AUTO:
        request = replace(request, method=SINGLE_LAYOUT)
    check_request(request)
    request = resolve_names(request, document.schema)
    rows = open_rows(document, request, say) if rows is None else rows
    queries = tuple(group_queries(document.queries))
    assert not isinstance(request.pairs, Path), "pairs are read with the document that they are of"
    return CountRequest(rows, queries, document.schema, request.max_vectors, say, request.pairs), request


def _propose(
    counting: CountRequest,
    document: FeaturesDocument,
    request: PlanRequest,
    known: PlanningCache,
    is_tried: bool = False,
) -> Plan:
    features = guiding_features(document, request.method, request.num_features)
    partitions: tuple[PartitionHistogram, ...] = ()
    unit: Unit | None = None
    if is_sampled(request.method):
        counting.say("sampling feature vectors")
        partitions = known.once("samples", request, lambda: sample_histograms(counting, features))
        if needs_bytes(request):
            counting.say("measuring the bytes of cells")
            middle = partitions[len(partitions) // 2]
            partition = middle.value, middle.rows
            unit = known.once("bytes", request, lambda: unit_in_bytes(counting.rows, features, partition, request))
    elif is_counted(request):
        counting.say("counting feature vectors")
        features, partitions = count_histograms(counting, features)
    if (is_sampled(request.method) or is_counted(request)) and not features:
        raise PlanError(f"no feature fits max_vectors={request.max_vectors}; raise max_vectors")
    counting.say(f"planning by {request.method}")
    if is_tried:
        counting.rows.source.warm_up()
    planning = PlanningInput(request, document.schema, features, counting.queries, partitions, unit, known)
    return with_requested_order(build_plan(document, planning), request)


def resolve_names(request: PlanRequest, schema: Schema) -> PlanRequest:
    """Return the request with the names of columns as the schema spells them."""
    partition_by = None if request.partition_by is None else schema.find(request.partition_by).name
    by = tuple(schema.find(name).name for name in request.by)
    return replace(request, partition_by=partition_by, by=by, row_order=resolve_row_order(request, schema))


def needs_bytes(request: PlanRequest) -> bool:
    """Whether the method needs the bytes of cells, or predicts bytes."""
    return request.method in REPLICATING or (is_sampled(request.method) and request.cost == "bytes")


def build_plan(document: FeaturesDocument, planning: PlanningInput) -> Plan:
    """Build the plan of the requested method, in which every feature of the document is measured."""
    request = planning.request
    proposal = find_method(request.method)(planning)
    return Plan(
        table=document.table,
        schema=document.schema,
        partition_by=request.partition_by,
        method=request.method,
        features=document.features,
        queries=planning.queries,
        scheme=_renumber(proposal.scheme, planning.features, document.features),
        block_rows=request.block_rows,
        segment_rows=request.segment_rows,
        max_vectors=request.max_vectors,
        seed=request.seed,
        codec=request.codec,
        settings=document.features.settings,
        predicted=proposal.predicted,
    )


def guiding_features(document: FeaturesDocument, method: str, num_features: int | None) -> FeatureSet:
    """Return the features that guide the blocking.

    Several layouts choose among all, and a qd-tree cuts by all. Any other single layout takes the strictest, since
    features compete (Sun 2017, figure 3.7), and none about the columns that the analysis excluded (dates): it is cut
    by these, which serves constants that are not in the log, too. Where there are no others, all guide.
    """
    features = document.features
    if is_sampled(method) or method == "qdtree":
        return select_heaviest(features, num_features)
    excluded = set(document.exclude_columns)
    free = features.only(i for i, feature in enumerate(features) if not _filters_any(feature, excluded))
    free = free if len(free) else features
    strict = free.only(sharpest(free, document.queries))
    return select_heaviest(strict, NUM_FEATURES if num_features is None else num_features)


def _filters_any(feature: Feature, columns: set[str]) -> bool:
    """Whether a predicate of the feature is on these columns alone, without comparing two of them."""
    return any(
        predicate.columns <= columns and not any(isinstance(literal, Comparison) for literal in predicate.literals)
        for predicate in feature.predicates
    )


def _renumber(scheme: Scheme, guiding: FeatureSet, features: FeatureSet) -> Scheme:
    """Return the scheme with its features numbered among all of the document's, which are all measured.

    Plans of one document then have the same bits, whatever guides their blocking.
    """
    numbers = {feature: i for i, feature in enumerate(features)}
    new = [numbers[feature] for feature in guiding]
    layouts = (
        replace(layout, features=tuple(new[i] for i in layout.features), guides=tuple(new[i] for i in layout.guides))
        for layout in scheme.layouts
    )
    return Scheme(tuple(layouts))
