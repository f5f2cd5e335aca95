"""What became of one part of a filter: the blocks that it skips by itself, and if it skips none, why (``whyNot``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from layoutopt.model.feature import Feature
from layoutopt.model.predicates import (
    Call,
    Comparison,
    Constant,
    Expr,
    InSet,
    Like,
    Literal,
    Node,
    Or,
    conjuncts,
    describe,
    describe_all,
    literals_of,
)
from layoutopt.model.predicates.subsume import subsumes
from layoutopt.model.udf import called_name
from layoutopt.scan.reasons import Reason, reason_of_problem
from layoutopt.scan.sizes import MECHANISMS, subsumed_by
from layoutopt.skipping.cannot_match import UNKNOWN_NULLS, cannot_match, pieces
from layoutopt.skipping.derived.bounds import bounds_of
from layoutopt.skipping.derived.elements import literals_of_elements

if TYPE_CHECKING:
    from layoutopt.scan.opened import OpenedTable
    from layoutopt.scan.prune import PlanBlocks
    from layoutopt.sql.problems import UnusableCondition


@dataclass(frozen=True)
class Conjunct:
    """One part of a filter, all of which must hold.

    Attributes:
        text: the part, for people.
        reason: what became of it.
        detail: more about the reason; the analyser's own words where the part is unusable.
        alone: the blocks that it would skip by itself, by mechanism.
        features: the features that follow from it, as texts.
        nearest: where none does, the feature that is nearest to following from it.
    """

    text: str
    reason: Reason
    detail: str
    alone: Mapping[str, int]
    features: tuple[str, ...]
    nearest: str | None = None


def conjuncts_of(root: Node) -> tuple[Node, ...]:
    """The parts of a filter that must all hold; none where there is no filter."""
    if isinstance(root, Constant) and root.value:
        return ()
    return conjuncts(root)


def unusable_conjunct(problem: UnusableCondition) -> Conjunct:
    """The conjunct for a condition that the filter leaves out."""
    return Conjunct(problem.sql, reason_of_problem(problem.code), f"{problem.code}: {problem.detail}", {}, ())


def explain_conjuncts(table: OpenedTable, root: Node) -> tuple[Conjunct, ...]:
    """What each part of a filter skips, in their order, and if nothing, why."""
    parts = conjuncts_of(root)
    return tuple(_explained(table, node, parts) for node in parts)


def _explained(table: OpenedTable, node: Node, parts: Sequence[Node]) -> Conjunct:
    alone, follow = _skipped_alone(table, node), tuple(subsumed_by(table, node))
    beside, more = _skipped_beside(table, node, parts)
    if more:
        counts = {**alone, "index": alone["index"] + more}
        return Conjunct(describe(node), Reason.SKIPS, f"{more:,} blocks by index, beside {beside}", counts, follow)
    if any(alone.values()) or any(_skipped(source, node, table) for source in table.sources):
        return Conjunct(describe(node), Reason.SKIPS, "", alone, follow)
    nearest = None if follow else nearest_feature(table, node)
    reason, detail = _why_not(table, node, follow, nearest)
    return Conjunct(describe(node), reason, detail, alone, follow, None if nearest is None else _text(nearest))


def _skipped_alone(table: OpenedTable, node: Node) -> dict[str, int]:
    """Blocks that a conjunct would skip if it were the whole filter: by each mechanism, apart from the others."""
    by_partition = table.partitions_out(node)
    counts = dict.fromkeys(MECHANISMS, 0)
    for source in table.sources:
        features = source.features_under(table.settings)
        counts["partition"] += int(by_partition[source.entry_of].sum())
        statistics = source.statistics_under(table.settings)
        counts["statistics"] += int(cannot_match(node, statistics, None, by_indexes=False).sum())
        counts["index"] += int(cannot_match(node, statistics, None, by_statistics=False).sum())
        if features is not None:
            by_features = cannot_match(node, statistics, features, by_statistics=False, by_indexes=False)
            counts["features"] += int(by_features.sum())
    return counts


def _skipped_beside(table: OpenedTable, node: Node, parts: Sequence[Node]) -> tuple[str, int]:
    """The other parts of a filter beside which indexes of several expressions deny this one, as a text, and of how
    many blocks beyond those that it is denied by indexes alone."""
    literals = {each.subject: each for each in parts if isinstance(each, InSet) and not each.null}
    beside: dict[str, None] = {}
    more = 0
    for source in table.sources if isinstance(node, InSet) and literals.get(node.subject) == node else ():
        statistics = source.statistics_under(table.settings)
        proved = np.zeros(statistics.n, np.bool_)
        for index in (index for of_one in statistics.indexes.values() for index in of_one):
            if (
                isinstance(node, InSet)
                and node.subject in index.parts
                and all(part in literals for part in index.parts)
            ):
                proved |= index.cannot_match_all([literals[part] for part in index.parts])
                beside |= dict.fromkeys(describe(literals[part]) for part in index.parts if part != node.subject)
        if proved.any():
            more += int((proved & ~cannot_match(node, statistics, None, by_statistics=False)).sum())
    return " AND ".join(beside), more


def _why_not(table: OpenedTable, node: Node, follow: Sequence[str], nearest: Feature | None) -> tuple[Reason, str]:
    """The first reason that holds, from those that nothing can be done about to those that a new plan may mend."""
    if not any(source.blocks.n for source in table.sources):
        return Reason.NOTHING_LEFT, ""
    if all(source.features_under(table.settings) is None for source in table.sources):
        return Reason.OTHER_SETTINGS, ""
    if follow:
        return Reason.FEATURE_EVERYWHERE, ""
    literals = list(literals_of(node))
    found = (
        _too_wide(table, node)
        or _indexed(table, literals)
        or _mismatched(table, literals)
        or _function(table, literals)
        or _without_bounds(table, literals)
    )
    reason, detail = found or (_only_overlapping(table), "")
    return reason, ". ".join(part for part in (detail, _about(nearest, node)) if part)


def _only_overlapping(table: OpenedTable) -> Reason:
    has_features = any(len(source.plan.features) for source in table.sources)
    return Reason.NO_FEATURE if has_features else Reason.STATISTICS_OVERLAP


def _too_wide(table: OpenedTable, node: Node) -> tuple[Reason, str] | None:
    """Whether alternatives skip blocks one by one; names the one that skips the fewest."""
    alternatives = node.children if isinstance(node, Or) else pieces(node) if isinstance(node, InSet) else ()
    skipped = [sum(_skipped(source, each, table) for source in table.sources) for each in alternatives]
    if not any(skipped):
        return None
    widest, total = int(np.argmin(skipped)), sum(source.blocks.n for source in table.sources)
    may = f"{describe(alternatives[widest])} may match in {total - skipped[widest]:,} of {total:,} blocks"
    return Reason.OR_TOO_WIDE, f"{Reason.OR_TOO_WIDE.sentence}: {may}"


def _skipped(source: PlanBlocks, node: Node, table: OpenedTable) -> int:
    return int(cannot_match(node, source.statistics_under(table.settings), source.features_under(table.settings)).sum())


def _expressions(literal: Literal) -> tuple[Expr, ...]:
    return (literal.left, literal.right) if isinstance(literal, Comparison) else (literal.subject,)


def _indexed(table: OpenedTable, literals: Sequence[Literal]) -> tuple[Reason, str] | None:
    """Whether an index is of an expression that the part is about."""
    asked = {expr for literal in literals for expr in _expressions(literal)}
    nested = (literals_of_elements(each) for each in literals if isinstance(each, InSet | Like))
    asked |= {each.subject for found in nested for each in found}
    specs = dict.fromkeys(spec for source in table.sources for spec in source.plan.indexes if spec.subject in asked)
    return (Reason.INDEX_EVERYWHERE, f"{', '.join(map(str, specs))} allows a match in every block") if specs else None


def _mismatched(table: OpenedTable, literals: Sequence[Literal]) -> tuple[Reason, str] | None:
    for literal in literals:
        for expr in _expressions(literal):
            is_cast = isinstance(expr, Call) and expr.fn == "try_cast" and not isinstance(expr.args[0], Call)
            if is_cast and not _has_range(table, expr):
                names = ", ".join(sorted(expr.columns))
                return Reason.TYPE_MISMATCH, f"{names} is compared as {expr.type}, and its min/max are in another order"
    return None


def _function(table: OpenedTable, literals: Sequence[Literal]) -> tuple[Reason, str] | None:
    for literal in literals:
        for expr in _expressions(literal):
            if isinstance(expr, Call) and not _has_range(table, expr):
                return (
                    Reason.FUNCTION,
                    f"blocks have no min/max of {called_name(expr.fn)}({', '.join(sorted(expr.columns))})",
                )
    return None


def _has_range(table: OpenedTable, expr: Expr) -> bool:
    """Whether bounds of an expression are known, or follow from its columns', in some block."""
    found = (bounds_of(expr, source.block_statistics) for source in table.sources)
    return any(bounds is not None and bounds.known.any() for bounds in found)


