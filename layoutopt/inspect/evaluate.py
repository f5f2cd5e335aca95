"""Replay queries on the catalog: what each would read, and what skips the rest.

Only the sizes of footers are read from data files, unless ``actual`` asks for the rows that match.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

import numpy as np

from layoutopt.catalog.storage.footers import footer_length
from layoutopt.errors import DataFileError
from layoutopt.inspect.cost import count_work, find_costs, predicted_seconds
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.engine_costs import Calibration, select_own_predictions
from layoutopt.model.predicates import TRUE, Node
from layoutopt.model.query import Query
from layoutopt.scan.explain import Conjunct, explain_conjuncts, unusable_conjunct
from layoutopt.scan.opened_table import MECHANISMS, find_subsumed_features, layout_json, size_json, sum_sizes
from layoutopt.scan.prune import PrunedPlan, PruneOutcome
from layoutopt.scan.table import Table
from layoutopt.sql.scans import find_scans

Progress = Callable[[int, int], None]
Indicators = dict[str, float | None]

# The skipping indicators of extensible data skipping (Ta-Shma 2020, IV-A). With D the table's rows, D_r those that
# match, O_r the blocks that hold one of them, and O_m the blocks that are read:
#
#   selectivity      |D_r| / |D|    what the query asks for
#   layout factor    |D_r| / |O_r|  how well matching rows are clustered; 1 is best
#   metadata factor  |O_r| / |O_m|  how well bits and statistics identify such blocks; 1 is best
#   scanning factor  |O_m| / |D|    what is read: selectivity / (layout factor x metadata factor)
#
# A low layout factor calls for another plan, a low metadata factor for features or statistics that the filters can use.
INDICATORS = ("selectivity", "layout_factor", "metadata_factor", "scanning_factor")
SUMMED = (
    "rows_total", "rows_matching", "rows_scanned", "cells_scanned", "tids_scanned", "bytes_scanned", "blocks_total",
    "blocks_scanned", "rows_scanned_by_statistics", "footer_bytes",
)  # fmt: skip
_UNITS = ("blocks", "rows", "bytes")
# A predicted number of bytes is close if it differs from the actual number by at most this share.
_CLOSE: Final = 0.25
_LONGEST_SQL = 1000


def indicators(total: int, scanned: int, matching: int | None, relevant: int | None) -> Indicators:
    """Return the indicators of one query; None if they are unknown, or undefined because no row matches.

    ``scanned`` and ``relevant`` are the rows of the blocks that are read, and that hold a matching row.

    >>> indicators(100, 40, 5, 10)
    {'selectivity': 0.05, 'layout_factor': 0.5, 'metadata_factor': 0.25, 'scanning_factor': 0.4}
    """
    ratios = ((matching, total), (matching, relevant), (relevant, scanned), (scanned, total))
    values = (None if part is None or not whole else part / whole for part, whole in ratios)
    return dict(zip(INDICATORS, values, strict=True))


def geometric_means(queries: Sequence[Mapping[str, float | None]]) -> Indicators:
    """Return the geometric means over the queries that match a row, so that the product law holds (Eq. 2).

    If matching rows are unknown, only the scanning factor's, over the queries that read a row. ``queries`` is the
    number of queries in the means.
    """
    complete = [query for query in queries if all(query[name] for name in INDICATORS)]
    counted = complete or [query for query in queries if query["scanning_factor"]]
    means: Indicators = {"queries": len(counted)}
    for name in INDICATORS:
        values = [value for query in counted if (value := query[name])]
        known = values and len(values) == len(counted)
        means[name] = math.exp(math.fsum(map(math.log, values)) / len(values)) if known else None
    return means


def evaluate(
    table: Table,
    queries: Iterable[Query],
    actual: bool = False,
    progress: Progress | None = None,
    dialect: str = "spark",
    calibration: Calibration | None = None,
) -> dict[str, Any]:
    """Return what each query would read, as the JSON object of ``layoutopt evaluate --json``.

    Args:
        queries: the analysed log; a query that reads the table twice is there twice under one id.
        actual: also count the matching rows, and those of the blocks that hold one, by reading the table once.
            ``rows_matching`` is None if only Spark can count them.
        progress: called with (queries done, all queries).
        calibration: the costs of engines; by default those of :func:`layoutopt.inspect.cost.find_costs`.

    Raises:
        DataFileError: a data file is missing or damaged.
    """
    footers, costs = _FooterSizes(table), find_costs(table, calibration)
    cache: dict[tuple[Node, tuple[str, ...], int | None], dict[str, Any]] = {}
    listed = list(queries)
    log_matches = _LogMatches(table, listed, dialect) if actual else None
    results = []
    for done, query in enumerate(listed):
        question = log_matches.question_of_query[done] if log_matches is not None else None
        key = (query.filter.root, query.columns, question)
        if key not in cache:
            cache[key] = _evaluate_query(table, query, footers, costs, log_matches, question)
        results.append({"id": query.id, **cache[key]})
        if progress is not None:
            progress(done + 1, len(listed))
    return {
        "table": table.name,
        "snapshot": table.catalog.snapshot.number,
        "queries": results,
        "totals": _sum_results(results),
    }


def _evaluate_query(
    table: Table,
    query: Query,
    footers: _FooterSizes,
    costs: Calibration,
    log_matches: _LogMatches | None,
    question: int | None,
) -> dict[str, Any]:
    root = query.filter.root
    pruned = table.prune(root, query.columns)
    scanned = sum(_most_rows(plan, plan.read) for plan in pruned)
    matching: int | None = None
    relevant: int | None = None
    if log_matches is not None and question is not None:
        matching, relevant = log_matches.count_rows(question, pruned)
    return {
        "columns": list(query.columns),
        "rows_total": table.rows,
        **({} if log_matches is None else {"rows_matching": matching}),
        "rows_scanned": scanned,
        "cells_scanned": sum(_count_cells(plan) for plan in pruned),
        "tids_scanned": sum(_count_tids(plan) for plan in pruned),
        "bytes_scanned": sum(plan.size(PruneOutcome.READ).bytes for plan in pruned),
        "blocks_total": sum(int((plan.outcome != PruneOutcome.OTHER_LAYOUT).sum()) for plan in pruned),
        "blocks_scanned": sum(plan.size(PruneOutcome.READ).blocks for plan in pruned),
        "rows_scanned_by_statistics": sum(_most_rows(plan, plan.needed_without_features) for plan in pruned),
        "footer_bytes": sum(footers.sum_bytes(plan) for plan in pruned),
        "predicted_seconds": predicted_seconds(costs, count_work(pruned)),
        "skipped_by": {name: size_json(sum_sizes(pruned, outcome)) for name, outcome in MECHANISMS.items()},
        "layouts": [{**layout_json(plan), "paths": _paths_json(plan)} for plan in pruned],
        "subsumed_by": find_subsumed_features(table, root),
        "indicators": indicators(table.rows, scanned, matching, relevant),
    }


class _LogMatches:
    """The rows that the queries of a log match, found in one pass; unknown for queries without a question."""

    def __init__(self, table: Table, queries: Sequence[Query], dialect: str) -> None:
        # Imported here because replaying a log on the catalog alone needs no DuckDB.
        from layoutopt.scan.matches import find_matches, find_questions

        questions, index_of_query = find_questions(table, queries, dialect)
        self._matches = find_matches(table, questions)
        unanswered = set[int]().union(*(matches.unanswered for matches in self._matches))
        # If a filter is weaker than its query, its matches are not the query's.
        self.question_of_query = [
            None
            if index is None or index in unanswered or (questions[index].condition is None and not query.exact)
            else index
            for query, index in zip(queries, index_of_query, strict=True)
        ]

    def count_rows(self, question: int, pruned: Sequence[PrunedPlan]) -> tuple[int, int]:
        """Return the matching rows, and the rows of blocks that hold one, in the layout where these are most."""
        matching = relevant = 0
        for matches, plan in zip(self._matches, pruned, strict=True):
            matching += int(matches.rows[question])
            relevant += _most_rows(plan, matches.block[:, question])
        return matching, relevant


def _paths_json(pruned: PrunedPlan) -> dict[str, Any]:
    """Return the cost of the path in cells and tids, and of the greedy one (Sun 2017, 5.6.3)."""
    path = pruned.path
    return {
        "compared": path.compared,
        "exhaustive": path.exhaustive,
        "cells_and_tids": path.cells_and_tids,
        "greedy": path.greedy,
    }


def greedy_paths(queries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return how good the greedy retrieval path is for queries with a choice whose paths were all compared.

    Returns:
        ``queries``: the number of such queries; ``cheapest``: for how many the greedy path is the cheapest;
        ``worst_ratio``: its highest cost relative to the cheapest path, at most 2.
    """
    costs: list[tuple[int, int]] = []  # of the greedy and the cheapest path
    for query in queries:
        paths = [layout["paths"] for layout in query["layouts"]]
        if any(path["compared"] > 1 for path in paths) and all(path["exhaustive"] for path in paths):
            costs.append((sum(path["greedy"] for path in paths), sum(path["cells_and_tids"] for path in paths)))
    ratios = [greedy / cheapest if cheapest else 1.0 for greedy, cheapest in costs]
    return {
        "queries": len(costs),
        "cheapest": sum(greedy == cheapest for greedy, cheapest in costs),
        "worst_ratio": round(max(ratios, default=1.0), 6),
    }


