"""Make the JSON values and readable tables of plans, loads, answers and histories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from layoutopt.model.predicates import describe_all
from layoutopt.model.predictions import Predictions
from layoutopt.report.texts import format_bytes, printable

if TYPE_CHECKING:
    from rich.console import Console

    from layoutopt.catalog.expire import ExpireReport
    from layoutopt.catalog.history import HistoryEntry
    from layoutopt.catalog.source_lists import LoadedFile
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
    predictions = Predictions.parse(plan.predicted)
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
        "predicted": predictions.own,
        "curve": [{"storage_budget": budget, **figures} for budget, figures in predictions.by_budget.items()],
        "tried": predictions.shares,
        "spread": predictions.spreads,
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
    predictions = Predictions.parse(plan.predicted)
    for name, value in predictions.own.items():
        console.print(Text(f"  {name.replace('_', ' ')}: {value:,.6g}"))
    if predictions.by_budget:
        console.print(_make_curve_table(predictions.by_budget))
    if predictions.shares:
        console.print(_make_trials_table(predictions))
    console.print(Text(f"Written: {output}"))


def _join_first(names: Sequence[str], limit: int) -> str:
    return ", ".join(names[:limit]) + (", ..." if len(names) > limit else "")


def print_loads(console: Console, report: LoadsReport) -> None:
    """Print the loads, the partitions that were loaded before, and those without rows and with failures."""
    for load in report.loads:
        print_load(console, load)
    for keys, meaning in ((report.already, "already loaded, not changed"), (report.empty, "without rows")):
        if keys:
            console.print(Text(f"{len(keys)} partition(s) {meaning}: {_join_first(keys, _MAX_PARTITIONS)}"))
    for failure in report.failed:
        console.print(Text(printable(f"not loaded: {failure.partition}: {failure.error}")))


def _make_curve_table(budgets: Mapping[float, Mapping[str, float]]) -> Table:
    names = list(next(iter(budgets.values())))
    table = Table(title="predicted for each storage budget", title_justify="left")
    for heading in ("storage budget", *(name.replace("_", " ") for name in names)):
        table.add_column(heading, justify="right")
    for budget, figures in budgets.items():
        table.add_row(f"{budget:g}", *(f"{figures[name]:.4g}" for name in names))
    return table


def _make_trials_table(predictions: Predictions) -> Table:
    """Return a table of the methods or parameters tried on hold-out queries, the best first."""
    table = Table(title="trials on hold-out queries of the log", title_justify="left")
    table.add_column("trial")
    table.add_column("bytes read of full scans", justify="right")
    for label, share in predictions.shares.items():
        spread = predictions.spreads.get(label)
        table.add_row(label, f"{share:.2%}" + (f" ± {spread:.2%}" if spread is not None else ""))
    return table


def print_load(console: Console, report: LoadReport) -> None:
    """Print what a load wrote."""
    console.print(f"Snapshot {report.snapshot}: {report.rows:,} rows in {report.blocks:,} blocks, {report.files} files")
    console.print(f"{format_bytes(report.bytes)} of columns written")
    console.print(Text(f"{len(report.partitions)} partition(s): {_join_first(report.partitions, _MAX_PARTITIONS)}"))
    for note in report.notes:
        console.print(Text(note))


# By snapshot and partition, the files that new rows came from; None where they are unknown.
NewSources = Mapping[int, Mapping[str, Sequence["LoadedFile"] | None]]


def history_report(snapshots: Iterable[HistoryEntry], sources: NewSources | None = None) -> list[dict[str, object]]:
    """Return the JSON value of a table's snapshots."""
    report = []
    for entry in snapshots:
        value = {"snapshot": entry.number, **{name: vars(entry)[name] for name in _HISTORY}}
        if sources is not None:
            value["sources"] = {
                key: None if files is None else [file.to_json() for file in files]
                for key, files in sources[entry.number].items()
            }
        report.append(value)
    return report


def print_expire(console: Console, report: ExpireReport) -> None:
    """Print what was dropped or would be dropped."""
    if not report.partitions:
        console.print(f"No partition to drop; {report.left} stay")
        return
    verb = "Would drop" if report.dry_run else f"Snapshot {report.snapshot} drops"
    names = _join_first(report.partitions, _MAX_PARTITIONS)
    console.print(Text(printable(f"{verb} {len(report.partitions)} partition(s), {report.left} stay: {names}")))
    console.print(f"{report.rows:,} rows; `vacuum` frees {format_bytes(report.bytes)}, `restore` works until then")


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


def print_history(console: Console, snapshots: Iterable[HistoryEntry], sources: NewSources | None = None) -> None:
    """Print a table's snapshots and the partitions that each changed, then the files that these came from."""
    table = Table()
    for name in ("snapshot", "created at", "operation", "partitions", "rows"):
        table.add_column(name, justify="right")
    table.add_column("changed")
    for entry in snapshots:
        cells = (str(entry.number), entry.created_at, entry.operation, str(entry.partitions), f"{entry.rows:,}")
        table.add_row(*cells, Text(printable(describe_changed(entry, _MAX_CHANGED))))
    console.print(table)
    for number, by_partition in (sources or {}).items():
        for key, files in by_partition.items():
            console.print(Text(printable(f"snapshot {number}, partition {key}: {_describe_files(files)}")))


def _describe_files(files: Sequence[LoadedFile] | None) -> str:
    if files is None:
        return "from unknown files"
    lines = [
        f"\n  {file.path}, {file.size:,} bytes of {_format_time(file.modified)}" for file in files[:_MAX_PARTITIONS]
    ]
    rest = len(files) - len(lines)
    names = ", ".join(dict.fromkeys(file.source for file in files))
    return f"{len(files):,} files of {names}{''.join(lines)}" + (f"\n  and {rest:,} more" if rest else "")


def _format_time(micros: int) -> str:
    return f"{datetime.fromtimestamp(micros / 1e6, UTC):%Y-%m-%dT%H:%M:%SZ}"


def describe_changed(entry: HistoryEntry, limit: int) -> str:
    """Return the first partitions that a snapshot changed and the number of others, or that they are unknown."""
    if entry.changed is None:
        return "unknown: vacuum removed the snapshot before"
    rest = len(entry.changed) - limit
    return ", ".join(entry.changed[:limit]) + (f" and {rest} more" if rest > 0 else "")
