"""What `append`, `delete`, `update`, `merge` and `optimize` print."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from layoutopt.report.tables import print_load
from layoutopt.report.texts import format_bytes, printable

if TYPE_CHECKING:
    from rich.console import Console

    from layoutopt.direct.append import AppendReport
    from layoutopt.foreign.refreshing import RefreshReport
    from layoutopt.publish.publishing import PublishReport
    from layoutopt.spark.changing.optimize import OptimizeReport
    from layoutopt.spark.changing.rewrite import ChangeReport


def print_refresh(console: Console, report: RefreshReport) -> None:
    """Print how many files were measured, and what the indexes take."""
    said = [f"{report.measured:,} files measured", f"{report.kept:,} as they were", f"{report.gone:,} gone"]
    console.print(Text(printable(f"{report.source}: {', '.join(said)}")))
    console.print(f"{report.row_groups:,} row groups of {report.files:,} files, {report.rows:,} rows")
    named = ", ".join(report.indexes) or "the minima and maxima of footers alone"
    console.print(Text(printable(f"indexed by {named}")))
    if report.bytes:
        share = report.bytes / max(1, report.source_bytes)
        console.print(f"{format_bytes(report.bytes)} written, {share:.1%} of the source's")


def print_append(console: Console, report: AppendReport) -> None:
    """Print what was appended, or that it was there."""
    if report.load is None:
        console.print(Text(printable(f"Batch {report.batch} was appended before: nothing to do")))
        return
    console.print(Text(printable(f"Batch {report.batch} appended")))
    print_load(console, report.load)
    if report.joined is not None:
        console.print("Joined with what earlier appends left:")
        print_load(console, report.joined)
    if report.not_joined is not None:
        console.print(Text(printable(f"Not joined with what earlier appends left: {report.not_joined}")))
        console.print("The batch is in the table; `layoutopt optimize` joins it")


def print_change(console: Console, report: ChangeReport) -> None:
    """Print how many rows were deleted, updated and inserted, and what was written for it."""
    if report.load is None and report.marked is None:
        console.print("No row is concerned: nothing to do")
    else:
        console.print(f"{report.deleted:,} rows deleted, {report.updated:,} updated, {report.inserted:,} inserted")
    if report.load is not None:
        print_load(console, report.load)
    if report.marked is not None:
        console.print(
            f"Snapshot {report.marked.snapshot}: marked in {report.marked.blocks:,} blocks of "
            f"{len(report.marked.partitions):,} partitions, by {format_bytes(report.marked.bytes)} of deletion "
            "vectors; the files hold these rows until `layoutopt optimize` or `delete --hard` writes them anew"
        )
    if report.vacuum is not None:
        console.print(f"No copy is left: {len(report.vacuum.snapshots)} older snapshots were given up and removed")


def print_optimize(console: Console, report: OptimizeReport) -> None:
    """Print which partitions are not as the plan wants them, and which of them were written anew."""
    if not report.candidates:
        console.print("Every partition is as the newest plan wants it: nothing to do")
        return
    table = Table(title="partitions that could be written anew", title_justify="left")
    numbers = ["loads", "bytes", "read by its queries", "gain of its queries"]
    numbers += ["lost so far", "expected"] if report.prospects else []
    for name in ("partition", "plan", *numbers, ""):
        table.add_column(name, justify="right" if name in numbers else "left")
    for one in report.candidates:
        amounts = [one.read, one.gain]
        if report.prospects:
            prospect = report.prospects.get(one.key)
            amounts += [0.0, 0.0] if prospect is None else [prospect.loss.total, prospect.expected]
        cells = [format_bytes(one.bytes), *map(_signed, amounts)]
        plan = "another" if one.older_plan else "this"
        table.add_row(Text(printable(one.key)), plan, str(one.entries), *cells, _fate(report, one.key))
    console.print(table)
    for key, layouts in report.alone.items():
        said = "; ".join(", ".join(columns) for columns in layouts)
        what = f"layouts of these columns: {said}" if layouts else "which blocks have the new features, no rows"
        console.print(Text(printable(f"Of partition {key} only {what}")))
    if not report.chosen:
        console.print("None of them is worth it, or fits the budget: nothing to do")
    for load in report.loads:
        print_load(console, load)


def _fate(report: OptimizeReport, key: str) -> str:
    if key in report.overtaken:
        return "changed by somebody else meanwhile"
    if key not in report.chosen:
        return ""
    done = "written" if report.loads else "to be written"
    if key not in report.alone:
        return done
    count = len(report.alone[key])
    return f"{count} {'layout' if count == 1 else 'layouts'} {done}" if count else f"new features {done}"


def _signed(amount: float) -> str:
    return ("-" if amount < 0 else "") + format_bytes(abs(int(amount)))


def print_publish(console: Console, report: PublishReport) -> None:
    """Print what is shown where, and what a commit changed there."""
    for one in report.shown:
        what = "" if one.layout is None else f" (layout {one.layout}, {one.columns} columns)"
        done = f"{one.added} files added, {one.removed} removed" if one.committed else "nothing had changed"
        console.print(
            Text(printable(f"{one.location}{what} shows snapshot {report.snapshot} as {report.format}: {done}")),
            soft_wrap=True,
        )
        console.print(f"  version {one.version}: {one.rows:,} rows in {one.files} files")
    for note in report.notes:
        console.print(Text(printable(note)), soft_wrap=True)
