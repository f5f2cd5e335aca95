"""`layoutopt bench wide`: planning column groups of a synthetic wide table, whose rows and queries are random.

The shape is the thesis's of SDSS (4.7.2): 453 columns, 1,755 training queries, 3 to 23 columns a query, 13.6 on
average, most of them few popular ones. Queries come in topics, each with columns and filters of its own, and a third
are ad hoc; filters of different topics are about different columns, so features conflict. No table is written:
planning's time and memory are measured, and not how well such a layout does on real data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table

from layoutopt.bench.processes import Stages, peak_bytes, stage_table
from layoutopt.model.arrays import Bits, Floats, Ints
from layoutopt.model.vectors import VectorCounts, pack
from layoutopt.partitioning.registry import WARD, find_partitioner
from layoutopt.search.baselines import hillclimb, hyrise
from layoutopt.search.grouping import column_classes, cost_of, full_scan
from layoutopt.search.gsop import search_groups, singles, whole
from layoutopt.search.problem import Problem, Sample, Unit, equal_rows
from layoutopt.search.rows import ComputedRows
from layoutopt.skipping.skip_sets import SkipSet, membership

# What planning may take on two cores.
MAX_SECONDS: Final = 300.0
MAX_BYTES: Final = 8 * 10**9


@dataclass(frozen=True)
class WideShape:
    """The shape of the synthetic workload; the defaults are what the thesis says of SDSS, where it says it.

    Attributes:
        columns, queries: of the table, and of the training log.
        mean_columns, deviation, least, most: the columns of a query: a normal distribution, cut at both ends.
        topics: families of queries that share columns and filters.
        filter_columns, ranges: columns that queries filter by, and features (ranges of values) of each.
        segments, sampled_rows, segment_rows: the samples; the thesis partitions 4 million rows at a time.
        block_rows, max_vectors: as in a plan.
    """

    columns: int = 453
    queries: int = 1_755
    mean_columns: float = 13.6
    deviation: float = 5.13
    least: int = 3
    most: int = 23
    topics: int = 40
    filter_columns: int = 40
    ranges: int = 5
    segments: int = 3
    sampled_rows: int = 40_000
    segment_rows: int = 4_000_000
    block_rows: int = 10_000
    max_vectors: int = 3_000


@dataclass(frozen=True)
class WideResult:
    """A run.

    Attributes:
        workload: its shape as drawn, by name.
        objectives: cells and tids that the training queries read, and the number of layouts, by method.
        stages: what took how long; those of GSOP's search are named ``gsop: ...``.
        planning_seconds, planning_cpu_seconds: of GSOP's search alone.
        peak_bytes: of the process.
    """

    workload: dict[str, float]
    objectives: dict[str, tuple[float, int]]
    stages: Stages
    planning_seconds: float
    planning_cpu_seconds: float
    peak_bytes: int

    def to_json(self) -> dict[str, object]:
        """Return the run as JSON; seconds by stage are of the processor."""
        return {
            "synthetic": True,
            "workload": self.workload,
            "objectives": {
                method: {"cells_and_tids": cost, "layouts": layouts}
                for method, (cost, layouts) in self.objectives.items()
            },
            "cpu_seconds": {stage: round(taken.cpu_seconds, 3) for stage, taken in self.stages.taken.items()},
            "planning_seconds": round(self.planning_seconds, 3),
            "planning_cpu_seconds": round(self.planning_cpu_seconds, 3),
            "peak_bytes": self.peak_bytes,
        }


def wide_result(shape: WideShape | None = None, seed: int = 0, *, baselines: bool = True) -> WideResult:
    """Plan the wide table by GSOP; for ``baselines``, also compute exactly what the other methods would read.

    The others have more groups, so they take longer than planning.
    """
    stages, partitioner = Stages(), find_partitioner(WARD)
    with stages("drawing the workload"):
        problem = wide_problem(shape, seed)
    computing = ComputedRows(problem, partitioner).by_most  # there are hundreds of groups
    with stages("gsop"):
        searched = search_groups(problem, partitioner, watch=lambda stage: stages(f"gsop: {stage}"))
    objectives = {
        "full scan": (full_scan(problem), 1),
        "gsop": (cost_of(problem, searched.best.groups, computing), len(searched.best.groups)),
    }
    ways = {"sop": whole, "gsop-single": singles, "gsop-hillclimb": hillclimb, "gsop-hyrise": hyrise}
    for method, grouping in ways.items() if baselines else ():
        with stages(method):
            groups = grouping(problem)
            objectives[method] = cost_of(problem, groups, computing), len(groups)
    gsop = stages.taken["gsop"]
    return WideResult(_described(problem), objectives, stages, gsop.seconds, gsop.cpu_seconds, peak_bytes())


def _described(problem: Problem) -> dict[str, float]:
    weights = problem.weights[0]
    return {
        "columns": len(problem.columns),
        "column classes": len(column_classes(problem)),
        "queries": float(weights.sum()),
        "query classes": len(problem.reads),
        "columns a query": float(weights @ problem.reads.sum(axis=1) / weights.sum()),
        "features": problem.shares.shape[1],
        "sampled rows": sum(sample.vectors.rows for sample in problem.samples),
    }


def print_wide(console: Console, result: WideResult) -> None:
    """Print the workload, each method's objective, and where the time went."""
    shape = ", ".join(f"{value:,.1f} {name}".replace(".0 ", " ") for name, value in result.workload.items())
    console.print(f"A synthetic workload: {shape}")
    table = Table("method", title="objective on the samples (synthetic)", title_justify="left")
    for name in ("layouts", "cells and tids", "of a full scan"):
        table.add_column(name, justify="right")
    full = result.objectives["full scan"][0]
    for method, (cost, layouts) in result.objectives.items():
        table.add_row(method, str(layouts), f"{cost:.3e}", f"{cost / full:.2%}")
    console.print(table)
    console.print(stage_table(result.stages, "time of each stage"))
    console.print(
        f"Planning by gsop: {result.planning_seconds:.0f} s, of CPU {result.planning_cpu_seconds:.0f} s "
        f"(promised: {MAX_SECONDS:.0f} s)"
    )
    console.print(f"Peak memory: {result.peak_bytes / 1e9:.2f} GB (promised: {MAX_BYTES / 1e9:.0f} GB)")


