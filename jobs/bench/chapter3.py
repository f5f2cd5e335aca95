"""Chapter 3, SOP: filters of the log, rows scanned, block sizes, numbers of features, loading, lower bounds."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Final, TypeVar

from jobs.bench.cold_times import FULL_SCAN, KINDS, time_settings, times_step, total_times
from jobs.bench.experiment import SEED, TRAIN, UNSORTED, Experiment, Variant, full_scan, scanned, table_details
from jobs.bench.figure import Measure, Measured, Point
from jobs.bench.steps import Json, Step
from jobs.bench.tpch import MONTH, RANGES, Tpch
from layoutopt.model.query import group_queries
from layoutopt.partitioning.block_sizes import min_rows_for

if TYPE_CHECKING:
    from layoutopt.planning.rows import Rows

T = TypeVar("T")
Filters = Sequence[frozenset[Hashable]]
Curve = Callable[[Filters, Sequence[int]], list[tuple[int, float]]]

STREAMS: Final = {"uniform": "chapter3", "skewed": "chapter3-skewed"}
MATCHING: Final = "matching"

# The minSizes of figure 3.6, whose text names the first and the last.
MIN_SIZES: Final = (5_000, 20_000, 50_000, 200_000)

# The thesis's scale factor, which a month's rows are scaled from.
SCALE_OF_THESIS: Final = 100

# The fewest rows of a scaled minSize: smaller ones are left out.
LEAST_SIZE: Final = 5
NUMBERS_OF_FEATURES: Final = (2, 5, 10, 15, 40)
PERCENTS: Final = (5, 10, 20, 30, 50, 75, 100)

# Windows of the log whose mean a curve of figure 3.2 (b) is, so that it does not depend on one start (3.2.1).
WINDOWS: Final = 5
STAGES: Final = (
    "workload analysis", "featurising, reducing", "partitioning", "shuffling, writing, checking", "all stages",
)  # fmt: skip


def chapter3(tpch: Tpch) -> dict[str, Measure]:
    """Return the measures of the chapter's figures."""
    return {
        "3.2a": _common_filters(tpch, by_frequency),
        "3.2b": _common_filters(tpch, by_prefix),
        "3.5a": _rows(tpch),
        "3.5b": _times(tpch, KINDS[0]),
        "3.5c": _times(tpch, KINDS[1]),
        "3.6": _block_sizes(tpch),
        "3.7": _numbers_of_features(tpch),
        "3.7-vectors": _vectors(tpch),
        "3.8": _stages(tpch),
        "3-bounds": _bounds(tpch),
    }


def methods(tpch: Tpch) -> tuple[Variant, ...]:
    """Return what figure 3.5 (a) compares, by month."""
    ranges = [tpch.by_month(label, **parameters) for label, parameters in RANGES.items()]
    return (*ranges, tpch.by_month("SOP", "sop"))


def methods_by_year(tpch: Tpch) -> tuple[Variant, ...]:
    """Return the same by year, in blocks that are worth a read of their own at small scale factors."""
    return tuple(
        tpch.by_year(one.label, one.method, by=one.by, features=one.features, written=True) for one in methods(tpch)
    )


def _streams(tpch: Tpch, *, months: bool = False) -> dict[str, Experiment]:
    source = tpch.months if months else tpch.source
    return {series: tpch.stream(stream, source) for series, stream in STREAMS.items()}


def _common_filters(tpch: Tpch, curve: Curve) -> Measure:
    streams = _streams(tpch)

    def read() -> Measured:
        points = []
        for series, stream in streams.items():
            filters: Filters = [frozenset(query.filter.predicates) for query in stream.document().queries]
            points += [Point(series, float(x), y) for x, y in curve(filters, PERCENTS)]
        return Measured(points, {"training queries": len(streams["uniform"].document().queries)})

    return Measure([stream.features() for stream in streams.values()], read)


def by_frequency(filters: Filters, percents: Sequence[int]) -> list[tuple[int, float]]:
    """Return the share of queries that use one of the most frequent so many percent of the predicates (3.2 a).

    >>> by_frequency([frozenset("ab"), frozenset("a"), frozenset("c"), frozenset("a")], [34, 100])
    [(34, 75.0), (100, 100.0)]
    """
    counts = Counter(predicate for of_query in filters for predicate in of_query)
    ranked = [predicate for predicate, _ in counts.most_common()]
    return [(percent, _users(filters, ranked[: ceil(len(ranked) * percent / 100)])) for percent in percents]


