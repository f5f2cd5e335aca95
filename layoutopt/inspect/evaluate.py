"""Replaying queries on the catalog alone: what each would read, and what skips the rest.

Nothing but footers' sizes is read from data files, unless ``actual`` asks for the rows that really match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from layoutopt.catalog.storage.footers import footer_length
from layoutopt.errors import DataFileError
from layoutopt.inspect.indicators import geometric_means, indicators
from layoutopt.inspect.work import costs_for, predicted_seconds, work_of
from layoutopt.model.arrays import Bits
from layoutopt.model.engine_costs import Calibration
from layoutopt.model.predicates import Node
from layoutopt.model.query import Query
from layoutopt.scan.prune import PrunedPlan, PruneOutcome
from layoutopt.scan.sizes import MECHANISMS, layout_json, size_json, size_over, subsumed_by
from layoutopt.scan.table import Table

Progress = Callable[[int, int], None]

SUMMED = (
    "rows_total", "rows_matching", "rows_scanned", "cells_scanned", "tids_scanned", "bytes_scanned", "blocks_total",
    "blocks_scanned", "rows_scanned_by_statistics", "footer_bytes",
)  # fmt: skip


def evaluate(
    table: Table,
    queries: Iterable[Query],
    actual: bool = False,
    progress: Progress | None = None,
    dialect: str = "spark",
    calibration: Calibration | None = None,
) -> dict[str, Any]:
    """What each query would read, as the JSON object of ``layoutopt evaluate --json``.

    Args:
        table: the table at one snapshot.
        queries: the analysed log; a query that reads the table twice is there twice under one id.
        actual: also count the rows that match, and those of the blocks that hold such a row, by reading the table
            once. ``rows_matching`` is None where only Spark could tell, as where a product overflows in DuckDB alone.
        progress: called with (queries done, all queries).
        dialect: the log's, for ``actual``.
        calibration: what engines cost; by default as :func:`layoutopt.inspect.work.costs_for` knows.

    Raises:
        CatalogError: a blocks file is damaged.
        DataFileError: a data file is missing or damaged.
    """
    footers, costs = _Footers(table), costs_for(table, calibration)
    known: dict[tuple[Node, tuple[str, ...], int | None], dict[str, Any]] = {}
    listed = list(queries)
    matching = _Matching(table, listed, dialect) if actual else None
    results = []
    for done, query in enumerate(listed):
        question = matching.question(done) if matching is not None else None
        key = (query.filter.root, query.columns, question)
        if key not in known:
            known[key] = _evaluate_one(table, query, footers, costs, matching, question)
        results.append({"id": query.id, **known[key]})
        if progress is not None:
            progress(done + 1, len(listed))
    return {
        "table": table.name,
        "snapshot": table.catalog.snapshot.number,
        "queries": results,
        "totals": _totals(results),
    }


def _evaluate_one(
    table: Table,
    query: Query,
    footers: _Footers,
    costs: Calibration,
    matching: _Matching | None,
    question: int | None,
) -> dict[str, Any]:
    root = query.filter.root
    pruned = table.prune(root, query.columns)
    scanned = sum(_most_rows(plan, plan.read) for plan in pruned)
    matched, relevant = (None, None) if matching is None or question is None else matching.rows(question, pruned)
    return {
        "columns": list(query.columns),
        "rows_total": table.rows,
        **({} if matching is None else {"rows_matching": matched}),
        "rows_scanned": scanned,
        "cells_scanned": sum(_cells(plan) for plan in pruned),
        "tids_scanned": sum(_tids(plan) for plan in pruned),
        "bytes_scanned": sum(plan.size(PruneOutcome.READ).bytes for plan in pruned),
        "blocks_total": sum(_blocks_on_path(plan) for plan in pruned),
        "blocks_scanned": sum(plan.size(PruneOutcome.READ).blocks for plan in pruned),
        "rows_scanned_by_statistics": sum(_most_rows(plan, plan.needed_without_features) for plan in pruned),
        "footer_bytes": sum(footers.bytes_of(plan) for plan in pruned),
        "predicted_seconds": predicted_seconds(costs, work_of(pruned)),
        "skipped_by": {name: size_json(size_over(pruned, outcome)) for name, outcome in MECHANISMS.items()},
        "layouts": [{**layout_json(plan), "paths": _paths_json(plan)} for plan in pruned],
        "subsumed_by": subsumed_by(table, root),
        "indicators": indicators(table.rows, scanned, matched, relevant),
    }


class _Matching:
    """The rows that the queries of a log really match, found in one pass over the table."""

    def __init__(self, table: Table, queries: Sequence[Query], dialect: str) -> None:
        # Only now: replaying a log on the catalog alone needs no DuckDB.
        from layoutopt.scan.matches import find_matches, questions_of

        questions, of_query = questions_of(table, queries, dialect)
        self._found = find_matches(table, questions)
        unanswered = set[int]().union(*(found.unanswered for found in self._found))
        # Where a filter is weaker than its query, its matches are not the query's.
        self._of_query = [
            None
            if index is None or index in unanswered or (questions[index].condition is None and not query.exact)
            else index
            for query, index in zip(queries, of_query, strict=True)
        ]

    def question(self, place: int) -> int | None:
        """Which question the query at a place of the log asks; None where its matches are not known."""
        return self._of_query[place]

    def rows(self, question: int, pruned: Sequence[PrunedPlan]) -> tuple[int, int]:
        """The matching rows, and the rows of the blocks that hold one, in the layout where these are most."""
        matching = relevant = 0
        for found, plan in zip(self._found, pruned, strict=True):
            matching += int(found.rows[question])
            relevant += _most_rows(plan, found.block[:, question])
        return matching, relevant


def _paths_json(pruned: PrunedPlan) -> dict[str, Any]:
    """What the path costs in cells and tids, and what the greedy one would (Sun 2017, 5.6.3)."""
    path = pruned.path
    return {
        "compared": path.compared,
        "exhaustive": path.exhaustive,
        "cells_and_tids": path.cells_and_tids,
        "greedy": path.greedy,
    }


def greedy_paths(queries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How good the greedy retrieval path is where queries have a choice and all their paths were compared.

    Args:
        queries: of an evaluation.

    Returns:
        ``queries``: how many these are, ``cheapest``: for how many no path is cheaper than the greedy one, and
        ``worst_ratio``: the most by which it costs more than the cheapest; 2 can't be exceeded.
    """
    paths = [[layout["paths"] for layout in query["layouts"]] for query in queries]
    compared = [some for some in paths if any(p["compared"] > 1 for p in some) and all(p["exhaustive"] for p in some)]
    best = [sum(path["cells_and_tids"] for path in some) for some in compared]
    greedy = [sum(path["greedy"] for path in some) for some in compared]
    ratios = [one / other if other else 1.0 for one, other in zip(greedy, best, strict=True)]
    return {
        "queries": len(compared),
        "cheapest": sum(one == other for one, other in zip(greedy, best, strict=True)),
        "worst_ratio": round(max(ratios, default=1.0), 6),
    }


