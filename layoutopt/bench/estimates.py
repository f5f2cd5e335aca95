"""`layoutopt bench estimates`: ways to estimate GSOP's objective, compared (Sun 2017, figure 4.10), on one sample.

Each search merges by another estimate; the objective reached is computed exactly for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

from rich.console import Console
from rich.table import Table

from layoutopt.bench.session import spark_when_needed
from layoutopt.bench.stages import Stages, stage_table
from layoutopt.bench.steps import run
from layoutopt.bench.tpch.data import DEFAULT_ROOT, TpchData
from layoutopt.bench.tpch.experiment import MAX_VECTORS, SEED, Bench, data_step, features_step, source_rows
from layoutopt.model.documents import FeaturesDocument
from layoutopt.model.query import classes
from layoutopt.partitioning.registry import WARD, find_partitioner
from layoutopt.search.grouping import full_scan
from layoutopt.search.gsop import search_groups
from layoutopt.search.problem import Problem
from layoutopt.search.rows import Estimate

STREAM: Final = "chapter4"
PARTITION_BY: Final = "o_year"
BLOCK_ROWS: Final = 10_000
SEGMENT_ROWS: Final = 1_000_000
STAGES: Final = (
    "starting groups",
    "merging",
    "moving classes",
    "trying fewer guides",
    "comparing with SOP and GSOP-single",
)
"""The stages of a search, one after the other; estimating and computing are parts of them."""


@dataclass(frozen=True)
class EstimateFigure:
    """A search by one estimate.

    Attributes:
        estimate: its name.
        objective: cells and tids of the training queries on the samples, exact.
        fraction: of a full scan.
        groups: column groups of the best scheme.
        merged: the exact objective before classes were moved.
        stages: what took how long.
    """

    estimate: Estimate
    objective: float
    fraction: float
    groups: int
    merged: float
    stages: Stages

    @property
    def cpu_seconds(self) -> float:
        """Of the whole search."""
        return sum(self.stages.taken[stage].cpu_seconds for stage in STAGES)

    def to_json(self) -> dict[str, object]:
        """As JSON."""
        of_stage = {name: round(taken.cpu_seconds, 3) for name, taken in self.stages.taken.items()}
        return {
            "estimate": self.estimate,
            "objective": self.objective,
            "fraction": self.fraction,
            "groups": self.groups,
            "objective_before_moves": self.merged,
            "cpu_seconds": of_stage,
        }


def estimate_figures(
    scale: float = 0.1, *, root: Path = DEFAULT_ROOT, say: Callable[[str], None]
) -> tuple[tuple[EstimateFigure, ...], Stages]:
    """Prepare the stream of chapter 4 in year partitions as planning does, and search it by every estimate.

    Returns:
        The figures, and what preparing them took. Features found before under ``root``, the folder of all experiments,
        are used again.

    Raises:
        SettingError: a scale factor that can't be generated.
    """
    stages = Stages()
    with spark_when_needed("layoutopt-estimates") as spark:
        bench = Bench(TpchData(scale, root), spark)
        with stages("generating the data, if it is not there"):
            run(data_step(bench), say)
        with stages("analysing the log, if it is not done"):
            features = features_step(bench, STREAM)
            run(features, say)
        with stages("starting Spark, if it was not running"):
            bench.spark()
        problem = sampled_problem(bench, features.product, stages, say)
    return tuple(search_by(problem, estimate, say) for estimate in get_args(Estimate)), stages


def sampled_problem(
    bench: Bench, features: Path, stages: Stages, say: Callable[[str], None], block_rows: int = BLOCK_ROWS
) -> Problem:
    """The samples and the workload as the search for column groups takes them, by a features document."""
    from layoutopt.methods.interface import PlanningInput, PlanRequest
    from layoutopt.methods.strategies import problem_of
    from layoutopt.spark.planning.source_profile import Counting, sample_histograms

    with stages("reading features and queries"):
        document = FeaturesDocument.loads(features.read_bytes())
        queries = tuple(classes(document.queries))
    with stages("sampling feature vectors"):
        rows = source_rows(bench, document.schema)
        counting = Counting(rows, queries, document.schema, PARTITION_BY, MAX_VECTORS, say)
        histograms = sample_histograms(counting, document.features)
    with stages("putting the workload into arrays"):
        request = PlanRequest(
            "gsop", PARTITION_BY, block_rows=block_rows, segment_rows=SEGMENT_ROWS, max_vectors=MAX_VECTORS, seed=SEED
        )
        return problem_of(PlanningInput(request, document.schema, document.features, queries, histograms))


def search_by(problem: Problem, estimate: Estimate, say: Callable[[str], None]) -> EstimateFigure:
    """Search by one estimate."""
    say(f"searching by the {estimate} estimate")
    stages = Stages()
    found = search_groups(problem, find_partitioner(WARD), estimate, stages)
    return EstimateFigure(
        estimate,
        found.best.cost,
        found.best.cost / full_scan(problem),
        len(found.best.groups),
        found.merged.cost,
        stages,
    )


def print_estimates(console: Console, figures: Sequence[EstimateFigure], preparing: Stages) -> None:
    """Print what each estimate reached and took, and where the time of planning goes."""
    columns = ("cells and tids", "of a full scan", "layouts", "before moves", "seconds", "CPU seconds")
    table = Table("estimate", title="objective reached, exact, and time of the search", title_justify="left")
    for name in columns:
        table.add_column(name, justify="right")
    for figure in figures:
        seconds = sum(figure.stages.taken[stage].seconds for stage in STAGES)
        cells = (f"{figure.objective:.4e}", f"{figure.fraction:.2%}", str(figure.groups), f"{figure.merged:.4e}")
        table.add_row(figure.estimate, *cells, f"{seconds:.1f}", f"{figure.cpu_seconds:.1f}")
    console.print(table)
    console.print(stage_table(preparing, "time of each stage before the search"))
    for figure in figures:
        console.print(stage_table(figure.stages, f"time of each stage of the search, {figure.estimate} estimate"))
