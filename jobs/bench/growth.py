"""`python -m jobs.bench growth`: what each stage costs as statements, rows, blocks, partitions and columns grow.

Each curve has five sizes over two orders of magnitude. Each size is a step that runs a command as a user would start
it, so a run that stopped resumes there. Exponents are fitted to processor time, which other programs disturb least,
without that of starting, and over the last order of magnitude: smaller sizes show what does not grow.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.table import Table

from jobs.bench.brushing import make_rows, simulate_users
from jobs.bench.experiment import TRAIN, size_of
from jobs.bench.plots import plain_tick, plot_file
from jobs.bench.processes import check_peaks, processor_seconds_of_children, run_layoutopt
from jobs.bench.steps import Json, Say, Step, run
from layoutopt.errors import SettingError

STATEMENTS, ROWS, BLOCKS, PARTITIONS, COLUMNS = "statements", "rows", "blocks", "partitions", "columns"

# What stays as it is while something else grows.
_STATEMENTS: Final = 2_000
_ROWS: Final = 500_000
_BLOCK_ROWS: Final = 500
_ROWS_OF_WIDE: Final = 20_000
_STATEMENTS_A_USER: Final = 50
_PARTITION: Final = "part"
_GROUP_ROWS: Final = 100_000
# Sizes from here to the largest are fitted.
_FITTED: Final = 0.1
# Processor seconds below which a stage's work can't be distinguished from its start.
_LEAST_SECONDS: Final = 0.05


@dataclass(frozen=True)
class Curve:
    """A stage's costs as something grows.

    Attributes:
        stage: the verb.
        by: what grows.
        most: the exponent that it should not exceed.
        sizes: ascending.
        seconds: by the clock, one for each size.
        processor: seconds of processor time, start included.
        peaks: the largest process's memory, in bytes.
        bytes: of what the stage wrote; 0 where it writes nothing.
        start: the processor seconds of a command that does nothing.
    """

    stage: str
    by: str
    most: float
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    processor: tuple[float, ...]
    peaks: tuple[int, ...]
    bytes: tuple[int, ...]
    start: float = 0.0

    @property
    def exponent(self) -> float:
        """The exponent of processor time without that of starting."""
        work = [max(_LEAST_SECONDS, seconds - self.start) for seconds in self.processor]
        return fit_exponent(self.sizes, work)

    def to_json(self) -> dict[str, Any]:
        """Return the curve as JSON."""
        return {**asdict(self), "exponent": round(self.exponent, 3)}


def fit_exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Return the exponent of the power of the size that fits best to costs over the last order of magnitude.

    >>> round(fit_exponent([1, 10, 100, 1000], [5.0, 5.0, 8.0, 80.0]), 6)
    1.0
    """
    fitted = [(size, cost) for size, cost in zip(sizes, costs, strict=True) if size >= sizes[-1] * _FITTED]
    logs = np.log(np.array(fitted, dtype=np.float64))
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])


@dataclass(frozen=True)
class _Stage:
    """A stage to measure: its verb, what grows, and how it is run at one size.

    Attributes:
        words: makes what the command needs in a folder, and returns its arguments, for a size.
        product: what the command writes in the folder; empty if it writes nothing.
        needs: the stages of the same size to run first, by their names.
    """

    stage: str
    by: str
    most: float
    sizes: tuple[int, ...]
    words: Callable[[Path, int], Sequence[str]]
    product: str = ""
    needs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.stage}-{self.by}"


def _five(largest: int) -> tuple[int, ...]:
    """Return five sizes over two orders of magnitude, up to the largest.

    >>> _five(10_000)
    (100, 316, 1000, 3162, 10000)
    """
    return tuple(round(largest / math.sqrt(10) ** step) for step in (4, 3, 2, 1, 0))


