"""`layoutopt bench scaling`: everything from features to queries at one scale factor, and what each row costs.

Each stage runs in processes of its own, as a user would start it, whose peaks of memory are read from ``/proc``. Every
stage is a step: a run that stopped anywhere, for hours at scale factor 10, is taken up where it was. The costs of all
scale factors that were run under one folder are compared: planning should not grow, and loading, verifying and
memory should follow the rows as they should. At last Spark and DuckDB answer the same queries on plain Parquet and on
the table, in turns.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow.dataset as ds
from rich.table import Table as ConsoleTable

from layoutopt.bench.processes import check_peaks, run_layoutopt
from layoutopt.bench.queries import ENGINES, OPTIMISED, PLAIN, PlainFiles, time_table
from layoutopt.bench.session import spark_when_needed
from layoutopt.bench.steps import Json, Step, run
from layoutopt.bench.timing import Timing
from layoutopt.bench.tpch.data import DEFAULT_ROOT, TpchData
from layoutopt.bench.tpch.experiment import Bench, Variant, features_step, stream_for_testing

QUERIES: Final = 20
"""So many of the stream's unseen queries are answered, in turns of the templates."""
ROUNDS: Final = 3
STAGES: Final = ("planning", "loading", "verifying", "querying")
VARIANTS: Final[Mapping[str, Variant]] = {
    "chapter3": Variant("SOP by year", "sop", "o_year", 10_000),
    "chapter4": Variant("GSOP by year", "gsop", "o_year", 10_000),
    "chapter5": Variant("GSOP-R 1.2", "gsop-r", "o_year", 10_000, budget=1.2),
}


def scaling_steps(bench: Bench, stream: str) -> dict[str, Step]:
    """The stages of one method, each after the one before."""
    variant, folder = VARIANTS[stream], _folder(bench, stream)
    source, plan, table = str(bench.data.denormalised), str(folder / "plan.json"), str(folder / "table")
    features = features_step(bench, stream)
    flags = ["--method", variant.method, "--partition-by", "o_year", "--block-rows", str(variant.block_rows)]
    flags += [] if variant.budget is None else ["--storage-budget", str(variant.budget)]
    planned = ["plan", source, "--features", str(features.product), *flags, "-o", plan]
    # A load that stopped halfway is found done, or begun anew: its flags are those of a retry.
    commands = {
        "planning": planned,
        "loading": ["load", source, table, "--plan", plan],
        "verifying": ["verify", table],
    }
    steps: dict[str, Step] = {}
    needs: tuple[Step, ...] = (features,)
    for stage, words in commands.items():
        make = partial(_measured, folder, words)
        steps[stage] = Step(f"{stream}: {stage}, {variant.label}", folder / f"{stage}.json", make, needs)
        needs = (steps[stage],)
    make = partial(_queried, stream, table)
    steps["querying"] = Step(f"{stream}: querying, {variant.label}", folder / "querying.json", make, needs)
    return steps


def _folder(bench: Bench, stream: str) -> Path:
    return bench.folder / "scaling" / stream


def timing_step(bench: Bench, stream: str, engine: str) -> Step:
    """The queries in one engine on plain Parquet and on the table of :func:`scaling_steps`, which has to be there."""
    folder = _folder(bench, stream)

    def make() -> Json:
        return time_table(bench.spark, PlainFiles.of_tpch(bench), folder / "table", _texts(stream), engine, ROUNDS)

    return Step(f"{stream}: timing {QUERIES} queries in {engine} on both", _timing_of(folder, engine), make)


def _timing_of(folder: Path, engine: str) -> Path:
    return folder / f"timing-{engine}.json"


def _texts(stream: str) -> list[str]:
    return [query.sql for query in stream_for_testing(stream)[:QUERIES]]


def _measured(folder: Path, words: Sequence[str]) -> Json:
    folder.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    peaks = run_layoutopt(*words)
    return {"seconds": time.perf_counter() - started, "peaks": dict(peaks)}


def _queried(stream: str, table: str) -> Json:
    """Answer unseen queries by the embedded engine, from an open table; the first that reads a footer pays for it."""
    from layoutopt.scan.table import open_table

    opened = open_table(table)
    started = time.perf_counter()
    rows = sum(opened.sql(text).num_rows for text in _texts(stream))
    return {"seconds": time.perf_counter() - started, "peaks": {}, "answers": rows, "queries": QUERIES}


