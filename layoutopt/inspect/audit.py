"""The audit of a log: the blocks that each query skips are read again, to prove that none holds a row that it asks for.

What matches is found by :mod:`layoutopt.scan.matches`, which evaluates the queries' own texts where it can; a query
whose matches can't be told without Spark is named as not audited.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from layoutopt.model.query import Query
from layoutopt.scan.matches import Matches, Progress, Question, find_matches, questions_of
from layoutopt.scan.opened_table import MECHANISMS
from layoutopt.scan.table import Table

_NAMES = {outcome: name for name, outcome in MECHANISMS.items()}
_MOST_PROBLEMS = 1000
_ONLY_SPARK = "only Spark can evaluate it as Spark does"


@dataclass(frozen=True)
class Loss:
    """A block that a query skips although it holds a row that the query asks for.

    Attributes:
        mechanism: what skips it; ``layout`` where the layout that is read lacks the row.
        block: the ``_block`` value, -1 with ``layout``.
        file: the data file, or the partition with ``layout``.
        queries: the places in the log of the queries that lose rows there.
    """

    mechanism: str
    block: int
    file: str
    queries: tuple[int, ...]


@dataclass(frozen=True)
class AuditReport:
    """What was proved, what was found, and what could not be looked at.

    Attributes:
        queries: scans of the table in the log.
        by_text: scans whose own condition was evaluated.
        by_filter: scans of which the filter as analysed was evaluated.
        unaudited: (place in the log, why) of the others.
        rows: rows read.
        proved: pairs of a query and a block that it skips rightly, by mechanism.
    """

    table: str
    snapshot: int
    queries: int
    by_text: int
    by_filter: int
    unaudited: tuple[tuple[int, str], ...]
    rows: int
    proved: dict[str, int]
    losses: tuple[Loss, ...]

    @property
    def ok(self) -> bool:
        """Whether some query was audited, and none loses a row."""
        return not self.losses and bool(self.by_text or self.by_filter)

    def to_json(self) -> dict[str, Any]:
        """The report as JSON."""
        return {**asdict(self), "ok": self.ok}


def audit(
    table: Table, queries: Iterable[Query], dialect: str = "spark", progress: Progress | None = None
) -> AuditReport:
    """Reads a table again and proves of each query of a log that what it skips holds no row for it.

    Args:
        table: the table at one snapshot.
        queries: the analysed log.
        dialect: the log's.
        progress: called with (segments done, all segments).

    Raises:
        DataFileError: a data file is missing or damaged.
        CatalogError: a catalog file is damaged.
    """
    listed = list(queries)
    asked, of_query = questions_of(table, listed, dialect)
    unaudited = [(q.id, _ONLY_SPARK) for q, index in zip(listed, of_query, strict=True) if index is None]
    losses, proved = list[Loss](), dict.fromkeys(_NAMES.values(), 0)
    matches = find_matches(table, asked, progress)
    unanswered = set[int]().union(*(found.unanswered for found in matches))
    unaudited += [(id, _ONLY_SPARK) for index in sorted(unanswered) for id in asked[index].ids]
    for found in matches:
        losses += _judge(table, found, asked, proved)
    by_text = sum(len(each.ids) for i, each in enumerate(asked) if each.condition is not None and i not in unanswered)
    return AuditReport(
        table.name, table.catalog.snapshot.number, len(listed), by_text,
        len(listed) - by_text - len(unaudited), tuple(unaudited),
        sum(found.read for found in matches), proved, tuple(losses[:_MOST_PROBLEMS]),
    )  # fmt: skip


def _judge(table: Table, found: Matches, asked: Sequence[Question], proved: dict[str, int]) -> list[Loss]:
    """Compares what every question skips with what matches it."""
    lost: dict[tuple[str, int, str], list[int]] = {}
    source = found.source
    blocks = source.blocks
    for index, each in enumerate(asked):
        if index in found.unanswered:
            continue
        (pruned,) = (plan for plan in table.decide(each.root, each.columns) if plan.source is source)
        for outcome, mechanism in _NAMES.items():
            skipped = pruned.outcome == outcome
            wrong = np.flatnonzero(skipped & found.block[:, index])
            proved[mechanism] += (int(skipped.sum()) - len(wrong)) * len(each.ids)
            for block in wrong.tolist():
                place = (mechanism, int(blocks.block_id[block]), blocks.files[blocks.file[block]])
                lost.setdefault(place, []).extend(each.ids)
        chosen = {choice.layout for choice in pruned.choice}
        for (layout, segment), lacking in found.lacking.items():
            if layout in chosen and lacking[index]:
                entry = source.entries[source.entry_of[np.argmax(source.segment_of == segment)]]
                lost.setdefault(("layout", -1, f"layout {layout} of {entry.key}"), []).extend(each.ids)
    return [Loss(*place, tuple(sorted(set(ids)))) for place, ids in lost.items()]