def _most_rows(pruned: PrunedPlan, chosen: Bits) -> int:
    return max(pruned.rows_by_layout(chosen).values(), default=0)


def _cells(pruned: PrunedPlan) -> int:
    """Rows times columns, summed over the layouts read (Sun 2017, Eq. 4.1)."""
    rows = pruned.rows_by_layout(pruned.read)
    return sum(rows[c.layout] * len(c.columns) for c in pruned.choice)


def _tids(pruned: PrunedPlan) -> int:
    """Tids read: those of every row of every layout read, none where one layout is read (Eq. 4.2)."""
    rows = pruned.rows_by_layout(pruned.read)
    return sum(rows.values()) if len(rows) > 1 else 0


def _blocks_on_path(pruned: PrunedPlan) -> int:
    return int((pruned.outcome != PruneOutcome.OTHER_LAYOUT).sum())


class _Footers:
    """The sizes of data files' footers, each looked up once."""

    def __init__(self, table: Table) -> None:
        self._files = table.catalog.data
        self._written = table.catalog.written
        self._known: dict[str, int] = {}

    def bytes_of(self, pruned: PrunedPlan) -> int:
        """Bytes of the footers of all files that are opened."""
        if not self._written or not any(choice.columns for choice in pruned.choice):
            return 0
        blocks = pruned.source.blocks
        return sum(self._size(blocks.files[index]) for index in np.unique(blocks.file[pruned.read]))

    def _size(self, path: str) -> int:
        if path not in self._known:
            self._known[path] = self._read(path)
        return self._known[path]

    def _read(self, path: str) -> int:
        try:
            size = self._files.size(path)
            with self._files.open_input(path) as file:
                file.seek(max(0, size - 8))
                tail = file.read(8)
        except OSError as error:
            raise DataFileError(f"the data file {path!r} can't be read ({error}); load its partition again") from error
        try:
            return footer_length(tail)
        except ValueError as error:
            raise DataFileError(f"the data file {path!r} is cut off or no Parquet; load its partition again") from error


def _totals(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    totals: dict[str, Any] = {"queries": len(results)}
    for name in SUMMED:
        values = [result[name] for result in results if name in result]
        if name != "rows_matching" or values:
            totals[name] = None if None in values else sum(values)
    totals["predicted_seconds"] = {
        engine: round(sum(result["predicted_seconds"][engine] for result in results), 6)
        for engine in (results[0]["predicted_seconds"] if results else ())
    }
    totals["indicators"] = geometric_means([result["indicators"] for result in results])
    totals["greedy_paths"] = greedy_paths(results)
    totals["skipped_by"] = {
        mechanism: {unit: sum(result["skipped_by"][mechanism][unit] for result in results) for unit in _UNITS}
        for mechanism in MECHANISMS
    }
    return totals


_UNITS = ("blocks", "rows", "bytes")
