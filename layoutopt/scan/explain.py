"""Why a query reads what it reads: numbers by mechanism, and for each part of its filter a stable reason code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from layoutopt.model.predicate import And, Constant, Node, describe
from layoutopt.model.skipping import cannot_match
from layoutopt.scan.evaluate import MECHANISMS, amount_json, amount_over, layout_json, subsumed_by
from layoutopt.scan.prune import Amount, Fate
from layoutopt.scan.reasons import Reason

if TYPE_CHECKING:
    from layoutopt.scan.table import Scan, Table, TableRead


@dataclass(frozen=True)
class Conjunct:
    """One part of a filter, all of which must hold.

    Attributes:
        text: the part, for people.
        reason: what became of it.
        detail: more about the reason; the analyser's own words where the part is unusable.
        alone: the blocks that it would skip by itself, by mechanism.
        features: the features that follow from it, as texts.
    """

    text: str
    reason: Reason
    detail: str
    alone: Mapping[str, int]
    features: tuple[str, ...]


@dataclass(frozen=True)
class ReadExplanation:
    """One mention of the table: what is read, what each mechanism skips, and why not more."""

    columns: tuple[str, ...]
    total: Amount
    read: Amount
    skipped_by: Mapping[str, Amount]
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

    def __rich__(self) -> RenderableType:
        return render_explanation(self)


def explain(scan: Scan) -> Explanation:
    """Explains every read of a scan.

    Raises:
        CatalogError: a blocks file is damaged.
    """
    table = scan.table
    return Explanation(
        table.name, table.catalog.snapshot.number, scan.sql, tuple(_explain_read(read) for read in scan.reads)
    )


def _explain_read(read: TableRead) -> ReadExplanation:
    root = read.scan.filter.root
    unusable = tuple(
        Conjunct(problem.sql, Reason.UNUSABLE, f"{problem.code}: {problem.detail}", {}, ())
        for problem in read.scan.unusable
    )
    on_path = tuple(fate for fate in Fate if fate is not Fate.OTHER_LAYOUT)
    return ReadExplanation(
        columns=tuple(read.scan.columns),
        total=amount_over(read.pruned, *on_path),
        read=amount_over(read.pruned, Fate.READ),
        skipped_by={name: amount_over(read.pruned, fate) for name, fate in MECHANISMS.items()},
        layouts=tuple(layout_json(plan) for plan in read.pruned),
        subsumed_by=tuple(subsumed_by(read.table, root)),
        conjuncts=tuple(_explain_conjunct(read.table, node) for node in conjuncts_of(root)) + unusable,
    )


def conjuncts_of(root: Node) -> tuple[Node, ...]:
    """The parts of a filter that must all hold; none where there is no filter."""
    if isinstance(root, Constant) and root.value:
        return ()
    return root.children if isinstance(root, And) else (root,)


def _explain_conjunct(table: Table, node: Node) -> Conjunct:
    alone = _skipped_alone(table, node)
    follow = tuple(subsumed_by(table, node))
    return Conjunct(describe(node), _reason(table, alone, follow), "", alone, follow)


def _skipped_alone(table: Table, node: Node) -> dict[str, int]:
    """Blocks that a conjunct would skip if it were the whole filter: by each mechanism, apart from the others."""
    by_partition = table.partitions_out(node)
    counts = dict.fromkeys(MECHANISMS, 0)
    for source in table.sources:
        features = source.features_under(table.settings)
        counts["partition"] += int(by_partition[source.entry_of].sum())
        counts["statistics"] += int(cannot_match(node, source.facts, None).sum())
        if features is not None:
            counts["features"] += int(cannot_match(node, source.facts, features, by_statistics=False).sum())
    return counts


def _reason(table: Table, alone: Mapping[str, int], follow: Sequence[str]) -> Reason:
    if any(alone.values()):
        return Reason.SKIPS
    if not any(source.blocks.n for source in table.sources):
        return Reason.NOTHING_LEFT
    if all(source.features_under(table.settings) is None for source in table.sources):
        return Reason.OTHER_SETTINGS
    if follow:
        return Reason.FEATURE_EVERYWHERE
    has_features = any(len(source.plan.features) for source in table.sources)
    return Reason.NO_FEATURE if has_features else Reason.STATISTICS_OVERLAP


def _read_json(read: ReadExplanation) -> dict[str, Any]:
    return {
        "columns": list(read.columns),
        "total": amount_json(read.total),
        "read": amount_json(read.read),
        "skipped_by": {name: amount_json(amount) for name, amount in read.skipped_by.items()},
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
    }


def render_explanation(explanation: Explanation) -> RenderableType:
    """An explanation for a terminal."""
    parts: list[RenderableType] = [
        Text(f"{explanation.table}, snapshot {explanation.snapshot}", style="bold"),
    ]
    for read in explanation.reads:
        parts += [_amounts_grid(read), _conjuncts_grid(read)] if read.conjuncts else [_amounts_grid(read)]
    return Group(*parts)


def _amounts_grid(read: ReadExplanation) -> Grid:
    grid = Grid(title=f"reads {', '.join(read.columns) or 'no column'}", title_justify="left")
    grid.add_column("")
    for unit in ("blocks", "rows", "bytes"):
        grid.add_column(unit, justify="right")
    rows = {"all": read.total, **{f"skipped by {name}": amount for name, amount in read.skipped_by.items()}}
    for name, amount in {**rows, "read": read.read}.items():
        grid.add_row(name, f"{amount.blocks:,}", f"{amount.rows:,}", f"{amount.bytes:,}")
    return grid


def _conjuncts_grid(read: ReadExplanation) -> Grid:
    grid = Grid(title="the parts of its filter, each by itself", title_justify="left")
    for name in ("part", "partition", "features", "statistics", "reason"):
        grid.add_column(name, justify="right" if name in MECHANISMS else "left")
    for conjunct in read.conjuncts:
        numbers = [f"{conjunct.alone[name]:,}" if name in conjunct.alone else "-" for name in MECHANISMS]
        reason = f"{conjunct.reason.value}: {conjunct.detail or conjunct.reason.sentence}"
        grid.add_row(Text(conjunct.text), *numbers, Text(reason))
    return grid