def _make_once(path: Path, write: Callable[[Path], None]) -> Path:
    """Return a file, which is written if it is missing and renamed into place when it is complete."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"{path.name}.unfinished")
        write(unfinished)
        unfinished.rename(path)
    return path


def _rows_file(folder: Path, rows: int = _ROWS, partitions: int = 1) -> Path:
    """Write rows of trips; partitions have about as many rows each, all of a partition together."""

    def write(path: Path) -> None:
        place = pa.array(np.arange(rows) * partitions // rows, pa.int32())
        pq.write_table(make_rows("trips", rows).append_column(_PARTITION, place), path, row_group_size=_GROUP_ROWS)

    return _make_once(folder / "rows.parquet", write)


def _log_file(folder: Path, statements: int = _STATEMENTS) -> Path:
    def write(path: Path) -> None:
        texts = simulate_users(TRAIN, max(20, statements // _STATEMENTS_A_USER), statements)
        path.write_text("".join(json.dumps({"sql": text}) + "\n" for text in texts))

    return _make_once(folder / "log.jsonl", write)


def _common(folder: Path) -> Path:
    """Return the folder with the rows, the log and the features that do not grow."""
    return folder.parents[1] / "common"


def _features_file(folder: Path) -> Path:
    common = _common(folder)
    path = common / "features.json"
    if not path.exists():
        rows, log = _rows_file(common), _log_file(common)
        run_layoutopt("analyze", str(log), "--schema", str(rows), "-o", str(path))
    return path


def _table_of(folder: Path, rows: Path, *flags: str) -> Path:
    """Return the table of rows, which is made if it is missing."""
    table, plan = folder / "table", folder / "plan.json"
    if not table.exists():
        run_layoutopt("plan", str(rows), "--features", str(_features_file(folder)), *flags, "-o", str(plan))
        run_layoutopt("load", str(rows), str(table), "--plan", str(plan), "--executor", "local")
    return table


def _analyze(folder: Path, statements: int) -> Sequence[str]:
    schema = str(_rows_file(_common(folder)))
    return "analyze", str(_log_file(folder, statements)), "--schema", schema, "-o", str(folder / "features.json")


def _evaluate_log(folder: Path, statements: int) -> Sequence[str]:
    common = _common(folder)
    table = _table_of(common, _rows_file(common), "--method", "sop", "--block-rows", str(_BLOCK_ROWS))
    return "evaluate", str(table), str(_log_file(folder, statements))


def _evaluate_blocks(folder: Path, blocks: int) -> Sequence[str]:
    common = _common(folder)
    table = _table_of(folder, _rows_file(common), "--method", "sop", "--block-rows", str(_ROWS // blocks))
    return "evaluate", str(table), str(_log_file(common))


def _plan(folder: Path, rows: Path, *flags: str) -> Sequence[str]:
    return "plan", str(rows), "--features", str(_features_file(folder)), *flags, "-o", str(folder / "plan.json")


def _plan_rows(folder: Path, rows: int) -> Sequence[str]:
    return _plan(folder, _rows_file(folder, rows), "--method", "gsop")


def _plan_partitions(folder: Path, partitions: int) -> Sequence[str]:
    by = ("--method", "sop", "--partition-by", _PARTITION)
    return _plan(folder, _rows_file(folder, partitions=partitions), *by)


def _wide_file(folder: Path, columns: int) -> Path:
    """Write rows of trips with so many columns, the added ones of whole numbers."""

    def write(path: Path) -> None:
        table, random = make_rows("trips", _ROWS_OF_WIDE), np.random.default_rng(columns)
        for number in range(columns - table.num_columns):
            table = table.append_column(f"Column{number}", pa.array(random.integers(0, 1_000, _ROWS_OF_WIDE)))
        pq.write_table(table, path)

    return _make_once(folder / "rows.parquet", write)


def _plan_columns(folder: Path, columns: int) -> Sequence[str]:
    rows, features = _wide_file(folder, columns), folder / "features.json"
    if not features.exists():
        log = _log_file(_common(folder))
        run_layoutopt("analyze", str(log), "--schema", str(rows), "-o", str(features))
    flags = ("--method", "sop", "--block-rows", str(_BLOCK_ROWS))
    return "plan", str(rows), "--features", str(features), *flags, "-o", str(folder / "plan.json")


def _load(folder: Path, size: int) -> Sequence[str]:
    plan = str(folder / "plan.json")
    return "load", str(folder / "rows.parquet"), str(folder / "table"), "--plan", plan, "--executor", "local"


def _verify(folder: Path, size: int) -> Sequence[str]:
    return "verify", str(folder / "table")


def _append(folder: Path, size: int) -> Sequence[str]:
    """Append some of the first partition's rows."""
    few = folder / "few.parquet"
    rows = pq.ParquetFile(folder / "rows.parquet").read_row_group(0)
    pq.write_table(rows.filter(pc.equal(rows[_PARTITION], 0)).slice(0, 10), few)
    return "append", str(folder / "table"), str(few), "--executor", "local"


_STAGES: Final = (
    _Stage("analyze", STATEMENTS, 1.05, _five(100_000), _analyze, "features.json"),
    _Stage("evaluate", STATEMENTS, 1.05, _five(100_000), _evaluate_log),
    _Stage("evaluate", BLOCKS, 1.0, _five(10_000), _evaluate_blocks),
    _Stage("plan", ROWS, 0.2, _five(3_000_000), _plan_rows, "plan.json"),
    _Stage("load", ROWS, 1.02, _five(3_000_000), _load, "table", ("plan",)),
    _Stage("verify", ROWS, 1.02, _five(3_000_000), _verify, needs=("load",)),
    _Stage("plan", PARTITIONS, 0.2, _five(10_000), _plan_partitions, "plan.json"),
    _Stage("load", PARTITIONS, 1.0, _five(10_000), _load, "table", ("plan",)),
    _Stage("append", PARTITIONS, 0.1, _five(10_000), _append, needs=("load",)),
    _Stage("plan", COLUMNS, 1.05, _five(2_000), _plan_columns, "plan.json"),
    _Stage("load", COLUMNS, 1.05, _five(2_000), _load, "table", ("plan",)),
)


