"""Explain a query's read: sizes by mechanism, and for each part of its filter a stable reason code.

Tools may rely on the codes, which are documented in ``REASONS.md`` beside this file. The sentences may change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from layoutopt.catalog.partition_entry import EntryName
from layoutopt.catalog.source_lists import read_sources
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
    Opaque,
    Or,
    conjuncts,
    describe,
    describe_all,
    literals_of,
)
from layoutopt.model.predicates.subsume import subsumes
from layoutopt.model.udf import called_name
from layoutopt.scan.opened_table import (
    MECHANISMS,
    OpenedTable,
    find_subsumed_features,
    layout_json,
    size_json,
    sum_all,
    sum_read,
    sum_skipped,
)
from layoutopt.scan.prune import PrunedPlan, ScanSize
from layoutopt.scan.table_read import TableRead
from layoutopt.skipping.cannot_match import UNKNOWN_NULLS, cannot_match, split_literal
from layoutopt.skipping.derived_bounds import derive_bounds
from layoutopt.skipping.implied_literals import element_literals

if TYPE_CHECKING:
    from layoutopt.scan.prune import PlanBlocks
    from layoutopt.sql.problems import UnusableCondition


class Reason(StrEnum):
    """The outcome of one conjunct of a filter (after Hyperspace's ``whyNot``)."""

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
    Reason.SKIPS: "it excludes every row of some blocks",
    Reason.NOTHING_LEFT: "the table has no blocks",
    Reason.UNUSABLE: "its form can't be used for skipping; the engine applies it",
    Reason.FUNCTION: "it uses a function of a column: blocks have no min/max of it, and no feature follows",
    Reason.TYPE_MISMATCH: "it compares a column in a type other than its own, for which blocks have no min/max",
    Reason.OTHER_SETTINGS: "the features were measured under another time zone, ANSI mode or case sensitivity",
    Reason.FEATURE_EVERYWHERE: "features follow from it, but every block may have rows that satisfy them",
    Reason.OR_TOO_WIDE: "some of its alternatives skip blocks, but another alternative may match in each of these",
    Reason.INDEX_EVERYWHERE: "its column or function is indexed, but the index allows a match in every block",
    Reason.NO_STATISTICS: "no feature follows from it, and blocks have no min/max of its column",
    Reason.NO_FEATURE: "no feature follows from it, and min/max of every block allow a match",
    Reason.STATISTICS_OVERLAP: "the plan has no features, and min/max of every block allow a match",
}

_REASONS_BY_PROBLEM = {
    "can-fail": Reason.FUNCTION,
    "unsupported-function": Reason.FUNCTION,
    "coercion": Reason.TYPE_MISMATCH,
    "unordered-type": Reason.TYPE_MISMATCH,
}


def reason_of_problem(code: str) -> Reason:
    """Return the reason for a condition that the SQL analyser left out, by the analyser's code."""
    return _REASONS_BY_PROBLEM.get(code, Reason.UNUSABLE)


@dataclass(frozen=True)
class Conjunct:
    """One part of a filter, all of which must hold.

    Attributes:
        detail: more about the reason; the analyser's message if the part is unusable.
        alone: the blocks that it would skip by itself, by mechanism.
        nearest: if none does, the feature that is nearest to following from it.
    """

    text: str
    reason: Reason
    detail: str
    alone: Mapping[str, int]
    features: tuple[str, ...]
    nearest: str | None = None


def unusable_conjunct(problem: UnusableCondition) -> Conjunct:
    """Return the conjunct for a condition that the filter leaves out."""
    return Conjunct(problem.sql, reason_of_problem(problem.code), f"{problem.code}: {problem.detail}", {}, ())


def explain_conjuncts(table: OpenedTable, root: Node) -> tuple[Conjunct, ...]:
    """Return what each part of a filter skips, in their order, and if nothing, why."""
    parts = () if isinstance(root, Constant) and root.value else conjuncts(root)
    return tuple(_explain_conjunct(table, node, parts) for node in parts)


def _explain_conjunct(table: OpenedTable, node: Node, parts: Sequence[Node]) -> Conjunct:
    alone, features = _count_skipped_alone(table, node), tuple(find_subsumed_features(table, node))
    partners, more = _count_skipped_jointly(table, node, parts)
    if more:
        counts = {**alone, "index": alone["index"] + more}
        detail = f"{more:,} blocks by index, together with {partners}"
        return Conjunct(describe(node), Reason.SKIPS, detail, counts, features)
    if any(alone.values()) or any(_count_skipped(source, node, table) for source in table.sources):
        return Conjunct(describe(node), Reason.SKIPS, "", alone, features)
    nearest = None if features else nearest_feature(table, node)
    reason, detail = _find_reason(table, node, features, nearest)
    text = None if nearest is None else describe_all(nearest.predicates)
    return Conjunct(describe(node), reason, detail, alone, features, text)


