"""What `status`, `verify` and `drift` print."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from layoutopt.evolve.families import SAME
from layoutopt.report.texts import format_bytes, printable

if TYPE_CHECKING:
    from rich.console import Console

    from layoutopt.evolve.families import FamilyChanges
    from layoutopt.evolve.sampled import Interval
    from layoutopt.inspect.audit import AuditReport, Loss
    from layoutopt.inspect.drift import Drift
    from layoutopt.inspect.regret import Regret
    from layoutopt.inspect.status import Status
    from layoutopt.inspect.verify import SourceCheck, VerifyReport

_MOST_SHOWN = 40
_MOST_FAMILIES = 10
_LONGEST_EXAMPLE = 60
_DIGITS = 12
_NUMBERS = ("rows", "deleted", "blocks", "bytes", "layouts", "features", "partitions")


def print_status(console: Console, status: Status) -> None:
    """Print what a table holds; of many partitions the last in order."""
    said = f"{status.rows:,} rows in {status.blocks:,} blocks, {format_bytes(status.bytes)} of columns"
    head = f"{status.table}, snapshot {status.snapshot} of {status.created_at}: {said}"
    head += ", encrypted" if status.encrypted else ""
    console.print(Text(printable(head), style="bold"))
    plans = _table("plans", "plan", "method", "layouts", "features", "partitions", "rows", "")
    for plan in status.plans:
        counts = (plan.layouts, plan.features, plan.partitions, plan.rows)
        plans.add_row(
            plan.digest[:_DIGITS], plan.method, *(f"{n:,}" for n in counts), "current" if plan.current else ""
        )
    hidden = max(0, len(status.partitions) - _MOST_SHOWN)
    partitions = _table("partitions", "partition", "rows", "deleted", "blocks", "bytes", "loads", "plan", "newest load")
    for each in status.partitions[hidden:]:
        others = (f"{n:,}" for n in (each.blocks, each.bytes, each.entries))
        sizes = (f"{each.rows:,}", f"{each.deleted_share:.1%}", *others)
        partitions.add_row(Text(printable(each.key)), *sizes, each.plan[:_DIGITS], each.load_id)
    loads = _table("last loads", "snapshot", "created at", "operation", "rows", "of partitions")
    for load in status.loads:
        changed = ", ".join(load.changed[:3]) + (f" and {len(load.changed) - 3} more" if len(load.changed) > 3 else "")
        loads.add_row(
            str(load.number), load.created_at, load.operation, f"{load.changed_rows:,}", Text(printable(changed))
        )
    console.print(plans, partitions)
    if hidden:
        console.print(Text(f"{hidden} more partitions; --json lists all", style="dim"))
    console.print(loads)
    if status.advice is not None:
        console.print(Text(printable(status.advice)))


def _table(title: str, *names: str) -> Table:
    table = Table(title=title, title_justify="left")
    for name in names:
        table.add_column(
            name, justify="right" if name in ("rows", "blocks", "bytes", "loads", "layouts", "features") else "left"
        )
    return table


def print_verify(console: Console, report: VerifyReport) -> None:
    """Print what was read again, and what is wrong."""
    read = f"{report.files} files, {report.blocks:,} blocks, {report.rows:,} rows read"
    verdict = "all as it should be" if report.ok else f"{len(report.problems)} problems"
    console.print(Text(f"{report.table}, snapshot {report.snapshot}: {read}; {verdict}"))
    if report.source is not None:
        console.print(Text(_compared(report.source)))
    for problem in report.problems:
        console.print(Text(printable(f"{problem.check}: {problem.file}: {problem.message}"), style="red"))
    for text in report.unchecked:
        console.print(Text(f"not checked: {text}", style="dim"))


def _compared(check: SourceCheck) -> str:
    if not check.differences:
        return f"every row of {check.source} is there: {check.rows:,} rows in {check.partitions:,} partitions"
    return (
        f"{check.source} has {check.rows:,} rows in {check.partitions:,} partitions, the table {check.table_rows:,}: "
        f"{check.differences:,} differences"
    )


def print_audit(console: Console, report: AuditReport) -> None:
    """Print what was proved of a log's queries, and which of them lose rows."""
    audited = report.by_text + report.by_filter
    proofs = ", ".join(f"{count:,} by {mechanism}" for mechanism, count in report.proved.items())
    if report.losses:
        verdict = f"{len(report.losses)} blocks are skipped wrongly"
    else:
        verdict = "no query loses a row" if report.ok else "nothing was proved, since no query could be audited"
    console.print(Text(f"{report.table}, snapshot {report.snapshot}: {verdict}"))
    console.print(
        f"{audited:,} of {report.queries:,} queries audited over {report.rows:,} rows; skips proved: {proofs}"
    )
    for loss in report.losses:
        console.print(Text(printable(_loss_text(loss)), style="red"))
    if report.by_filter:
        why = "their own text needs Spark, so the filter that analyze took from it was evaluated in its place"
        console.print(Text(f"of these {report.by_filter:,} less strictly: {why}", style="dim"))
    for number, why in report.unaudited:
        console.print(Text(f"not audited: query {number}: {why}", style="dim"))