@dataclass(frozen=True, eq=False)
class Ranges:
    """Features: feature i says that filter column ``column[i]`` lies in ``[low[i], high[i])``; values are in [0, 1)."""

    column: Ints
    low: Floats
    high: Floats

    @property
    def within(self) -> Bits:
        """Whether feature j holds wherever feature i does, ``bool[i, j]``: same column, a wider range."""
        same = self.column[:, None] == self.column
        wider: Bits = same & (self.low <= self.low[:, None]) & (self.high[:, None] <= self.high)
        return wider

    def skip_sets(self, ranges: tuple[int, ...]) -> list[SkipSet]:
        """Return the skip sets of a query with these ranges: a range and all wider ones; both of two ranges."""
        if len(ranges) > 1:
            return [frozenset(ranges)]
        return [frozenset((int(feature),)) for feature in np.flatnonzero(self.within[ranges[0]])]


def wide_problem(shape: WideShape | None = None, seed: int = 0) -> Problem:
    """Draw the workload and the samples of the rows as a search problem; the same for the same seed."""
    shape, rng = shape or WideShape(), np.random.default_rng(seed)
    drawn = draw_queries(rng, shape)
    ranges = drawn.ranges
    reads = np.zeros((shape.queries, shape.columns), dtype=np.bool_)
    for query, wide in enumerate(drawn.queries):
        reads[query, list(wide.columns)] = True
    skip_sets_of = [
        {skip_set for chosen in wide.filters for skip_set in ranges.skip_sets(chosen)} for wide in drawn.queries
    ]
    samples = tuple(_draw_sample(rng, shape, ranges, number) for number in range(shape.segments))
    return _assembled(shape, seed, reads, skip_sets_of, samples)


@dataclass(frozen=True)
class WideQuery:
    """A query: the columns that it reads, with those of its filter, and the ranges of each filtered column.

    A filter is a range by its number, or one of two ranges.
    """

    columns: tuple[int, ...]
    filters: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class WideQueries:
    """Queries in the order of time, and the ranges that they filter by."""

    ranges: Ranges
    queries: tuple[WideQuery, ...]


def draw_queries(rng: np.random.Generator, shape: WideShape) -> WideQueries:
    """Draw the log; a longer one begins with a shorter one."""
    ranges = _draw_ranges(rng, shape)
    popularity, of_topics = zipf(shape.columns, 1.0), zipf(shape.topics, 0.6)
    topics = [rng.choice(shape.columns, shape.most, replace=False, p=popularity) for _ in range(shape.topics)]
    queries = []
    for _ in range(shape.queries):
        topic = int(rng.choice(shape.topics, p=of_topics))
        columns, filters = _columns_of_query(rng, shape, topics[topic], popularity), _filters_of(rng, shape, topic)
        others = np.setdiff1d(columns, filters, assume_unique=True)
        read = [*filters, *others[: max(0, len(columns) - len(filters))].tolist()]
        queries.append(WideQuery(tuple(read), tuple(_draw_filter(rng, ranges, column) for column in filters)))
    return WideQueries(ranges, tuple(queries))


