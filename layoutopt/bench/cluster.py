"""`layoutopt bench cluster`: two executors of one core each beside one of two, on the same load and the same reading.

Executors are processes of their own that share nothing but files, as on a cluster: what two of them take beside one is
what a cluster costs. The same blocks must come out of both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, Final

from rich.table import Table as ConsoleTable

from layoutopt.bench import cluster_job
from layoutopt.bench.session import spark_when_needed
from layoutopt.bench.steps import Json, Step, run
from layoutopt.bench.tpch.data import DEFAULT_ROOT, TpchData
from layoutopt.bench.tpch.experiment import Bench, Variant, plan_step, table_folder
from layoutopt.errors import LayoutoptError

STREAM: Final = "chapter3"
VARIANT: Final = Variant("SOP by year", "sop", "o_year", 10_000)
MEMORY_MB: Final = 3_072
"""Of each executor: what a task needs follows the segment, whatever else runs there."""
SHAPES: Final[Mapping[str, str]] = {
    "one executor of two cores": f"local-cluster[1,2,{MEMORY_MB}]",
    "two executors of one core": f"local-cluster[2,1,{MEMORY_MB}]",
}
TURNS: Final = 3


class OtherBlocksError(LayoutoptError):
    """Two shapes of cluster made different blocks of the same rows."""


def submit(master: str, *arguments: str) -> Json:
    """Run the job under a master; returns what it printed.

    Raises:
        LayoutoptError: it failed; the message has the end of what it said.
    """
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    home, package = Path(spec.origin).parent, Path(cluster_job.__file__).parents[2]
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        # Executors find the package where it is not installed, too.
        "PYTHONPATH": os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")]),
    }
    conf = ["spark.ui.enabled=false", "spark.sql.session.timeZone=UTC", "spark.sql.shuffle.partitions=8"]
    flags = [word for each in conf for word in ("--conf", each)]
    command = [str(home / "bin" / "spark-submit"), "--master", master, "--driver-memory", "2g", *flags]
    done = subprocess.run(
        [*command, str(cluster_job.__file__), *arguments], capture_output=True, text=True, env=environment, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith(cluster_job.MARK)]
    if done.returncode or not lines:
        said = " ".join((done.stdout + done.stderr).split())[-500:]
        raise LayoutoptError(f"the job under {master} failed: {said}; see that Java can start and ports are free")
    found: dict[str, object] = json.loads(lines[-1].removeprefix(cluster_job.MARK))
    return found


def shape_step(bench: Bench, shape: str, turn: int) -> Step:
    """Load and read on one shape of cluster, twice; the first time warms everything up."""
    folder = table_folder(bench, STREAM, VARIANT)
    work = folder / f"cluster-{list(SHAPES).index(shape)}-{turn}"

    def make() -> Json:
        return submit(SHAPES[shape], str(bench.data.denormalised), str(folder / "plan.json"), str(work), "1")

    name = f"turn {turn + 1}: loading and reading on {shape}"
    return Step(name, work.with_suffix(".json"), make, (plan_step(bench, STREAM, VARIANT),))


def run_cluster(
    scale: float, *, root: Path = DEFAULT_ROOT, turns: int = TURNS, say: Callable[[str], None] = print
) -> dict[str, Any]:
    """Time loads and readings on two shapes of a cluster, in turns.

    Args:
        scale: the TPC-H scale factor.
        root: the folder of all experiments; what was timed there is not timed again.
        turns: how often each shape is started.
        say: told each step that is run.

    Returns:
        By shape the median seconds of ``load`` and ``verify``, and ``ratio``, how many times as long two executors
        take.

    Raises:
        OtherBlocksError: the two made other blocks.
        LayoutoptError: a job failed.
    """
    with spark_when_needed("layoutopt-cluster-plan") as spark:
        bench = Bench(TpchData(scale, root), spark)
        run(plan_step(bench, STREAM, VARIANT), say)
    found: dict[str, list[Mapping[str, Any]]] = {shape: [] for shape in SHAPES}
    for turn in range(turns):
        for shape, made in found.items():
            made.append(run(shape_step(bench, shape, turn), say))
    return compared(found)


def compared(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """The medians of each shape over its turns, and how many times as long the second takes as the first.

    Raises:
        OtherBlocksError: their blocks differ.
    """
    if len({each["content"] for made in found.values() for each in made}) > 1:
        raise OtherBlocksError("the shapes of the cluster made other blocks of the same rows; please report this")
    medians = {shape: _medians([one for each in made for one in each["rounds"]]) for shape, made in found.items()}
    one, two = medians.values()
    return {"shapes": medians, "ratio": {name: two[name] / one[name] for name in one}}


def _medians(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: median(each[name] for each in rounds) for name in rounds[0]}


def cluster_report(found: Mapping[str, Any], scale: float) -> ConsoleTable:
    """Tabulate what :func:`run_cluster` found."""
    title = f"the same blocks, TPC-H at scale factor {scale:g}, SOP by year, median seconds"
    table = ConsoleTable(title=title, title_justify="left")
    table.add_column("")
    names = list(found["ratio"])
    for name in names:
        table.add_column(name, justify="right")
    for shape, seconds in found["shapes"].items():
        table.add_row(shape, *(f"{seconds[name]:.2f} s" for name in names))
    table.add_row("times as long", *(f"{found['ratio'][name]:.2f}x" for name in names))
    return table
