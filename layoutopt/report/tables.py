"""What the verbs print: values for `--json`, and readable tables of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from layoutopt.model.engine_costs import curve, of_the_plan, spreads, tried
from layoutopt.model.predicates import describe_all
from layoutopt.report.texts import format_bytes, printable

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console

    from layoutopt.catalog.vacuum import VacuumReport
    from layoutopt.model.layout import Plan
    from layoutopt.spark.loading.load import LoadsReport
    from layoutopt.writer.task_result import LoadReport


# ----------------------------------------------------------------------------------------------------
# Texts and numbers as people read them.


_MOST_NAMED = 20
_MOST_CHANGED = 4


def plan_report(plan: Plan, output: Path) -> dict[str, object]:
    """The JSON value of a new plan."""
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
        "predicted": of_the_plan(plan.predicted),
        "curve": [{"storage_budget": budget, **found} for budget, found in curve(plan.predicted).items()],
        "tried": tried(plan.predicted),
        "spread": spreads(plan.predicted),
        **{f"tried_by_{by}": on_held_back for by in ("cells", "time") if (on_held_back := tried(plan.predicted, by))},
    }


def print_plan(console: Console, plan: Plan, output: Path) -> None:
    """Print what a plan decides."""
    by = f"by {plan.partition_by}" if plan.partition_by else "in one"
    console.print(Text(f"{plan.method} for {plan.table}: partitions {by}, {plan.block_rows} rows a block"))
    console.print(f"{len(plan.features)} features, {len(plan.scheme.layouts)} layout(s)")
    for line in _row_orders(plan):
        console.print(Text(line))
    if plan.indexes:
        console.print(Text(printable(f"indexes: {', '.join(map(str, plan.indexes))}")))
    for name, value in of_the_plan(plan.predicted).items():
        console.print(Text(f"  {name.replace('_', ' ')}: {value:,.6g}"))
    if budgets := curve(plan.predicted):
        console.print(_curve_table(budgets))
    for by, what in (("bytes", "bytes read"), ("cells", "cells read"), ("time", "seconds predicted")):
        if on_held_back := tried(plan.predicted, by):
            console.print(_tried_table(on_held_back, spreads(plan.predicted, by), what))
    console.print(Text(f"Written: {output}"))


def _row_orders(plan: Plan) -> list[str]:
    """How the rows of blocks are sorted, a line for each layout where they are."""
    layouts = plan.scheme.layouts
    orders = {i: ", ".join(layout.row_order) for i, layout in enumerate(layouts) if layout.row_order}
    of = {i: f" of layout {i}" if len(layouts) > 1 else "" for i in orders}
    return [printable(f"rows within blocks{of[i]} are sorted by {order}") for i, order in orders.items()]


def print_loads(console: Console, report: LoadsReport) -> None:
    """Print what the loads that were asked for did, and what was there already."""
    for one in report.loads:
        print_load(console, one)
    if report.already:
        named = ", ".join(report.already[:_MOST_NAMED]) + (", ..." if len(report.already) > _MOST_NAMED else "")
        console.print(Text(f"{len(report.already)} partition(s) already loaded, left as they are: {named}"))


def _curve_table(budgets: Mapping[float, Mapping[str, float]]) -> Table:
    """What each storage budget is expected to give, a line each."""
    names = list(next(iter(budgets.values())))
    table = Table(title="predicted for each storage budget", title_justify="left")
    for heading in ("storage budget", *(name.replace("_", " ") for name in names)):
        table.add_column(heading, justify="right")
    for budget, found in budgets.items():
        table.add_row(f"{budget:g}", *(f"{found[name]:.4g}" for name in names))
    return table


def _tried_table(found: Mapping[str, float], spread: Mapping[str, float], what: str) -> Table:
    """What each method, or choice of parameters, would take of the queries held back, the best first."""
    table = Table(title="tried on queries of the log that were held back", title_justify="left")
    table.add_column("tried")
    table.add_column(f"{what} of full scans", justify="right")
    for label, fraction in found.items():
        table.add_row(label, f"{fraction:.2%}" + (f" ± {spread[label]:.2%}" if label in spread else ""))
    return table


def print_load(console: Console, report: LoadReport) -> None:
    """Print what a load did."""
    partitions = ", ".join(report.partitions[:_MOST_NAMED]) + (", ..." if len(report.partitions) > _MOST_NAMED else "")
    console.print(f"Snapshot {report.snapshot}: {report.rows:,} rows in {report.blocks:,} blocks, {report.files} files")
    console.print(f"{format_bytes(report.bytes)} of columns written")
    console.print(Text(f"{len(report.partitions)} partition(s): {partitions}"))
    for note in report.notes:
        console.print(Text(note))


def answer_report(answer: pa.Table, limit: int | None) -> dict[str, object]:
    """The JSON value of a query's answer: column names, at most `limit` rows, and how many there are."""
    shown = answer if limit is None else answer.slice(0, limit)
    columns = [column.to_pylist() for column in shown.columns]
    return {
        "columns": list(answer.column_names),
        "rows": [list(row) for row in zip(*columns, strict=True)],
        "rows_total": answer.num_rows,
    }