def _most_rows(pruned: PrunedPlan, blocks: Bits) -> int:
    return max(pruned.rows_by_layout(blocks).values(), default=0)


def _count_cells(pruned: PrunedPlan) -> int:
    """Return rows times columns, summed over the layouts read (Sun 2017, Eq. 4.1)."""
    rows = pruned.rows_by_layout(pruned.read)
    return sum(rows[c.layout] * len(c.columns) for c in pruned.choice)


def _count_tids(pruned: PrunedPlan) -> int:
    """Return the tids read: those of every row of every layout, none if one layout is read (Eq. 4.2)."""
    rows = pruned.rows_by_layout(pruned.read)
    return sum(rows.values()) if len(rows) > 1 else 0


class _FooterSizes:
    """The sizes of data files' footers, each read once."""

    def __init__(self, table: Table) -> None:
        self._files = table.catalog.data
        self._written = table.catalog.written
        self._sizes: dict[str, int] = {}

    def sum_bytes(self, pruned: PrunedPlan) -> int:
        """Return the bytes of the footers of all files that are opened."""
        if not self._written or not any(choice.columns for choice in pruned.choice):
            return 0
        blocks = pruned.source.blocks
        paths = [blocks.files[index] for index in np.unique(blocks.file[pruned.read])]
        for path in paths:
            if path not in self._sizes:
                self._sizes[path] = self._read_size(path)
        return sum(self._sizes[path] for path in paths)

    def _read_size(self, path: str) -> int:
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
            raise DataFileError(
                f"the data file {path!r} is truncated or not Parquet; load its partition again"
            ) from error


