"""What `evaluate` prints of a log: the sums, the indicators, what plans predicted, and the worst queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from layoutopt.report.texts import format_bytes, printable, seconds_text, shortened

if TYPE_CHECKING:
    from rich.console import Console

    from layoutopt.model.document import SkippedStatement

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
        worst: of :func:`layoutopt.inspect.worst.worst_queries`.
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
