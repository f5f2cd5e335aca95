"""`layoutopt bench scaling`: every stage from features to queries at one scale factor, and what a row costs.

Each stage runs in processes of its own, as a user would start it; their peaks of memory are read from ``/proc``. Every
stage is a step, so a run that stopped anywhere resumes there. The costs of all scale factors under one folder are
compared: planning should not grow; loading, verifying and memory should follow the rows. At last Spark and DuckDB
answer the same queries on plain Parquet and on the table, in turns.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow.dataset as ds
from rich.table import Table

from layoutopt.bench.experiment import TEST, Experiment, Variant
from layoutopt.bench.plots import plot_file
from layoutopt.bench.processes import check_peaks, run_layoutopt
from layoutopt.bench.query_times import ENGINES, OPTIMISED, PLAIN, Timing, time_table
from layoutopt.bench.steps import Json, Say, Step, run, spark_when_needed
from layoutopt.bench.tpch import YEAR, YEAR_BLOCK_ROWS, Tpch, tpch_at

# The stream's unseen queries that are answered, the templates taking turns.
QUERIES: Final = 20
ROUNDS: Final = 3
STAGES: Final = ("planning", "loading", "verifying", "querying")
VARIANTS: Final[Mapping[str, Variant]] = {
    "chapter3": Variant("SOP by year", "sop", YEAR, YEAR_BLOCK_ROWS),
    "chapter4": Variant("GSOP by year", "gsop", YEAR, YEAR_BLOCK_ROWS),
    "chapter5": Variant("GSOP-R 1.2", "gsop-r", YEAR, YEAR_BLOCK_ROWS, budget=1.2),
}


def scaling_steps(stream: Experiment) -> dict[str, Step]:
    """Return the stages of one method, each after the one before."""
    variant, folder = VARIANTS[stream.name], _folder(stream)
    source, plan, table = str(stream.source.path), str(folder / "plan.json"), str(folder / "table")
    features = stream.features()
    flags = ["--method", variant.method, "--partition-by", YEAR, "--block-rows", str(variant.block_rows)]
    flags += [] if variant.budget is None else ["--storage-budget", str(variant.budget)]
    # A load that stopped halfway is completed or begun anew by the same command.
    commands = {
        "planning": ["plan", source, "--features", str(features.product), *flags, "-o", plan],
        "loading": ["load", source, table, "--plan", plan],
        "verifying": ["verify", table],
    }
    makes = {stage: partial(_run_stage, folder, words) for stage, words in commands.items()}
    steps: dict[str, Step] = {}
    needs: tuple[Step, ...] = (features,)
    for stage, make in {**makes, "querying": partial(_query, stream, table)}.items():
        name = f"{stream.name}: {stage}, {variant.label}"
        steps[stage] = Step(name, folder / f"{stage}.json", make, needs)
        needs = (steps[stage],)
    return steps


def timing_step(stream: Experiment, engine: str) -> Step:
    """Time the queries in one engine on plain Parquet and on the table of :func:`scaling_steps`, which must exist."""
    folder = _folder(stream)

    def make() -> Json:
        return time_table(stream.spark, stream.source, folder / "table", _texts(stream), engine, ROUNDS)

    name = f"{stream.name}: timing {QUERIES} queries in {engine} on both"
    return Step(name, folder / f"timing-{engine}.json", make)


def _folder(stream: Experiment) -> Path:
    return stream.source.folder / "scaling" / stream.name


def _texts(stream: Experiment) -> list[str]:
    return [query.sql for query in stream.queries(TEST)[:QUERIES]]


def _run_stage(folder: Path, words: Sequence[str]) -> Json:
    folder.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    peaks = run_layoutopt(*words)
    return {"seconds": time.perf_counter() - started, "peaks": dict(peaks)}


def _query(stream: Experiment, table: str) -> Json:
    """Answer unseen queries by the embedded engine, from an open table."""
    from layoutopt.scan.table import open_table

    opened = open_table(table)
    started = time.perf_counter()
    rows = sum(opened.sql(text).num_rows for text in _texts(stream))
    return {"seconds": time.perf_counter() - started, "peaks": {}, "answers": rows, "queries": QUERIES}


def run_scaling(scale: float, *, root: Path, streams: Sequence[str] = (), say: Say = print) -> dict[str, Any]:
    """Run all stages at a scale factor, and return what they cost at every scale factor that was run.

    What was run below `root` is not run again. The streams are of :data:`VARIANTS`, all when empty.

    Returns:
        By stream and scale factor (as a text) the table's ``rows``, by stage the ``seconds`` and the ``peaks``
        of memory in bytes, by kind of process, and ``times_faster``, by engine how many times faster the queries are
        than on plain Parquet, as far as they were timed.

    Raises:
        SettingError: this is not Linux, or a scale factor that can't be generated.
        LayoutoptError: a stage failed.
        WrongAnswerError: an answer from a table is not that from plain Parquet.
    """
    check_peaks()
    names = streams or tuple(VARIANTS)

    def experiments(tpch: Tpch) -> list[Experiment]:
        return [tpch.stream(name) for name in names]

    with spark_when_needed("layoutopt-scaling") as spark:
        for stream in experiments(tpch_at(scale, root, spark)):
            run(stream.features(), say)
    with spark_when_needed("layoutopt-scaling") as spark:
        for stream in experiments(tpch_at(scale, root, spark)):
            run(scaling_steps(stream)["querying"], say)
            rows = ds.dataset(stream.source.path, format="parquet").count_rows()
            (_folder(stream) / "rows.json").write_text(json.dumps({"rows": rows}))
        for stream in experiments(tpch_at(scale, root, spark)):
            for engine in ENGINES:
                run(timing_step(stream, engine), say)
    return read_runs(root)


def read_runs(root: Path) -> dict[str, dict[str, Any]]:
    """Return what every complete run under a folder cost, as in :func:`run_scaling`, ascending by scale factor."""
    runs_by_stream: dict[str, dict[str, Any]] = {}
    for stream in VARIANTS:
        runs: dict[str, Any] = {}
        for counted in root.glob(f"sf*/experiments/scaling/{stream}/rows.json"):
            stages = {stage: json.loads((counted.parent / f"{stage}.json").read_text()) for stage in STAGES}
            timed = {engine: counted.parent / f"timing-{engine}.json" for engine in ENGINES}
            faster = {engine: _times_faster(path) for engine, path in timed.items() if path.exists()}
            scale = counted.parents[3].name.removeprefix("sf")
            runs[scale] = {**json.loads(counted.read_text()), "stages": stages, "times_faster": faster}
        if runs:
            runs_by_stream[stream] = dict(sorted(runs.items(), key=lambda item: float(item[0])))
    return runs_by_stream


def _times_faster(path: Path) -> float:
    timings = {name: Timing(**timing) for name, timing in json.loads(path.read_text())["timings"].items()}
    return timings[PLAIN].seconds / timings[OPTIMISED].seconds


def scaling_report(runs_by_stream: Mapping[str, Mapping[str, Any]]) -> Table:
    """Tabulate seconds, seconds a million rows, the largest peak of a stage's processes, and what queries gain."""
    table = Table(title="what stages cost, by scale factor", title_justify="left")
    table.add_column("method")
    faster = (f"{engine}, times as fast" for engine in ENGINES)
    for heading in ("scale factor", "rows", *STAGES, "memory, at most", *faster):
        table.add_column(heading, justify="right")
    for stream, runs in runs_by_stream.items():
        for scale, costs in runs.items():
            seconds = [costs["stages"][stage]["seconds"] for stage in STAGES]
            cells = [f"{each:,.0f} s, {each / costs['rows'] * 1e6:,.1f} a million" for each in seconds]
            peak = max(sum(costs["stages"][stage]["peaks"].values()) for stage in STAGES)
            times = [costs["times_faster"].get(engine) for engine in ENGINES]
            gains = ["-" if each is None else f"{each:.2f}x" for each in times]
            row = (VARIANTS[stream].label, scale, f"{costs['rows']:,}", *cells, f"{peak / 2**20:,.0f} MB", *gains)
            table.add_row(*row)
    return table


def plot_scaling(runs_by_stream: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Plot the seconds of each stage for a million rows against the rows, a panel for each stage, into a PNG file."""
    with plot_file(path, 10.0, 3.2, len(STAGES)) as panels:
        for stage, axes in zip(STAGES, panels, strict=True):
            for marker, (stream, runs) in zip("osv", runs_by_stream.items(), strict=False):
                rows = [costs["rows"] for costs in runs.values()]
                seconds = [costs["stages"][stage]["seconds"] / costs["rows"] * 1e6 for costs in runs.values()]
                axes.plot(rows, seconds, marker=marker, label=VARIANTS[stream].label)
            axes.set(title=stage, xlabel="rows", xscale="log", yscale="log")
            axes.grid(visible=True, alpha=0.3)
        panels[0].set_ylabel("seconds a million rows")
        panels[0].legend(frameon=False)
