"""What people ask of a table: by which columns they filter, and how much that reads now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np

from layoutopt.advise.advice import Asked
from layoutopt.model.arrays import Floats
from layoutopt.model.predicates import columns_of
from layoutopt.model.query import Query
from layoutopt.model.schema import Schema

MOST_TOLD: Final = 10


def asked_of(queries: Sequence[Query], read: Floats, schema: Schema) -> tuple[Asked, ...]:
    """Queries by the columns that they filter by, those that read the most first, :data:`MOST_TOLD` at most.

    Args:
        queries: of the log, each with its runs as its weight.
        read: the bytes that one run of each reads, ``float64[queries]``.
        schema: the table's.
    """
    groups: dict[frozenset[str], list[int]] = defaultdict(list)
    for place, query in enumerate(queries):
        groups[columns_of(query.filter.root)].append(place)
    weights = np.array([query.weight for query in queries])
    found = []
    for filtered, places in groups.items():
        names = tuple(name for name in schema.names if name in filtered)
        bytes = weights[places] * read[places]
        example = queries[places[int(np.argmax(bytes))]].sql
        found.append(Asked(names, float(weights[places].sum()), float(bytes.sum()), example))
    return tuple(sorted(found, key=lambda asked: (-asked.bytes, asked.columns))[:MOST_TOLD])
