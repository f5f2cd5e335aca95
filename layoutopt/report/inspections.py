"""Print the reports of verbs that inspect or change a table, and of `analyze` and `evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table
from rich.text import Text

from layoutopt.features.analysis import Features
from layoutopt.features.stability import Curve
from layoutopt.features.weights import feature_shares, feature_weights
from layoutopt.indexes.choosing import Suggestion
from layoutopt.maintenance.query_families import SAME
from layoutopt.model.predicates import columns_of, describe_all
from layoutopt.model.query import sampling_error
from layoutopt.report.tables import describe_changed
from layoutopt.report.texts import format_bytes, printable, shorten
from layoutopt.workload.analyze import UNUSABLE

if TYPE_CHECKING:
    from rich.console import Console

    from layoutopt.inspect.audit import AuditReport, WrongSkip
    from layoutopt.inspect.drift import Drift
    from layoutopt.inspect.evaluate import Evaluation, PredictionComparison, ReadCounts, WorstQuery
    from layoutopt.inspect.gate import GatedQuery, GateReport
    from layoutopt.inspect.status import Status
    from layoutopt.inspect.verify import SourceCheck, VerifyReport
    from layoutopt.maintenance.query_families import FamilyChanges
    from layoutopt.maintenance.sampling_error import Interval
    from layoutopt.scan.explain import Conjunct


_MAX_PARTITIONS = 40
_MAX_CHANGED = 3
_MAX_FAMILIES = 10
_MAX_EXAMPLE_CHARS = 60
_MAX_CONJUNCT_CHARS = 200
_DIGEST_CHARS = 12
_RIGHT_ALIGNED = ("rows", "blocks", "bytes", "loads", "layouts", "features")

# Points of the curves that `analyze` prints.
_COMMONALITY_POINTS = (0.01, 0.05, 0.1, 0.2, 0.5)
_STABILITY_POINTS = (0.1, 0.3, 0.5)
_MAX_INDEXES = 5
# Skipped statements in the readable report; the JSON has all.
_MAX_SKIPPED = 5


def print_status(console: Console, status: Status) -> None:
    """Print what a table holds, with at most the last 40 partitions."""
    sizes = f"{status.rows:,} rows in {status.blocks:,} blocks, {format_bytes(status.bytes)} of columns"
    head = f"{status.table}, snapshot {status.snapshot} of {status.created_at}: {sizes}"
    head += ", encrypted" if status.encrypted else ""
    console.print(Text(printable(head), style="bold"))
    plans = _table("plans", "plan", "method", "layouts", "features", "partitions", "rows", "")
    for plan in status.plans:
        numbers = (f"{n:,}" for n in (plan.layouts, plan.features, plan.partitions, plan.rows))
        plans.add_row(plan.digest[:_DIGEST_CHARS], plan.method, *numbers, "current" if plan.current else "")
    hidden = max(0, len(status.partitions) - _MAX_PARTITIONS)
    partitions = _table("partitions", "partition", "rows", "deleted", "blocks", "bytes", "loads", "plan", "newest load")
    for partition in status.partitions[hidden:]:
        counts = (f"{n:,}" for n in (partition.blocks, partition.bytes, partition.entries))
        cells = (f"{partition.rows:,}", f"{partition.deleted_share:.1%}", *counts, partition.plan[:_DIGEST_CHARS])
        partitions.add_row(Text(printable(partition.key)), *cells, partition.load_id)
    loads = _table("last loads", "snapshot", "created at", "operation", "rows", "of partitions")
    for load in status.loads:
        rows = "" if load.changed_rows is None else f"{load.changed_rows:,}"
        changed = Text(printable(describe_changed(load, _MAX_CHANGED)))
        loads.add_row(str(load.number), load.created_at, load.operation, rows, changed)
    console.print(plans, partitions)
    if hidden:
        console.print(Text(f"{hidden} more partitions; --json lists all", style="dim"))
    console.print(loads)
    if status.advice is not None:
        console.print(Text(printable(status.advice)))


def _table(title: str, *names: str) -> Table:
    table = Table(title=title, title_justify="left")
    for name in names:
        table.add_column(name, justify="right" if name in _RIGHT_ALIGNED else "left")
    return table


def print_verify(console: Console, report: VerifyReport) -> None:
    """Print what `verify` read and its problems."""
    read = f"{report.files} files, {report.blocks:,} blocks, {report.rows:,} rows read"
    verdict = "no problems" if report.ok else f"{len(report.problems)} problems"
    console.print(Text(f"{report.table}, snapshot {report.snapshot}: {read}; {verdict}"))
    if report.source is not None:
        console.print(Text(_describe_differences(report.source)))
    for problem in report.problems:
        console.print(Text(printable(f"{problem.check}: {problem.file}: {problem.message}"), style="red"))
    for text in report.unchecked:
        console.print(Text(f"not checked: {text}", style="dim"))


def _describe_differences(check: SourceCheck) -> str:
    if not check.differences:
        return f"every row of {check.source} is there: {check.rows:,} rows in {check.partitions:,} partitions"
    return (
        f"{check.source} has {check.rows:,} rows in {check.partitions:,} partitions, the table {check.table_rows:,}: "
        f"{check.differences:,} differences"
    )


def print_audit(console: Console, report: AuditReport) -> None:
    """Print the proofs for a log's queries, and the queries that lose rows."""
    audited = report.by_text + report.by_filter
    proofs = ", ".join(f"{count:,} by {mechanism}" for mechanism, count in report.proved.items())
    if report.losses:
        verdict = f"{len(report.losses)} blocks are skipped wrongly"
    else:
        verdict = "no query loses a row" if report.ok else "nothing is proved: no query could be audited"
    console.print(Text(f"{report.table}, snapshot {report.snapshot}: {verdict}"))
    console.print(
        f"{audited:,} of {report.queries:,} queries audited over {report.rows:,} rows; skips proved: {proofs}"
    )
    if report.queries < report.log_queries:
        console.print(
            f"not checked: {report.log_queries - report.queries:,} of the log's {report.log_queries:,} queries"
        )
    for loss in report.losses:
        console.print(Text(printable(_describe_loss(loss)), style="red"))
    if report.by_filter:
        why = "their SQL needs Spark, so only the filter that analyze found in it was evaluated"
        console.print(Text(f"{report.by_filter:,} of these less strictly: {why}", style="dim"))
    for number, why in report.unaudited:
        console.print(Text(f"not audited: query {number}: {why}", style="dim"))


