"""Make the JSON values and readable tables of plans, loads, answers and histories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from layoutopt.model.predicates import describe_all
from layoutopt.model.predictions import held_out_shares, held_out_spreads, predictions_by_budget, select_own_predictions
from layoutopt.report.texts import format_bytes, printable

if TYPE_CHECKING:
    from rich.console import Console

    from layoutopt.catalog.snapshot import HistoryEntry
    from layoutopt.catalog.vacuum import VacuumReport
    from layoutopt.loading.load import LoadsReport
    from layoutopt.model.layout import Plan
    from layoutopt.writer.task_result import LoadReport

_MAX_PARTITIONS = 20
_MAX_CHANGED = 4
# The fields of the JSON of a snapshot in the history, after its number.
_HISTORY = ("parent", "created_at", "operation", "partitions", "rows", "changed", "changed_rows", "load_id")


def plan_report(plan: Plan, output: Path) -> dict[str, object]:
    """Return the JSON value of a new plan."""
    return {
        "output": str(output),
        "digest": plan.digest,
        "table": plan.table,
        "method": plan.method,
        "partition_by": plan.partition_by,
        "block_rows": plan.block_rows,
        "features": [describe_all(feature.predicates) for feature in plan.features],
        "row_order": [list(layout.row_order) for layout in plan.scheme.layouts],
        "indexes": [str(index) for index in plan.indexes],
        "predicted": select_own_predictions(plan.predicted),
        "curve": [
            {"storage_budget": budget, **figures} for budget, figures in predictions_by_budget(plan.predicted).items()
        ],
        "tried": held_out_shares(plan.predicted),
        "spread": held_out_spreads(plan.predicted),
        **{f"tried_by_{by}": trials for by in ("cells",) if (trials := held_out_shares(plan.predicted, by))},
    }


def print_plan(console: Console, plan: Plan, output: Path) -> None:
    """Print a plan."""
    partitions = f"partitions by {plan.partition_by}" if plan.partition_by else "one partition"
    console.print(Text(f"{plan.method} for {plan.table}: {partitions}, {plan.block_rows} rows per block"))
    console.print(f"{len(plan.features)} features, {len(plan.scheme.layouts)} layout(s)")
    for i, layout in enumerate(plan.scheme.layouts):
        if layout.row_order:
            name = f" of layout {i}" if len(plan.scheme.layouts) > 1 else ""
            console.print(Text(printable(f"rows within blocks{name} are sorted by {', '.join(layout.row_order)}")))
    if plan.indexes:
        console.print(Text(printable(f"indexes: {', '.join(map(str, plan.indexes))}")))
    for name, value in select_own_predictions(plan.predicted).items():
        console.print(Text(f"  {name.replace('_', ' ')}: {value:,.6g}"))
    if budgets := predictions_by_budget(plan.predicted):
        console.print(_make_curve_table(budgets))
    for by in ("bytes", "cells"):
        if trials := held_out_shares(plan.predicted, by):
            console.print(_make_trials_table(trials, held_out_spreads(plan.predicted, by), f"{by} read"))
    console.print(Text(f"Written: {output}"))


def _join_first(names: Sequence[str], limit: int) -> str:
    return ", ".join(names[:limit]) + (", ..." if len(names) > limit else "")


def print_loads(console: Console, report: LoadsReport) -> None:
    """Print the loads, and the partitions that were loaded before."""
    for load in report.loads:
        print_load(console, load)
    if report.already:
        names = _join_first(report.already, _MAX_PARTITIONS)
        console.print(Text(f"{len(report.already)} partition(s) already loaded, not changed: {names}"))


def _make_curve_table(budgets: Mapping[float, Mapping[str, float]]) -> Table:
    names = list(next(iter(budgets.values())))
    table = Table(title="predicted for each storage budget", title_justify="left")
    for heading in ("storage budget", *(name.replace("_", " ") for name in names)):
        table.add_column(heading, justify="right")
    for budget, figures in budgets.items():
        table.add_row(f"{budget:g}", *(f"{figures[name]:.4g}" for name in names))
    return table


def _make_trials_table(trials: Mapping[str, float], spread: Mapping[str, float], unit: str) -> Table:
    """Return a table of the methods or parameters tried on hold-out queries, the best first."""
    table = Table(title="trials on hold-out queries of the log", title_justify="left")
    table.add_column("trial")
    table.add_column(f"{unit} of full scans", justify="right")
    for label, fraction in trials.items():
        table.add_row(label, f"{fraction:.2%}" + (f" ± {spread[label]:.2%}" if label in spread else ""))
    return table


def print_load(console: Console, report: LoadReport) -> None:
    """Print what a load wrote."""
    console.print(f"Snapshot {report.snapshot}: {report.rows:,} rows in {report.blocks:,} blocks, {report.files} files")
    console.print(f"{format_bytes(report.bytes)} of columns written")
    console.print(Text(f"{len(report.partitions)} partition(s): {_join_first(report.partitions, _MAX_PARTITIONS)}"))
    for note in report.notes:
        console.print(Text(note))


def history_report(snapshots: Iterable[HistoryEntry]) -> list[dict[str, object]]:
    """Return the JSON value of a table's snapshots."""
    return [{"snapshot": entry.number, **{name: vars(entry)[name] for name in _HISTORY}} for entry in snapshots]


def print_vacuum(console: Console, report: VacuumReport) -> None:
    """Print what a vacuum removed or would remove."""
    verb = "Would remove" if report.dry_run else "Removed"
    snapshots = ", ".join(map(str, report.snapshots)) or "none"
    console.print(f"{verb} snapshots: {snapshots}")
    console.print(f"{verb} {len(report.files)} files, {format_bytes(report.bytes)}")
    if report.young:
        console.print(f"Kept {report.young} files outside all snapshots, which a running load may need")
    if report.published:
        kept = ", ".join(map(str, report.published))
        console.print(f"Kept for published tables: snapshots {kept}")


def print_history(console: Console, snapshots: Iterable[HistoryEntry]) -> None:
    """Print a table's snapshots and the partitions that each changed."""
    table = Table()
    for name in ("snapshot", "created at", "operation", "partitions", "rows"):
        table.add_column(name, justify="right")
    table.add_column("changed")
    for entry in snapshots:
        cells = (str(entry.number), entry.created_at, entry.operation, str(entry.partitions), f"{entry.rows:,}")
        table.add_row(*cells, Text(printable(describe_changed(entry, _MAX_CHANGED))))
    console.print(table)


def describe_changed(entry: HistoryEntry, limit: int) -> str:
    """Return the first partitions that a snapshot changed and the number of others, or that they are unknown."""
    if entry.changed is None:
        return "unknown: vacuum removed the snapshot before"
    rest = len(entry.changed) - limit
    return ", ".join(entry.changed[:limit]) + (f" and {rest} more" if rest > 0 else "")
