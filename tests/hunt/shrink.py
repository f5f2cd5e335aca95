"""What fails, with as little text as it takes, and told so that it can become a test of its own."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass

from tests.hunt.pieces import smaller
from tests.hunt.queries import Ask, with_query
from tests.hunt.ways import WAYS, Asking, Outcome, Refused, refusal, truth

SECONDS = 60


@dataclass(frozen=True)
class Failure:
    """An answer that is not the truth."""

    seed: int
    laid: str
    way: str
    original: str
    sql: str
    arguments: str
    expected: str
    given: str

    def __str__(self) -> str:
        return "\n".join(
            [
                f"world {self.seed}, {self.laid}, by {self.way}:",
                f"    {self.sql}",
                *([f"    with {self.arguments}"] if self.arguments else []),
                f"  Spark on the source: {self.expected}",
                f"  given: {self.given}",
                f"  found by: {self.original}",
            ]
        )


def shrunk(asking: Asking, ask: Ask, way: str, outcome: Outcome) -> Failure:
    """The failure of a text, or of a smaller one."""
    until = time.monotonic() + SECONDS
    least, given = ask, outcome
    expected: Outcome = asking.known[ask.number]
    trying = True
    while trying and time.monotonic() < until:
        trying = False
        for query in sorted(smaller(least.query), key=lambda query: len(str(query))):
            if len(str(query)) >= len(str(least.query)) or time.monotonic() > until:
                break
            # What a flat text selects is still known; of what else is known, a smaller text might lose.
            other = with_query(least, query) if not ask.flat else Ask(ask.number, query, True, ask.columns)
            failed = _failed(asking, other, way)
            if failed is not None:
                least, (expected, given), trying = other, failed, True
                break
    return Failure(
        asking.sessions.world.seed, str(asking.laid), way, ask.sql, least.query.with_parameters,
        repr(dict(least.query.arguments)) if least.query.arguments else "", _short(expected), _short(given, expected),
    )  # fmt: skip


def _failed(asking: Asking, ask: Ask, way: str) -> tuple[Outcome, Outcome] | None:
    """The truth and what is given instead; None where they are the same, or one can't be had."""
    alone = Asking.of(asking.sessions, asking.laid, [ask], truth(asking.sessions, [ask]))
    if not alone.asks:
        return None
    given = WAYS[way](alone).outcomes.get(ask.number)
    if given is None or refusal(given) or given == alone.known[ask.number]:
        return None
    return alone.known[ask.number], given


def _short(outcome: Outcome, than: Outcome | None = None) -> str:
    if isinstance(outcome, Refused):
        return str(outcome)
    if isinstance(than, Counter):
        lacks, more = than - outcome, outcome - than
        return f"{outcome.total()} rows; lacks {dict(lacks.most_common(5))}, has {dict(more.most_common(5))}"
    return f"{outcome.total()} rows"