def _describe_loss(loss: WrongSkip) -> str:
    queries = ", ".join(map(str, loss.queries[:10])) + (", …" if len(loss.queries) > 10 else "")
    if loss.mechanism == "layout":
        return f"layout: {loss.file} lacks rows of the queries {queries}, which read it"
    return f"{loss.mechanism}: block {loss.block} of {loss.file} is skipped, but has rows of the queries {queries}"


def print_drift(console: Console, drift: Drift, most: float) -> None:
    """Print both shares of skipped rows, changed families, the regret, and whether the plan still fits."""
    console.print(
        f"{drift.table}: the {drift.queries_now} different queries of the log skip {drift.skipped_now:.1%} of the rows "
        f"({_format_interval(drift.interval_now)}); the {drift.queries_then} different queries of plan "
        f"{drift.plan[:_DIGEST_CHARS]} skip {drift.skipped_then:.1%}"
    )
    _print_families(console, drift.families)
    if drift.regret is not None:
        regret = drift.regret
        console.print(
            f"The log's queries read {format_bytes(int(regret.read))}; with a new plan they would read "
            f"{format_bytes(int(regret.fresh))}: {regret.share:.1%} of what the new plan saves of full scans is lost "
            f"({_format_interval(regret.interval)})"
        )
    if drift.fallen <= most:
        less = f"{drift.fallen:.1%} less" if drift.fallen > 0 else "no less"
        console.print(f"The plan still fits: {less} is skipped; --most allows {most:.1%} less")


def _format_interval(interval: Interval) -> str:
    return f"95 % confidence: {interval.low:.1%} to {interval.high:.1%} for all such queries"


