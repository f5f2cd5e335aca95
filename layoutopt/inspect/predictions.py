"""What a plan predicted beside what a table's catalog measures of the same figures."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from layoutopt.model.predicates import TRUE
from layoutopt.model.predicted import of_the_plan
from layoutopt.scan.prune import PruneOutcome
from layoutopt.scan.table import Table


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


def compare(table: Table, evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """The figures that plans predict, measured on an evaluated log, and the predictions of the snapshot's plans.

    Shares are of a full scan by the same queries. A plan predicts for its training queries, from samples, by features
    and partition bounds alone: the log may be another one, and statistics skip too.

    Args:
        table: at one snapshot.
        evaluation: of a log on it, by :func:`layoutopt.inspect.evaluate.evaluate`.
    """

    @cache
    def full_bytes(columns: tuple[str, ...]) -> int:
        return sum(plan.size(PruneOutcome.READ).bytes for plan in table.prune(TRUE, columns))

    queries, totals = evaluation["queries"], evaluation["totals"]
    cells = sum(query["rows_total"] * len(query["columns"]) for query in queries)
    bytes_ = sum(full_bytes(tuple(query["columns"])) for query in queries)
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
    return {"measured": measured, "storage": storage, "plans": plans}


def _share(part: int, whole: int) -> float:
    return round(part / whole, 6) if whole else 0.0
