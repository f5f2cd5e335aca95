"""Replay queries on the catalog: what each would read, and what skips the rest.

Only the sizes of footers are read from data files, unless ``actual`` asks for the rows that match.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from operator import itemgetter
from typing import Any, Final

import numpy as np

from layoutopt.catalog.storage.footers import footer_length
from layoutopt.errors import DataFileError
from layoutopt.model.arrays import Bits, Ints, number_equal
from layoutopt.model.predicates import TRUE, Node
from layoutopt.model.predictions import Predictions
from layoutopt.model.query import Query
from layoutopt.model.summary import Report, Summarised
from layoutopt.scan.explain import Conjunct, explain_conjuncts, unusable_conjunct
from layoutopt.scan.files import translate_read_errors
from layoutopt.scan.opened_table import (
    MECHANISMS,
    find_subsumed_features,
    size_json,
)
from layoutopt.scan.prune import LayoutChoice, PrunedPlan, PrunedQueries, ScanSize
from layoutopt.scan.table import Table
from layoutopt.sql.scans import find_scans

Progress = Callable[[int, int], None]

# A predicted number of bytes is close if it differs from the actual number by at most this share.
_CLOSE: Final = 0.25
_LONGEST_SQL: Final = 1000


@dataclass(frozen=True)
class Indicators:
    """The skipping indicators of extensible data skipping (Ta-Shma 2020, IV-A).

    They are None if they are unknown, or undefined because no row matches. A low layout factor calls for another plan,
    a low metadata factor for features or statistics that the filters can use.

    Attributes:
        selectivity: matching rows of all rows: what the query asks for.
        layout_factor: matching rows of the rows of blocks with a match: how well they are clustered; 1 is best.
        metadata_factor: rows of blocks with a match of the rows read: how well such blocks are identified; 1 is best.
        scanning_factor: the rows read of all rows: selectivity / (layout factor x metadata factor).
    """

    selectivity: float | None
    layout_factor: float | None
    metadata_factor: float | None
    scanning_factor: float | None

    @classmethod
    def from_rows(cls, total: int, scanned: int, matching: int | None, relevant: int | None) -> Indicators:
        """Return the indicators of one query.

        ``scanned`` and ``relevant`` are the rows of the blocks that are read, and that hold a matching row.

        >>> Indicators.from_rows(100, 40, 5, 10)
        Indicators(selectivity=0.05, layout_factor=0.5, metadata_factor=0.25, scanning_factor=0.4)
        """
        ratios = ((matching, total), (matching, relevant), (relevant, scanned), (scanned, total))
        return cls(*(None if part is None or not whole else part / whole for part, whole in ratios))


INDICATORS: Final = tuple(field.name for field in fields(Indicators))


@dataclass(frozen=True)
class IndicatorMeans:
    """The geometric means of indicators, and the number of queries in the means."""

    queries: int
    means: Indicators

    def to_json(self) -> dict[str, Any]:
        """Return the means as a JSON object."""
        return {"queries": self.queries, **asdict(self.means)}


def geometric_means(queries: Sequence[Indicators]) -> IndicatorMeans:
    """Return the geometric means over the queries that match a row, so that the product law holds (Eq. 2).

    If matching rows are unknown, return only the scanning factor's, over the queries that read a row.
    """
    complete = [query for query in queries if all(getattr(query, name) for name in INDICATORS)]
    counted = complete or [query for query in queries if query.scanning_factor]

    def mean(name: str) -> float | None:
        values = [value for query in counted if (value := getattr(query, name))]
        known = values and len(values) == len(counted)
        return math.exp(math.fsum(map(math.log, values)) / len(values)) if known else None

    return IndicatorMeans(len(counted), Indicators(*map(mean, INDICATORS)))


@dataclass(frozen=True, kw_only=True)
class ReadCounts:
    """What queries read of a table, and what skips the rest.

    Attributes:
        counted: whether matching rows were counted.
        rows_matching: None if they were not counted, or if only Spark can count them.
        rows_scanned: of the layout where they are most; cells and tids are summed over layouts (Sun 2017, Eq. 4.1).
        rows_scanned_by_statistics: the rows that would be read without features.
        skipped_by: the skipped blocks, rows and bytes, by mechanism.
    """

    rows_total: int
    rows_matching: int | None = None
    rows_scanned: int
    cells_scanned: int
    tids_scanned: int
    bytes_scanned: int
    blocks_total: int
    blocks_scanned: int
    rows_scanned_by_statistics: int
    footer_bytes: int
    skipped_by: Mapping[str, ScanSize]
    counted: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the counts as a JSON object; it has ``rows_matching`` only if these were counted."""
        names = _COUNTED if self.counted else _UNCOUNTED
        skipped = {mechanism: size_json(size) for mechanism, size in self.skipped_by.items()}
        return {**{name: getattr(self, name) for name in names}, "skipped_by": skipped}