def _print_families(console: Console, changes: FamilyChanges) -> None:
    changed = [family for family in changes.families if family.change != SAME]
    known = len(changes.families) - len(changed)
    console.print(
        f"{changes.unknown:.1%} of the statements are of families that the plan does not know "
        f"({_format_interval(changes.unknown_interval)}); {len(changed)} families changed, {known} did not"
    )
    if not changed:
        return
    table = Table(title="changed query families, and their shares of the statements", title_justify="left")
    for name in ("", "then", "now"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    table.add_column("filters by", overflow="fold")
    table.add_column("example", no_wrap=True, max_width=_MAX_EXAMPLE_CHARS, overflow="ellipsis")
    for family in changed[:_MAX_FAMILIES]:
        filtered = Text(printable(", ".join(family.filtered) or "nothing"))
        example = Text(printable(" ".join(family.example.split())))
        table.add_row(family.change, f"{family.then:.1%}", f"{family.now:.1%}", filtered, example)
    console.print(table)
    if len(changed) > _MAX_FAMILIES:
        console.print(Text(f"{len(changed) - _MAX_FAMILIES} more; --json lists all", style="dim"))


def print_evaluation(
    console: Console,
    evaluation: Evaluation,
    skipped: int,
    worst: Sequence[WorstQuery] = (),
    predictions: PredictionComparison | None = None,
    *,
    every: bool = False,
    gates: GateReport | None = None,
) -> None:
    """Print what a log reads in total, its indicators, and why the worst queries skip no more.

    Args:
        console: where to print.
        evaluation: of the log's queries.
        skipped: how many of the log's statements are unusable.
        worst: the queries that waste most.
        predictions: what plans predicted for these queries.
        every: whether to print a line per query.
        gates: the results of the gates for CI, if any.
    """
    totals = evaluation.totals
    console.print(_make_queries_table(evaluation, predictions, every))
    if totals.rows_matching is not None:
        console.print(f"Rows that match: {totals.rows_matching:,}")
    means = asdict(totals.indicators.means)
    shown = [f"{name.replace('_', ' ')} {mean:.3g}" for name, mean in means.items() if mean]
    console.print(f"Geometric means over {totals.indicators.queries} queries: {', '.join(shown) or '-'}")
    if predictions is not None:
        _print_predictions(console, predictions)
    if totals.greedy_paths.queries:
        paths = totals.greedy_paths
        console.print(
            f"The greedy retrieval path is the cheapest for {paths.cheapest} of {paths.queries} queries with a "
            f"choice; at worst it reads {paths.worst_ratio:.3g} times as much"
        )
    if worst:
        console.print(_make_worst_table(worst))
    if not every and evaluation.queries:
        console.print(f"--all prints a line for each of the {len(evaluation.queries):,} queries")
    if skipped:
        console.print(f"{skipped:,} statements could not be used; --json gives the reasons")
    if gates is not None:
        _print_gates(console, gates)


def _print_gates(console: Console, gates: GateReport) -> None:
    for gate in gates.skipped:
        whose = "the log" if gate.user is None else printable(gate.user)
        console.print(f"{whose} skips {gate.skipped:.1%} of the rows; --min-skipped requires {gate.required:.1%}")
        if gate.short:
            _print_gated(console, f"skip less than {gate.required:.1%}", gate.short)
    if gates.new_full_scans:
        _print_gated(console, "new full scans", gates.new_full_scans)


def _print_gated(console: Console, title: str, queries: Sequence[GatedQuery]) -> None:
    table = Table(title=title, title_justify="left")
    for name in ("query", "skips"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("user")
    table.add_column("text", overflow="fold")
    for query in queries[:_MAX_FAMILIES]:
        texts = (printable(query.user or ""), shorten(printable(" ".join(query.sql.split())), _MAX_CONJUNCT_CHARS))
        table.add_row(str(query.id), f"{query.skipped:.1%}", *map(Text, texts))
    console.print(table)
    if len(queries) > _MAX_FAMILIES:
        console.print(Text(f"{len(queries) - _MAX_FAMILIES} more; --json lists all", style="dim"))


def _make_queries_table(evaluation: Evaluation, predictions: PredictionComparison | None, every: bool) -> Table:
    """Return a table of what all queries and each query read, with predicted bytes if any are known."""
    foreseen = predictions.bytes_predicted if every and predictions is not None else ()
    foreseen = foreseen if any(size is not None for size in foreseen) else ()
    table = Table(title=f"{evaluation.table}, snapshot {evaluation.snapshot}", title_justify="left")
    headings = ["query", "rows", "of all", "by statistics alone", "blocks", "bytes"]
    for name in [*headings, "predicted"] if foreseen else headings:
        table.add_column(name, justify="right")
    table.add_row("all", *_format_cells(evaluation.totals))
    table.add_section()
    for place, query in enumerate(evaluation.queries if every else ()):
        table.add_row(str(query.id), *_format_cells(query), *map(_format_prediction, foreseen[place : place + 1]))
    return table


def _print_predictions(console: Console, predictions: PredictionComparison) -> None:
    """Print plans' predictions next to measurements."""
    if any(plan.predicted for plan in predictions.plans):
        console.print(_make_comparison_table(predictions))
    foreseen = predictions.foreseen
    if foreseen.queries:
        console.print(
            f"The plan predicted {format_bytes(foreseen.bytes_predicted)} for the {foreseen.queries:,} queries that it "
            f"was made for; they read {format_bytes(foreseen.bytes_scanned)}, and {foreseen.within_a_quarter:.0%} of "
            "them are within a quarter of the prediction"
        )


def _make_comparison_table(comparison: PredictionComparison) -> Table:
    table = Table(title="predicted for the training queries, and measured", title_justify="left")
    table.add_column("")
    for plan in comparison.plans:
        table.add_column(f"{plan.method} {plan.plan[:8]}", justify="right")
    table.add_column("this log", justify="right")
    for name, value in comparison.measured.items():
        predicted = [plan.predicted.get(name) for plan in comparison.plans]
        texts = ["-" if number is None else f"{number:.4g}" for number in predicted]
        table.add_row(name.replace("_", " "), *texts, f"{value:.4g}")
    return table


def _make_worst_table(worst: Sequence[WorstQuery]) -> Table:
    """Return a table of the worst queries with a row for each part of their filters."""
    known = any(query.rows_wasted is not None for query in worst)
    which = "read the most rows without a match" if known else "read the most rows (--actual counts matches)"
    table = Table(title=f"the queries that {which}, and what each part of their filters does", title_justify="left")
    for name in ("query", "runs", "rows read", *(["without match"] if known else [])):
        table.add_column(name, justify="right")
    for name in ("part of its filter", "reason"):
        table.add_column(name)
    for query in worst:
        numbers = [str(query.evaluation.id), f"{query.runs:g}", f"{query.evaluation.rows_scanned:,}"]
        numbers += ["unknown" if query.rows_wasted is None else f"{query.rows_wasted:,}"] if known else []
        parts = [(conjunct.text, _explain_conjunct(conjunct)) for conjunct in query.conjuncts]
        for text, reason in parts or [("(no filter)", "")]:
            text = shorten(printable(text), _MAX_CONJUNCT_CHARS)
            table.add_row(*numbers, Text(text), Text(printable(reason)))
            numbers = [""] * len(numbers)
        table.add_section()
    return table


def _explain_conjunct(conjunct: Conjunct) -> str:
    if conjunct.reason != "skips":
        return f"{conjunct.reason.value}: {conjunct.detail or conjunct.reason.sentence}"
    blocks = max(conjunct.alone.values(), default=0)
    return f"skips: alone it would skip {blocks:,} block{'' if blocks == 1 else 's'}"


def _format_cells(reads: ReadCounts) -> tuple[str, ...]:
    return (
        f"{reads.rows_scanned:,}",
        _format_share(reads.rows_scanned, reads.rows_total),
        _format_share(reads.rows_scanned_by_statistics, reads.rows_total),
        f"{reads.blocks_scanned:,}/{reads.blocks_total:,}",
        format_bytes(reads.bytes_scanned),
    )


def _format_prediction(size: int | None) -> str:
    return "-" if size is None else format_bytes(size)


def _format_share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def analysis_report(analysis: Features, indexes: Sequence[Suggestion], output: Path) -> dict[str, object]:
    """Return the JSON value of `analyze`."""
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
            {"filter": text, "weight": weight, "queries": queries} for text, weight, queries in _list_features(analysis)
        ],
        "indexes": [{"index": str(index.spec), "queries": index.weight, "like": index.asked} for index in indexes],
        "commonality": _sample_curve(analysis.commonality, _COMMONALITY_POINTS),
        "stability": _sample_curve(analysis.stability, _STABILITY_POINTS),
    }


