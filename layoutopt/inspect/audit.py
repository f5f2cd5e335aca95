"""Audit a log: read the blocks that each query skips and prove that none holds a matching row.

Matches are found by :mod:`layoutopt.scan.matches`, which evaluates the queries' own texts where possible. A query whose
matches need Spark is reported as not audited.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from layoutopt.model.arrays import draw_share
from layoutopt.model.query import Query
from layoutopt.model.summary import Report
from layoutopt.scan.matches import LogCondition, Matches, Progress, find_log_conditions, find_matches
from layoutopt.scan.opened_table import MECHANISMS
from layoutopt.scan.table import Table

_NAMES = {outcome: name for name, outcome in MECHANISMS.items()}
_MOST_PROBLEMS = 1000
_ONLY_SPARK = "only Spark can evaluate it exactly"


@dataclass(frozen=True)
class WrongSkip:
    """A block that a query skips although it holds a matching row.

    If the layout that is read lacks the row, ``mechanism`` is ``layout``, ``block`` is -1 and ``file`` the partition.
    ``queries`` are places in the log.
    """

    mechanism: str
    block: int
    file: str
    queries: tuple[int, ...]


@dataclass(frozen=True)
class AuditReport(Report):
    """The result of an audit.

    Attributes:
        log_queries: scans of the table in the log.
        queries: those of them that were drawn to be audited.
        by_text: scans whose own condition was evaluated.
        by_filter: scans whose analysed filter was evaluated.
        unaudited: (place in the log, reason) of the other scans.
        proved: the number of correct skips (a query and a block), by mechanism.
    """

    derived = ("ok",)

    table: str
    snapshot: int
    log_queries: int
    queries: int
    by_text: int
    by_filter: int
    unaudited: tuple[tuple[int, str], ...]
    rows: int
    proved: dict[str, int]
    losses: tuple[WrongSkip, ...]

    @property
    def ok(self) -> bool:
        """Whether some query was audited, and none loses a row."""
        return not self.losses and bool(self.by_text or self.by_filter)


def audit(
    table: Table,
    queries: Iterable[Query],
    dialect: str = "spark",
    progress: Progress | None = None,
    sample: float = 1.0,
    seed: int = 0,
) -> AuditReport:
    """Read a table again and check for each query of a log that the blocks it skips hold no matching row.

    Args:
        progress: called with (segments done, all segments).
        sample: the share of the queries to check, in (0, 1], drawn whatever their weights; at least one.
    """
    whole = list(queries)
    listed = draw_share(whole, sample, seed)
    conditions, index_of_query = find_log_conditions(table, listed, dialect)
    unaudited = [(q.id, _ONLY_SPARK) for q, index in zip(listed, index_of_query, strict=True) if index is None]
    proved = dict.fromkeys(_NAMES.values(), 0)
    all_matches = find_matches(table, conditions, progress)
    unanswered = set[int]().union(*(matches.unanswered for matches in all_matches))
    unaudited += [(id, _ONLY_SPARK) for index in sorted(unanswered) for id in conditions[index].ids]
    losses = _find_losses(table, all_matches, conditions, proved)
    by_text = sum(
        len(condition.ids)
        for i, condition in enumerate(conditions)
        if condition.text is not None and i not in unanswered
    )
    return AuditReport(
        table.name, table.catalog.snapshot.number, len(whole), len(listed), by_text,
        len(listed) - by_text - len(unaudited), tuple(unaudited),
        sum(matches.read for matches in all_matches), proved, tuple(losses[:_MOST_PROBLEMS]),
    )  # fmt: skip


def _find_losses(
    table: Table, all_matches: Sequence[Matches], conditions: Sequence[LogCondition], proved: dict[str, int]
) -> list[WrongSkip]:
    """Compare what every condition skips with its matches, given for each plan; counts correct skips in ``proved``."""
    lost: dict[tuple[str, int, str], list[int]] = {}
    for index, condition in enumerate(conditions):
        for matches, pruned in zip(all_matches, table.decide(condition.root, condition.columns), strict=True):
            if index in matches.unanswered:
                continue
            assert matches.source is pruned.source
            source, blocks = pruned.source, pruned.source.blocks
            for outcome, mechanism in _NAMES.items():
                skipped = pruned.outcome == outcome
                wrong = np.flatnonzero(skipped & matches.block[:, index])
                proved[mechanism] += (int(skipped.sum()) - len(wrong)) * len(condition.ids)
                for block in wrong.tolist():
                    place = (mechanism, int(blocks.block_id[block]), blocks.files[blocks.file[block]])
                    lost.setdefault(place, []).extend(condition.ids)
            layouts_read = {choice.layout for choice in pruned.choice}
            for (layout, segment), lacking in matches.lacking.items():
                if layout in layouts_read and lacking[index]:
                    entry = source.entries[source.entry_of[np.argmax(source.segment_of == segment)]]
                    lost.setdefault(("layout", -1, f"layout {layout} of {entry.key}"), []).extend(condition.ids)
    return [WrongSkip(*place, tuple(sorted(set(ids)))) for place, ids in lost.items()]