def _sum_results(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
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


def measure_storage(table: Table) -> dict[str, float]:
    """Return the stored cells, their ratio to the table's cells, and the compressed bytes including tids."""
    cells = sum(
        int(source.blocks.rows[source.blocks.has_column(name)].sum())
        for source in table.sources
        for name in source.plan.schema.names
    )
    table_cells = sum(
        int(source.entries[index].rows) * len(source.plan.schema.names)
        for source in table.sources
        for index in np.unique(source.entry_of)
    )
    stored = sum(int(source.blocks.bytes.sum()) for source in table.sources)
    return {"cells": cells, "storage_cells": _share(cells, table_cells), "bytes": stored}


def compare(table: Table, log: Sequence[Query], evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures that plans predict, measured on an evaluated log, and the predictions of the snapshot's plans.

    Shares are of a full scan by the same queries. A plan predicts for its training queries, from samples, by features
    and partition bounds only; the log may differ, and statistics also skip. For queries that all plans were made for,
    the predicted bytes are compared with those that are read.
    """

    @cache
    def scan_bytes(columns: tuple[str, ...]) -> Ints:
        return np.array([plan.size(PruneOutcome.READ).bytes for plan in table.prune(TRUE, columns)], dtype=np.int64)

    queries, totals = evaluation["queries"], evaluation["totals"]
    cells = sum(query["rows_total"] * len(query["columns"]) for query in queries)
    total_bytes = sum(int(scan_bytes(tuple(query["columns"])).sum()) for query in queries)
    storage = measure_storage(table)
    measured = {
        "rows_scanned_fraction": _share(totals["rows_scanned"], totals["rows_total"]),
        "cells_and_tids_fraction": _share(totals["cells_scanned"] + totals["tids_scanned"], cells),
        "bytes_fraction": _share(totals["bytes_scanned"], total_bytes),
        "storage_cells": storage["storage_cells"],
    }
    plans = [
        {
            "plan": source.plan.digest,
            "method": source.plan.method,
            "predicted": select_own_predictions(source.plan.predicted),
        }
        for source in table.sources
    ]
    shares = [
        {(query.filter.root, query.columns): share for query, share in zip(plan.queries, plan.reads, strict=False)}
        for plan in (source.plan for source in table.sources)
    ]
    predicted = [_predict_bytes(query, shares, scan_bytes(tuple(query.columns))) for query in log]
    foreseen = _compare_bytes(predicted, [query["bytes_scanned"] for query in queries])
    return {
        "measured": measured, "storage": storage, "plans": plans, "bytes_predicted": predicted, "foreseen": foreseen,
    }  # fmt: skip


_Shares = Mapping[tuple[Node, tuple[str, ...]], float]


def _predict_bytes(query: Query, shares: Sequence[_Shares], full: Ints) -> int | None:
    """Return the bytes that a query was predicted to read; None if some plan was not made for it."""
    plan_shares = [by_query.get((query.filter.root, query.columns)) for by_query in shares]
    known = [share for share in plan_shares if share is not None]
    return round(float(np.dot(known, full))) if len(known) == len(plan_shares) else None


def _compare_bytes(predicted: Sequence[int | None], measured: Sequence[int]) -> dict[str, Any]:
    pairs = [(expected, actual) for expected, actual in zip(predicted, measured, strict=True) if expected is not None]
    close = sum(abs(expected - actual) <= _CLOSE * actual for expected, actual in pairs)
    return {
        "queries": len(pairs),
        "bytes_predicted": sum(expected for expected, _ in pairs),
        "bytes_scanned": sum(actual for _, actual in pairs),
        "within_a_quarter": _share(close, len(pairs)),
    }


def _share(part: int, whole: int) -> float:
    return round(part / whole, 6) if whole else 0.0


def worst_queries(
    table: Table, queries: Sequence[Query], results: Sequence[Mapping[str, Any]], dialect: str = "spark", most: int = 10
) -> list[dict[str, Any]]:
    """Return the distinct queries (filter and columns) of a log that waste the most rows in all their runs.

    Wasted rows are read but don't match. If a query's matching rows are unknown, its ``rows_wasted`` is None, and it is
    ranked by all rows that it reads. ``results`` are those of :func:`evaluate`.
    """
    first: dict[tuple[object, ...], tuple[Query, Mapping[str, Any]]] = {}
    runs: dict[tuple[object, ...], float] = {}
    for query, result in zip(queries, results, strict=True):
        key = (query.filter.root, query.columns, result.get("rows_matching"))
        first.setdefault(key, (query, result))
        runs[key] = runs.get(key, 0.0) + query.weight
    wasted = {key: result["rows_scanned"] - (result.get("rows_matching") or 0) for key, (_, result) in first.items()}
    ranked = sorted(first, key=lambda key: (-wasted[key] * runs[key], first[key][0].id))
    return [_explain_waste(table, *first[key], runs[key], dialect) for key in ranked[:most] if wasted[key]]


def _explain_waste(table: Table, query: Query, result: Mapping[str, Any], runs: float, dialect: str) -> dict[str, Any]:
    read, matching = result["rows_scanned"], result.get("rows_matching")
    conjuncts = [*explain_conjuncts(table, query.filter.root), *_unusable_conjuncts(table, query, dialect)]
    figures = ("rows_scanned", "rows_matching", "rows_total", "bytes_scanned", "indicators")
    return {
        "id": query.id,
        "runs": runs,
        "sql": query.sql[:_LONGEST_SQL],
        "rows_wasted": None if matching is None else read - matching,
        **{name: result[name] for name in figures if name in result},
        "conjuncts": [
            {
                "text": conjunct.text,
                "reason": conjunct.reason.value,
                "detail": conjunct.detail or conjunct.reason.sentence,
                "blocks_skipped_alone": dict(conjunct.alone),
            }
            for conjunct in conjuncts
        ],
    }


def _unusable_conjuncts(table: Table, query: Query, dialect: str) -> list[Conjunct]:
    """Return the conditions that the query's filter leaves out, which an analysed log does not name."""
    if query.exact:
        return []
    schemas = {query.table: table.schema}
    scans = find_scans(query.sql, schemas, dialect, settings=table.settings, udfs=table.udfs, any_qualifier=True)
    problems = [problem for scan in scans if scan.filter.root == query.filter.root for problem in scan.unusable]
    return [unusable_conjunct(problem) for problem in dict.fromkeys(problems)]