# The members of counts in JSON, with and without matching rows.
_COUNTED: Final = tuple(field.name for field in fields(ReadCounts) if field.name != "counted")
_UNCOUNTED: Final = tuple(name for name in _COUNTED if name != "rows_matching")

_SUMMED: Final = tuple(
    field.name for field in fields(ReadCounts) if field.name not in ("rows_matching", "skipped_by", "counted")
)


@dataclass(frozen=True)
class PathCosts:
    """The cost of a retrieval path in cells and tids, and of the greedy one (Sun 2017, 5.6.3).

    ``compared`` paths were compared; ``exhaustive`` says whether these were all.
    """

    compared: int
    exhaustive: bool
    cells_and_tids: int
    greedy: int


@dataclass(frozen=True)
class PlanReads:
    """What a query reads of one plan's partitions: by the layout's number the columns, and the path's costs."""

    plan: str
    columns: Mapping[str, Sequence[str]]
    paths: PathCosts


@dataclass(frozen=True)
class GreedyPaths:
    """How good the greedy retrieval path is for queries with a choice whose paths were all compared.

    Attributes:
        queries: the number of such queries.
        cheapest: for how many the greedy path is the cheapest.
        worst_ratio: its highest cost relative to the cheapest path, at most 2.
    """

    queries: int
    cheapest: int
    worst_ratio: float


@dataclass(frozen=True, kw_only=True)
class QueryEvaluation(ReadCounts):
    """What one query of a log reads; ``filtered`` are the columns that it filters by."""

    id: int
    columns: tuple[str, ...]
    filtered: tuple[str, ...]
    layouts: tuple[PlanReads, ...]
    subsumed_by: tuple[str, ...]
    indicators: Indicators

    @property
    def is_full_scan(self) -> bool:
        """Whether columns are read and no block is skipped."""
        return bool(self.columns) and 0 < self.blocks_total == self.blocks_scanned

    def to_json(self) -> dict[str, Any]:
        """Return the evaluation as a JSON object."""
        return {
            "id": self.id,
            "columns": list(self.columns),
            "filtered": list(self.filtered),
            "full_scan": self.is_full_scan,
            **super().to_json(),
            "layouts": [{**vars(layout), "paths": {**vars(layout.paths)}} for layout in self.layouts],
            "subsumed_by": list(self.subsumed_by),
            "indicators": {**vars(self.indicators)},
        }


@dataclass(frozen=True, kw_only=True)
class EvaluationTotals(ReadCounts):
    """What all queries of a log read together; ``rows_matching`` is None if it is for one of them."""

    queries: int
    indicators: IndicatorMeans
    greedy_paths: GreedyPaths

    def to_json(self) -> dict[str, Any]:
        """Return the totals as a JSON object."""
        counts = super().to_json()
        skipped = counts.pop("skipped_by")
        return {
            "queries": self.queries,
            **counts,
            "indicators": self.indicators.to_json(),
            "greedy_paths": asdict(self.greedy_paths),
            "skipped_by": skipped,
        }