def by_prefix(filters: Filters, percents: Sequence[int]) -> list[tuple[int, float]]:
    """Return the share of queries that use a predicate of the first so many percent of the log (3.2 b).

    It is the mean over :data:`WINDOWS` windows, as in the thesis.

    >>> by_prefix([frozenset("a")] * 10, [50])
    [(50, 100.0)]
    """
    size = max(1, len(filters) // WINDOWS)
    windows = [filters[start : start + size] for start in range(0, size * WINDOWS, size)]
    windows = [window for window in windows if window]

    def share(percent: int) -> float:
        starts = [frozenset().union(*window[: ceil(len(window) * percent / 100)]) for window in windows]
        return sum(_users(window, start) for window, start in zip(windows, starts, strict=True)) / len(windows)

    return [(percent, share(percent)) for percent in percents]


def _users(filters: Filters, predicates: Iterable[Hashable]) -> float:
    known = frozenset(predicates)
    return 100 * sum(bool(of_query & known) for of_query in filters) / len(filters)


def _rows(tpch: Tpch) -> Measure:
    """Measure rows scanned as shares of a full scan, beside the rows that match."""
    streams, variants = _streams(tpch), methods(tpch)
    tables = {series: stream.tables(variants) for series, stream in streams.items()}
    matching = {series: stream.matching(MONTH) for series, stream in streams.items()}

    def read() -> Measured:
        points: list[Point] = []
        details: list[Mapping[str, object]] = []
        for series in streams:
            evaluated = tables[series].read()
            whole = full_scan(evaluated["SOP"], "rows")
            points.append(Point(series, FULL_SCAN, 100.0))
            points += [Point(series, label, 100 * scanned(table, "rows") / whole) for label, table in evaluated.items()]
            points.append(Point(series, MATCHING, 100 * sum(map(sum, matching[series].read()["rows"])) / whole))
            details += [{"parameters": series, **line} for line in table_details(evaluated)]
        return Measured(points, tpch.settings(streams["uniform"], variants), details)

    steps = [step for series in streams for step in (*tables[series].steps, matching[series])]
    return Measure(steps, read)


def _times(tpch: Tpch, kind: str) -> Measure:
    streams, variants = _streams(tpch), methods_by_year(tpch)
    steps = {series: times_step(tpch, stream, variants) for series, stream in streams.items()}

    def read() -> Measured:
        points = [
            replace(point, series=series) for series, step in steps.items() for point in total_times(step.read(), kind)
        ]
        return Measured(points, time_settings(tpch, streams["skewed"], variants, steps["skewed"].read()))

    return Measure(list(steps.values()), read)


def _over_matching(tpch: Tpch, variants: Mapping[int, Variant], *, together: bool) -> Measure:
    """Measure the rows scanned over those that match, on some months, for each variant at its place.

    Args:
        tpch: the source.
        variants: by their places.
        together: whether they are rehearsed in one pass, as variants with the same features can be.
    """
    streams = _streams(tpch, months=True)
    groups = [list(variants.values())] if together else [[variant] for variant in variants.values()]
    tables = {series: [stream.tables(group) for group in groups] for series, stream in streams.items()}
    matching = {series: stream.matching(MONTH) for series, stream in streams.items()}

    def read() -> Measured:
        points = []
        for series in streams:
            evaluated = {label: table for group in tables[series] for label, table in group.read().items()}
            needed = sum(map(sum, matching[series].read()["rows"]))
            points += [
                Point(series, float(place), scanned(evaluated[variant.label], "rows") / needed)
                for place, variant in variants.items()
            ]
        return Measured(points, tpch.settings(streams["uniform"], tuple(variants.values())))

    steps = [step for series in streams for group in tables[series] for step in group.steps]
    return Measure([*steps, *matching.values()], read)


def _block_sizes(tpch: Tpch) -> Measure:
    """Measure a variant for each minSize of the thesis, scaled to the rows of a month here."""
    sizes = {size: round(size * tpch.scale / SCALE_OF_THESIS) for size in MIN_SIZES}
    mean_share = min_rows_for(1_000_000) / 1_000_000
    variants = {
        size: tpch.by_month(f"SOP, minSize {size:,}", "sop", block_rows=round(rows / mean_share), **UNSORTED)
        for size, rows in sizes.items()
        if rows >= LEAST_SIZE
    }
    return _over_matching(tpch, variants, together=True)


def _numbers_of_features(tpch: Tpch) -> Measure:
    variants = {
        count: tpch.by_month(f"SOP, {count} features", "sop", num_features=count, **UNSORTED)
        for count in NUMBERS_OF_FEATURES
    }
    return _over_matching(tpch, variants, together=False)


def _vectors(tpch: Tpch) -> Measure:
    streams = _streams(tpch, months=True)
    steps = {series: stream.vectors(NUMBERS_OF_FEATURES, MONTH) for series, stream in streams.items()}

    def read() -> Measured:
        points = [
            Point(series, float(count), step.read()[str(count)]["mean"])
            for series, step in steps.items()
            for count in NUMBERS_OF_FEATURES
        ]
        return Measured(points, {"scale factor": tpch.scale, "partitions": MONTH})

    return Measure(list(steps.values()), read)


def _stages(tpch: Tpch) -> Measure:
    stream, sop = tpch.stream(STREAMS["uniform"]), methods(tpch)[-1]
    step = stream.step(
        f"timing the stages of {sop.label} on one month",
        f"{stream.folder(sop).name}/stages.json",
        lambda: _time_stages(stream, sop),
        stream.plan(sop),
    )

    def read() -> Measured:
        product = step.read()
        points = [Point("one month", stage, product["seconds"][stage]) for stage in STAGES]
        counts = {name: product[name] for name in ("rows of the month", "blocks", "feature vectors")}
        return Measured(points, {"scale factor": tpch.scale, **counts})

    return Measure([step], read)


def _time_stages(stream: Experiment, variant: Variant) -> Json:
    """Time each stage of SOP's workflow (figure 3.3) on the middle month, after a first load that warms Spark up."""
    from layoutopt.features.analysis import analyze_log
    from layoutopt.model.requests import AnalyzeRequest
    from layoutopt.partitioning.objective import make_skip_objective
    from layoutopt.partitioning.registry import DEFAULT, find_partitioner
    from layoutopt.planning.plan import guiding_features
    from layoutopt.planning.source_profile import CountRequest, count_histograms
    from layoutopt.sources.door import Door
    from layoutopt.spark.loading.load import load
    from layoutopt.spark.planning.frame_rows import FrameRows
    from layoutopt.sql.schema import schema_from

    document, plan, folder = stream.document(), stream.plan_of(variant), stream.folder(variant)
    rows, queries = stream.rows(document.schema), tuple(group_queries(document.queries))
    months = list(FrameRows(rows, variant.partition_by).partition_rows)
    first, middle = months[0], months[len(months) // 2]
    guiding = guiding_features(document, variant.method, None)
    seconds: dict[str, float] = {}

    def timed(stage: str, work: Callable[[], T]) -> T:
        started = time.perf_counter()
        result = work()
        seconds[stage] = time.perf_counter() - started
        return result

    request = AnalyzeRequest(log=str(stream.log(TRAIN)), table=document.table, num_features=stream.num_features)
    timed(STAGES[0], lambda: analyze_log(request, schema_from(str(stream.source.path))))
    column, limit = variant.partition_by, variant.max_vectors
    for month in (first, middle):  # on the first month, Spark compiles what it will run
        of_month = FrameRows(rows.where(f"{column} = {month}"), column)
        counting = CountRequest(Door(partial(_give, of_month)), queries, document.schema, limit, lambda _: None)
        kept, (histogram,) = timed(STAGES[1], partial(count_histograms, counting, guiding))
    vectors, weights, least = histogram.vectors, histogram.weights, min_rows_for(variant.block_rows)
    objective = partial(make_skip_objective, queries, kept, histogram.query_weights, vectors.rows)
    timed(STAGES[2], lambda: find_partitioner(DEFAULT)(vectors, weights, least, SEED, objective()))
    for month in (first, middle):
        table = folder / f"stages-{month}"
        write = partial(load, stream.spark(), str(stream.source.path), str(table), plan, [f"{column}={month}"])
        report = timed(STAGES[3], write)
        shutil.rmtree(table, ignore_errors=True)
    seconds[STAGES[3]] -= seconds[STAGES[2]]
    return {
        "seconds": {**seconds, STAGES[4]: sum(seconds.values())},
        "rows of the month": report.rows,
        "blocks": report.blocks,
        "feature vectors": len(vectors),
    }


def _give(rows: Rows, reason: object) -> Rows:
    return rows


def _bounds(tpch: Tpch) -> Measure:
    """Measure SOP's rows beside a bound: of each month with a match, those rows or the smallest block."""
    streams, variants = _streams(tpch), methods(tpch)
    least = min_rows_for(variants[-1].block_rows)
    tables = {series: stream.tables(variants) for series, stream in streams.items()}
    counted: dict[str, Step] = {series: stream.matching(MONTH) for series, stream in streams.items()}

    def read() -> Measured:
        points = []
        for series in streams:
            counts = counted[series].read()["rows"]
            needed = sum(map(sum, counts))
            points += [
                Point(series, "rows that match", 1.0),
                Point(series, "lower bound of blocks", least_rows(counts, least) / needed),
                Point(series, "SOP", scanned(tables[series].read()["SOP"], "rows") / needed),
            ]
        return Measured(points, {**tpch.settings(streams["uniform"], variants), "least rows of a block": least})

    steps = [step for series in streams for step in (*tables[series].steps, counted[series])]
    return Measure(steps, read)


def least_rows(counts: Iterable[Iterable[int]], least: int) -> int:
    """Return the rows that queries read at least of any blocks of at least ``least`` rows.

    Args:
        counts: by partition, the rows that each query matches there.
        least: rows of the smallest block.

    >>> least_rows([[0, 5, 70], [1, 0, 0]], 50)
    170
    """
    return sum(max(rows, least) for of_partition in counts for rows in of_partition if rows)