def _draw_ranges(rng: np.random.Generator, shape: WideShape) -> Ranges:
    n = shape.filter_columns * shape.ranges
    width = np.exp(rng.uniform(np.log(0.01), np.log(0.4), n))
    low = rng.uniform(0.0, 1.0 - width)
    return Ranges(np.repeat(np.arange(shape.filter_columns), shape.ranges), low, low + width)


def zipf(n: int, exponent: float) -> Floats:
    """Return the probabilities of n ranks by Zipf's law; an exponent of 0 makes them equal."""
    weights = np.arange(1.0, n + 1.0) ** -exponent
    return np.asarray(weights / weights.sum())


def _columns_of_query(rng: np.random.Generator, shape: WideShape, topic: Ints, popularity: Floats) -> Ints:
    """Draw a query's columns: a third has columns of its own, a third its topic's, a third these with two changed."""
    size = int(np.clip(round(rng.normal(shape.mean_columns, shape.deviation)), shape.least, shape.most))
    kind = rng.integers(3)
    if kind == 0:
        return rng.choice(shape.columns, size, replace=False, p=popularity)
    changed = 2 if kind == 1 else 0
    own = topic[: size - changed]
    others = np.setdiff1d(rng.choice(shape.columns, 4 * changed, replace=False, p=popularity), own)
    return np.append(own, rng.permutation(others)[:changed])


def _filters_of(rng: np.random.Generator, shape: WideShape, topic: int) -> list[int]:
    """Draw one to three of a topic's four filter columns; neighbouring topics share two."""
    own = (2 * topic + np.arange(4)) % shape.filter_columns
    return sorted({int(column) for column in rng.permutation(own)[: rng.integers(1, 4)]})


def _draw_filter(rng: np.random.Generator, ranges: Ranges, column: int) -> tuple[int, ...]:
    """Draw the filter on one column: a range, the first ones more often; in one of five cases one of two ranges."""
    own = np.flatnonzero(ranges.column == column)
    first, second = rng.choice(own, 2, p=zipf(len(own), 1.0))
    return (int(first), int(second)) if rng.random() < 0.2 else (int(first),)


def draw_values(rng: np.random.Generator, shape: WideShape, number: int) -> Floats:
    """Draw the filter columns of a segment's sample in [0, 1): slightly correlated, and shifted in each segment."""
    common = rng.random((shape.sampled_rows, 1))
    own = rng.random((shape.sampled_rows, shape.filter_columns))
    return np.asarray((np.where(rng.random(own.shape) < 0.3, common, own) + 0.1 * number) % 1.0)


def _draw_sample(rng: np.random.Generator, shape: WideShape, ranges: Ranges, number: int) -> Sample:
    of_feature = draw_values(rng, shape, number)[:, ranges.column]
    vectors = VectorCounts.of_rows(pack((ranges.low <= of_feature) & (of_feature < ranges.high)), len(ranges.low))
    return Sample(vectors, shape.segment_rows, np.ones(shape.queries))


def _assembled(
    shape: WideShape, seed: int, reads: Bits, skip_sets_of: list[set[SkipSet]], samples: tuple[Sample, ...]
) -> Problem:
    """Return the problem; queries of equal columns and skip sets become one class."""
    skip_sets = tuple(sorted({skip_set for of_query in skip_sets_of for skip_set in of_query}, key=sorted))
    number = {skip_set: i for i, skip_set in enumerate(skip_sets)}
    skips = np.zeros((len(reads), len(skip_sets)), dtype=np.bool_)
    for query, of_query in enumerate(skip_sets_of):
        skips[query, [number[skip_set] for skip_set in of_query]] = True
    first, classes = equal_rows(np.concatenate([reads, skips], axis=1))
    weights = np.bincount(classes, minlength=len(first)).astype(np.float64)
    members = membership(skip_sets, shape.filter_columns * shape.ranges)
    covered = members / np.maximum(1, members.sum(axis=0))
    return Problem(
        columns=tuple(f"c{number}" for number in range(shape.columns)),
        reads=reads[first],
        shares=np.stack([(covered * used).max(axis=1, initial=0.0) for used in skips[first]]).astype(np.float64),
        members=members,
        skips=skips[first],
        samples=tuple(Sample(sample.vectors, sample.rows, weights) for sample in samples),
        unit=Unit.cells(shape.columns),
        block_rows=shape.block_rows,
        max_vectors=shape.max_vectors,
        seed=seed,
        classes=classes,
    )