@dataclass(frozen=True, repr=False)
class Evaluation(Summarised):
    """What a log's queries read of a snapshot; a query that reads the table twice is there twice under one id."""

    table: str
    snapshot: int
    queries: tuple[QueryEvaluation, ...]
    totals: EvaluationTotals

    def summarise(self) -> dict[str, object]:
        """Return the summary of a notebook."""
        totals = self.totals
        blocks = {"blocks_scanned": totals.blocks_scanned, "blocks_total": totals.blocks_total}
        return {"table": self.table, "queries": totals.queries, **blocks, "bytes_scanned": totals.bytes_scanned}

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of ``layoutopt evaluate --json``."""
        return {
            "table": self.table,
            "snapshot": self.snapshot,
            "queries": [query.to_json() for query in self.queries],
            "totals": self.totals.to_json(),
        }


def evaluate(
    table: Table,
    queries: Iterable[Query],
    actual: bool = False,
    progress: Progress | None = None,
    dialect: str = "spark",
) -> Evaluation:
    """Return what each query would read.

    Args:
        queries: the analysed log.
        actual: also count the matching rows, and those of the blocks that hold one, by reading the table once.
        progress: called with (queries done, all queries).

    Raises:
        DataFileError: a data file is missing or damaged.
    """
    listed = list(queries)
    log_matches = _LogMatches(table, listed, dialect) if actual else None
    conditions = log_matches.condition_of_query if log_matches is not None else [None] * len(listed)
    keys = [(query.filter.root, query.columns, condition) for query, condition in zip(listed, conditions, strict=True)]
    first_ids: dict[_Key, int] = {}
    for query, key in zip(listed, keys, strict=True):
        first_ids.setdefault(key, query.id)
    found = _evaluate_distinct(table, first_ids, log_matches)
    by_key: dict[_Key, QueryEvaluation] = {}
    results = []
    for done, (query, key) in enumerate(zip(listed, keys, strict=True)):
        while key not in by_key:
            by_key |= next(found)
        first = by_key[key]
        results.append(first if first.id == query.id else replace(first, id=query.id))
        if progress is not None:
            progress(done + 1, len(listed))
    return Evaluation(table.name, table.catalog.snapshot.number, tuple(results), _sum_results(results))


# What an evaluation depends on: the filter, the columns, and the number of the condition whose matches are counted.
_Key = tuple[Node, tuple[str, ...], int | None]


def _evaluate_distinct(
    table: Table, ids: Mapping[_Key, int], log_matches: _LogMatches | None
) -> Iterator[dict[_Key, QueryEvaluation]]:
    """Yield the evaluations of different queries with these ids, some at a time."""
    footers = _FooterSizes(table)
    filters = number_equal(root for root, _, _ in ids)
    keys = [key for _, key in sorted(zip(filters.tolist(), ids, strict=True), key=itemgetter(0))]
    columns_of: dict[tuple[LayoutChoice, ...], dict[str, list[str]]] = {}  # many paths share few choices
    for places, plans in table.prune_all([(root, columns) for root, columns, _ in keys]):
        batch = keys[places]
        counts, skipped = _measure_plans(plans, footers, len(batch))
        found: dict[_Key, QueryEvaluation] = {}
        for number, (root, columns, condition) in enumerate(batch):
            matching = relevant = None
            if log_matches is not None and condition is not None:
                matching, relevant = log_matches.count_rows(condition, [plan[number] for plan in plans])
            layouts = []
            for plan in plans:
                path = plan.paths[number]
                if path.choice not in columns_of:
                    columns_of[path.choice] = {str(choice.layout): list(choice.columns) for choice in path.choice}
                paths = PathCosts(path.compared, path.exhaustive, path.cells_and_tids, path.greedy)
                layouts.append(PlanReads(plan.source.plan.digest, columns_of[path.choice], paths))
            named = dict(zip(_COUNTS, counts[number], strict=True))
            key = root, columns, condition
            found[key] = QueryEvaluation(
                id=ids[key],
                columns=columns,
                filtered=tuple(sorted(root.columns)),
                counted=log_matches is not None,
                rows_total=table.rows,
                rows_matching=matching,
                skipped_by=dict(zip(MECHANISMS, skipped[number], strict=True)),
                layouts=tuple(layouts),
                subsumed_by=tuple(find_subsumed_features(table, root)),
                indicators=Indicators.from_rows(table.rows, named["rows_scanned"], matching, relevant),
                **named,
            )
        yield found


# The counts of blocks that are summed over plans.
_COUNTS: Final = (
    "rows_scanned", "cells_scanned", "tids_scanned", "bytes_scanned", "blocks_total", "blocks_scanned",
    "rows_scanned_by_statistics", "footer_bytes",
)  # fmt: skip


def _measure_plans(
    plans: Sequence[PrunedQueries], footers: _FooterSizes, queries: int
) -> tuple[list[list[int]], list[list[ScanSize]]]:
    """Return by query the :data:`_COUNTS`, and what each of :data:`MECHANISMS` skips, over all plans."""
    counts = np.zeros((queries, len(_COUNTS)), dtype=np.int64)
    skipped = np.zeros((len(MECHANISMS), queries, 3), dtype=np.int64)
    for plan in plans:
        of_plan = _count_reads(plan, footers)
        counts += np.stack([of_plan[name] for name in _COUNTS], axis=1)
        before = plan.path_sizes.over_layouts()
        for place, mechanism in enumerate(MECHANISMS.values()):
            after = plan.remaining_sizes(mechanism).over_layouts()
            skipped[place] += before - after
            before = after
    sizes = [[ScanSize(*size) if size[0] else _NOTHING for size in one] for one in skipped.swapaxes(0, 1).tolist()]
    return counts.tolist(), sizes


_NOTHING: Final = ScanSize()


def _count_reads(pruned: PrunedQueries, footers: _FooterSizes) -> dict[str, Ints]:
    """Return the :data:`_COUNTS` of queries on one plan's blocks, int64[queries] each."""
    read = pruned.read_sizes
    return {
        "rows_scanned": read.rows.max(axis=1),
        "cells_scanned": (read.rows * pruned.n_columns).sum(axis=1),  # Sun 2017, Eq. 4.1
        # Those of every row of every layout, none if one layout is read (Eq. 4.2).
        "tids_scanned": read.rows.sum(axis=1) * pruned.joined,
        "bytes_scanned": read.bytes,
        "blocks_total": pruned.path_sizes.blocks.sum(axis=1),
        "blocks_scanned": read.blocks.sum(axis=1),
        "rows_scanned_by_statistics": pruned.rows_without_features,
        "footer_bytes": footers.sum_bytes(pruned),
    }


