"""Print the reports of verbs that change, publish or index tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from layoutopt.report.tables import print_load
from layoutopt.report.texts import format_bytes, printable

if TYPE_CHECKING:
    from rich.console import Console

    from layoutopt.changes.commit import ChangeReport
    from layoutopt.external.refresh import RefreshReport
    from layoutopt.loading.append import AppendReport
    from layoutopt.publish.publishing import PublishReport
    from layoutopt.spark.changes.optimize import OptimizeReport


def print_refresh(console: Console, report: RefreshReport) -> None:
    """Print how many files were indexed, and the size of the indexes."""
    counts = f"{report.measured:,} files indexed, {report.kept:,} unchanged, {report.gone:,} gone"
    console.print(Text(printable(f"{report.source}: {counts}")))
    console.print(f"{report.row_groups:,} row groups of {report.files:,} files, {report.rows:,} rows")
    indexes = ", ".join(report.indexes) or "only minima and maxima of the footers"
    console.print(Text(printable(f"indexes: {indexes}")))
    if report.bytes:
        share = report.bytes / max(1, report.source_bytes)
        console.print(f"{format_bytes(report.bytes)} written, {share:.1%} of the source's bytes")


def print_append(console: Console, report: AppendReport) -> None:
    """Print what was appended, or that the batch was appended before."""
    if report.load is None:
        console.print(Text(printable(f"Batch {report.batch} was appended before: nothing to do")))
        return
    console.print(Text(printable(f"Batch {report.batch} appended")))
    print_load(console, report.load)
    if report.joined is not None:
        console.print("Compacted with earlier appends:")
        print_load(console, report.joined)
    if report.not_joined is not None:
        console.print(Text(printable(f"Not compacted with earlier appends: {report.not_joined}")))
        console.print("The batch is in the table; `layoutopt optimize` compacts it")


def print_change(console: Console, report: ChangeReport) -> None:
    """Print how many rows were deleted, updated and inserted, and what was written."""
    if report.load is None and report.marked is None:
        console.print("No row matches: nothing to do")
    else:
        console.print(f"{report.deleted:,} rows deleted, {report.updated:,} updated, {report.inserted:,} inserted")
    if report.load is not None:
        print_load(console, report.load)
    if report.marked is not None:
        console.print(
            f"Snapshot {report.marked.snapshot}: {format_bytes(report.marked.bytes)} of deletion vectors for "
            f"{report.marked.blocks:,} blocks of {len(report.marked.partitions):,} partitions; the files keep these "
            "rows until `layoutopt optimize` or `delete --hard` rewrites them"
        )
    if report.vacuum is not None:
        console.print(f"No copy is left: {len(report.vacuum.snapshots)} older snapshots were removed")


def print_optimize(console: Console, report: OptimizeReport) -> None:
    """Print which partitions differ from the plan, and which of them were rewritten."""
    if not report.candidates:
        console.print("Every partition follows the newest plan: nothing to do")
        return
    table = Table(title="partitions that could be rewritten", title_justify="left")
    numbers = ["loads", "bytes", "read by its queries", "gain of its queries"]
    numbers += ["lost so far", "expected"] if report.prospects else []
    for name in ("partition", "plan", *numbers, ""):
        table.add_column(name, justify="right" if name in numbers else "left")
    for candidate in report.candidates:
        key, amounts = candidate.key, [candidate.read, candidate.gain]
        if report.prospects:
            prospect = report.prospects.get(key)
            amounts += [0.0, 0.0] if prospect is None else [prospect.loss.total, prospect.expected]
        cells = [format_bytes(candidate.bytes), *map(_format_signed, amounts)]
        plan = "another" if candidate.older_plan else "this"
        table.add_row(Text(printable(key)), plan, str(candidate.entries), *cells, _describe_outcome(report, key))
    console.print(table)
    for key, layouts in report.alone.items():
        columns = "; ".join(map(", ".join, layouts))
        parts = f"layouts of these columns: {columns}" if layouts else "the blocks' new features, no rows"
        console.print(Text(printable(f"Partition {key}: only {parts}")))
    if not report.chosen:
        console.print("None of them pays or fits the budget: nothing to do")
    for load in report.loads:
        print_load(console, load)


def _describe_outcome(report: OptimizeReport, key: str) -> str:
    if key in report.overtaken:
        return "changed by another commit meanwhile"
    if key not in report.reasons:
        return ""
    state = "written" if report.loads else "to be written"
    if key not in report.alone:
        return f"{state}: {report.reasons[key]}"
    count = len(report.alone[key])
    return f"{count} {'layout' if count == 1 else 'layouts'} {state}" if count else f"new features {state}"


def _format_signed(amount: float) -> str:
    return ("-" if amount < 0 else "") + format_bytes(abs(int(amount)))


def print_publish(console: Console, report: PublishReport) -> None:
    """Print what is published where, and what a commit changed there."""
    for target in report.shown:
        layout = "" if target.layout is None else f" (layout {target.layout}, {target.columns} columns)"
        change = f"{target.added} files added, {target.removed} removed" if target.committed else "no change"
        console.print(
            Text(printable(f"{target.location}{layout} shows snapshot {report.snapshot} as {report.format}: {change}")),
            soft_wrap=True,
        )
        console.print(f"  version {target.version}: {target.rows:,} rows in {target.files} files")
    for note in report.notes:
        console.print(Text(printable(note)), soft_wrap=True)
