"""Why a query reads what it reads: numbers by mechanism, and for each part of its filter a stable reason code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

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
from layoutopt.scan.opened_table import MECHANISMS, OpenedTable, layout_json, size_json, size_over, subsumed_by
from layoutopt.scan.prune import PrunedPlan, PruneOutcome, ScanSize
from layoutopt.scan.table_read import TableRead
from layoutopt.skipping.cannot_match import UNKNOWN_NULLS, cannot_match, pieces
from layoutopt.skipping.derived_bounds import bounds_of
from layoutopt.skipping.implied_literals import literals_of_elements

if TYPE_CHECKING:
    from layoutopt.scan.prune import PlanBlocks
    from layoutopt.sql.problems import UnusableCondition


# ----------------------------------------------------------------------------------------------------
# Why a part of a filter skipped no more: stable codes, each with its sentence.
#
# Tools may rely on the codes; the sentences are for people and may change. They are documented in ``REASONS.md`` beside
# this file; a test holds the two together.


class Reason(StrEnum):
    """What became of one conjunct of a filter (after Hyperspace's ``whyNot``)."""

    SKIPS = "skips"
    NOTHING_LEFT = "nothing-left"
    UNUSABLE = "unusable"
    FUNCTION = "function-on-column"
    TYPE_MISMATCH = "type-mismatch"
    OTHER_SETTINGS = "other-settings"
    FEATURE_EVERYWHERE = "feature-everywhere"
    OR_TOO_WIDE = "or-too-wide"
    INDEX_EVERYWHERE = "index-everywhere"
    NO_STATISTICS = "no-statistics"
    NO_FEATURE = "no-feature"
    STATISTICS_OVERLAP = "statistics-overlap"

    @property
    def sentence(self) -> str:
        """The reason in words."""
        return _SENTENCES[self]


_SENTENCES = {
    Reason.SKIPS: "it proves of some blocks that no row matches",
    Reason.NOTHING_LEFT: "the table has no blocks",
    Reason.UNUSABLE: "its form can't be used for skipping; the engine applies it",
    Reason.FUNCTION: "it is about a function of a column: blocks have no min/max of it, and no feature follows",
    Reason.TYPE_MISMATCH: "it compares a column in another type than its own, in which blocks have no min/max",
    Reason.OTHER_SETTINGS: "the features were measured under another time zone, ANSI mode or case sensitivity",
    Reason.FEATURE_EVERYWHERE: "features follow from it, but every block has rows that they may hold for",
    Reason.OR_TOO_WIDE: "some of its alternatives skip blocks, but in each of these another one may match",
    Reason.INDEX_EVERYWHERE: "an index is of its column or function, but allows a match in every block",
    Reason.NO_STATISTICS: "no feature follows from it, and blocks have no min/max of its column",
    Reason.NO_FEATURE: "no feature follows from it, and min/max of every block allow a match",
    Reason.STATISTICS_OVERLAP: "the plan has no features, and min/max of every block allow a match",
}

_OF_PROBLEMS = {
    "can-fail": Reason.FUNCTION,
    "unsupported-function": Reason.FUNCTION,
    "coercion": Reason.TYPE_MISMATCH,
    "unordered-type": Reason.TYPE_MISMATCH,
}


def reason_of_problem(code: str) -> Reason:
    """The reason for a condition that the analyser had to leave out of the filter, by the analyser's code."""
    return _OF_PROBLEMS.get(code, Reason.UNUSABLE)


# ----------------------------------------------------------------------------------------------------
# What became of one part of a filter: the blocks that it skips by itself, and if it skips none, why (``whyNot``).


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


@dataclass(frozen=True)
class ReadExplanation:
    """One mention of the table: what is read, what each mechanism skips, and why not more."""

    columns: tuple[str, ...]
    total: ScanSize
    read: ScanSize
    skipped_by: Mapping[str, ScanSize]
    layouts: tuple[Mapping[str, Any], ...]
    subsumed_by: tuple[str, ...]
    conjuncts: tuple[Conjunct, ...]


@dataclass(frozen=True)
class Explanation:
    """Everything that ``layoutopt explain`` says; ``reads`` has one item for each mention of the table."""

    table: str
    snapshot: int
    sql: str
    reads: tuple[ReadExplanation, ...]

    def to_json(self) -> dict[str, Any]:
        """The explanation as JSON."""
        return {
            "table": self.table,
            "snapshot": self.snapshot,
            "sql": self.sql,
            "reads": [_read_json(read) for read in self.reads],
        }

    def __str__(self) -> str:
        """The explanation for people, as plain lines."""
        lines = [f"{self.table}, snapshot {self.snapshot}"]
        for read in self.reads:
            lines += [f"reads {', '.join(read.columns) or 'no column'}", *_amount_lines(read), *_path_lines(read)]
            lines += _conjunct_lines(read.conjuncts)
        return "\n".join(lines)


def explain(table: OpenedTable, sql: str, reads: Sequence[TableRead]) -> Explanation:
    """Explains every read of a text.

    Raises:
        CatalogError: a blocks file is damaged.
    """
    return Explanation(table.name, table.catalog.snapshot.number, sql, tuple(_explain_read(read) for read in reads))


def _explain_read(read: TableRead) -> ReadExplanation:
    root = read.scan.filter.root
    unusable = tuple(unusable_conjunct(problem) for problem in read.scan.unusable)
    on_path = tuple(outcome for outcome in PruneOutcome if outcome is not PruneOutcome.OTHER_LAYOUT)
    return ReadExplanation(
        columns=tuple(read.scan.columns),
        total=size_over(read.pruned, *on_path),
        read=size_over(read.pruned, PruneOutcome.READ),
        skipped_by={name: size_over(read.pruned, outcome) for name, outcome in MECHANISMS.items()},
        layouts=tuple(_path_json(plan) for plan in read.pruned),
        subsumed_by=tuple(subsumed_by(read.table, root)),
        conjuncts=explain_conjuncts(read.table, root) + unusable,
    )


def _path_json(pruned: PrunedPlan) -> dict[str, Any]:
    """One plan's retrieval path, what it reads (before segments that one layout empties), and the next best path."""
    path = pruned.path
    other = None
    if path.next_best is not None:
        columns = {str(c.layout): list(c.columns) for c in path.next_best}
        other = {"columns": columns, "cells_and_tids": path.next_best_cells_and_tids}
    return {**layout_json(pruned), "cells_and_tids": path.cells_and_tids, "next_best": other}


def _read_json(read: ReadExplanation) -> dict[str, Any]:
    return {
        "columns": list(read.columns),
        "total": size_json(read.total),
        "read": size_json(read.read),
        "skipped_by": {name: size_json(amount) for name, amount in read.skipped_by.items()},
        "layouts": [dict(layout) for layout in read.layouts],
        "subsumed_by": list(read.subsumed_by),
        "conjuncts": [_conjunct_json(conjunct) for conjunct in read.conjuncts],
    }


def _conjunct_json(conjunct: Conjunct) -> dict[str, Any]:
    return {
        "text": conjunct.text,
        "reason": conjunct.reason.value,
        "detail": conjunct.detail or conjunct.reason.sentence,
        "blocks_skipped_alone": dict(conjunct.alone),
        "features": list(conjunct.features),
        "nearest_feature": conjunct.nearest,
    }


def _amount_lines(read: ReadExplanation) -> list[str]:
    """What is read and what each mechanism skips, as columns of numbers."""
    amounts = {"all": read.total, **{f"skipped by {name}": amount for name, amount in read.skipped_by.items()}}
    rows = [("", "blocks", "rows", "bytes")]
    for name, amount in {**amounts, "read": read.read}.items():
        rows.append((name, f"{amount.blocks:,}", f"{amount.rows:,}", f"{amount.bytes:,}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]


def _path_lines(read: ReadExplanation) -> list[str]:
    """The retrieval path where there are several layouts or paths."""
    lines = []
    for path in read.layouts:
        other = path["next_best"]
        if len(path["columns"]) > 1 or other is not None:
            lines.append(f"path: {_path_text(path)}")
        if other is not None:
            lines.append(f"next best: {_path_text(other)}")
    return lines


def _path_text(path: Mapping[str, Any]) -> str:
    parts = [f"layout {layout} for {', '.join(columns) or 'no column'}" for layout, columns in path["columns"].items()]
    return f"{'; '.join(parts)}: {path['cells_and_tids']:,} cells and tids"


def _conjunct_lines(conjuncts: Sequence[Conjunct]) -> list[str]:
    """Each part of the filter, with the blocks that it skips by itself, and why it skips no more."""
    lines = ["the parts of its filter, each by itself:"] if conjuncts else []
    for conjunct in conjuncts:
        blocks = ", ".join(f"{count:,} by {name}" for name, count in conjunct.alone.items() if count)
        lines += [f"  {conjunct.text}", f"    {conjunct.reason.value}: {conjunct.detail or conjunct.reason.sentence}"]
        lines += [f"    blocks that it would skip as the only filter: {blocks}"] if blocks else []
    return lines