def run_scaling(
    scale: float, *, root: Path = DEFAULT_ROOT, streams: Sequence[str] = (), say: Callable[[str], None] = print
) -> dict[str, Any]:
    """Run all stages at a scale factor, and give what they cost at every one that was run.

    Args:
        scale: the TPC-H scale factor.
        root: the folder of all experiments; what was run there is not run again.
        streams: of :data:`VARIANTS`; all when empty.
        say: told each step that is run.

    Returns:
        By stream and scale factor (as a text) the table's ``rows``, by stage the ``seconds`` and the ``peaks``
        of memory in bytes, by kind of process, and ``times_faster``, by engine how many times faster the queries are
        than on plain Parquet, as far as they were timed.

    Raises:
        SettingError: this is no Linux, or a scale factor that can't be generated.
        LayoutoptError: a stage failed.
        WrongAnswerError: an answer from a table is not that from plain Parquet.
    """
    check_peaks()
    with spark_when_needed("layoutopt-scaling") as spark:
        bench = Bench(TpchData(scale, root), spark)
        for stream in streams or VARIANTS:
            run(features_step(bench, stream), say)
    for stream in streams or VARIANTS:
        run(scaling_steps(bench, stream)["querying"], say)
        rows = ds.dataset(bench.data.denormalised, format="parquet").count_rows()
        (_folder(bench, stream) / "rows.json").write_text(json.dumps({"rows": rows}))
    with spark_when_needed("layoutopt-scaling") as spark:
        bench = Bench(TpchData(scale, root), spark)
        for stream in streams or VARIANTS:
            for engine in ENGINES:
                run(timing_step(bench, stream, engine), say)
    return found_in(root)


def found_in(root: Path) -> dict[str, dict[str, Any]]:
    """What every complete run under a folder cost, as :func:`run_scaling` gives it, ascending by rows."""
    found: dict[str, dict[str, Any]] = {}
    for stream in VARIANTS:
        runs: dict[str, Any] = {}
        for counted in root.glob(f"sf*/experiments/scaling/{stream}/rows.json"):
            stages = {stage: json.loads((counted.parent / f"{stage}.json").read_text()) for stage in STAGES}
            faster = {
                engine: _faster(timed) for engine in ENGINES if (timed := _timing_of(counted.parent, engine)).exists()
            }
            scale = counted.parents[3].name.removeprefix("sf")
            runs[scale] = {**json.loads(counted.read_text()), "stages": stages, "times_faster": faster}
        if runs:
            found[stream] = dict(sorted(runs.items(), key=lambda item: float(item[0])))
    return found


def _faster(timed: Path) -> float:
    timings = {name: Timing(**timing) for name, timing in json.loads(timed.read_text())["timings"].items()}
    return timings[PLAIN].seconds / timings[OPTIMISED].seconds


def scaling_report(found: Mapping[str, Mapping[str, Any]]) -> ConsoleTable:
    """Tabulate seconds, seconds a million rows, the largest peak of all processes of a stage, and what queries gain."""
    table = ConsoleTable(title="what stages cost, by scale factor", title_justify="left")
    for heading in ("method", "scale factor", "rows"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for stage in STAGES:
        table.add_column(stage, justify="right")
    table.add_column("memory, at most", justify="right")
    for engine in ENGINES:
        table.add_column(f"{engine}, times as fast", justify="right")
    for stream, runs in found.items():
        for scale, of in runs.items():
            millions = of["rows"] / 1e6
            seconds = [of["stages"][stage]["seconds"] for stage in STAGES]
            cells = [f"{each:,.0f} s, {each / millions:,.1f} a million" for each in seconds]
            peak = max(sum(of["stages"][stage]["peaks"].values()) for stage in STAGES)
            cells.append(f"{peak / 2**20:,.0f} MB")
            cells += [
                f"{of['times_faster'][engine]:.2f}x" if engine in of["times_faster"] else "-" for engine in ENGINES
            ]
            table.add_row(VARIANTS[stream].label, scale, f"{of['rows']:,}", *cells)
    return table


def plot_scaling(found: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Plot the seconds of each stage for a million rows against the rows, a panel for each stage, into a PNG file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 3.2), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    for place, stage in enumerate(STAGES, 1):
        axes = figure.add_subplot(1, len(STAGES), place)
        for marker, (stream, runs) in zip("osv", found.items(), strict=False):
            rows = [of["rows"] for of in runs.values()]
            costs = [of["stages"][stage]["seconds"] / of["rows"] * 1e6 for of in runs.values()]
            axes.plot(rows, costs, marker=marker, label=VARIANTS[stream].label)
        axes.set(title=stage, xlabel="rows", xscale="log", yscale="log")
        axes.grid(visible=True, alpha=0.3)
    figure.axes[0].set_ylabel("seconds a million rows")
    figure.axes[0].legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})
