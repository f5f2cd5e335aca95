"""The methods: each turns what planning knows into a scheme, with what it expects of it. Methods join by METHODS."""

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
from layoutopt.features.weights import MARGINAL, segment_weights
from layoutopt.methods.interface import (
    BOTH,
    COUNT,
    FEATURES,
    TEXT,
    Known,
    LayoutProposal,
    Method,
    PartitionHistogram,
    PlanningInput,
)
from layoutopt.model.arrays import Floats, spread
from layoutopt.model.engine_costs import at_budget
from layoutopt.model.layout import (
    CUT_BY,
    MIN_ROWS,
    PREDICATE_SORT,
    QUANTILES,
    WEIGHTS,
    Blocking,
    ByCuts,
    ByOrder,
    ByVectors,
    Layout,
    Scheme,
)
from layoutopt.model.predicates import columns_of
from layoutopt.model.query import Query, column_literals, weight_of
from layoutopt.model.schema import Schema
from layoutopt.model.values import key_kind
from layoutopt.model.vectors import unpack
from layoutopt.partitioning.block_sizes import blocking_lower_bound, calibrate_min_rows, min_rows_for
from layoutopt.partitioning.objective import SkipSetObjective, exponent_of, objective_of
from layoutopt.partitioning.order import ORDER_KINDS
from layoutopt.partitioning.registry import WARD, find_partitioner
from layoutopt.search.costs import Costs
from layoutopt.search.grouping import Group, cells_lower_bound, cost_of, full_scan
from layoutopt.search.gsop import GROUPINGS, SearchResult, scheme_of, search_as_written, search_groups
from layoutopt.search.local import prefixes
from layoutopt.search.problem import Problem, Sample, Unit, make_problem, thinned
from layoutopt.search.replication import ReplicatedScheme, ReplicationSearch, scheme_of_layouts
from layoutopt.search.rows import ComputedRows
from layoutopt.search.thesis_algorithms import FeatureCosts, SearchAsWritten, scheme_as_written, within

PARTITIONER = WARD
"""What a search compares by: candidates are many, and what is better by Ward's method is so by the others."""

# Partitions on which blocks are calibrated and rows scanned predicted; spread evenly over all.
_SAMPLED_PARTITIONS = 6
# Partitions by which the number of guiding features is chosen.
_TRIED_PARTITIONS = 3
# Columns that an order takes from the workload where the user names none.
_MOST_ORDER_COLUMNS = 4


def sop(planning: PlanningInput) -> LayoutProposal:
    """One layout, blocked by all features (Sun 2017, chapter 3), or by cuts, as its guides say."""
    if planning.request.guides != FEATURES:
        return _by_cuts(planning, None if planning.request.guides == BOTH else ())
    guides = _best_guides(planning)
    guided = _guided(_some(planning, _SAMPLED_PARTITIONS), guides, planning.shares)
    pairs = [(partition.vectors, partition.weights) for partition in guided.partitions]
    # The portfolio makes as many blocks as Ward's method, and takes too long to be tried again and again.
    min_rows = calibrate_min_rows(find_partitioner(WARD), pairs, planning.request.block_rows, planning.request.seed)
    params = blocking_params(planning, planning.schema.names)
    blocking = ByVectors(planning.request.partitioner, ((MIN_ROWS, min_rows), *params))
    scheme = _one_layout(planning, blocking, guides)
    if not planning.predicts:
        return LayoutProposal(scheme, {})
    return LayoutProposal(scheme, predicted_rows(guided, guided.partitions, blocking, min_rows))


def qdtree(planning: PlanningInput) -> LayoutProposal:
    """One layout, cut greedily by the comparisons of the log alone, and by all features (Yang et al., SIGMOD 2020)."""
    return _by_cuts(planning, params=((QUANTILES, 0),))


