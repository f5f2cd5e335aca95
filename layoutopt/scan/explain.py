"""Why a query reads what it reads: numbers by mechanism, and for each part of its filter a stable reason code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from layoutopt.scan.opened import OpenedTable
from layoutopt.scan.prune import PrunedPlan, PruneOutcome, ScanSize
from layoutopt.scan.reads import TableRead
from layoutopt.scan.sizes import MECHANISMS, layout_json, size_json, size_over, subsumed_by
from layoutopt.scan.why_not import Conjunct, explain_conjuncts, unusable_conjunct


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