class _LogMatches:
    """The rows that the queries of a log match, found in one pass; unknown for queries without a condition."""

    def __init__(self, table: Table, queries: Sequence[Query], dialect: str) -> None:
        # Imported here because replaying a log on the catalog alone needs no DuckDB.
        from layoutopt.scan.matches import find_log_conditions, find_matches

        conditions, index_of_query = find_log_conditions(table, queries, dialect)
        self._matches = find_matches(table, conditions)
        unanswered = set[int]().union(*(matches.unanswered for matches in self._matches))
        # If a filter is weaker than its query, its matches are not the query's.
        self.condition_of_query = [
            None
            if index is None or index in unanswered or (conditions[index].text is None and not query.exact)
            else index
            for query, index in zip(queries, index_of_query, strict=True)
        ]

    def count_rows(self, condition: int, pruned: Sequence[PrunedPlan]) -> tuple[int, int]:
        """Return the matching rows, and the rows of blocks that hold one, in the layout where these are most."""
        matching = relevant = 0
        for matches, plan in zip(self._matches, pruned, strict=True):
            matching += int(matches.rows[condition])
            relevant += max(plan.rows_by_layout(matches.block[:, condition]).values(), default=0)
        return matching, relevant


def greedy_paths(queries: Sequence[Sequence[PathCosts]]) -> GreedyPaths:
    """Return how good the greedy path is, from the costs of each query's paths."""
    compared = [
        paths
        for paths in queries
        if any(path.compared > 1 for path in paths) and all(path.exhaustive for path in paths)
    ]
    costs = [(sum(path.greedy for path in paths), sum(path.cells_and_tids for path in paths)) for paths in compared]
    ratios = [greedy / cheapest if cheapest else 1.0 for greedy, cheapest in costs]
    cheapest_paths = sum(greedy == cheapest for greedy, cheapest in costs)
    return GreedyPaths(len(costs), cheapest_paths, round(max(ratios, default=1.0), 6))


class _FooterSizes:
    """The sizes of data files' footers, each read once."""

    def __init__(self, table: Table) -> None:
        self._files = table.catalog.data
        self._written = table.catalog.written
        self._sizes: dict[str, int] = {}

    def sum_bytes(self, pruned: PrunedQueries) -> Ints:
        """Return the bytes of the footers of all files that each query opens, int64[queries]."""
        if not self._written:
            return np.zeros(len(pruned), dtype=np.int64)
        opened: Bits = pruned.opened & (pruned.n_columns.sum(axis=1) > 0)[:, None]
        sizes = np.zeros(opened.shape[1], dtype=np.int64)
        for file in np.flatnonzero(opened.any(axis=0)).tolist():
            path = pruned.source.blocks.files[file]
            if path not in self._sizes:
                self._sizes[path] = self._read_size(path)
            sizes[file] = self._sizes[path]
        return np.asarray(opened @ sizes, dtype=np.int64)

    def _read_size(self, path: str) -> int:
        with translate_read_errors(path):
            size = self._files.size(path)
            with self._files.open_input(path) as file:
                file.seek(max(0, size - 8))
                tail = file.read(8)
        try:
            return footer_length(tail)
        except ValueError as error:
            raise DataFileError(
                f"the data file {path!r} is truncated or not Parquet; load its partition again"
            ) from error


