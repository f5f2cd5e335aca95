"""What `advise` prints."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from layoutopt.report.pages import STYLE, html_table
from layoutopt.report.texts import format_bytes, printable, shortened

if TYPE_CHECKING:
    from rich.console import Console

    from layoutopt.advice import Advice, Asked, LayoutAdvice, Reading


_LONGEST_COLUMNS = 60


def print_advice(console: Console, advice: Advice) -> None:
    """Print what queries ask for and read now, what each method would save, and the best statement of each engine."""
    for sentence in (headline(advice), reading_now(advice)):
        console.print(Text(printable(sentence)), soft_wrap=True)
    console.print(_asked_table(advice.asked, advice.now))
    console.print(_layouts_table(advice))
    told = (confidence(advice), recommendation(advice), *(f"  {command}" for command in commands(advice)))
    for sentence in told:
        console.print(Text(printable(sentence)), soft_wrap=True)
    if advice.statements:
        console.print(Text("Who stays with their engine can tell it:"))
    for said in advice.statements:
        console.print(Text(printable(f"  {said.engine}: {said.statement}")), soft_wrap=True)
        then = f"reads {_reads(said.layout.reads)}, gives away {amount(said.gives_away)} {advice.period.each}"
        console.print(Text(printable(f"    {then}")), soft_wrap=True)
    if advice.statements:
        console.print(Text(printable(of_engines(advice))), soft_wrap=True)


def headline(advice: Advice) -> str:
    """What was looked at."""
    parted = "" if advice.partition_by is None else f", partitioned by {advice.partition_by}"
    unused = f" ({advice.skipped:,} statements could not be used)" if advice.skipped else ""
    return (
        f"{advice.table}: {advice.rows:,} rows in {advice.files:,} files of {format_bytes(advice.stored)}{parted}; "
        f"{advice.queries:,.0f} queries{unused}"
    )


def reading_now(advice: Advice) -> str:
    """What the log reads of the table as it is, and what that costs."""
    return (
        f"Now they read {format_bytes(advice.now.bytes)}, {advice.now.share:.1%} of full scans of their columns "
        f"({format_bytes(advice.full.bytes)}): {amount(advice.costs_now)} {advice.period.each} "
        f"({advice.period.runs:,.0f} queries, {advice.period.by}) at {advice.price:g} a TB"
    )


def recommendation(advice: Advice) -> str:
    """What to do, what it costs to write, and when that has paid."""
    best = advice.recommended
    if best is None:
        return "Recommended: leave the table as it is; no method reads clearly less."
    after = advice.pays_after
    pays = "" if after is None else f", saved again after {after * advice.period.runs:,.0f} queries"
    stores = "" if best.stored is None else f" and stores about {format_bytes(best.stored)}"
    return (
        f"Recommended: {best.method}, which would read {format_bytes(best.reads.bytes)} and save "
        f"{amount(best.saves)} {advice.period.each}. Writing it reads {format_bytes(advice.stored)} once "
        f"({amount(advice.writing)}){stores}{pays}."
    )


def amount(money: float) -> str:
    """An amount in whatever currency: two digits behind the point, or two that count.

    >>> amount(1234.567), amount(0.00123)
    ('1,234.57', '0.0012')
    """
    return f"{money:,.2f}" if abs(money) >= 1 or not money else f"{money:.2g}"


def commands(advice: Advice) -> tuple[str, ...]:
    """The commands by which what is recommended is planned and loaded; none where the table is left as it is."""
    best = advice.recommended
    if best is None:
        return ()
    by = ["--by", ",".join(best.columns)] if best.columns else []
    parted = [] if advice.partition_by is None else ["--partition-by", advice.partition_by]
    flags = [*parted, "--block-rows", str(advice.block_rows), "--method", best.method, *by]
    flags += ["--row-order", ",".join(best.row_order)]
    return (
        shlex.join(["layoutopt", "analyze", advice.log, "--schema", advice.source, "-o", "features.json"]),
        shlex.join(["layoutopt", "plan", advice.source, "--features", "features.json", *flags, "-o", "plan.json"]),
    )


def confidence(advice: Advice) -> str:
    """How far figures may be off, and why."""
    return (
        "+/- is one standard deviation if other queries like these came, and by how much such predictions were off of "
        "loaded tables before; ~ marks what was judged by a sample of rows alone, and may be a third off."
    )


def of_engines(advice: Advice) -> str:
    """What the figures of engines' own statements assume."""
    return f"That is in files or row groups of {advice.block_rows:,} rows; larger ones skip less."


def called(layout: LayoutAdvice) -> str:
    """A layout's name, with the columns that it goes by."""
    by = f" by {shortened(', '.join(layout.columns), _LONGEST_COLUMNS)}" if layout.columns else ""
    return f"{layout.method}{by}"


def figures_now(advice: Advice) -> tuple[str, ...]:
    """What :func:`figures` tells, of the table as it is."""
    now = advice.now
    read, stored = format_bytes(now.bytes), format_bytes(advice.stored)
    return read, f"{now.spread:.0%}", f"{now.share:.1%}", amount(advice.costs_now), "", stored


