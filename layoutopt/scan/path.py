"""A query's retrieval path over a plan's layouts: which may serve it, and which do (Sun 2017, 5.6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from layoutopt.model.layout import Layout, Plan
from layoutopt.model.predicate import And, Node, Or
from layoutopt.model.retrieval import choose_path
from layoutopt.model.skipping import FeatureIndex


@dataclass(frozen=True)
class LayoutChoice:
    """One layout on a path, with the columns read from it."""

    layout: int
    columns: tuple[str, ...]


def local_layouts(plan: Plan, root: Node, features: FeatureIndex | None) -> tuple[bool, ...]:
    """For each layout whether every row that matches the filter has one of its local features (promise 8).

    Such a layout serves all its columns, and of its rows only those with a local feature are needed.
    """
    if features is None:
        return (False,) * len(plan.scheme.layouts)
    return tuple(_local_features_hold(layout, root, features) for layout in plan.scheme.layouts)


def choose_layouts(
    plan: Plan, columns: Sequence[str], local: Sequence[bool], rows: Sequence[int]
) -> tuple[LayoutChoice, ...]:
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
    path = choose_path(columns, layouts, rows, eligible)
    return tuple(LayoutChoice(layout, chosen) for layout, chosen in path.columns)


def _local_features_hold(layout: Layout, node: Node, features: FeatureIndex) -> bool:
    if set(features.subsuming(node)) & set(layout.features):
        return True
    if isinstance(node, Or):
        return all(_local_features_hold(layout, child, features) for child in node.children)
    return isinstance(node, And) and any(_local_features_hold(layout, child, features) for child in node.children)