def _sum_results(results: Sequence[QueryEvaluation]) -> EvaluationTotals:
    matching = [result.rows_matching for result in results if result.rows_matching is not None]
    return EvaluationTotals(
        queries=len(results),
        **{name: sum(getattr(result, name) for result in results) for name in _SUMMED},
        counted=any(result.counted for result in results),
        rows_matching=sum(matching) if results and len(matching) == len(results) else None,
        indicators=geometric_means([result.indicators for result in results]),
        greedy_paths=greedy_paths([[layout.paths for layout in result.layouts] for result in results]),
        skipped_by={name: sum((result.skipped_by[name] for result in results), ScanSize()) for name in MECHANISMS},
    )


@dataclass(frozen=True)
class StoredSize:
    """The stored cells, their ratio to the table's cells, and the compressed bytes including tids."""

    cells: int
    storage_cells: float
    bytes: int


def measure_storage(table: Table) -> StoredSize:
    """Return what a table stores."""
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
    return StoredSize(cells, _share(cells, table_cells), stored)


@dataclass(frozen=True)
class PlanPredictions:
    """What a plan predicted for its training queries, by the names of :attr:`Comparison.measured`."""

    plan: str
    method: str
    predicted: Mapping[str, float]


@dataclass(frozen=True)
class ForeseenReads:
    """For the queries that all plans were made for: the predicted bytes, and those read.

    ``within_a_quarter`` is the share of these queries whose prediction is close.
    """

    queries: int
    bytes_predicted: int
    bytes_scanned: int
    within_a_quarter: float


@dataclass(frozen=True)
class PredictionComparison(Report):
    """What plans predicted, and what an evaluated log measured.

    Attributes:
        measured: shares of a full scan by the same queries, and the ratio of stored cells.
        plans: the predictions of each plan of the snapshot.
        bytes_predicted: for each query; None if some plan was not made for it.
    """

    measured: Mapping[str, float]
    storage: StoredSize
    plans: tuple[PlanPredictions, ...]
    bytes_predicted: tuple[int | None, ...]
    foreseen: ForeseenReads


def compare(table: Table, log: Sequence[Query], evaluation: Evaluation) -> PredictionComparison:
    """Return the figures that plans predict, measured on an evaluated log, and the predictions of the snapshot's plans.

    A plan predicts for its training queries, from samples, by features and partition bounds only; the log may differ,
    and statistics also skip.
    """

    @cache
    def scan_bytes(columns: tuple[str, ...]) -> Ints:
        return np.array([plan.size(plan.read).bytes for plan in table.prune(TRUE, columns)], dtype=np.int64)

    queries, totals = evaluation.queries, evaluation.totals
    cells = sum(query.rows_total * len(query.columns) for query in queries)
    total_bytes = sum(int(scan_bytes(query.columns).sum()) for query in queries)
    storage = measure_storage(table)
    measured = {
        "rows_scanned_fraction": _share(totals.rows_scanned, totals.rows_total),
        "cells_and_tids_fraction": _share(totals.cells_scanned + totals.tids_scanned, cells),
        "bytes_fraction": _share(totals.bytes_scanned, total_bytes),
        "storage_cells": storage.storage_cells,
    }
    plans = [source.plan for source in table.sources]
    shares = [
        {(query.filter.root, query.columns): share for query, share in zip(plan.queries, plan.reads, strict=False)}
        for plan in plans
    ]
    predicted = tuple(_predict_bytes(query, shares, scan_bytes(tuple(query.columns))) for query in log)
    return PredictionComparison(
        measured,
        storage,
        tuple(PlanPredictions(plan.digest, plan.method, Predictions.parse(plan.predicted).own) for plan in plans),
        predicted,
        _compare_bytes(predicted, [query.bytes_scanned for query in queries]),
    )