def figures(layout: LayoutAdvice) -> tuple[str, ...]:
    """What a layout reads, give or take, of full scans, costs, saves and stores."""
    reads = layout.reads
    return (
        ("" if layout.rehearsed else "~") + format_bytes(reads.bytes),
        f"{reads.give_or_take:.0%}",
        f"{reads.share:.1%}",
        amount(layout.costs),
        amount(layout.saves),
        "" if layout.stored is None else format_bytes(layout.stored),
    )


def _asked_table(asked: Sequence[Asked], now: Reading) -> Table:
    table = Table(title="what queries filter by", title_justify="left")
    table.add_column("columns")
    for name in ("runs", "read now", "of all"):
        table.add_column(name, justify="right")
    for one in asked:
        names = ", ".join(one.columns) or "(nothing: all rows)"
        of_all = one.bytes / now.bytes if now.bytes else 0.0
        table.add_row(Text(printable(names)), f"{one.runs:,.0f}", format_bytes(one.bytes), f"{of_all:.1%}")
    return table


def _layouts_table(advice: Advice) -> Table:
    table = Table(title=f"what the log would read, and costs {advice.period.each}", title_justify="left")
    table.add_column("method")
    for name in ("reads", "+/-", "of full scans", "costs", "saves", "stored"):
        table.add_column(name, justify="right")
    table.add_row("as it is", *figures_now(advice))
    table.add_section()
    for layout in advice.layouts:
        table.add_row(Text(printable(called(layout))), *figures(layout))
    return table


def _reads(reads: Reading) -> str:
    return f"{format_bytes(reads.bytes)} (+/- {reads.give_or_take:.0%})"


# ----------------------------------------------------------------------------------------------------
# Advice as one HTML page that stands alone, in the style of an evaluation's.

_BARS = """
.reads { background: #2874a6; height: .8em; border-radius: 2px; }
.wide { min-width: 16em; }
"""


def advice_page(advice: Advice) -> str:
    """The page."""
    title = f"{advice.table}: what a layout would save"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="sub">{escape(headline(advice))}</p>',
        f"<p>{escape(reading_now(advice))}</p>",
        _cards(advice),
        f"<p><b>{escape(recommendation(advice))}</b></p>",
        *(f"<p><code>{escape(command)}</code></p>" for command in commands(advice)),
        "<h2>What each method would read</h2>",
        f'<p class="note">{escape(confidence(advice))}</p>',
        _layouts(advice),
        "<h2>What queries filter by</h2>",
        _asked(advice),
        _statements(advice),
    ]
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}{_BARS}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{"".join(parts)}\n</body></html>\n'


def _cards(advice: Advice) -> str:
    best = advice.recommended
    cards = [(f"{advice.now.share:.1%}", "of full scans are read now")]
    if best is not None:
        cards += [
            (f"{best.reads.share:.1%}", f"would be by {called(best)}"),
            (amount(best.saves), f"saved {advice.period.each}"),
            (f"± {best.reads.give_or_take:.0%}", "of what it would read"),
        ]
    inner = "".join(f'<div class="card"><b>{escape(number)}</b>{escape(what)}</div>' for number, what in cards)
    return f'<div class="cards">{inner}</div>'


def _layouts(advice: Advice) -> str:
    most = max([advice.now.bytes, *(layout.reads.bytes for layout in advice.layouts)]) or 1.0
    now = ("as it is", _bar(advice.now, most), *figures_now(advice))
    rows = [(escape(called(one)), _bar(one.reads, most), *figures(one)) for one in advice.layouts]
    columns = ("method", "", "reads", "±", "of full scans", "costs", "saves", "stored")
    return html_table(columns, [now, *rows], text=(0, 1))


def _bar(reads: Reading, most: float) -> str:
    return f'<div class="wide"><div class="reads" style="width:{100 * reads.bytes / most:.2f}%"></div></div>'


def _asked(advice: Advice) -> str:
    rows = [
        (
            escape(", ".join(one.columns) or "(nothing: all rows)"),
            f"{one.runs:,.0f}",
            format_bytes(one.bytes),
            f"{one.bytes / advice.now.bytes:.1%}" if advice.now.bytes else "-",
            f"<code>{escape(one.example)}</code>",
        )
        for one in advice.asked
    ]
    return html_table(("columns", "runs", "read now", "of all", "one of them"), rows, text=(0, 4))


def _statements(advice: Advice) -> str:
    if not advice.statements:
        return ""
    rows = [
        (
            escape(said.engine),
            f"<code>{escape(said.statement)}</code>",
            format_bytes(said.layout.reads.bytes),
            f"{said.layout.reads.give_or_take:.0%}",
            amount(said.gives_away),
        )
        for said in advice.statements
    ]
    table = html_table(("engine", "statement", "reads", "±", f"gives away {advice.period.each}"), rows, text=(0, 1))
    return f'<h2>What other engines can be told</h2><p class="note">{escape(of_engines(advice))}</p>{table}'
