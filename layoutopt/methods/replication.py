"""The methods with copies (Sun 2017, chapter 5): from what planning knows to overlapping layouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from layoutopt.errors import SettingError
from layoutopt.methods.proposals import Designed, Planning, Replication
from layoutopt.methods.strategies import PARTITIONER, problem_of, with_cuts
from layoutopt.model.predicted import at_budget
from layoutopt.partitioning.registry import find_partitioner
from layoutopt.search.costs import Costs
from layoutopt.search.grouping import full_scan
from layoutopt.search.gsop import search_groups
from layoutopt.search.problem import Unit
from layoutopt.search.replication import ReplicatedScheme, ReplicationSearch, scheme_of_layouts


def gsop_r(planning: Planning) -> Designed:
    """Overlapping layouts within a storage budget, the best found for each budget asked (5.5)."""
    search = _search(planning)
    return _designed(planning, search, [search.best(budget) for budget in planning.replication.budgets])


def gsop_selective(planning: Planning) -> Designed:
    """Column groups, and copies of what single features request (5.3.1)."""
    search = _search(planning)
    return _designed(planning, search, [search.selective(budget) for budget in planning.replication.budgets])


def gsop_fullcopy(planning: Planning) -> Designed:
    """Several copies of the table, each with column groups for some of the queries (5.3.2)."""
    search = _search(planning)
    found = search.full_copies(planning.replication.copies)
    once = replace(planning, replication=replace(planning.replication, budgets=(found.budget,), choose=found.budget))
    return _designed(once, search, [found])


def replication_of(budgets: Sequence[float], choose: float | None, in_bytes: bool, copies: int) -> Replication:
    """What methods with copies may store; of several budgets the largest is chosen where none is named.

    Raises:
        SettingError: a budget is below 1, none is given, or the one chosen is not among them.
    """
    if not budgets or min(budgets) < 1:
        raise SettingError(f"--storage-budget is {min(budgets, default=0):g}; give 1 (the table once) or more")
    if choose is not None and choose not in budgets:
        asked = ", ".join(f"{budget:g}" for budget in budgets)
        raise SettingError(f"--choose is {choose:g}, which is none of the storage budgets {asked}; name one of them")
    if copies < 1:
        raise SettingError(f"--copies is {copies}; give at least 1")
    ascending = tuple(sorted(set(budgets)))
    return Replication(ascending, ascending[-1] if choose is None else choose, copies, in_bytes)


REPLICATING = {"gsop-r": gsop_r, "gsop-selective": gsop_selective, "gsop-fullcopy": gsop_fullcopy}
"""The methods by name."""


def _search(planning: Planning) -> ReplicationSearch:
    problem = problem_of(planning)
    partitioner = find_partitioner(PARTITIONER)
    groups = search_groups(problem, partitioner).best.groups
    stored = planning.replication.bytes if planning.replication.in_bytes else None
    return ReplicationSearch(problem, partitioner, groups, stored)


def _designed(planning: Planning, search: ReplicationSearch, found: Sequence[ReplicatedScheme]) -> Designed:
    """The scheme of the budget chosen, with its predictions, and those of every budget."""
    figures = {each.budget: _predicted(planning, search, each) for each in found}
    chosen = next(each for each in found if each.budget == planning.replication.choose)
    predicted = dict(figures[chosen.budget])
    if len(found) > 1:
        predicted |= {at_budget(name, budget): value for budget in figures for name, value in figures[budget].items()}
    scheme = scheme_of_layouts(search.exact.evaluator, chosen.layouts, planning.partitioner)
    return Designed(with_cuts(planning, scheme), predicted)


def _predicted(planning: Planning, search: ReplicationSearch, found: ReplicatedScheme) -> Mapping[str, float]:
    """Shares of a full scan by the training queries on the samples, and storage over the table stored once."""
    cells = Unit.cells(len(search.problem.columns))
    predicted = {
        "cells_and_tids_fraction": _fraction(search, found, cells),
        "storage_cells": round(found.cells, 6),
    }
    unit = planning.replication.bytes
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
    cost = Costs(search.exact.evaluator, unit, unit).query_cost(found.layouts)
    return round(cost / full, 6) if full else 0.0
