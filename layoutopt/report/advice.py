"""Print the advice of `advise`, and render it as a self-contained HTML page."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from layoutopt.report.pages import render_page
from layoutopt.report.texts import format_bytes, printable, shorten

if TYPE_CHECKING:
    from rich.console import Console

    from layoutopt.advice import Advice, FilterProfile, LayoutAdvice, Reading


_MAX_COLUMNS_CHARS = 60


def print_advice(console: Console, advice: Advice) -> None:
    """Print what queries filter by and read now, what each method would save, and a statement for each engine."""
    for sentence in (_describe_input(advice), _describe_reads_now(advice)):
        console.print(Text(printable(sentence)), soft_wrap=True)
    console.print(_make_filters_table(advice.asked, advice.now))
    console.print(_make_layouts_table(advice))
    for sentence in (_CONFIDENCE, _recommend(advice), *(f"  {command}" for command in _make_commands(advice))):
        console.print(Text(printable(sentence)), soft_wrap=True)
    if advice.statements:
        console.print(Text("Statements for other engines, instead of a layout by layoutopt:"))
    for statement in advice.statements:
        console.print(Text(printable(f"  {statement.engine}: {statement.statement}")), soft_wrap=True)
        reads = f"{format_bytes(statement.layout.reads.bytes)} (+/- {statement.layout.reads.relative_error:.0%})"
        cost = f"costs {_format_money(statement.gives_away)} {advice.period.each} more than the best layout"
        console.print(Text(printable(f"    reads {reads}, {cost}")), soft_wrap=True)
    if advice.statements:
        console.print(Text(printable(_note_engine_blocks(advice))), soft_wrap=True)


def describe_estimate(advice: Advice) -> str:
    """Return a sentence about an estimate that is not complete, whose layouts the rest of the trials may correct."""
    best = advice.recommended
    now = f"First estimate: queries read {format_bytes(advice.now.bytes)}, {advice.now.share:.1%} of full scans"
    if best is None:
        return f"{now}; no layout tried so far reads clearly less"
    return (
        f"{now}; by {_name_layout(best)} about {format_bytes(best.reads.bytes)}, {best.reads.share:.1%} "
        f"(+/- {best.reads.relative_error:.0%})"
    )


def _describe_input(advice: Advice) -> str:
    partitioning = "" if advice.partition_by is None else f", partitioned by {advice.partition_by}"
    unused = f" ({advice.skipped:,} statements could not be used)" if advice.skipped else ""
    return (
        f"{advice.table}: {advice.rows:,} rows in {advice.files:,} files of {format_bytes(advice.stored)}"
        f"{partitioning}; {advice.queries:,.0f} queries{unused}"
    )


def _describe_reads_now(advice: Advice) -> str:
    return (
        f"They now read {format_bytes(advice.now.bytes)}, {advice.now.share:.1%} of full scans of their columns "
        f"({format_bytes(advice.full.bytes)}): {_format_money(advice.costs_now)} {advice.period.each} "
        f"({advice.period.runs:,.0f} queries, {advice.period.by}) at {advice.price:g} a TB"
    )


def _recommend(advice: Advice) -> str:
    best = advice.recommended
    if not advice.layouts:
        return "No layout has been tried yet."
    first = "Recommended: " if advice.is_complete else "Recommended by a first estimate: "
    if best is None:
        return f"{first}do not change the table; no method reads clearly less."
    after = advice.pays_after
    pays = "" if after is None else f"; this pays after {after * advice.period.runs:,.0f} queries"
    stores = "" if best.stored is None else f" and stores about {format_bytes(best.stored)}"
    return (
        f"{first}{best.method}, which would read {format_bytes(best.reads.bytes)} and save "
        f"{_format_money(best.saves)} {advice.period.each}. Writing it reads {format_bytes(advice.stored)} once "
        f"({_format_money(advice.writing)}){stores}{pays}."
    )


def _format_money(amount: float) -> str:
    """Return an amount of money with two decimals, or two significant digits below 1.

    >>> _format_money(1234.567), _format_money(0.00123)
    ('1,234.57', '0.0012')
    """
    return f"{amount:,.2f}" if abs(amount) >= 1 or not amount else f"{amount:.2g}"


def _make_commands(advice: Advice) -> tuple[str, ...]:
    """Return the commands that plan the recommended layout, if any."""
    best = advice.recommended
    if best is None:
        return ()
    flags = [] if advice.partition_by is None else ["--partition-by", advice.partition_by]
    flags += ["--block-rows", str(advice.block_rows), "--method", best.method]
    flags += ["--by", ",".join(best.columns)] if best.columns else []
    flags += ["--row-order", ",".join(best.row_order)]
    return (
        shlex.join(["layoutopt", "analyze", advice.log, "--schema", advice.source, "-o", "features.json"]),
        shlex.join(["layoutopt", "plan", advice.source, "--features", "features.json", *flags, "-o", "plan.json"]),
    )


_CONFIDENCE = (
    "+/- is one standard deviation: for other queries like these, and the error of such predictions on loaded tables. "
    "~ marks estimates from a sample of rows only, which may be off by a third."
)


def _note_engine_blocks(advice: Advice) -> str:
    return f"These figures assume files or row groups of {advice.block_rows:,} rows; larger ones skip less."


def _name_layout(layout: LayoutAdvice) -> str:
    by = f" by {shorten(', '.join(layout.columns), _MAX_COLUMNS_CHARS)}" if layout.columns else ""
    return f"{layout.method}{by}"


def _list_figures_now(advice: Advice) -> tuple[str, ...]:
    """Return :func:`_list_figures` of the present table."""
    now = advice.now
    read, stored = format_bytes(now.bytes), format_bytes(advice.stored)
    return read, f"{now.spread:.0%}", f"{now.share:.1%}", _format_money(advice.costs_now), "", stored


def _list_figures(layout: LayoutAdvice) -> tuple[str, ...]:
    """Return a layout's bytes read, their error, share of full scans, cost, saving and stored bytes."""
    reads = layout.reads
    return (
        ("" if layout.rehearsed else "~") + format_bytes(reads.bytes),
        f"{reads.relative_error:.0%}",
        f"{reads.share:.1%}",
        _format_money(layout.costs),
        _format_money(layout.saves),
        "" if layout.stored is None else format_bytes(layout.stored),
    )


