"""The layout methods: each turns planning data into a scheme with predictions. Register new ones in METHODS."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from layoutopt.errors import PlanError
from layoutopt.features.weights import segment_weights
from layoutopt.methods.interface import (
    BOTH,
    CUTS,
    LayoutProposal,
    Method,
    PartitionHistogram,
    PlanningCache,
    PlanningInput,
)
from layoutopt.model.arrays import Floats, spread
from layoutopt.model.layout import (
    CUT_BY,
    MIN_ROWS,
    PREDICATE_SORT,
    QUANTILES,
    Blocking,
    ByCuts,
    ByOrder,
    ByVectors,
    Layout,
    Scheme,
)
from layoutopt.model.predicates import columns_of
from layoutopt.model.predictions import Predictions
from layoutopt.model.query import Query, column_literals, weight_of
from layoutopt.model.schema import Schema
from layoutopt.model.values import key_kind
from layoutopt.model.vectors import unpack
from layoutopt.partitioning.block_sizes import blocking_lower_bound, calibrate_min_rows, min_rows_for
from layoutopt.partitioning.objective import SkipSetObjective, make_skip_objective, weight_exponent
from layoutopt.partitioning.ordered_blocks import ORDER_KINDS
from layoutopt.partitioning.registry import WARD, find_partitioner
from layoutopt.search.costs import Costs
from layoutopt.search.grouping import Grouping, cells_lower_bound, full_scan
from layoutopt.search.gsop import SearchResult, scheme_from_groups, search_groups
from layoutopt.search.local import prefixes
from layoutopt.search.problem import Problem, Sample, Unit, make_problem
from layoutopt.search.replication import ReplicatedScheme, ReplicationSearch, scheme_from_layouts
from layoutopt.search.rows import ComputedRows

# The partitioner that searches compare by: candidates are many, and what is better by Ward's method is also better by
# the rest.
PARTITIONER = WARD

# Partitions on which blocks are calibrated and rows scanned predicted, spread evenly over all.
_CALIBRATION_PARTITIONS = 6
# Partitions by which the number of guiding features is chosen.
_GUIDE_PARTITIONS = 3
# Columns that an order takes from the workload by default.
_MAX_ORDER_COLUMNS = 4


def sop(planning: PlanningInput) -> LayoutProposal:
    """Plan one layout, blocked by all features (Sun 2017, chapter 3), or by cuts, depending on the guides."""
    if planning.request.guides in (CUTS, BOTH):
        return _plan_cuts(planning, None if planning.request.guides == BOTH else ())
    guides = _choose_guides(planning)
    guided = _restrict_features(_select_partitions(planning, _CALIBRATION_PARTITIONS), guides, planning.shares)
    pairs = [(partition.vectors, partition.weights) for partition in guided.partitions]
    # The portfolio makes as many blocks as Ward's method, but is too slow to run repeatedly.
    min_rows = calibrate_min_rows(find_partitioner(WARD), pairs, planning.request.block_rows, planning.request.seed)
    params = blocking_params(planning, planning.schema.names)
    blocking = ByVectors(planning.request.partitioner, ((MIN_ROWS, min_rows), *params))
    scheme = _single_layout(planning, blocking, guides)
    if not planning.predicts:
        return LayoutProposal(scheme, {})
    return LayoutProposal(scheme, predict_rows(guided, guided.partitions, blocking, min_rows))


def qdtree(planning: PlanningInput) -> LayoutProposal:
    """Plan one layout, cut greedily at the log's constants and by all features (Yang et al., SIGMOD 2020)."""
    return _plan_cuts(planning, params=((QUANTILES, 0),))


def _choose_guides(planning: PlanningInput) -> Sequence[int]:
    """Return the features that guide the blocking: the heaviest, as many as let queries read least."""
    ranked = np.argsort(-planning.features.weights, kind="stable")
    sample = _select_partitions(planning, _GUIDE_PARTITIONS)
    sizes = prefixes([partition.vectors.words for partition in sample.partitions], ranked, planning.request.max_vectors)
    choices = [np.sort(ranked[:size]).tolist() for size in sizes]
    blocking = ByVectors(PARTITIONER)
    min_rows = min_rows_for(planning.request.block_rows)
    full = weight_of(planning.queries) * sum(partition.vectors.rows for partition in sample.partitions)

    def read(guides: Sequence[int]) -> float:
        guided = _restrict_features(sample, guides, planning.shares)
        scanned = math.fsum(_block_partition(guided, part, blocking, min_rows).scanned for part in guided.partitions)
        return round(scanned / full, 6) if full else 1.0

    return min(choices, key=read)


