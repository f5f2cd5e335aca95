"""What `status`, `verify` and `drift` print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table
from rich.text import Text

from layoutopt.features.analysis import LogAnalysis
from layoutopt.features.stability import Curve
from layoutopt.features.weights import feature_shares, feature_weights
from layoutopt.indexes.choosing import Suggestion
from layoutopt.maintenance.query_families import SAME
from layoutopt.model.predicates import columns_of, describe_all
from layoutopt.report.tables import print_load
from layoutopt.report.texts import format_bytes, printable, seconds_text, shortened
from layoutopt.workload.analyze import UNUSABLE

if TYPE_CHECKING:
    from rich.console import Console

    from layoutopt.external.refresh import RefreshReport
    from layoutopt.inspect.audit import AuditReport, Loss
    from layoutopt.inspect.drift import Drift, Regret
    from layoutopt.inspect.status import Status
    from layoutopt.inspect.verify import SourceCheck, VerifyReport
    from layoutopt.local.append import AppendReport
    from layoutopt.maintenance.query_families import FamilyChanges
    from layoutopt.maintenance.sampling_error import Interval
    from layoutopt.model.features_document import SkippedStatement
    from layoutopt.publish.publishing import PublishReport
    from layoutopt.spark.changes.optimize import OptimizeReport
    from layoutopt.spark.changes.rewrite import ChangeReport


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


# ----------------------------------------------------------------------------------------------------
# What `evaluate` prints of a log: the sums, the indicators, what plans predicted, and the worst queries.

_LONGEST_PART = 200


def print_evaluation(
    console: Console,
    result: Mapping[str, Any],
    skipped: Sequence[SkippedStatement],
    worst: Sequence[Mapping[str, Any]] = (),
    *,
    every: bool = False,
) -> None:
    """Print what a log would read in all, the indicators, and why the worst queries skip no more.

    Args:
        console: where to print.
        result: of :func:`layoutopt.inspect.evaluate.evaluate`, perhaps with ``predictions``.
        skipped: the log's statements that could not be used.
        worst: of :func:`layoutopt.inspect.evaluate.worst_queries`.
        every: whether each query gets a line of its own.
    """
    totals = result["totals"]
    console.print(_queries_table(result, every))
    if seconds := totals.get("predicted_seconds"):
        console.print(f"Predicted, one query after another: {seconds_text(seconds)}")
    if totals.get("rows_matching") is not None:
        console.print(f"Rows that match: {totals['rows_matching']:,}")
    means = totals.get("indicators")
    if means is not None:
        shown = [f"{name.replace('_', ' ')} {mean:.3g}" for name, mean in means.items() if name != "queries" and mean]
        console.print(f"Geometric means over {means['queries']} queries: {', '.join(shown) or '-'}")
    _print_predictions(console, result)
    if worst:
        console.print(_worst_table(worst))
    if not every and result["queries"]:
        console.print(f"--all prints a line for each of the {len(result['queries']):,} queries")
    if skipped:
        console.print(f"{len(skipped)} statements could not be used; --json gives the reasons")


def _queries_table(result: Mapping[str, Any], every: bool) -> Table:
    """What all queries read, and each; with the bytes that were predicted, where they were of one at least."""
    foreseen: Sequence[int | None] = result.get("predictions", {}).get("bytes_predicted", ()) if every else ()
    foreseen = foreseen if any(size is not None for size in foreseen) else ()
    table = Table(title=f"{result['table']}, snapshot {result['snapshot']}", title_justify="left")
    headings = ["query", "rows", "of all", "by statistics alone", "blocks", "bytes"]
    for name in [*headings, "predicted"] if foreseen else headings:
        table.add_column(name, justify="right")
    table.add_row("all", *_cells(result["totals"]))
    table.add_section()
    for place, query in enumerate(result["queries"] if every else ()):
        table.add_row(str(query["id"]), *_cells(query), *map(_perhaps_bytes, foreseen[place : place + 1]))
    return table


def _print_predictions(console: Console, result: Mapping[str, Any]) -> None:
    """Print what plans predicted beside what the log reads, and how good the greedy retrieval path would be."""
    predictions = result.get("predictions")
    if predictions is not None and any(plan["predicted"] for plan in predictions["plans"]):
        console.print(_comparison_table(predictions))
    if predictions is not None and (foreseen := predictions["foreseen"])["queries"]:
        predicted, read = (format_bytes(foreseen[name]) for name in ("bytes_predicted", "bytes_scanned"))
        console.print(
            f"Of the {foreseen['queries']:,} queries that the plan was made for it predicted {predicted}, {read} are "
            f"read; {foreseen['within_a_quarter']:.0%} of them are within a quarter of what was predicted"
        )
    paths = result["totals"].get("greedy_paths")
    if paths is not None and paths["queries"]:
        console.print(
            f"The greedy retrieval path is the cheapest for {paths['cheapest']} of {paths['queries']} queries that can "
            f"choose; at worst it reads {paths['worst_ratio']:.3g} times as much"
        )


def _comparison_table(comparison: Mapping[str, Any]) -> Table:
    """What plans predicted beside what was measured: a line a figure, a column for each plan."""
    table = Table(title="predicted for the training queries, and measured", title_justify="left")
    table.add_column("")
    for plan in comparison["plans"]:
        table.add_column(f"{plan['method']} {plan['plan'][:8]}", justify="right")
    table.add_column("this log", justify="right")
    for name, value in comparison["measured"].items():
        predicted = [plan["predicted"].get(name) for plan in comparison["plans"]]
        texts = ["-" if each is None else f"{each:.4g}" for each in predicted]
        table.add_row(name.replace("_", " "), *texts, f"{value:.4g}")
    return table


def _worst_table(worst: Sequence[Mapping[str, Any]]) -> Table:
    """The worst queries, a line for each part of their filters."""
    known = any(one["rows_wasted"] is not None for one in worst)
    which = "read the most rows in vain" if known else "read the most rows (--actual counts those that match)"
    table = Table(title=f"the queries that {which}, and what each part of their filters does", title_justify="left")
    for name in ("query", "runs", "rows read", *(["in vain"] if known else [])):
        table.add_column(name, justify="right")
    for name in ("part of its filter", "reason"):
        table.add_column(name)
    for one in worst:
        numbers = [str(one["id"]), f"{one['runs']:g}", f"{one['rows_scanned']:,}"]
        numbers += ["unknown" if one["rows_wasted"] is None else f"{one['rows_wasted']:,}"] if known else []
        for conjunct in one["conjuncts"] or [{"text": "(no filter)", "reason": "", "detail": ""}]:
            text = shortened(printable(conjunct["text"]), _LONGEST_PART)
            table.add_row(*numbers, Text(text), Text(printable(_why(conjunct))))
            numbers = [""] * len(numbers)
        table.add_section()
    return table


def _why(conjunct: Mapping[str, Any]) -> str:
    """What became of a part of a filter: its code, and what there is to say of it."""
    if conjunct["reason"] != "skips":
        return f"{conjunct['reason']}: {conjunct['detail']}".strip(": ")
    blocks = max(conjunct["blocks_skipped_alone"].values(), default=0)
    return f"skips: as the only filter it would skip {blocks:,} block{'' if blocks == 1 else 's'}"


def _cells(query: Mapping[str, Any]) -> tuple[str, ...]:
    rows, total, by_statistics = query["rows_scanned"], query["rows_total"], query["rows_scanned_by_statistics"]
    return (
        f"{rows:,}",
        _share(rows, total),
        _share(by_statistics, total),
        f"{query['blocks_scanned']:,}/{query['blocks_total']:,}",
        format_bytes(query["bytes_scanned"]),
    )


def _perhaps_bytes(size: int | None) -> str:
    return "-" if size is None else format_bytes(size)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


# ----------------------------------------------------------------------------------------------------
# What `analyze` says of a log: as a JSON value, and as readable tables.

_COMMON_AT = (0.01, 0.05, 0.1, 0.2, 0.5)
_STABLE_AT = (0.1, 0.3, 0.5)
_MOST_INDEXES = 5
_EXAMPLES = 5
"""Skipped statements that the readable report quotes; the JSON has all."""


def summary(analysis: LogAnalysis, indexes: Sequence[Suggestion], output: Path) -> dict[str, object]:
    """The JSON value that `analyze --json` prints."""
    document = analysis.document
    return {
        "output": str(output),
        "table": document.table,
        "counts": dict(analysis.counts),
        "skipped": [{"id": s.id, "reason": s.reason, "detail": s.detail, "sql": s.sql} for s in document.skipped],
        "skipped_by_reason": analysis.reasons,
        "threshold": analysis.threshold,
        "exclude_columns": list(document.exclude_columns),
        "features": [
            {"filter": text, "weight": weight, "queries": queries} for text, weight, queries in _features(analysis)
        ],
        "indexes": [{"index": str(each.spec), "queries": each.weight, "like": each.asked} for each in indexes],
        "commonality": _points(analysis.commonality, _COMMON_AT),
        "stability": _points(analysis.stability, _STABLE_AT),
    }


def print_analysis(console: Console, analysis: LogAnalysis, indexes: Sequence[Suggestion], output: Path) -> None:
    """Print the features with their weights, what was skipped and why, indexes, commonality and stability."""
    document = analysis.document
    table = Table(title=f"Features of {document.table}, the most useful first", title_justify="left")
    table.add_column("#", justify="right")
    table.add_column("filter", overflow="fold")
    table.add_column("queries", justify="right")
    table.add_column("adds", justify="right")
    for i, (text, weight, queries) in enumerate(_features(analysis)):
        table.add_row(str(i), Text(text), f"{queries:.4g}", f"{weight:.4g}")
    console.print(table)
    used, statements = analysis.counts["used"], analysis.counts["statements"]
    partly = len({query.id for query in document.queries if not query.exact})
    in_part = f", {partly} of them in part" if partly else ""
    console.print(f"{used} of {statements} statements used{in_part}, T = {analysis.threshold}")
    _print_left_out(console, analysis)
    _print_skipped(console, analysis)
    for each in indexes[:_MOST_INDEXES]:
        like = f", like {each.asked}" if each.asked else ""
        text = f'No feature helps {each.weight:g} queries{like}; --index "{each.spec}" might, or --index-budget 2%'
        console.print(Text(text))
    for name, curve, at in (
        ("Commonality: the most frequent filters, and the queries that use them", analysis.commonality, _COMMON_AT),
        ("Stability: the queries seen, and all that use their filters", analysis.stability, _STABLE_AT),
    ):
        console.print(f"{name}: " + ", ".join(f"{x:.0%} {curve.at(x):.0%}" for x in at))
    if document.exclude_columns:
        dated = any(
            not columns_of(each).isdisjoint(document.exclude_columns)
            for f in document.features
            for each in f.predicates
        )
        what = "only date features" if dated else "no features"
        console.print(Text(f"Filters on these columns make {what}: {', '.join(document.exclude_columns)}"))
    console.print(Text(f"Written: {output}"))


def _print_left_out(console: Console, analysis: LogAnalysis) -> None:
    """Print why conditions of statements that are used can't be used themselves."""
    counts = {name.removeprefix(UNUSABLE): n for name, n in analysis.counts.items() if name.startswith(UNUSABLE)}
    if counts:
        codes = ", ".join(f"{count} {code}" for code, count in sorted(counts.items(), key=lambda item: -item[1]))
        console.print(f"Parts of their filters that nothing can skip by: {codes}")


