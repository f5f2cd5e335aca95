"""Replaying queries on the catalog alone: what each would read, and what skips the rest.

Nothing but footers' sizes is read from data files, unless ``actual`` asks for the rows that really match.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

import numpy as np

from layoutopt.catalog.storage.footers import footer_length
from layoutopt.errors import DataFileError
from layoutopt.inspect.cost import costs_for, predicted_seconds, work_of
from layoutopt.model.arrays import Bits, Ints
from layoutopt.model.engine_costs import Calibration, of_the_plan
from layoutopt.model.layout import Plan
from layoutopt.model.predicates import TRUE, Node
from layoutopt.model.query import Query
from layoutopt.scan.explain import Conjunct, explain_conjuncts, unusable_conjunct
from layoutopt.scan.opened_table import MECHANISMS, layout_json, size_json, size_over, subsumed_by
from layoutopt.scan.prune import PrunedPlan, PruneOutcome
from layoutopt.scan.table import Table
from layoutopt.sql.scans import scans_of

# ----------------------------------------------------------------------------------------------------
# The skipping indicators of extensible data skipping (Ta-Shma 2020, IV-A): where the rows that are read come from.
#
# With D the table's rows, D_r those that match, O_r the blocks that hold one of them and O_m the blocks that are read::
#
# selectivity      |D_r| / |D|        what the query asks for
# layout factor    |D_r| / |O_r|      how well matching rows stand together: 1 is best
# metadata factor  |O_r| / |O_m|      how well bits and statistics tell such blocks from others: 1 is best
# scanning factor  |O_m| / |D|        what is read, = selectivity / (layout factor x metadata factor)
#
# A low layout factor asks for another plan, a low metadata factor for features or statistics that the filters can use.

Indicators = dict[str, float | None]

NAMES = ("selectivity", "layout_factor", "metadata_factor", "scanning_factor")


def indicators(total: int, scanned: int, matching: int | None, relevant: int | None) -> Indicators:
    """The indicators of one query; None where they are not known, or not defined since no row matches.

    Args:
        total: the table's rows.
        scanned: rows of the blocks that are read.
        matching: rows that match, if known.
        relevant: rows of the blocks that hold one of these, if known.

    >>> indicators(100, 40, 5, 10)
    {'selectivity': 0.05, 'layout_factor': 0.5, 'metadata_factor': 0.25, 'scanning_factor': 0.4}
    """
    return {
        "selectivity": _ratio(matching, total),
        "layout_factor": _ratio(matching, relevant),
        "metadata_factor": _ratio(relevant, scanned),
        "scanning_factor": _ratio(scanned, total),
    }


def _ratio(part: int | None, whole: int | None) -> float | None:
    return None if part is None or not whole else part / whole


def geometric_means(each: Sequence[Mapping[str, float | None]]) -> Indicators:
    """The geometric means over the queries that match a row, in which the product law holds too (Eq. 2).

    Where matching rows are not known, the scanning factor's alone, over the queries that read a row. ``queries`` is how
    many are in the means.
    """
    known = [one for one in each if all(one[name] for name in NAMES)]
    counted = known or [one for one in each if one["scanning_factor"]]
    means: Indicators = {"queries": len(counted)}
    for name in NAMES:
        values = [one[name] for one in counted]
        means[name] = _geometric([value for value in values if value]) if all(values) else None
    return means


def _geometric(values: Sequence[float]) -> float | None:
    return math.exp(math.fsum(map(math.log, values)) / len(values)) if values else None


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
        calibration: what engines cost; by default as :func:`layoutopt.inspect.cost.costs_for` knows.

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


# ----------------------------------------------------------------------------------------------------
# What a plan predicted beside what a table's catalog measures of the same figures.

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


# ----------------------------------------------------------------------------------------------------
# The queries of a log that read the most for nothing, each with the reasons why its filter skips no more.

_LONGEST_SQL = 1000


def worst_queries(
    table: Table,
    queries: Sequence[Query],
    results: Sequence[Mapping[str, Any]],
    dialect: str = "spark",
    most: int = 10,
) -> list[dict[str, Any]]:
    """The questions of a log (equal filters and columns) that waste the most rows over all their runs, the worst first.

    Wasted are the rows that are read and don't match. Where the matching rows of a question are not known, its
    ``rows_wasted`` is None, and it ranks by all rows that it reads.

    Args:
        table: the table at one snapshot.
        queries: the analysed log.
        results: the queries' results of :func:`layoutopt.inspect.evaluate.evaluate`.
        dialect: the log's.
        most: how many to name.
    """
    found: dict[tuple[object, ...], dict[str, Any]] = {}
    for query, result in zip(queries, results, strict=True):
        key = (query.filter.root, query.columns, result.get("rows_matching"))
        one = found.setdefault(
            key, {"id": query.id, "sql": query.sql[:_LONGEST_SQL], "runs": 0.0, "query": query, "result": result}
        )
        one["runs"] += query.weight
    at_most = {
        key: one["result"]["rows_scanned"] - (one["result"].get("rows_matching") or 0) for key, one in found.items()
    }
    ranked = sorted(found, key=lambda key: (-at_most[key] * found[key]["runs"], found[key]["id"]))
    return [_with_reasons(table, found[key], dialect) for key in ranked[:most] if at_most[key]]


def _with_reasons(table: Table, one: Mapping[str, Any], dialect: str) -> dict[str, Any]:
    query: Query = one["query"]
    read, matching = one["result"]["rows_scanned"], one["result"].get("rows_matching")
    conjuncts = [*explain_conjuncts(table, query.filter.root)]
    conjuncts += _unusable(table, query, dialect)
    kept = ("rows_scanned", "rows_matching", "rows_total", "bytes_scanned", "indicators")
    return {
        "id": one["id"],
        "runs": one["runs"],
        "sql": one["sql"],
        "rows_wasted": None if matching is None else read - matching,
        **{name: one["result"][name] for name in kept if name in one["result"]},
        "conjuncts": [_brief(conjunct) for conjunct in conjuncts],
    }


def _unusable(table: Table, query: Query, dialect: str) -> list[Conjunct]:
    """The conditions that the query's filter leaves out; the log's analysis keeps no more than that there are some."""
    if query.exact:
        return []
    schemas = {query.table: table.schema}
    scans = scans_of(query.sql, schemas, dialect, settings=table.settings, udfs=table.udfs, any_qualifier=True)
    problems = [problem for scan in scans if scan.filter.root == query.filter.root for problem in scan.unusable]
    return [unusable_conjunct(problem) for problem in dict.fromkeys(problems)]


def _brief(conjunct: Conjunct) -> dict[str, Any]:
    return {
        "text": conjunct.text,
        "reason": conjunct.reason.value,
        "detail": conjunct.detail or conjunct.reason.sentence,
        "blocks_skipped_alone": dict(conjunct.alone),
    }