def print_analysis(console: Console, analysis: Features, indexes: Sequence[Suggestion], output: Path) -> None:
    """Print features and weights, skipped statements with reasons, suggested indexes, commonality and stability."""
    document = analysis.document
    table = Table(title=f"Features of {document.table}, the most useful first", title_justify="left")
    table.add_column("#", justify="right")
    table.add_column("filter", overflow="fold")
    table.add_column("queries", justify="right")
    table.add_column("adds", justify="right")
    for i, (text, weight, queries) in enumerate(_list_features(analysis)):
        table.add_row(str(i), Text(text), f"{queries:.4g}", f"{weight:.4g}")
    console.print(table)
    used, statements = analysis.counts["used"], analysis.counts["statements"]
    partly = len({query.id for query in document.queries if not query.exact})
    in_part = f", {partly} of them in part" if partly else ""
    console.print(f"{used} of {statements} statements used{in_part}, T = {analysis.threshold}")
    if sampled := analysis.counts.get("sampled"):
        error = sampling_error(sampled, len(document.features))
        console.print(
            f"Features follow {sampled:,} of {analysis.counts['scans']:,} queries, drawn by weight: the share of "
            f"queries that one helps is off by {error:.1%} at most (--sample)"
        )
    _print_unusable(console, analysis)
    _print_skipped(console, analysis)
    for index in indexes[:_MAX_INDEXES]:
        like = f", like {index.asked}" if index.asked else ""
        text = f'No feature helps {index.weight:g} queries{like}; --index "{index.spec}" might, or --index-budget 2%'
        console.print(Text(text))
    for name, curve, points in (
        ("Commonality: most frequent filters, and queries that use them", analysis.commonality, _COMMONALITY_POINTS),
        ("Stability: first queries, and all queries that use their filters", analysis.stability, _STABILITY_POINTS),
    ):
        console.print(f"{name}: " + ", ".join(f"{x:.0%} {curve.at(x):.0%}" for x in points))
    if document.exclude_columns:
        predicates = [predicate for feature in document.features for predicate in feature.predicates]
        dated = any(not columns_of(predicate).isdisjoint(document.exclude_columns) for predicate in predicates)
        kind = "only date features" if dated else "no features"
        console.print(Text(f"Filters on these columns make {kind}: {', '.join(document.exclude_columns)}"))
    console.print(Text(f"Written: {output}"))