def _without_bounds(table: OpenedTable, literals: Sequence[Literal]) -> tuple[Reason, str] | None:
    for name in sorted({name for literal in literals for name in literal.columns}):
        if not any(_has_statistics(source, name, literals) for source in table.sources):
            return Reason.NO_STATISTICS, f"no block has min/max of {name}"
    return None


def _has_statistics(source: PlanBlocks, name: str, literals: Sequence[Literal]) -> bool:
    bounds = source.block_statistics.bounds.get(name)
    if bounds is None:
        return False
    only_nulls = all(isinstance(each, InSet) and (each.values.is_all or each.values.is_empty) for each in literals)
    return bool(bounds.known.any() or (only_nulls and (bounds.nulls != UNKNOWN_NULLS).any()))


def nearest_feature(table: OpenedTable, node: Node) -> Feature | None:
    """The feature of which most follows from a node; of several, the one whose columns are most like the node's.

    None where no feature shares a column with it.
    """
    usable = [source.features_under(table.settings) for source in table.sources]
    features = dict.fromkeys(feature for index in usable if index is not None for feature in index.features)
    ranked = [(_nearness(feature, node), feature) for feature in features if feature.columns & node.columns]
    return max(ranked, key=lambda pair: pair[0])[1] if ranked else None


def _nearness(feature: Feature, node: Node) -> tuple[float, float, float]:
    implied = len(_implied(feature, node)) / len(feature.predicates)
    shared = len(feature.columns & node.columns) / len(feature.columns | node.columns)
    return implied, shared, feature.weight


def _implied(feature: Feature, node: Node) -> list[str]:
    return [describe(predicate) for predicate in feature.predicates if subsumes((predicate,), node)]


def _about(nearest: Feature | None, node: Node) -> str:
    if nearest is None:
        return f"No feature is about {', '.join(sorted(node.columns))}" if node.columns else ""
    implied = set(_implied(nearest, node))
    missing = [text for text in map(describe, nearest.predicates) if text not in implied]
    asks = f", which also asks for {' AND '.join(missing)}" if implied else ""
    return f"The nearest feature is {_text(nearest)}{asks}"


def _text(feature: Feature) -> str:
    return describe_all(feature.predicates)