def _select_partitions(planning: PlanningInput, count: int) -> PlanningInput:
    """Return the same planning with a few partitions, spread evenly over all."""
    return replace(planning, partitions=tuple(spread(planning.partitions, count)), known=PlanningCache())


def _restrict_features(planning: PlanningInput, guides: Sequence[int], shares: Floats) -> PlanningInput:
    """Return the same planning with these features only; ``shares`` are those of all features."""
    shares = shares[:, list(guides)]
    partitions = []
    for part in planning.partitions:
        vectors = part.vectors.project(guides)
        weights = segment_weights(shares, part.query_weights, vectors)
        partitions.append(replace(part, vectors=vectors, weights=weights))
    return replace(
        planning, features=planning.features.only(guides), partitions=tuple(partitions), known=PlanningCache()
    )


def by_order(kind: str, planning: PlanningInput) -> LayoutProposal:
    """Plan one layout, its rows ordered by columns or a curve over them."""
    columns: tuple[str, ...] = ()
    if kind not in ("input", PREDICATE_SORT):
        columns = planning.request.by or order_columns(planning.queries, planning.schema)
    return LayoutProposal(_single_layout(planning, ByOrder(kind, columns)), {})


def cuts(planning: PlanningInput) -> LayoutProposal:
    """Plan one layout, cut at values of filtered columns and by features, to fit the ranges of queries."""
    return _plan_cuts(planning)


def _plan_cuts(
    planning: PlanningInput, guides: Sequence[int] | None = None, params: tuple[tuple[str, int], ...] = ()
) -> LayoutProposal:
    columns = most_filtered(planning.queries, planning.schema)
    return LayoutProposal(_single_layout(planning, ByCuts(columns, params), guides), {})


def gsop(planning: PlanningInput) -> LayoutProposal:
    """Plan column groups by the search of 4.4, each blocked by its own local features (4.5)."""
    search = search_column_groups(planning)
    return propose_groups(planning, planning_problem(planning), search.best, search.exact)


def search_column_groups(planning: PlanningInput) -> SearchResult:
    """Return the search for column groups, for GSOP and for methods that start from its groups."""
    problem, partitioner = planning_problem(planning), find_partitioner(PARTITIONER)
    return planning.known.once("groups", planning.request, lambda: search_groups(problem, partitioner))


def planning_problem(planning: PlanningInput) -> Problem:
    """Return the search problem of the planning data."""
    return planning.known.once("problem", planning.request, lambda: _make_problem(planning))


def _make_problem(planning: PlanningInput) -> Problem:
    samples = [
        Sample(
            vectors=partition.vectors,
            rows=min(partition.rows, planning.request.segment_rows),
            query_weights=partition.query_weights * max(1.0, partition.rows / planning.request.segment_rows),
        )
        for partition in planning.partitions
    ]
    return make_problem(
        planning.queries,
        planning.features,
        planning.schema.names,
        samples,
        unit=planning.unit,
        block_rows=planning.request.block_rows,
        max_vectors=planning.request.max_vectors,
        seed=planning.request.seed,
    )


def propose_groups(
    planning: PlanningInput, problem: Problem, grouping: Grouping, exact: ComputedRows
) -> LayoutProposal:
    """Return the scheme of column groups, with the share of a full scan that training queries read on the samples."""
    scheme = scheme_from_groups(problem, grouping.groups, exact, planning.request.partitioner)
    return LayoutProposal(with_cuts(planning, scheme), _predict_share(planning, problem, grouping.cost))


def with_cuts(planning: PlanningInput, scheme: Scheme) -> Scheme:
    """Return the scheme with the column by which each layout's rows of one vector are cut."""
    # Features cover few bounds of ranges.
    ranged = _rank_columns(planning.queries, planning.schema, _ranged_columns)
    layouts = []
    for layout in scheme.layouts:
        if isinstance(layout.blocking, ByVectors):
            params = blocking_params(planning, layout.columns, ranged)
            layout = replace(layout, blocking=replace(layout.blocking, params=params))
        layouts.append(layout)
    return Scheme(tuple(layouts))