def _print_unusable(console: Console, analysis: Features) -> None:
    """Print why some conditions of used statements cannot be used."""
    counts = {name.removeprefix(UNUSABLE): n for name, n in analysis.counts.items() if name.startswith(UNUSABLE)}
    if counts:
        codes = ", ".join(f"{count} {code}" for code, count in sorted(counts.items(), key=lambda item: -item[1]))
        console.print(f"Parts of their filters that cannot skip anything: {codes}")


def _print_skipped(console: Console, analysis: Features) -> None:
    if not analysis.reasons:
        return
    console.print("Skipped: " + ", ".join(f"{count} {reason}" for reason, count in analysis.reasons.items()))
    for skipped in analysis.document.skipped[:_MAX_SKIPPED]:
        console.print(Text(f"  {skipped.id}: {skipped.detail}"))
    if "parse-error" in analysis.reasons:
        console.print("  if the log uses another dialect, name it with --dialect")
    hidden = analysis.counts["skipped"] - _MAX_SKIPPED
    if hidden > 0:
        console.print(f"  and {hidden} more; --json lists {len(analysis.document.skipped)}")


def _list_features(analysis: Features) -> list[tuple[str, float, float]]:
    """Return each feature's text, weight, and number of helped queries, where a part of a list counts as a part."""
    document = analysis.document
    weights = np.array([query.weight for query in document.queries])
    helped = feature_weights(feature_shares(document.features, document.queries), weights).tolist()
    texts = [describe_all(feature.predicates) for feature in document.features]
    return list(zip(texts, document.features.weights.tolist(), helped, strict=True))


def _sample_curve(curve: Curve, points: tuple[float, ...]) -> dict[str, float]:
    return {f"{x:g}": round(curve.at(x), 4) for x in points}