def _best_guides(planning: PlanningInput) -> Sequence[int]:
    """The features that guide the blocking of one layout: the heaviest, as many as let its queries read least."""
    ranked = np.argsort(-planning.features.weights, kind="stable")
    some = _some(planning, _TRIED_PARTITIONS)
    sizes = prefixes([partition.vectors.words for partition in some.partitions], ranked, planning.request.max_vectors)
    choices = [np.sort(ranked[:size]).tolist() for size in sizes]
    blocking = ByVectors(PARTITIONER)
    min_rows = min_rows_for(planning.request.block_rows)
    full = weight_of(planning.queries) * sum(partition.vectors.rows for partition in some.partitions)

    def read(guides: Sequence[int]) -> float:
        guided = _guided(some, guides, planning.shares)
        scanned = math.fsum(_blocked(guided, part, blocking, min_rows).scanned for part in guided.partitions)
        return round(scanned / full, 6) if full else 1.0

    return min(choices, key=read)


def _some(planning: PlanningInput, count: int) -> PlanningInput:
    """The same planning by a few partitions, spread evenly over all."""
    return replace(planning, partitions=tuple(spread(planning.partitions, count)), known=Known())


def _guided(planning: PlanningInput, guides: Sequence[int], shares: Floats) -> PlanningInput:
    """The same planning as if there were no features but these; ``shares`` are those of all."""
    weighing = planning.request.weights
    partitions = tuple(_projected(part, guides, shares[:, list(guides)], weighing) for part in planning.partitions)
    return replace(planning, features=planning.features.only(guides), partitions=partitions, known=Known())


def _projected(part: PartitionHistogram, guides: Sequence[int], shares: Floats, weighing: str) -> PartitionHistogram:
    vectors = part.vectors.project(guides)
    return replace(part, vectors=vectors, weights=segment_weights(shares, part.query_weights, vectors, weighing))


def by_order(kind: str, planning: PlanningInput) -> LayoutProposal:
    """One layout, rows ordered by columns or a curve over them."""
    columns = (
        ()
        if kind in ("input", PREDICATE_SORT)
        else planning.request.by or order_columns(planning.queries, planning.schema)
    )
    return LayoutProposal(_one_layout(planning, ByOrder(kind, columns)), {})


def cuts(planning: PlanningInput) -> LayoutProposal:
    """One layout, cut at values of the columns that filters use and by features, so as to fit what queries ask for."""
    return _by_cuts(planning)


def _by_cuts(
    planning: PlanningInput, guides: Sequence[int] | None = None, params: tuple[tuple[str, int], ...] = ()
) -> LayoutProposal:
    columns = most_filtered(planning.queries, planning.schema)
    return LayoutProposal(_one_layout(planning, ByCuts(columns, params), guides), {})


def gsop(planning: PlanningInput) -> LayoutProposal:
    """Column groups by the search of 4.4, each blocked by its own local features (4.5)."""
    problem, search = problem_of(planning), groups_of(planning)
    return _designed(planning, _scheme(planning, problem, search.best.groups, search.exact), search.best.cost, problem)


def gsop_by(method: str, planning: PlanningInput) -> LayoutProposal:
    """One of the baselines of 4.3.1 and 4.7.5: a grouping that needs no look at skipping, then blocked as GSOP's."""
    problem = problem_of(planning)
    groups = GROUPINGS[method](problem)
    exact = ComputedRows(problem, find_partitioner(PARTITIONER))
    cost = cost_of(problem, groups, exact)
    return _designed(planning, _scheme(planning, problem, groups, exact), cost, problem)


def groups_of(planning: PlanningInput) -> SearchResult:
    """The search for column groups, for GSOP and for what starts from its groups."""
    problem, partitioner = problem_of(planning), find_partitioner(PARTITIONER)
    search = search_as_written if planning.request.search == TEXT else search_groups
    return planning.known.once("groups", planning.request, lambda: search(problem, partitioner))


def problem_of(planning: PlanningInput) -> Problem:
    """The search problem of what planning knows."""
    return planning.known.once("problem", planning.request, lambda: _problem(planning))


def _problem(planning: PlanningInput) -> Problem:
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
        by_count=planning.request.local_features == COUNT,
    )


def _scheme(planning: PlanningInput, problem: Problem, groups: tuple[Group, ...], exact: ComputedRows) -> Scheme:
    return with_cuts(planning, scheme_of(problem, groups, exact, planning.request.partitioner))


