"""What a plan predicted beside what a table's catalog measures of the same figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

import numpy as np

from layoutopt.model.arrays import Ints
from layoutopt.model.layout import Plan
from layoutopt.model.predicates import TRUE, Node
from layoutopt.model.predicted import of_the_plan
from layoutopt.model.query import Query
from layoutopt.scan.prune import PruneOutcome
from layoutopt.scan.table import Table

_CLOSE: Final = 0.25


def storage_of(table: Table) -> dict[str, float]:
    """What the snapshot stores: cells, their number over that of the table's cells, and compressed bytes with tids."""
    cells = sum(
        int(source.blocks.rows[source.blocks.has_column(name)].sum())
        for source in table.sources
        for name in source.plan.schema.names
    )
    once = sum(int(entry.rows) * len(source.plan.schema.names) for source, entry in _entries(table))
    stored = sum(int(source.blocks.bytes.sum()) for source in table.sources)
    return {"cells": cells, "storage_cells": round(cells / once, 6) if once else 0.0, "bytes": stored}


def _entries(table: Table) -> list[tuple[Any, Any]]:
    """Each partition that has blocks, with the blocks of its plan."""
    return [(source, source.entries[index]) for source in table.sources for index in np.unique(source.entry_of)]


def compare(table: Table, log: Sequence[Query], evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """The figures that plans predict, measured on an evaluated log, and the predictions of the snapshot's plans.

    Shares are of a full scan by the same queries. A plan predicts for its training queries, from samples, by features
    and partition bounds alone: the log may be another one, and statistics skip too. Of queries that all plans were
    made for, the bytes that each was predicted to read stand beside those that it reads.

    Args:
        table: at one snapshot.
        log: the analysed log.
        evaluation: of the log on the table, by :func:`layoutopt.inspect.evaluate.evaluate`.
    """

    @cache
    def full_bytes(columns: tuple[str, ...]) -> Ints:
        return np.array([plan.size(PruneOutcome.READ).bytes for plan in table.prune(TRUE, columns)], dtype=np.int64)

    queries, totals = evaluation["queries"], evaluation["totals"]
    cells = sum(query["rows_total"] * len(query["columns"]) for query in queries)
    bytes_ = sum(int(full_bytes(tuple(query["columns"])).sum()) for query in queries)
    storage = storage_of(table)
    measured = {
        "rows_scanned_fraction": _share(totals["rows_scanned"], totals["rows_total"]),
        "cells_and_tids_fraction": _share(totals["cells_scanned"] + totals["tids_scanned"], cells),
        "bytes_fraction": _share(totals["bytes_scanned"], bytes_),
        "storage_cells": storage["storage_cells"],
    }
    plans = [
        {"plan": source.plan.digest, "method": source.plan.method, "predicted": of_the_plan(source.plan.predicted)}
        for source in table.sources
    ]
    shares = [_shares_of(source.plan) for source in table.sources]
    predicted = [_predicted_bytes(query, shares, full_bytes(tuple(query.columns))) for query in log]
    foreseen = _foreseen(predicted, [query["bytes_scanned"] for query in queries])
    return {
        "measured": measured, "storage": storage, "plans": plans, "bytes_predicted": predicted, "foreseen": foreseen,
    }  # fmt: skip


_Shares = Mapping[tuple[Node, tuple[str, ...]], float]


def _shares_of(plan: Plan) -> _Shares:
    """What a plan predicts that each of its queries reads of a full scan."""
    queries = zip(plan.queries, plan.reads, strict=True) if plan.reads else ()
    return {(query.filter.root, query.columns): share for query, share in queries}


def _predicted_bytes(query: Query, shares: Sequence[_Shares], full: Ints) -> int | None:
    """The bytes that a query was predicted to read; None where a plan was not made for it."""
    found = [of.get((query.filter.root, query.columns)) for of in shares]
    known = [share for share in found if share is not None]
    return round(float(np.dot(known, full))) if len(known) == len(found) else None


def _foreseen(predicted: Sequence[int | None], measured: Sequence[int]) -> dict[str, Any]:
    """In all, of the queries that were predicted: how many, their bytes both ways, and the share of good guesses."""
    pairs = [(foretold, read) for foretold, read in zip(predicted, measured, strict=True) if foretold is not None]
    close = sum(abs(foretold - read) <= _CLOSE * read for foretold, read in pairs)
    return {
        "queries": len(pairs),
        "bytes_predicted": sum(foretold for foretold, _ in pairs),
        "bytes_scanned": sum(read for _, read in pairs),
        "within_a_quarter": _share(close, len(pairs)),
    }


def _share(part: int, whole: int) -> float:
    return round(part / whole, 6) if whole else 0.0