_Shares = Mapping[tuple[Node, tuple[str, ...]], float]


def _predict_bytes(query: Query, shares: Sequence[_Shares], full: Ints) -> int | None:
    """Return the bytes that a query was predicted to read; None if some plan was not made for it."""
    plan_shares = [by_query.get((query.filter.root, query.columns)) for by_query in shares]
    known = [share for share in plan_shares if share is not None]
    return round(float(np.dot(known, full))) if len(known) == len(plan_shares) else None


def _compare_bytes(predicted: Sequence[int | None], measured: Sequence[int]) -> ForeseenReads:
    pairs = [(expected, actual) for expected, actual in zip(predicted, measured, strict=True) if expected is not None]
    close = sum(abs(expected - actual) <= _CLOSE * actual for expected, actual in pairs)
    expected_bytes, actual_bytes = (sum(side) for side in zip(*pairs, strict=True)) if pairs else (0, 0)
    return ForeseenReads(len(pairs), expected_bytes, actual_bytes, _share(close, len(pairs)))


def _share(part: int, whole: int) -> float:
    return round(part / whole, 6) if whole else 0.0


@dataclass(frozen=True)
class WorstQuery:
    """A distinct query (filter and columns) that wastes many rows in all its runs.

    Attributes:
        runs: how often the log runs it.
        sql: the start of its text.
        evaluation: what it reads in one run.
        conjuncts: what each part of its filter skips, and if nothing, why.
    """

    runs: float
    sql: str
    evaluation: QueryEvaluation
    conjuncts: tuple[Conjunct, ...]

    @property
    def rows_wasted(self) -> int | None:
        """The rows that are read but don't match; None if the matching rows are unknown."""
        matching = self.evaluation.rows_matching
        return None if matching is None else self.evaluation.rows_scanned - matching

    def to_json(self) -> dict[str, Any]:
        """Return the query as a JSON object."""
        evaluation = self.evaluation.to_json()
        shown = ("rows_scanned", "rows_matching", "rows_total", "bytes_scanned", "indicators")
        return {
            "id": self.evaluation.id,
            "runs": self.runs,
            "sql": self.sql,
            "rows_wasted": self.rows_wasted,
            **{name: evaluation[name] for name in shown if name in evaluation},
            "conjuncts": [
                {
                    "text": conjunct.text,
                    "reason": conjunct.reason.value,
                    "detail": conjunct.detail or conjunct.reason.sentence,
                    "blocks_skipped_alone": dict(conjunct.alone),
                }
                for conjunct in self.conjuncts
            ],
        }


def worst_queries(
    table: Table, queries: Sequence[Query], results: Sequence[QueryEvaluation], dialect: str = "spark", most: int = 10
) -> list[WorstQuery]:
    """Return the queries of a log that waste the most rows in all their runs.

    If a query's matching rows are unknown, it is ranked by all rows that it reads. ``results`` are those of
    :func:`evaluate`.
    """
    first: dict[tuple[object, ...], tuple[Query, QueryEvaluation]] = {}
    runs: dict[tuple[object, ...], float] = {}
    for query, result in zip(queries, results, strict=True):
        key = (query.filter.root, query.columns, result.rows_matching)
        first.setdefault(key, (query, result))
        runs[key] = runs.get(key, 0.0) + query.weight
    wasted = {key: result.rows_scanned - (result.rows_matching or 0) for key, (_, result) in first.items()}
    ranked = sorted(first, key=lambda key: (-wasted[key] * runs[key], first[key][0].id))
    return [
        WorstQuery(
            runs[key],
            query.sql[:_LONGEST_SQL],
            result,
            (*explain_conjuncts(table, query.filter.root), *_unusable_conjuncts(table, query, dialect)),
        )
        for key in ranked[:most]
        if wasted[key]
        for query, result in (first[key],)
    ]


def _unusable_conjuncts(table: Table, query: Query, dialect: str) -> list[Conjunct]:
    """Return the conditions that the query's filter leaves out, which an analysed log does not name."""
    if query.exact:
        return []
    schemas = {query.table: table.schema}
    scans = find_scans(query.sql, schemas, dialect, settings=table.settings, udfs=table.udfs, any_qualifier=True)
    problems = [problem for scan in scans if scan.filter.root == query.filter.root for problem in scan.unusable]
    return [unusable_conjunct(problem) for problem in dict.fromkeys(problems)]
