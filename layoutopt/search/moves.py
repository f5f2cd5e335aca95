"""After merging: single column classes moved from one group to another while the exact objective falls.

Merging never takes a step back: a class that went with the first group that took it may do better elsewhere once the
groups are large. All moves are estimated; of each round the most promising few are computed. Bounded by work.
"""

from __future__ import annotations

from layoutopt.search.grouping import Group, Grouping, cost_of, served_by
from layoutopt.search.problem import Problem
from layoutopt.search.rows import RowsRead

_MOST_CLASSES = 24
"""Classes that may move: those with the most cells read."""
_TARGETS = 6
"""Groups that a class may move to: those with the most readers in common, by weight."""
_COMPUTED = 3
"""Moves computed exactly in a round."""
_ROUNDS = 6


def move_classes(
    problem: Problem, start: Grouping, classes: tuple[Group, ...], estimate: RowsRead, exact: RowsRead
) -> list[Grouping]:
    """The schemes computed on the way from ``start`` to a better one; none where no move was worth computing.

    Each of the classes lies in one group of the scheme. The estimate shortlists moves, the exact objective decides.
    """
    cells = problem.weights.sum(axis=0) @ problem.reads * problem.unit.cell
    heaviest = sorted(classes, key=lambda moved: (-float(cells[sorted(moved)].sum()), min(moved)))[:_MOST_CLASSES]
    best, passed, seen = start, [start], {frozenset(start.groups)}
    for _ in range(_ROUNDS):
        found = {frozenset(groups): groups for moved in heaviest for groups in _moves(problem, best.groups, moved)}
        new = [groups for key, groups in found.items() if key not in seen]
        new.sort(key=lambda groups: cost_of(problem, groups, estimate))
        computed = [Grouping(groups, cost_of(problem, groups, exact)) for groups in new[:_COMPUTED]]
        seen |= {frozenset(grouping.groups) for grouping in computed}
        passed += computed
        better = min([best, *computed], key=lambda grouping: grouping.cost)
        if better is best:
            break
        best = better
    return passed[1:]


def _moves(problem: Problem, groups: tuple[Group, ...], moved: Group) -> list[tuple[Group, ...]]:
    """The schemes with a class in another group, and in one of its own."""
    (source,) = [group for group in groups if moved <= group]
    others = tuple(group for group in groups if group != source)
    rest = (source - moved,) if source != moved else ()
    readers = problem.weights.sum(axis=0) * served_by(problem, moved)
    targets = sorted(others, key=lambda group: (-float(readers @ served_by(problem, group)), min(group)))[:_TARGETS]
    into = [tuple(moved | group if group == target else group for group in others) + rest for target in targets]
    return into + ([(*others, *rest, moved)] if rest else [])
