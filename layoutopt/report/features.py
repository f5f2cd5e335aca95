"""What `analyze` says of a log: as a JSON value, and as readable tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table
from rich.text import Text

from layoutopt.features.analysis import LogAnalysis
from layoutopt.features.stability import Curve
from layoutopt.features.weights import feature_shares, feature_weights
from layoutopt.indexes.suggesting import Suggestion
from layoutopt.model.predicates import columns_of, describe_all
from layoutopt.workload.analyze import UNUSABLE

if TYPE_CHECKING:
    from rich.console import Console

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