def _count_skipped_alone(table: OpenedTable, node: Node) -> dict[str, int]:
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


def _count_skipped_jointly(table: OpenedTable, node: Node, parts: Sequence[Node]) -> tuple[str, int]:
    """Return the parts that skip blocks together with this one by a joint index, as text, and the additional blocks."""
    literals = {part.subject: part for part in parts if isinstance(part, InSet) and not part.null}
    partners: dict[str, None] = {}
    more = 0
    if not isinstance(node, InSet) or literals.get(node.subject) != node:
        return "", 0
    for source in table.sources:
        statistics = source.statistics_under(table.settings)
        proved = np.zeros(statistics.n, np.bool_)
        for index in chain.from_iterable(statistics.indexes.values()):
            if node.subject in index.parts and all(part in literals for part in index.parts):
                proved |= index.cannot_match_all([literals[part] for part in index.parts])
                partners |= dict.fromkeys(describe(literals[part]) for part in index.parts if part != node.subject)
        if proved.any():
            more += int((proved & ~cannot_match(node, statistics, None, by_statistics=False)).sum())
    return " AND ".join(partners), more


def _find_reason(
    table: OpenedTable, node: Node, features: Sequence[str], nearest: Feature | None
) -> tuple[Reason, str]:
    """Return the first reason that holds, from those without a remedy to those that a new plan may solve."""
    if not any(source.blocks.n for source in table.sources):
        return Reason.NOTHING_LEFT, ""
    if all(source.features_under(table.settings) is None for source in table.sources):
        return Reason.OTHER_SETTINGS, ""
    if features:
        return Reason.FEATURE_EVERYWHERE, ""
    literals = list(literals_of(node))
    has_features = any(len(source.plan.features) for source in table.sources)
    reason, detail = (
        _check_alternatives(table, node)
        or _check_indexes(table, literals)
        or _check_casts(table, literals)
        or _check_functions(table, literals)
        or _check_bounds(table, literals)
        or (Reason.NO_FEATURE if has_features else Reason.STATISTICS_OVERLAP, "")
    )
    return reason, ". ".join(part for part in (detail, _describe_nearest(nearest, node)) if part)


def _check_alternatives(table: OpenedTable, node: Node) -> tuple[Reason, str] | None:
    """Name the alternative that skips the fewest blocks, if alternatives skip blocks one by one."""
    alternatives = node.children if isinstance(node, Or) else split_literal(node) if isinstance(node, InSet) else ()
    skipped = [sum(_count_skipped(source, node, table) for source in table.sources) for node in alternatives]
    if not any(skipped):
        return None
    widest, total = int(np.argmin(skipped)), sum(source.blocks.n for source in table.sources)
    may = f"{describe(alternatives[widest])} may match in {total - skipped[widest]:,} of {total:,} blocks"
    return Reason.OR_TOO_WIDE, f"{Reason.OR_TOO_WIDE.sentence}: {may}"


def _count_skipped(source: PlanBlocks, node: Node, table: OpenedTable) -> int:
    return int(cannot_match(node, source.statistics_under(table.settings), source.features_under(table.settings)).sum())


def _expressions(literals: Sequence[Literal]) -> Iterator[Expr]:
    for literal in literals:
        yield from (literal.left, literal.right) if isinstance(literal, Comparison) else (literal.subject,)


def _check_indexes(table: OpenedTable, literals: Sequence[Literal]) -> tuple[Reason, str] | None:
    subjects = set(_expressions(literals))
    for literal in literals:
        if isinstance(literal, InSet | Like):
            subjects |= {element.subject for element in element_literals(literal)}
    specs = dict.fromkeys(spec for source in table.sources for spec in source.plan.indexes if spec.subject in subjects)
    return (Reason.INDEX_EVERYWHERE, f"{', '.join(map(str, specs))} allows a match in every block") if specs else None


def _check_casts(table: OpenedTable, literals: Sequence[Literal]) -> tuple[Reason, str] | None:
    for expr in _expressions(literals):
        is_cast = isinstance(expr, Call) and expr.fn == "try_cast" and not isinstance(expr.args[0], Call)
        if is_cast and not _has_bounds(table, expr):
            names = ", ".join(sorted(expr.columns))
            return Reason.TYPE_MISMATCH, f"{names} is compared as {expr.type}, and its min/max are in another order"
    return None


