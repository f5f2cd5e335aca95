"""What `append`, `delete`, `update`, `merge` and `optimize` print."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from layoutopt.report.tables import print_load
from layoutopt.report.texts import format_bytes, printable

if TYPE_CHECKING:
    from rich.console import Console

    from layoutopt.publish.publishing import PublishReport
    from layoutopt.spark.changing.append import AppendReport
    from layoutopt.spark.changing.optimize import OptimizeReport
    from layoutopt.spark.changing.rewrite import ChangeReport


def print_append(console: Console, report: AppendReport) -> None:
    """Print what was appended, or that it was there."""
    if report.load is None:
        console.print(Text(printable(f"Batch {report.batch} was appended before: nothing to do")))
        return
    console.print(Text(printable(f"Batch {report.batch} appended")))
    print_load(console, report.load)


def print_change(console: Console, report: ChangeReport) -> None:
    """Print how many rows were deleted, updated and inserted, and what was written for it."""
    if report.load is None:
        console.print("No row is concerned: nothing to do")
        return
    console.print(f"{report.deleted:,} rows deleted, {report.updated:,} updated, {report.inserted:,} inserted")
    print_load(console, report.load)


def print_optimize(console: Console, report: OptimizeReport) -> None:
    """Print which partitions are not as the newest plan wants them, and which of them were written anew."""
    if not report.candidates:
        console.print("Every partition is as the newest plan wants it: nothing to do")
        return
    table = Table(title="partitions that could be written anew", title_justify="left")
    for name in ("partition", "loads", "plan", "bytes", "gain of its queries", ""):
        table.add_column(name, justify="right" if name in ("loads", "bytes", "gain of its queries") else "left")
    for one in report.candidates:
        gain = ("-" if one.gain < 0 else "") + format_bytes(abs(int(one.gain)))
        what = "" if one.key not in report.chosen else "written" if report.loads else "to be written"
        plan = "older" if one.older_plan else "newest"
        table.add_row(Text(printable(one.key)), str(one.entries), plan, format_bytes(one.bytes), gain, what)
    console.print(table)
    for load in report.loads:
        print_load(console, load)


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