def run_growth(folder: Path, names: Sequence[str] = (), say: Say = print) -> list[Curve]:
    """Measure stages at all sizes; what was measured below the folder is not measured again.

    Args:
        names: the verbs of the stages, all when empty. What they need is run, too.

    Raises:
        SettingError: this is not Linux, or an unknown stage.
        LayoutoptError: a command failed.
    """
    check_peaks()
    known = list(dict.fromkeys(stage.stage for stage in _STAGES))
    if unknown := [name for name in names if name not in known]:
        raise SettingError(f"unknown stage {unknown[0]!r}: expected {', '.join(known)}")
    start = run(Step("starting a command", folder / "start.json", partial(_measure, ("--version",))), say)["processor"]
    return [_measure_stage(folder, stage, start, say) for stage in _STAGES if not names or stage.stage in names]


def _measure_stage(folder: Path, stage: _Stage, start: float, say: Say) -> Curve:
    measured = [run(_step_of(folder, stage, size), say) for size in stage.sizes]
    return Curve(
        stage.stage, stage.by, stage.most, stage.sizes,
        seconds=tuple(each["seconds"] for each in measured),
        processor=tuple(each["processor"] for each in measured),
        peaks=tuple(each["peak"] for each in measured),
        bytes=tuple(each["bytes"] for each in measured),
        start=start,
    )  # fmt: skip


def _step_of(folder: Path, stage: _Stage, size: int) -> Step:
    own = folder / stage.by / str(size)
    needs = [other for other in _STAGES if other.by == stage.by and other.stage in stage.needs]

    def make() -> Json:
        own.mkdir(parents=True, exist_ok=True)
        words = stage.words(own, size)
        return _measure(words, own / stage.product if stage.product else None)

    return Step(
        f"{stage.stage}, {size:,} {stage.by}",
        folder / f"{stage.name}-{size}.json",
        make,
        tuple(_step_of(folder, other, size) for other in needs),
    )


def _measure(words: Sequence[str], product: Path | None = None) -> Json:
    started, used = time.perf_counter(), processor_seconds_of_children()
    peaks = run_layoutopt(*words)
    return {
        "seconds": round(time.perf_counter() - started, 3),
        "processor": round(processor_seconds_of_children() - used, 3),
        "peak": max(peaks.values(), default=0),
        "bytes": _size_of_product(product),
    }


def _size_of_product(product: Path | None) -> int:
    if product is None:
        return 0
    return size_of(product) if product.is_dir() else product.stat().st_size


def growth_report(curves: Sequence[Curve]) -> Table:
    """Tabulate the seconds at each size, memory and bytes at the largest, and the exponents."""
    table = Table(title="seconds by size, and their exponents", title_justify="left")
    for heading in ("stage", "by"):
        table.add_column(heading)
    for heading in ("sizes", "seconds", "processor", "memory", "written", "exponent", "at most"):
        table.add_column(heading, justify="right")
    for curve in curves:
        table.add_row(
            curve.stage,
            curve.by,
            f"{curve.sizes[0]:,} to {curve.sizes[-1]:,}",
            " ".join(f"{seconds:.1f}" for seconds in curve.seconds),
            " ".join(f"{seconds:.1f}" for seconds in curve.processor),
            f"{curve.peaks[-1] / 2**20:,.0f} MB",
            f"{curve.bytes[-1] / 1e6:,.1f} MB" if curve.bytes[-1] else "",
            f"{curve.exponent:.2f}",
            f"{curve.most:g}",
            style="" if curve.exponent <= curve.most else "bold",
        )
    return table


def plot_growth(curves: Sequence[Curve], path: Path) -> None:
    """Plot seconds against sizes, a panel for each thing that grows, into a PNG file."""
    grown = list(dict.fromkeys(curve.by for curve in curves))
    with plot_file(path, 3.2 * len(grown), 3.2, len(grown)) as panels:
        for by, axes in zip(grown, panels, strict=True):
            for marker, curve in zip("osv^", (curve for curve in curves if curve.by == by), strict=False):
                label = f"{curve.stage}: {curve.exponent:.2f}"
                axes.plot(curve.sizes, curve.processor, marker=marker, markersize=4, label=label)
            axes.set(xlabel=by, xscale="log", yscale="log")
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_formatter(plain_tick)
                axis.set_minor_formatter(lambda value, place: "")
            axes.grid(visible=True, alpha=0.3)
            axes.legend(frameon=False, fontsize=7)
        panels[0].set_ylabel("processor seconds")
