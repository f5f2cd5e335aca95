"""Searches for column groups by each way to find the objective (figure 4.10), a step for each."""

from __future__ import annotations

import time

from layoutopt.bench.estimates import sampled_problem, search_by
from layoutopt.bench.stages import Stages
from layoutopt.bench.steps import Json, Step, key_of
from layoutopt.bench.tpch.ablation import block_rows
from layoutopt.bench.tpch.experiment import Bench, data_step, features_step
from layoutopt.search.rows import Estimate


def objective_step(bench: Bench, stream: str, estimate: Estimate) -> Step:
    """Search by an estimate; the product has the objective that was reached, exactly, and the seconds."""
    features = features_step(bench, stream)
    rows = block_rows(bench.data.scale)

    def make() -> Json:
        problem = sampled_problem(bench, features.product, Stages(), lambda _: None, rows)
        started = time.perf_counter()
        found = search_by(problem, estimate, lambda _: None)
        return {
            "seconds": time.perf_counter() - started,
            "objective": found.objective,
            "fraction": found.fraction,
            "groups": found.groups,
        }

    key = key_of(f"search {stream} {estimate}", {"block_rows": rows})
    return Step(
        f"{stream}: searching column groups by the {estimate} estimate",
        bench.folder / f"{key}.json",
        make,
        (data_step(bench), features),
    )
