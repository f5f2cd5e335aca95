"""A query's retrieval path over a plan's layouts: which may serve it, and which do (Sun 2017, 5.6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from layoutopt.model.layout import Plan
from layoutopt.model.predicates import Node
from layoutopt.model.retrieval import RetrievalPath, cheapest_path
from layoutopt.model.vectors import pack
from layoutopt.skipping.cannot_match import BlockStatistics, FeatureBits, FeatureIndex, cannot_match


@dataclass(frozen=True)
class LayoutChoice:
    """One layout on a path, with the columns read from it."""

    layout: int
    columns: tuple[str, ...]


def local_layouts(plan: Plan, root: Node, features: FeatureIndex | None) -> tuple[bool, ...]:
    """For each layout whether every row that matches the filter has one of its local features.

    Such a layout serves all its columns, and of its rows only those with a local feature are needed. The rows that a
    layout lacks are like a block without its local features: it is the one skipping rule that says whether such a
    block can match.
    """
    layouts = plan.scheme.layouts
    if features is None or all(layout.is_undivided for layout in layouts):
        return (False,) * len(layouts)  # each serves all its columns as it is, and has no rows apart
    bits = np.ones((len(layouts), len(plan.features)), dtype=np.bool_)
    for index, layout in enumerate(layouts):
        bits[index, list(layout.features)] = False
    lacked = BlockStatistics(rows=np.ones(len(layouts), dtype=np.int64), bits=FeatureBits(pack(bits)))
    local: list[bool] = cannot_match(root, lacked, features, by_statistics=False).tolist()
    return tuple(local)


@dataclass(frozen=True)
class ScanPath:
    """The retrieval path of one query over one plan's layouts.

    Attributes:
        choice: the layouts read, with the columns of each.
        cells_and_tids: what it reads by Equation 5.1, on the catalog's figures.
        greedy: what the greedy path reads.
        next_best: the cheapest other path, None where there is none.
        next_best_cells_and_tids: what that reads.
        compared: how many paths were compared.
        exhaustive: whether no other path can read less.
    """

    choice: tuple[LayoutChoice, ...]
    cells_and_tids: int
    greedy: int
    next_best: tuple[LayoutChoice, ...] | None = None
    next_best_cells_and_tids: int | None = None
    compared: int = 1
    exhaustive: bool = True


def choose_layouts(plan: Plan, columns: Sequence[str], local: Sequence[bool], rows: Sequence[int]) -> ScanPath:
    """The layouts to read, each column from one that may serve it: where it is master, or in a local layout (5.6.1).

    Args:
        plan: the plan.
        columns: what the query reads.
        local: for each layout the answer of :func:`local_layouts`.
        rows: of each layout, the rows that the query can't skip.
    """
    layouts = plan.scheme.layouts
    eligible = {
        name: [i for i, layout in enumerate(layouts) if name in (layout.columns if local[i] else layout.master)]
        for name in columns
    }
    found = cheapest_path(columns, layouts, rows, eligible)
    path = ScanPath(
        _choice(found.path),
        int(found.cost),
        int(found.greedy),
        compared=found.compared,
        exhaustive=found.exhaustive,
    )
    if found.other is None:
        return path
    return replace(path, next_best=_choice(found.other[0]), next_best_cells_and_tids=int(found.other[1]))


def _choice(path: RetrievalPath) -> tuple[LayoutChoice, ...]:
    return tuple(LayoutChoice(layout, chosen) for layout, chosen in path.columns)
