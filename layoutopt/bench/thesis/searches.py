"""Searches for column groups by each way to find the objective (figure 4.10), a step for each."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from layoutopt.bench.steps import Json, Step, key_of
from layoutopt.bench.tpch.experiment import PARTITION_BY, block_rows
from layoutopt.bench.tpch.experiment import MAX_VECTORS, SEED, Bench, data_step, features_step, source_rows
from layoutopt.model.document import FeaturesDocument
from layoutopt.model.query import classes
from layoutopt.partitioning.registry import WARD, find_partitioner
from layoutopt.search.grouping import full_scan
from layoutopt.search.gsop import search_groups
from layoutopt.search.problem import Problem
from layoutopt.search.rows import Estimate

SEGMENT_ROWS: Final = 1_000_000


def objective_step(bench: Bench, stream: str, estimate: Estimate) -> Step:
    """Search by an estimate; the product has the objective that was reached, exactly, and the seconds."""
    features = features_step(bench, stream)
    rows = block_rows(bench.data.scale)

    def make() -> Json:
        problem = sampled_problem(bench, features.product, rows)
        started = time.perf_counter()
        best = search_groups(problem, find_partitioner(WARD), estimate).best
        return {
            "seconds": time.perf_counter() - started,
            "objective": best.cost,
            "fraction": best.cost / full_scan(problem),
            "groups": len(best.groups),
        }

    key = key_of(f"search {stream} {estimate}", {"block_rows": rows})
    return Step(
        f"{stream}: searching column groups by the {estimate} estimate",
        bench.folder / f"{key}.json",
        make,
        (data_step(bench), features),
    )


def sampled_problem(bench: Bench, features: Path, block_rows: int) -> Problem:
    """The samples and the workload as the search for column groups takes them, by a features document."""
    from layoutopt.methods.proposals import PlanningInput, PlanRequest
    from layoutopt.methods.strategies import problem_of
    from layoutopt.spark.planning.histograms import Counting, sample_histograms

    document = FeaturesDocument.loads(features.read_bytes())
    queries = tuple(classes(document.queries))
    rows = source_rows(bench, document.schema)
    counting = Counting(rows, queries, document.schema, PARTITION_BY, MAX_VECTORS, lambda _: None)
    histograms = sample_histograms(counting, document.features)
    request = PlanRequest(
        "gsop", PARTITION_BY, block_rows=block_rows, segment_rows=SEGMENT_ROWS, max_vectors=MAX_VECTORS, seed=SEED
    )
    return problem_of(PlanningInput(request, document.schema, document.features, queries, histograms))