def _predict_share(planning: PlanningInput, problem: Problem, cost: float) -> dict[str, float]:
    if not planning.predicts:
        return {}
    unit = planning.unit or Unit.cells(len(planning.schema.names))
    cell_cost = dict(zip(planning.schema.names, unit.cell.tolist(), strict=True))
    rows = sum(partition.rows for partition in planning.partitions)
    full = rows * sum(query.weight * sum(cell_cost[name] for name in query.columns) for query in planning.queries)
    name = "cells_and_tids_fraction" if planning.unit is None else "bytes_fraction"
    if not full:
        return {name: 0.0}
    bound = cells_lower_bound(problem, min_rows_for(planning.request.block_rows))
    return {name: round(cost / full, 6), **_compare_with_bound(cost / full, bound / full)}


def _single_layout(planning: PlanningInput, blocking: Blocking, guides: Sequence[int] | None = None) -> Scheme:
    names = planning.schema.names
    features = range(len(planning.features)) if guides is None else guides
    return Scheme((Layout(names, tuple(features), names, blocking),))


def predict_rows(
    planning: PlanningInput, sample: Sequence[PartitionHistogram], blocking: ByVectors, min_rows: int
) -> dict[str, float]:
    """Predict what training queries scan on sampled partitions, by partition bounds and features.

    Returns:
        ``rows_scanned_fraction``: the weighted share of the rows of full scans; ``lower_bound_fraction``: the least
        share with blocks of that size, and ``gap``, the relative distance to it; ``block_rows``: the mean block.
    """
    full = scanned = blocks = rows = bound = 0.0
    for part in sample:
        blocked = _block_partition(planning, part, blocking, min_rows)
        exponent = weight_exponent(part.query_weights, part.vectors.rows)
        lowest = blocking_lower_bound(blocked.objective, part.vectors, min_rows)
        bound += float(np.ldexp(lowest, -exponent))
        scanned, full = scanned + blocked.scanned, full + weight_of(planning.queries) * part.vectors.rows
        blocks, rows = blocks + blocked.blocks, rows + part.vectors.rows
    if not full or not blocks:
        return {}
    return {
        "rows_scanned_fraction": round(scanned / full, 6),
        "block_rows": round(rows / blocks, 1),
        **_compare_with_bound(scanned / full, bound / full),
    }


class _BlockedPartition(NamedTuple):
    """The blocking of a partition: the weighted rows that its queries scan, and the number of blocks."""

    objective: SkipSetObjective
    scanned: float
    blocks: int


def _block_partition(
    planning: PlanningInput, part: PartitionHistogram, blocking: ByVectors, min_rows: int
) -> _BlockedPartition:
    objective = make_skip_objective(planning.queries, planning.features, part.query_weights, part.vectors.rows)
    partitioner = find_partitioner(blocking.algorithm)
    partition = partitioner(part.vectors, part.weights, min_rows, planning.request.seed, objective)
    unions = unpack(partition.unions(part.vectors), part.vectors.n_features)
    scanned = float(part.query_weights @ (partition.sizes() @ ~objective.skipped(unions)))
    return _BlockedPartition(objective, scanned, partition.n_blocks)


def _compare_with_bound(objective: float, bound: float) -> dict[str, float]:
    return {"lower_bound_fraction": round(bound, 6), **({"gap": round(objective / bound - 1, 6)} if bound else {})}


def order_columns(queries: Sequence[Query], schema: Schema) -> tuple[str, ...]:
    """Return the columns that filters use most, by weight, at most four; of equals the first in the schema.

    Raises:
        PlanError: no query filters by an orderable column.
    """
    orderable = most_filtered(queries, schema)
    if not orderable:
        raise PlanError("no query filters by a column that rows can be ordered by: name columns with --by")
    return orderable[:_MAX_ORDER_COLUMNS]


def blocking_params(
    planning: PlanningInput, columns: Sequence[str], fallback_columns: Sequence[str] = ()
) -> tuple[tuple[str, str], ...]:
    """Return the parameters of a layout's blocking: the cut column, if any.

    ``fallback_columns`` may be cut by where features cover nearly all filtered columns, the best first.
    """
    return _choose_cut(planning, columns, fallback_columns) if planning.request.slices else ()


