"""What indexes cost a load: one table loaded with a plan's indexes and without, in turns, in one session."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from layoutopt.bench.stages import cpu_seconds, descendants
from layoutopt.bench.steps import Json
from layoutopt.bench.tpch.experiment import Bench

if TYPE_CHECKING:
    from layoutopt.model.layout import Plan

ROUNDS: Final = 3


def loads_in_turns(bench: Bench, folder: Path) -> Json:
    """Load the table by ``folder/plan.json`` with its indexes and without, once unmeasured and then in turns.

    Returns:
        ``seconds`` and ``cpu_seconds``: of each round with indexes, of that without; and ``rounds``, these in turns.
        Processor time is that of Spark, its workers and this process.
    """
    from layoutopt.model.layout import Plan
    from layoutopt.spark.loading.load import load

    spark, table = bench.spark(), folder / "turns"
    plan = Plan.loads((folder / "plan.json").read_bytes())

    def run(each: Plan) -> tuple[float, float]:
        shutil.rmtree(table, ignore_errors=True)
        return _taken(lambda: load(spark, str(bench.data.denormalised), str(table), each))

    ways = (plan, replace(plan, indexes=()))
    run(plan)
    rounds = [[run(each) for each in ways] for _ in range(ROUNDS)]
    shutil.rmtree(table)
    ratios = ([of[0][kind] / of[1][kind] for of in rounds] for kind in (0, 1))
    seconds, cpu = map(median, ratios)
    return {"seconds": seconds, "cpu_seconds": cpu, "rounds": rounds}


def _taken(work: Callable[[], object]) -> tuple[float, float]:
    """The seconds of the clock and of processors that work takes, here and in what this process started."""
    started, before = time.perf_counter(), cpu_seconds(descendants(os.getpid()))
    work()
    return time.perf_counter() - started, cpu_seconds(descendants(os.getpid())) - before
