"""What figures measure beside tables: filters of a log, feature vectors, stages of a load, rows that must be read."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from layoutopt.bench.steps import Json, Step, key_of
from layoutopt.bench.tpch.experiment import (
    NUM_FEATURES,
    SEED,
    Bench,
    Variant,
    data_step,
    features_step,
    plan_step,
    source_rows,
    stream_for_testing,
    table_folder,
)
from layoutopt.model.documents import FeaturesDocument
from layoutopt.model.query import classes
from layoutopt.partitioning.block_sizes import min_rows_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from layoutopt.model.schema import Schema

Filters = Sequence[frozenset[Hashable]]
Curve = Callable[[Filters, Sequence[int]], list[tuple[int, float]]]
WINDOWS: Final = 5  # 3.2.1: so that no curve hangs on where it starts
STAGES: Final = (
    "workload analysis", "featurising, reducing", "partitioning", "shuffling, writing, checking", "all stages",
)  # fmt: skip
ALL_VECTORS: Final = 10_000_000


def filters_of(features: Mapping[str, Any]) -> list[frozenset[Hashable]]:
    """The distinct predicates of each query of a features document, in the log's order."""
    document = FeaturesDocument.loads(json.dumps(features))
    return [frozenset(query.filter.predicates) for query in document.queries]


def by_frequency(filters: Filters, percents: Sequence[int]) -> list[tuple[int, float]]:
    """Figure 3.2 (a): the share of queries that use one of the most frequent so many percent of the predicates.

    >>> by_frequency([frozenset("ab"), frozenset("a"), frozenset("c"), frozenset("a")], [34, 100])
    [(34, 75.0), (100, 100.0)]
    """
    counts = Counter(predicate for of_query in filters for predicate in of_query)
    ranked = [predicate for predicate, _ in counts.most_common()]
    return [(each, _users(filters, ranked[: ceil(len(ranked) * each / 100)])) for each in percents]