def _choose_cut(
    planning: PlanningInput, columns: Sequence[str], fallback_columns: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    """Return the parameter for the column by which rows of one vector are cut into blocks, if any.

    It is the most filtered of these columns that no feature is about. Rows of equal vectors may be ordered by it, so
    blocks have narrow ranges and statistics skip.
    """
    feature_columns = frozenset().union(*(feature.columns for feature in planning.features))
    free_columns = (name for name in most_filtered(planning.queries, planning.schema) if name not in feature_columns)
    names = [name for name in (*free_columns, *fallback_columns) if name in columns]
    return ((CUT_BY, names[0]),) if names else ()


def most_filtered(queries: Sequence[Query], schema: Schema) -> tuple[str, ...]:
    """Return the orderable columns that filters use, the most used (by weight) first, of equals in schema order."""
    return _rank_columns(queries, schema, lambda query: columns_of(query.filter.root))


def _ranged_columns(query: Query) -> frozenset[str]:
    return frozenset().union(*(literal.columns for literal in column_literals(query) if literal.values.is_range))


def _rank_columns(
    queries: Sequence[Query], schema: Schema, columns: Callable[[Query], Iterable[str]]
) -> tuple[str, ...]:
    used: dict[str, float] = defaultdict(float)
    for query in queries:
        for name in columns(query):
            used[name] += query.weight
    orderable = [c.name for c in schema.columns if used[c.name] and key_kind(c.type) is not None]
    return tuple(sorted(orderable, key=lambda name: -used[name]))


BY_ORDER: Mapping[str, Method] = MappingProxyType(
    {kind: partial(by_order, kind) for kind in ORDER_KINDS if kind != "input"}
)
# Methods that search over a sample, with too many features to count the distinct vectors of all rows.
SAMPLED: Mapping[str, Method] = MappingProxyType({"gsop": gsop})

METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "sop": sop,
        **SAMPLED,
        "input-order": partial(by_order, "input"),
        **BY_ORDER,
        "cuts": cuts,
        "qdtree": qdtree,
        "predicate-sort": partial(by_order, PREDICATE_SORT),
    }
)


def gsop_r(planning: PlanningInput) -> LayoutProposal:
    """Plan overlapping layouts within a storage budget, the best for each requested budget (5.5)."""
    search = replication_search(planning)
    return propose_replicated(planning, search, search.curve(planning.request.budgets))


# The methods with copies, by name.
REPLICATING = {"gsop-r": gsop_r}


def replication_search(planning: PlanningInput) -> ReplicationSearch:
    """Return the search for copies, from the best column groups."""
    problem, groups = planning_problem(planning), search_column_groups(planning).best.groups
    stored = planning.bytes if planning.request.budget_unit == "bytes" else None
    partitioner = find_partitioner(PARTITIONER)
    return planning.known.once(
        "copies", planning.request, lambda: ReplicationSearch(problem, partitioner, groups, stored)
    )


def add_curve(figures: Mapping[float, Mapping[str, float]], chosen: float) -> dict[str, float]:
    """Return the predictions for the chosen budget, with those for each of several."""
    return Predictions(figures[chosen], figures if len(figures) > 1 else {}).to_stored()


def propose_replicated(
    planning: PlanningInput, search: ReplicationSearch, schemes: Sequence[ReplicatedScheme]
) -> LayoutProposal:
    """Return the scheme of the chosen budget, with the predictions for all."""
    figures = {scheme.budget: _predict(planning, search, scheme) for scheme in schemes}
    chosen = schemes[0]
    if len(schemes) > 1:
        chosen = next(scheme for scheme in schemes if scheme.budget == planning.request.chosen_budget)
    scheme = scheme_from_layouts(search.exact.evaluator, chosen.layouts, planning.request.partitioner)
    return LayoutProposal(with_cuts(planning, scheme), add_curve(figures, chosen.budget))


def _predict(planning: PlanningInput, search: ReplicationSearch, scheme: ReplicatedScheme) -> Mapping[str, float]:
    cells = Unit.cells(len(search.problem.columns))
    predicted = {
        "cells_and_tids_fraction": _cost_fraction(search, scheme, cells),
        "storage_cells": round(scheme.cells, 6),
    }
    unit = planning.bytes
    if unit is not None:
        in_bytes = Costs(search.exact.evaluator, unit)
        stored, plain = in_bytes.storage(scheme.layouts), in_bytes.storage(search.plain)
        predicted |= {"bytes_fraction": _cost_fraction(search, scheme, unit), "storage_bytes": round(stored / plain, 6)}
    return predicted


def _cost_fraction(search: ReplicationSearch, scheme: ReplicatedScheme, unit: Unit) -> float:
    full = full_scan(search.problem, unit)
    return _round_share(Costs(search.exact.evaluator, unit, unit).query_cost(scheme.layouts), full)


def _round_share(cost: float, full: float) -> float:
    return round(cost / full, 6) if full else 0.0