def with_cuts(planning: PlanningInput, scheme: Scheme) -> Scheme:
    """The scheme with what each layout's rows of one vector are cut by."""
    ranged = _most_ranged(planning.queries, planning.schema)
    return Scheme(tuple(_with_cut(planning, layout, ranged) for layout in scheme.layouts))


def _with_cut(planning: PlanningInput, layout: Layout, ranged: Sequence[str]) -> Layout:
    if not isinstance(layout.blocking, ByVectors):
        return layout
    params = blocking_params(planning, layout.columns, ranged)
    return replace(layout, blocking=replace(layout.blocking, params=params))


def _designed(planning: PlanningInput, scheme: Scheme, cost: float, problem: Problem) -> LayoutProposal:
    """The scheme with the share of a full scan that the training queries read on the samples, in the unit of cost."""
    if not planning.predicts:
        return LayoutProposal(scheme, {})
    unit = planning.unit or Unit.cells(len(planning.schema.names))
    of_cell = dict(zip(planning.schema.names, unit.cell.tolist(), strict=True))
    rows = sum(partition.rows for partition in planning.partitions)
    full = rows * sum(query.weight * sum(of_cell[name] for name in query.columns) for query in planning.queries)
    name = "cells_and_tids_fraction" if planning.unit is None else "bytes_fraction"
    if not full:
        return LayoutProposal(scheme, {name: 0.0})
    bound = cells_lower_bound(problem, min_rows_for(planning.request.block_rows))
    return LayoutProposal(scheme, {name: round(cost / full, 6), **_against(cost / full, bound / full)})


def _one_layout(planning: PlanningInput, blocking: Blocking, guides: Sequence[int] | None = None) -> Scheme:
    names = planning.schema.names
    features = range(len(planning.features)) if guides is None else guides
    return Scheme((Layout(names, tuple(features), names, blocking),))


def predicted_rows(
    planning: PlanningInput, sample: Sequence[PartitionHistogram], blocking: ByVectors, min_rows: int
) -> dict[str, float]:
    """What the training queries would scan, by partition bounds and features alone, on sampled partitions.

    Returns:
        ``rows_scanned_fraction``: of the rows of all queries' full scans, by weight; ``lower_bound_fraction``: what no
        blocks of that size can beat, and ``gap``, by how much they don't; ``block_rows``: the mean block.
    """
    full = scanned = blocks = rows = bound = 0.0
    for part in sample:
        blocked = _blocked(planning, part, blocking, min_rows)
        exponent = exponent_of(part.query_weights, part.vectors.rows)
        lowest = blocking_lower_bound(blocked.objective, part.vectors, min_rows)
        bound += float(np.ldexp(lowest, -exponent))
        scanned, full = scanned + blocked.scanned, full + weight_of(planning.queries) * part.vectors.rows
        blocks, rows = blocks + blocked.blocks, rows + part.vectors.rows
    if not full or not blocks:
        return {}
    return {
        "rows_scanned_fraction": round(scanned / full, 6),
        "block_rows": round(rows / blocks, 1),
        **_against(scanned / full, bound / full),
    }


class _Blocked(NamedTuple):
    """What came of blocking a partition: how many rows its queries scan, by weight, of how many blocks."""

    objective: SkipSetObjective
    scanned: float
    blocks: int


def _blocked(planning: PlanningInput, part: PartitionHistogram, blocking: ByVectors, min_rows: int) -> _Blocked:
    objective = objective_of(planning.queries, planning.features, part.query_weights, part.vectors.rows)
    partitioner = find_partitioner(blocking.algorithm)
    partition = partitioner(part.vectors, part.weights, min_rows, planning.request.seed, objective)
    unions = unpack(partition.unions(part.vectors), part.vectors.n_features)
    scanned = float(part.query_weights @ (partition.sizes() @ ~objective.skipped(unions)))
    return _Blocked(objective, scanned, partition.n_blocks)


def _against(objective: float, bound: float) -> dict[str, float]:
    """The bound, and by what share of it the objective is above it."""
    return {"lower_bound_fraction": round(bound, 6), **({"gap": round(objective / bound - 1, 6)} if bound else {})}


