"""Methods that experiments compare with, as a package of plug-ins: the thesis's baselines, and its text's searches.

``plugins`` has the package's entry points; importing :mod:`jobs.bench` installs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from jobs.bench.baselines import hillclimb, hyrise
from jobs.bench.copy_baselines import copy_selectively, make_full_copies
from jobs.bench.thesis_algorithms import FeatureCosts, ThesisSearch, fits_budget, thesis_scheme
from layoutopt.methods.interface import LayoutProposal, PlanningInput
from layoutopt.methods.strategies import (
    PARTITIONER,
    add_curve,
    planning_problem,
    propose_groups,
    propose_replicated,
    replication_search,
    with_cuts,
)
from layoutopt.partitioning.partitioner import Partitioner
from layoutopt.partitioning.registry import find_partitioner
from layoutopt.search.grouping import Group, Grouping, column_classes, full_scan, grouping_cost, merge_bottom_up
from layoutopt.search.gsop import SearchResult, single_columns
from layoutopt.search.problem import Problem, thin_samples
from layoutopt.search.rows import ComputedRows, rows_estimator

# Rows of a sample, and vectors of a layout, by which the text's operations are compared: there are thousands.
_COARSE_ROWS: Final = 2_000
_COARSE_VECTORS: Final = 150


def gsop_single(planning: PlanningInput) -> LayoutProposal:
    """Plan every column alone (4.3.1)."""
    return _plan_groups(planning, single_columns)


def gsop_hillclimb(planning: PlanningInput) -> LayoutProposal:
    """Plan groups by HillClimb (4.7.5), blocked as GSOP's."""
    return _plan_groups(planning, hillclimb)


def gsop_hyrise(planning: PlanningInput) -> LayoutProposal:
    """Plan groups by Hyrise (4.7.5), blocked as GSOP's."""
    return _plan_groups(planning, hyrise)


def _plan_groups(planning: PlanningInput, make_groups: Callable[[Problem], tuple[Group, ...]]) -> LayoutProposal:
    problem = planning_problem(planning)
    groups = make_groups(problem)
    exact = ComputedRows(problem, find_partitioner(PARTITIONER))
    return propose_groups(planning, problem, Grouping(groups, grouping_cost(problem, groups, exact)), exact)


def gsop_selective(planning: PlanningInput) -> LayoutProposal:
    """Plan column groups, and copies of what single features request (5.3.1)."""
    search = replication_search(planning)
    schemes = []
    for budget in planning.request.budgets:
        layouts = copy_selectively(search.problem, search.plain, budget * search.unit_storage, search.estimate)
        schemes.append(search.measured(layouts, budget))
    return propose_replicated(planning, search, schemes)


def gsop_fullcopy(planning: PlanningInput) -> LayoutProposal:
    """Plan as many copies of the table as the budget, each with column groups for some of the queries (5.3.2)."""
    search, copies = replication_search(planning), int(planning.request.chosen_budget)
    layouts = make_full_copies(search.problem, copies, find_partitioner(PARTITIONER), search.estimate)
    return propose_replicated(planning, search, [search.measured(layouts, float(copies))])


def text_gsop(planning: PlanningInput) -> LayoutProposal:
    """Plan column groups as the text does: by the block estimate, local features ranked by the number of queries."""
    return _plan_text_groups(planning, _count_features(planning))


def text_gsop_by_selectivity(planning: PlanningInput) -> LayoutProposal:
    """Plan column groups by the block estimate, local features ranked by weight and selectivity."""
    return _plan_text_groups(planning, planning_problem(planning))


def _plan_text_groups(planning: PlanningInput, problem: Problem) -> LayoutProposal:
    search = search_groups_by_thesis(problem, find_partitioner(PARTITIONER))
    return propose_groups(planning, problem, search.best, search.exact)


def _count_features(planning: PlanningInput) -> Problem:
    """Return the problem whose local features are ranked by the number of queries, as in the text's 4.5."""
    return replace(planning_problem(planning), by_count=True)


def search_groups_by_thesis(problem: Problem, partitioner: Partitioner) -> SearchResult:
    """Search as the text does: compare all pairs by the block estimate, take the best step of merging (4.4.4).

    Columns that the same queries read are one group from the start: merging them saves tids and costs nothing.
    """
    computed = ComputedRows(problem, partitioner)
    estimate_rows = rows_estimator(problem, "block", partitioner)
    groupings = merge_bottom_up(problem, column_classes(problem), estimate_rows, computed, every_pair=True)
    best = min(groupings, key=lambda grouping: (grouping.cost, len(grouping.groups)))
    return SearchResult(best, tuple(groupings), computed)


def text_gsop_r(planning: PlanningInput) -> LayoutProposal:
    """Plan overlapping layouts by Algorithms 1 and 2."""
    request, problem = planning.request, _count_features(planning)
    full = full_scan(problem)
    costs, search = planning.known.once("copies as written", request, lambda: _make_thesis_search(problem))
    layouts_by_budget = {
        budget: next(filter(fits_budget(costs, budget), search.passed(budget))) for budget in request.budgets
    }
    figures = {
        budget: {
            "cells_and_tids_fraction": round(costs.query_cost(layouts) / full, 6) if full else 0.0,
            "storage_cells": round(costs.storage(layouts), 6),
        }
        for budget, layouts in layouts_by_budget.items()
    }
    scheme = thesis_scheme(costs, layouts_by_budget[request.chosen_budget], request.partitioner)
    return LayoutProposal(with_cuts(planning, scheme), add_curve(figures, request.chosen_budget))


def _make_thesis_search(problem: Problem) -> tuple[FeatureCosts, ThesisSearch]:
    partitioner = find_partitioner(PARTITIONER)
    coarse = replace(thin_samples(problem, _COARSE_ROWS), max_vectors=min(problem.max_vectors, _COARSE_VECTORS))
    return FeatureCosts(problem, partitioner), ThesisSearch(FeatureCosts(coarse, partitioner))
