"""How often a log asks for what it has asked for before: by column, whether ranges recur."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from layoutopt.model.query import Query, column_literals


def unseen_shares(queries: Sequence[Query]) -> dict[str, float]:
    """Of the literals about each column in the later half of a log, the share that the earlier half does not have.

    People who brush a column ask for a new range nearly always; reports ask for the same ones. Of a class of ``w``
    equal queries that begins in the earlier half, ``w - 1`` are taken to be spread evenly over both halves.

    Args:
        queries: of a log, or classes of them; ``id`` is a query's place in the log, or that of the first of its class.
    """
    middle = max((query.id for query in queries), default=0) / 2
    early = {literal for query in queries if query.id <= middle for literal in column_literals(query)}
    unseen: dict[str, float] = defaultdict(float)
    every: dict[str, float] = defaultdict(float)
    for query in queries:
        weight = query.weight if query.id > middle else max(0.0, query.weight - 1) / 2
        for literal in column_literals(query):
            (column,) = literal.columns
            every[column] += weight
            unseen[column] += 0.0 if literal in early else weight
    return {column: unseen[column] / total for column, total in every.items() if total}