def _print_skipped(console: Console, analysis: LogAnalysis) -> None:
    if not analysis.reasons:
        return
    console.print("Skipped: " + ", ".join(f"{count} {reason}" for reason, count in analysis.reasons.items()))
    for skipped in analysis.document.skipped[:_EXAMPLES]:
        console.print(Text(f"  {skipped.id}: {skipped.detail}"))
    if "parse-error" in analysis.reasons:
        console.print("  if the log is in another dialect than it was read in, name it by --dialect")
    left = len(analysis.document.skipped) - _EXAMPLES
    if left > 0:
        console.print(f"  and {left} more; --json lists them all")


def _features(analysis: LogAnalysis) -> list[tuple[str, float, float]]:
    """Each feature's text, its weight, and the queries that it helps (a part of a list counting as a part)."""
    document = analysis.document
    weights = np.array([query.weight for query in document.queries])
    helped = feature_weights(feature_shares(document.features, document.queries), weights).tolist()
    texts = [describe_all(feature.predicates) for feature in document.features]
    return list(zip(texts, document.features.weights.tolist(), helped, strict=True))


def _points(curve: Curve, at: tuple[float, ...]) -> dict[str, float]:
    return {f"{x:g}": round(curve.at(x), 4) for x in at}


# ----------------------------------------------------------------------------------------------------
# What `append`, `delete`, `update`, `merge` and `optimize` print.


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