def _make_filters_table(filters: Sequence[FilterProfile], now: Reading) -> Table:
    table = Table(title="what queries filter by", title_justify="left")
    table.add_column("columns")
    for name in ("runs", "read now", "of all"):
        table.add_column(name, justify="right")
    for group in filters:
        names = ", ".join(group.columns) or "(no filter)"
        share = group.bytes / now.bytes if now.bytes else 0.0
        table.add_row(Text(printable(names)), f"{group.runs:,.0f}", format_bytes(group.bytes), f"{share:.1%}")
    return table


def _make_layouts_table(advice: Advice) -> Table:
    table = Table(title=f"what the log would read, and its cost {advice.period.each}", title_justify="left")
    table.add_column("method")
    for name in ("reads", "+/-", "of full scans", "costs", "saves", "stored"):
        table.add_column(name, justify="right")
    table.add_row("unchanged", *_list_figures_now(advice))
    table.add_section()
    for layout in advice.layouts:
        table.add_row(Text(printable(_name_layout(layout))), *_list_figures(layout))
    return table


def advice_page(advice: Advice) -> str:
    """Return the HTML page of an advice."""
    layouts = [("unchanged", advice.now, _list_figures_now(advice))]
    layouts += [(_name_layout(layout), layout.reads, _list_figures(layout)) for layout in advice.layouts]
    cards = [(f"{advice.now.share:.1%}", "of full scans are read now")]
    if (best := advice.recommended) is not None:
        cards += [
            (f"{best.reads.share:.1%}", f"would be by {_name_layout(best)}"),
            (_format_money(best.saves), f"saved {advice.period.each}"),
            (f"± {best.reads.relative_error:.0%}", "error of this estimate"),
        ]
    return render_page(
        "advice.html.j2",
        title=f"{advice.table}: what a layout would save",
        advice=advice,
        input=_describe_input(advice),
        reads_now=_describe_reads_now(advice),
        cards_shown=cards,
        recommendation=_recommend(advice),
        commands=_make_commands(advice),
        confidence=_CONFIDENCE,
        layouts=layouts,
        most_bytes=max(reads.bytes for _, reads, _ in layouts) or 1.0,
        engine_blocks=_note_engine_blocks(advice),
        money=_format_money,
    )