def _check_functions(table: OpenedTable, literals: Sequence[Literal]) -> tuple[Reason, str] | None:
    for expr in _expressions(literals):
        if isinstance(expr, Call) and not _has_bounds(table, expr):
            call = f"{called_name(expr.fn)}({', '.join(sorted(expr.columns))})"
            return Reason.FUNCTION, f"blocks have no min/max of {call}"
    return None


def _has_bounds(table: OpenedTable, expr: Expr) -> bool:
    """Return whether bounds of an expression are known, or follow from those of its columns, in some block."""
    all_bounds = (derive_bounds(expr, source.block_statistics) for source in table.sources)
    return any(bounds is not None and bounds.known.any() for bounds in all_bounds)


def _check_bounds(table: OpenedTable, literals: Sequence[Literal]) -> tuple[Reason, str] | None:
    for name in sorted({name for literal in literals for name in literal.columns}):
        if not any(_has_statistics(source, name, literals) for source in table.sources):
            return Reason.NO_STATISTICS, f"no block has min/max of {name}"
    return None


def _has_statistics(source: PlanBlocks, name: str, literals: Sequence[Literal]) -> bool:
    bounds = source.block_statistics.bounds.get(name)
    if bounds is None:
        return False
    only_nulls = all(
        isinstance(literal, InSet) and (literal.values.is_all or literal.values.is_empty) for literal in literals
    )
    return bool(bounds.known.any() or (only_nulls and (bounds.nulls != UNKNOWN_NULLS).any()))


def nearest_feature(table: OpenedTable, node: Node) -> Feature | None:
    """Return the feature of which most follows from a node, then the one whose columns are most like the node's.

    None if no feature shares a column with it.
    """
    usable = [source.features_under(table.settings) for source in table.sources]
    features = dict.fromkeys(feature for index in usable if index is not None for feature in index.features)

    def measure_nearness(feature: Feature) -> tuple[float, float, float]:
        implied = len(_implied_predicates(feature, node)) / len(feature.predicates)
        shared = len(feature.columns & node.columns) / len(feature.columns | node.columns)
        return implied, shared, feature.weight

    return max((f for f in features if f.columns & node.columns), key=measure_nearness, default=None)


def _implied_predicates(feature: Feature, node: Node) -> list[str]:
    return [describe(predicate) for predicate in feature.predicates if subsumes((predicate,), node)]


def _describe_nearest(nearest: Feature | None, node: Node) -> str:
    if nearest is None:
        return f"No feature uses {', '.join(sorted(node.columns))}" if node.columns else ""
    implied = set(_implied_predicates(nearest, node))
    missing = [text for text in map(describe, nearest.predicates) if text not in implied]
    more = f", which also requires {' AND '.join(missing)}" if implied else ""
    return f"The nearest feature is {describe_all(nearest.predicates)}{more}"


@dataclass(frozen=True)
class ReadExplanation:
    """One mention of the table: what is read, what each mechanism skips, and why no more is skipped."""

    table: str
    columns: tuple[str, ...]
    total: ScanSize
    read: ScanSize
    skipped_by: Mapping[str, ScanSize]
    layouts: tuple[Mapping[str, Any], ...]
    subsumed_by: tuple[str, ...]
    conjuncts: tuple[Conjunct, ...]