def order_columns(queries: Sequence[Query], schema: Schema) -> tuple[str, ...]:
    """The columns that filters use most, by weight, at most four; of equals the first in the schema.

    Raises:
        PlanError: no query filters by an orderable column.
    """
    orderable = most_filtered(queries, schema)
    if not orderable:
        raise PlanError("no query filters by a column that rows can be ordered by; name columns with --by")
    return orderable[:_MOST_ORDER_COLUMNS]


def blocking_params(
    planning: PlanningInput, columns: Sequence[str], others: Sequence[str] = ()
) -> tuple[tuple[str, str], ...]:
    """What a load has to know of a layout's blocking: the column that it is cut by, if any, and unusual weights.

    Args:
        planning: what planning knows.
        columns: the layout's.
        others: columns that it may be cut by where features are about all that filters use, the best first.
    """
    cut_by = _cut_param(planning, columns, others) if planning.request.slices else ()
    weighing = planning.request.weights
    return cut_by if weighing == MARGINAL else (*cut_by, (WEIGHTS, weighing))


def _cut_param(planning: PlanningInput, columns: Sequence[str], others: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The parameter that says by which column rows of one vector are cut into blocks, if by any.

    The most filtered of these columns that no feature is about: features say nothing of it, so rows of equal vectors
    are free to be apart by it, and blocks then have narrow ranges that statistics skip by.
    """
    said = frozenset().union(*(feature.columns for feature in planning.features))
    free = (name for name in most_filtered(planning.queries, planning.schema) if name not in said)
    names = [name for name in (*free, *others) if name in columns]
    return ((CUT_BY, names[0]),) if names else ()


def most_filtered(queries: Sequence[Query], schema: Schema) -> tuple[str, ...]:
    """The orderable columns that filters use, the most used (by weight) first; of equals the first in the schema."""
    return _most_used(queries, schema, lambda query: columns_of(query.filter.root))


def _most_ranged(queries: Sequence[Query], schema: Schema) -> tuple[str, ...]:
    """As :func:`most_filtered`, those columns of which filters ask for ranges: features are about few of their ends."""
    return _most_used(queries, schema, _ranged)


def _ranged(query: Query) -> frozenset[str]:
    return frozenset().union(*(literal.columns for literal in column_literals(query) if literal.values.is_range))


def _most_used(queries: Sequence[Query], schema: Schema, columns: Callable[[Query], Iterable[str]]) -> tuple[str, ...]:
    used: dict[str, float] = defaultdict(float)
    for query in queries:
        for name in columns(query):
            used[name] += query.weight
    orderable = [c.name for c in schema.columns if used[c.name] and key_kind(c.type) is not None]
    return tuple(sorted(orderable, key=lambda name: -used[name]))


BY_ORDER: Mapping[str, Method] = MappingProxyType(
    {kind: partial(by_order, kind) for kind in ORDER_KINDS if kind != "input"}
)
SAMPLED: Mapping[str, Method] = MappingProxyType(
    {"gsop": gsop, **{method: partial(gsop_by, method) for method in GROUPINGS}}
)
"""Methods that search over a sample, with more features than the distinct vectors of all rows could be counted by."""

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


# ----------------------------------------------------------------------------------------------------
# The methods with copies (Sun 2017, chapter 5): from what planning knows to overlapping layouts.

_ESTIMATED_ROWS = 2_000
"""Rows of a sample by which the text's operations are compared: there are thousands."""
_ESTIMATED_VECTORS = 150
"""Vectors of a layout, for the same reason."""


def gsop_r(planning: PlanningInput) -> LayoutProposal:
    """Overlapping layouts within a storage budget, the best found for each budget asked (5.5)."""
    if planning.request.search == TEXT:
        return _as_written(planning)
    search = _search(planning)
    return _proposed(planning, search, search.curve(planning.request.budgets))


def gsop_selective(planning: PlanningInput) -> LayoutProposal:
    """Column groups, and copies of what single features request (5.3.1)."""
    search = _search(planning)
    return _proposed(planning, search, [search.selective(budget) for budget in planning.request.budgets])


def gsop_fullcopy(planning: PlanningInput) -> LayoutProposal:
    """Several copies of the table, each with column groups for some of the queries (5.3.2)."""
    search = _search(planning)
    return _proposed(planning, search, [search.full_copies(planning.request.copies)])


REPLICATING = {"gsop-r": gsop_r, "gsop-selective": gsop_selective, "gsop-fullcopy": gsop_fullcopy}
"""The methods by name."""


def _search(planning: PlanningInput) -> ReplicationSearch:
    problem, groups = problem_of(planning), groups_of(planning).best.groups
    stored = planning.bytes if planning.request.budget_unit == "bytes" else None
    partitioner = find_partitioner(PARTITIONER)
    return planning.known.once(
        "copies", planning.request, lambda: ReplicationSearch(problem, partitioner, groups, stored)
    )


def _as_written(planning: PlanningInput) -> LayoutProposal:
    """Algorithms 1 and 2 for each budget asked; cells are what they count."""
    request, problem = planning.request, problem_of(planning)
    full = full_scan(problem)
    costs, search = planning.known.once("copies as written", request, lambda: _searched_as_written(problem))
    found = {budget: next(filter(within(costs, budget), search.passed(budget))) for budget in request.budgets}
    figures = {
        budget: {
            "cells_and_tids_fraction": _share(costs.query_cost(layouts), full),
            "storage_cells": round(costs.storage(layouts), 6),
        }
        for budget, layouts in found.items()
    }
    scheme = scheme_as_written(costs, found[request.chosen_budget], request.partitioner)
    return LayoutProposal(with_cuts(planning, scheme), _with_curve(figures, request.chosen_budget))


def _searched_as_written(problem: Problem) -> tuple[FeatureCosts, SearchAsWritten]:
    """The costs on all that is sampled, and the search by a part of it."""
    partitioner = find_partitioner(PARTITIONER)
    few = replace(thinned(problem, _ESTIMATED_ROWS), max_vectors=min(problem.max_vectors, _ESTIMATED_VECTORS))
    return FeatureCosts(problem, partitioner), SearchAsWritten(FeatureCosts(few, partitioner))


def _with_curve(figures: Mapping[float, Mapping[str, float]], chosen: float) -> dict[str, float]:
    """The predictions for the budget chosen, and where there are several those of every budget."""
    predicted = dict(figures[chosen])
    if len(figures) > 1:
        predicted |= {at_budget(name, budget): value for budget in figures for name, value in figures[budget].items()}
    return predicted


def _proposed(planning: PlanningInput, search: ReplicationSearch, found: Sequence[ReplicatedScheme]) -> LayoutProposal:
    """The scheme of the budget chosen, with its predictions, and those of every budget."""
    figures = {each.budget: _predicted(planning, search, each) for each in found}
    chosen = (
        found[0] if len(found) == 1 else next(each for each in found if each.budget == planning.request.chosen_budget)
    )
    scheme = scheme_of_layouts(search.exact.evaluator, chosen.layouts, planning.request.partitioner)
    return LayoutProposal(with_cuts(planning, scheme), _with_curve(figures, chosen.budget))


def _predicted(planning: PlanningInput, search: ReplicationSearch, found: ReplicatedScheme) -> Mapping[str, float]:
    """Shares of a full scan by the training queries on the samples, and storage over the table stored once."""
    cells = Unit.cells(len(search.problem.columns))
    predicted = {
        "cells_and_tids_fraction": _fraction(search, found, cells),
        "storage_cells": round(found.cells, 6),
    }
    unit = planning.bytes
    if unit is not None:
        in_bytes = Costs(search.exact.evaluator, unit)
        stored, plain = in_bytes.storage(found.layouts), in_bytes.storage(search.plain)
        predicted |= {
            "bytes_fraction": _fraction(search, found, unit),
            "storage_bytes": round(stored / plain, 6),
        }
    return predicted


def _fraction(search: ReplicationSearch, found: ReplicatedScheme, unit: Unit) -> float:
    full = full_scan(search.problem, unit)
    return _share(Costs(search.exact.evaluator, unit, unit).query_cost(found.layouts), full)


def _share(cost: float, full: float) -> float:
    return round(cost / full, 6) if full else 0.0