def by_prefix(filters: Filters, percents: Sequence[int]) -> list[tuple[int, float]]:
    """Figure 3.2 (b): the share of queries that use a predicate of the first so many percent of the log.

    The mean over :data:`WINDOWS` windows, as the thesis has it.

    >>> by_prefix([frozenset("a")] * 10, [50])
    [(50, 100.0)]
    """
    size = max(1, len(filters) // WINDOWS)
    windows = [filters[start : start + size] for start in range(0, size * WINDOWS, size)]
    windows = [window for window in windows if window]
    return [
        (
            each,
            sum(_users(window, frozenset().union(*window[: ceil(len(window) * each / 100)])) for window in windows)
            / len(windows),
        )
        for each in percents
    ]


def _users(filters: Filters, predicates: Iterable[Hashable]) -> float:
    known = frozenset(predicates)
    return 100 * sum(bool(of_query & known) for of_query in filters) / len(filters)


def vectors_step(bench: Bench, stream: str, numbers: Sequence[int], partition_by: str) -> Step:
    """Count the distinct vectors of the features that guide SOP, when the table has so many: mean and most."""
    features = features_step(bench, stream)
    parameters = {"numbers": list(numbers), "partition_by": partition_by}

    def make() -> Json:
        rows = partial(source_rows, bench)
        return {str(count): distinct_vectors(rows, features.product, count, partition_by) for count in numbers}

    product = bench.folder / f"{key_of(f'vectors {stream}', parameters)}.json"
    return Step(f"{stream}: counting feature vectors of {partition_by}", product, make, (data_step(bench), features))


def distinct_vectors(rows: Callable[[Schema], DataFrame], features: Path, count: int, partition_by: str) -> Json:
    """How many distinct vectors partitions have by so many features, the heaviest: the ``mean`` and the ``most``.

    Args:
        rows: the source, given the schema of the features.
        features: a features.json.
        count: the most features that the table has.
        partition_by: the partition column.
    """
    from layoutopt.spark.planning.plan import guiding_features
    from layoutopt.spark.planning.source_profile import Counting, count_histograms, heaviest

    document = FeaturesDocument.loads(features.read_bytes())
    document = replace(document, features=heaviest(document.features, count))
    guiding = guiding_features(document, "sop", None)
    queries = tuple(classes(document.queries))
    of = Counting(rows(document.schema), queries, document.schema, partition_by, ALL_VECTORS, print)
    kept, partitions = count_histograms(of, guiding)
    found = [len(each.vectors) for each in partitions]
    return {"mean": sum(found) / len(found), "most": max(found), "guiding": len(kept)}


def stages_step(bench: Bench, stream: str, variant: Variant) -> Step:
    """Time each stage of SOP's workflow (figure 3.3) on the middle month, after a first load that warms Spark up."""
    features, folder = features_step(bench, stream), table_folder(bench, stream, variant)

    def make() -> Json:
        return _stages(bench, stream, variant, features.product, folder)

    return Step(
        f"{stream}: timing the stages of {variant.label} on one month",
        folder / "stages.json",
        make,
        (plan_step(bench, stream, variant),),
    )


def _stages(bench: Bench, stream: str, variant: Variant, features: Path, folder: Path) -> Json:
    from layoutopt.config.settings import AnalyzeSettings
    from layoutopt.features.analysis import analyze_log
    from layoutopt.model.layout import Plan
    from layoutopt.partitioning.objective import objective_of
    from layoutopt.partitioning.registry import DEFAULT, find_partitioner
    from layoutopt.spark.loading.load import load
    from layoutopt.spark.planning.plan import guiding_features
    from layoutopt.spark.planning.source_profile import Counting, count_histograms, rows_by_partition

    document = FeaturesDocument.loads(features.read_bytes())
    plan = Plan.loads((folder / "plan.json").read_bytes())
    rows = source_rows(bench, document.schema)
    months = list(rows_by_partition(rows, variant.partition_by))
    first, middle = months[0], months[len(months) // 2]
    queries = tuple(classes(document.queries))
    guiding = guiding_features(document, variant.method, None)
    seconds: dict[str, float] = {}

    settings = AnalyzeSettings(
        log=str(bench.log(stream, "train")),
        schema_source=str(bench.data.denormalised),
        table=document.table,
        num_features=NUM_FEATURES,
    )
    started = time.perf_counter()
    analyze_log(settings)
    seconds[STAGES[0]] = time.perf_counter() - started

    for month in (first, middle):  # the first one for Spark to compile what it will run
        of_month = rows.where(f"{variant.partition_by} = {month}")
        started = time.perf_counter()
        of = Counting(of_month, queries, document.schema, variant.partition_by, variant.max_vectors, lambda _: None)
        kept, (histogram,) = count_histograms(of, guiding)
        seconds[STAGES[1]] = time.perf_counter() - started
    started = time.perf_counter()
    objective = objective_of(queries, kept, histogram.query_weights, histogram.vectors.rows)
    find_partitioner(DEFAULT)(histogram.vectors, histogram.weights, min_rows_for(variant.block_rows), SEED, objective)
    seconds[STAGES[2]] = time.perf_counter() - started
    for month in (first, middle):
        table = folder / f"stages-{month}"
        started = time.perf_counter()
        report = load(
            bench.spark(), str(bench.data.denormalised), str(table), plan, [f"{variant.partition_by}={month}"]
        )
        seconds[STAGES[3]] = time.perf_counter() - started - seconds[STAGES[2]]
        shutil.rmtree(table, ignore_errors=True)
    return {
        "seconds": {**seconds, STAGES[4]: sum(seconds.values())},
        "rows of the month": report.rows,
        "blocks": report.blocks,
        "feature vectors": len(histogram.vectors),
    }


def counts_step(bench: Bench, stream: str, partition_by: str) -> Step:
    """Count the rows that each test query matches in each partition, by Spark: no skipping is trusted here."""

    def make() -> Json:
        filters = [query.sql.partition(" WHERE ")[2] for query in stream_for_testing(stream)]
        return {"rows": _counted(bench.spark(), bench.data.denormalised, filters, partition_by)}

    product = bench.folder / f"{stream}-matching-{partition_by}.json"
    return Step(f"{stream}: counting the rows that match by {partition_by}", product, make, (data_step(bench),))


def _counted(spark: SparkSession, source: Path, filters: Sequence[str], partition_by: str) -> list[list[int]]:
    """By partition, and in it by filter."""
    view = "layoutopt_counted"
    spark.read.parquet(str(source)).createOrReplaceTempView(view)
    counts = ", ".join(f"count_if({condition}) AS matching_{place}" for place, condition in enumerate(filters))
    found = spark.sql(f"SELECT {counts} FROM {view} GROUP BY {partition_by}").collect()
    spark.catalog.dropTempView(view)
    return [list(row) for row in found]


def bound(counts: Iterable[Iterable[int]], least: int) -> int:
    """Rows that no blocks of at least ``least`` rows can spare queries.

    Args:
        counts: by partition, the rows that each query matches there.
        least: rows of the smallest block.

    >>> bound([[0, 5, 70], [1, 0, 0]], 50)
    170
    """
    return sum(max(rows, least) for of_partition in counts for rows in of_partition if rows)
