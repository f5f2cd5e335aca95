"""Advice as one HTML page that stands alone, in the style of an evaluation's."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from layoutopt.report.advice import (
    amount,
    called,
    commands,
    confidence,
    figures,
    figures_now,
    headline,
    of_engines,
    reading_now,
    recommendation,
)
from layoutopt.report.page import STYLE, html_table
from layoutopt.report.texts import format_bytes

if TYPE_CHECKING:
    from layoutopt.advise.advice import Advice, Reading

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