def print_answer(console: Console, answer: pa.Table, limit: int | None) -> None:
    """Print a query's answer, at most `limit` rows of it."""
    report = answer_report(answer, limit)
    table = Table()
    for name in answer.column_names:
        table.add_column(Text(printable(name)), overflow="fold")
    rows: Any = report["rows"]
    for row in rows:
        table.add_row(*(Text("NULL" if value is None else printable(str(value))) for value in row))
    console.print(table)
    if len(rows) < answer.num_rows:
        console.print(f"{len(rows)} of {answer.num_rows} rows; --limit prints more")


def history_report(path: str) -> list[dict[str, object]]:
    """The JSON value of a table's snapshots, the oldest first.

    Raises:
        NotATableError: the path holds something else than a table, or nothing.
        CatalogError: a snapshot is damaged.
    """
    from layoutopt.catalog.snapshot import history
    from layoutopt.catalog.table import Catalog

    return [
        {
            "snapshot": entry.number,
            "parent": entry.parent,
            "created_at": entry.created_at,
            "operation": entry.operation,
            "partitions": entry.partitions,
            "rows": entry.rows,
            "changed": list(entry.changed),
            "changed_rows": entry.changed_rows,
            "load_id": entry.load_id,
        }
        for entry in history(Catalog.open(path).files)
    ]


def print_vacuum(console: Console, report: VacuumReport) -> None:
    """Print what a vacuum removed, or would."""
    verb = "Would remove" if report.dry_run else "Removed"
    snapshots = ", ".join(map(str, report.snapshots)) or "none"
    console.print(f"{verb} snapshots: {snapshots}")
    console.print(f"{verb} {len(report.files)} files, {format_bytes(report.bytes)}")
    if report.young:
        console.print(f"{report.young} files that no snapshot names are left: a load may still need them")
    if report.published:
        kept = ", ".join(map(str, report.published))
        console.print(f"Kept for readers of what is published: snapshots {kept}")


def print_history(console: Console, snapshots: Sequence[Mapping[str, object]]) -> None:
    """Print a table's snapshots, with the partitions that each added, replaced or dropped."""
    table = Table()
    for name in ("snapshot", "created at", "operation", "partitions", "rows"):
        table.add_column(name, justify="right")
    table.add_column("changed")
    for each in snapshots:
        cells = [str(each[key]) for key in ("snapshot", "created_at", "operation", "partitions")]
        changed: Any = each["changed"]
        named = ", ".join(changed[:_MOST_CHANGED]) + (", ..." if len(changed) > _MOST_CHANGED else "")
        table.add_row(*cells, f"{each['rows']:,}", Text(named))
    console.print(table)
