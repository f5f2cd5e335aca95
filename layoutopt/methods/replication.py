"""The methods with copies (Sun 2017, chapter 5): from what planning knows to overlapping layouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from layoutopt.methods.proposals import TEXT, LayoutProposal, PlanningInput
from layoutopt.methods.strategies import PARTITIONER, groups_of, problem_of, with_cuts
from layoutopt.model.predicted import at_budget
from layoutopt.partitioning.registry import find_partitioner
from layoutopt.search.as_written import FeatureCosts, SearchAsWritten, scheme_as_written, within
from layoutopt.search.costs import Costs
from layoutopt.search.grouping import full_scan
from layoutopt.search.problem import Problem, Unit, thinned
from layoutopt.search.replication import ReplicatedScheme, ReplicationSearch, scheme_of_layouts

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