def _loss_text(loss: Loss) -> str:
    queries = ", ".join(map(str, loss.queries[:10])) + (", …" if len(loss.queries) > 10 else "")
    if loss.mechanism == "layout":
        return f"layout: {loss.file} lacks rows of the queries {queries}, which read it"
    return f"{loss.mechanism}: block {loss.block} of {loss.file} is skipped, but has rows of the queries {queries}"


def print_drift(console: Console, found: Drift, most: float) -> None:
    """Print both shares of rows skipped, the families that changed, the regret, and whether the plan still fits."""
    console.print(
        f"{found.table}: the {found.queries_now} different queries of the log skip {found.skipped_now:.1%} of the rows "
        f"({_between(found.interval_now)}), the {found.queries_then} different ones that plan {found.plan[:_DIGITS]} "
        f"was made for {found.skipped_then:.1%}"
    )
    _print_families(console, found.families)
    if found.regret is not None:
        _print_regret(console, found.regret)
    if found.fallen <= most:
        less = f"{found.fallen:.1%} less" if found.fallen > 0 else "no less"
        console.print(f"The plan still fits: {less} is skipped, and up to {most:.1%} less is allowed (--most)")


def _between(interval: Interval) -> str:
    return f"95 % sure: {interval.low:.1%} to {interval.high:.1%} of all that is asked"


def _print_families(console: Console, found: FamilyChanges) -> None:
    changed = [one for one in found.families if one.change != SAME]
    known = len(found.families) - len(changed)
    console.print(
        f"{found.unknown:.1%} of the statements are of families that the plan does not know "
        f"({_between(found.unknown_interval)}); {len(changed)} families have changed, {known} have not"
    )
    if not changed:
        return
    table = Table(title="families of queries that changed, and their shares of the statements", title_justify="left")
    for name in ("", "then", "now"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    table.add_column("filters by", overflow="fold")
    table.add_column("such as", no_wrap=True, max_width=_LONGEST_EXAMPLE, overflow="ellipsis")
    for one in changed[:_MOST_FAMILIES]:
        filtered = Text(printable(", ".join(one.filtered) or "nothing"))
        example = Text(printable(" ".join(one.example.split())))
        table.add_row(one.change, f"{one.then:.1%}", f"{one.now:.1%}", filtered, example)
    console.print(table)
    if len(changed) > _MOST_FAMILIES:
        console.print(Text(f"{len(changed) - _MOST_FAMILIES} more; --json lists all", style="dim"))


def _print_regret(console: Console, regret: Regret) -> None:
    console.print(
        f"The log's queries read {format_bytes(int(regret.read))}; of the same table planned for them they would read "
        f"{format_bytes(int(regret.fresh))}: {regret.share:.1%} of what a fresh plan saves of full scans is lost "
        f"({_between(regret.interval)})"
    )