@dataclass(frozen=True)
class Explanation:
    """The result of ``layoutopt explain``; ``reads`` has one item for each mention of the table."""

    table: str
    snapshot: int
    sql: str
    reads: tuple[ReadExplanation, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the explanation as JSON."""
        return {
            "table": self.table,
            "snapshot": self.snapshot,
            "sql": self.sql,
            "reads": [_read_json(read) for read in self.reads],
        }

    def __str__(self) -> str:
        lines = [f"{self.table}, snapshot {self.snapshot}"]
        for read in self.reads:
            of = "" if read.table == self.table else f" of {read.table}"
            lines += [f"reads {', '.join(read.columns) or 'no column'}{of}", *_amount_lines(read), *_path_lines(read)]
            lines += _conjunct_lines(read.conjuncts)
        return "\n".join(lines)


def explain(table: OpenedTable, sql: str, reads: Sequence[TableRead]) -> Explanation:
    """Explain every read of a text."""
    return Explanation(table.name, table.catalog.snapshot.number, sql, tuple(_explain_read(read) for read in reads))


def list_entries(table: OpenedTable, reads: Sequence[TableRead]) -> list[dict[str, Any]]:
    """Return the entries of a table whose blocks are read, as JSON: with the source's files that they came from."""
    counts: dict[EntryName, int] = {}
    by_name = {entry.name: entry for entry in table.catalog.partitions}
    for pruned in chain.from_iterable(read.pruned for read in reads if read.table.catalog is table.catalog):
        places, blocks = np.unique(pruned.source.entry_of[pruned.read], return_counts=True)
        for place, n in zip(places.tolist(), blocks.tolist(), strict=True):
            name = pruned.source.entries[place].name
            counts[name] = counts.get(name, 0) + n
    sources = read_sources(table.catalog.files, table.catalog.snapshot, [by_name[name] for name in counts])
    return [
        {
            "partition": key,
            "load_id": load_id,
            "blocks": n,
            "sources": [file.to_json() for file in sources[key, load_id]] if (key, load_id) in sources else None,
        }
        for (key, load_id), n in sorted(counts.items())
    ]


def _explain_read(read: TableRead) -> ReadExplanation:
    root = read.scan.filter.root
    return ReadExplanation(
        table=read.scan.table,
        columns=tuple(read.scan.columns),
        total=sum_all(read.pruned),
        read=sum_read(read.pruned),
        skipped_by=sum_skipped(read.pruned),
        layouts=tuple(_path_json(plan) for plan in read.pruned),
        subsumed_by=tuple(find_subsumed_features(read.table, root)),
        conjuncts=_explain_parts(read),
    )


def _explain_parts(read: TableRead) -> tuple[Conjunct, ...]:
    """Return all parts of a condition, with those that the filter leaves out.

    An opaque part is both: it is shown by what it skips, or else by why it was left out.
    """
    root = read.scan.filter.root
    shown: list[Conjunct] = []
    skipping: set[str | None] = set()
    for node, part in zip(conjuncts(root), explain_conjuncts(read.table, root), strict=False):
        text = node.subject.text if isinstance(node, InSet) and isinstance(node.subject, Opaque) else None
        if text is None or part.reason == Reason.SKIPS:
            shown.append(part)
            skipping.add(text)
    return (*shown, *(unusable_conjunct(problem) for problem in read.scan.unusable if problem.sql not in skipping))


def _path_json(pruned: PrunedPlan) -> dict[str, Any]:
    """Return a plan's retrieval path, what it reads before empty segments are skipped, and the next best path."""
    path = pruned.path
    next_best = None
    if path.next_best is not None:
        columns = {str(c.layout): list(c.columns) for c in path.next_best}
        next_best = {"columns": columns, "cells_and_tids": path.next_best_cells_and_tids}
    return {**layout_json(pruned), "cells_and_tids": path.cells_and_tids, "next_best": next_best}


def _read_json(read: ReadExplanation) -> dict[str, Any]:
    return {
        "table": read.table,
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
    amounts = {"all": read.total, **{f"skipped by {name}": amount for name, amount in read.skipped_by.items()}}
    rows = [("", "blocks", "rows", "bytes")]
    for name, amount in {**amounts, "read": read.read}.items():
        rows.append((name, f"{amount.blocks:,}", f"{amount.rows:,}", f"{amount.bytes:,}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]


def _path_lines(read: ReadExplanation) -> list[str]:
    lines = []
    for path in read.layouts:
        next_best = path["next_best"]
        if len(path["columns"]) > 1 or next_best is not None:
            lines.append(f"path: {_path_text(path)}")
        if next_best is not None:
            lines.append(f"next best: {_path_text(next_best)}")
    return lines


def _path_text(path: Mapping[str, Any]) -> str:
    parts = [f"layout {layout} for {', '.join(columns) or 'no column'}" for layout, columns in path["columns"].items()]
    return f"{'; '.join(parts)}: {path['cells_and_tids']:,} cells and tids"


def _conjunct_lines(conjuncts: Sequence[Conjunct]) -> list[str]:
    lines = ["parts of the filter, each by itself:"] if conjuncts else []
    for conjunct in conjuncts:
        blocks = ", ".join(f"{count:,} by {name}" for name, count in conjunct.alone.items() if count)
        lines += [f"  {conjunct.text}", f"    {conjunct.reason.value}: {conjunct.detail or conjunct.reason.sentence}"]
        lines += [f"    blocks skipped if it were the only filter: {blocks}"] if blocks else []
    return lines
