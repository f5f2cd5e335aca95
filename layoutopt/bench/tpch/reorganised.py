"""`layoutopt bench reorganise`: what `optimize` regains within a share of a table's bytes, by tables really written.

The table is laid out for chapter 4's templates. Then half of them give way to others: queries of the new log read more
than they would of a table planned and loaded for them. The same table is optimized within each share of its bytes, and
what queries read of it then is told by its catalog, as for a table that was planned and loaded anew.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from rich.table import Table as ConsoleTable

from layoutopt.bench.session import spark_when_needed
from layoutopt.bench.steps import Json, Step, key_of, run
from layoutopt.bench.tpch.ablation import PARTITION_BY, block_rows
from layoutopt.bench.tpch.data import DEFAULT_ROOT, TpchData
from layoutopt.bench.tpch.experiment import SEED, Bench, Variant, analysed, data_step, load_table, make_plan_file
from layoutopt.bench.tpch.queries import (
    STREAMS,
    TEST_QUERIES,
    TRAINING_QUERIES,
    Stream,
    draw_stream,
    write_log,
)
from layoutopt.bench.tpch.report import megabytes
from layoutopt.errors import SettingError

if TYPE_CHECKING:
    from layoutopt.spark.changes.optimize import OptimizeReport

SHARES: Final = (0.05, 0.1, 0.15, 0.2, 0.3)
"""Of the table's bytes, that may be written."""

OLD: Final = STREAMS["chapter4"].templates
COME: Final = ("q2", "q7", "q8", "q14", "q17")
HALVES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"first": ("q5", "q11", "q16", "q20", "q22"), "second": ("q3", "q6", "q12", "q19", "q21")}
)
"""Which templates give way to :data:`COME`."""


@dataclass(frozen=True)
class RegainedFigure:
    """What an optimize within a share of the table's bytes regained.

    Attributes:
        half: which templates gave way, one of :data:`HALVES`.
        share: of the table's bytes, that could be written; 0 is the table as it was, 1 one that was loaded anew.
        written: bytes that were.
        stored: of the table's data files then.
        read: bytes that the recent log's queries read of it.
        unseen: bytes that other queries of the same templates read.
        regained: of what planning and loading anew saves the log's queries, the share; None where that saves nothing.
        regained_unseen: the same for the others.
    """

    half: str
    share: float
    written: int
    stored: int
    read: int
    unseen: int
    regained: float | None
    regained_unseen: float | None


def reorganised_figures(
    scale: float,
    *,
    root: Path = DEFAULT_ROOT,
    shares: Sequence[float] = SHARES,
    halves: Sequence[str] = (),
    method: str = "gsop",
    say: Callable[[str], None] = lambda sentence: None,
) -> list[RegainedFigure]:
    """Plan, load and optimize; steps that an earlier run finished are not run again.

    Args:
        scale: TPC-H's scale factor.
        root: where data and products go.
        shares: of the table's bytes, each between 0 and 1.
        halves: names of :data:`HALVES`; all of them when empty.
        method: of both plans.
        say: told each step.

    Raises:
        SettingError: an unknown half, or a share that is none.
    """
    for name in halves:
        if name not in HALVES:
            raise SettingError(f"--streams names {name!r}, which is no half of the templates; give first or second")
    for share in shares:
        if not 0 < share < 1:
            raise SettingError(f"--shares has {share:g}, which is no part of a table; give some between 0 and 1")
    with spark_when_needed(f"layoutopt reorganise, sf {scale:g}") as spark:
        bench = Bench(TpchData(scale, root), spark)
        return [figure for half in halves or HALVES for figure in _of_half(bench, half, shares, method, say)]


def _of_half(
    bench: Bench, half: str, shares: Sequence[float], method: str, say: Callable[[str], None]
) -> list[RegainedFigure]:
    change = Change(bench, half, method)
    products = [(0.0, run(change.step_of(change.old, 0.0), say)), (1.0, run(change.step_of(change.fresh, 1.0), say))]
    products += [(share, run(change.optimized(share), say)) for share in sorted(shares)]
    as_was, fresh = products[0][1], products[1][1]

    def regained(of: Mapping[str, Any], what: str) -> float | None:
        saved = as_was[what] - fresh[what]
        return (as_was[what] - of[what]) / saved if saved > 0 else None

    return [
        RegainedFigure(half, share, **of, regained=regained(of, "read"), regained_unseen=regained(of, "unseen"))
        for share, of in sorted(products, key=lambda each: each[0])
    ]


@dataclass(frozen=True)
class Change:
    """A table for the old templates, and half of them replaced.

    Attributes:
        bench: data, folder, session.
        half: which gave way.
        method: of the plans.
    """

    bench: Bench
    half: str
    method: str

    @property
    def templates(self) -> tuple[str, ...]:
        """Those of the recent log."""
        return (*(name for name in OLD if name not in HALVES[self.half]), *COME)

    @property
    def old(self) -> Path:
        """The folder of the table for the old templates."""
        return self._folder("reorganised old", OLD)

    @property
    def fresh(self) -> Path:
        """The folder of the table that is planned and loaded for the new ones."""
        return self._folder(f"reorganised {self.half}", self.templates)

    def _folder(self, name: str, templates: tuple[str, ...]) -> Path:
        asked = {"templates": templates, "method": self.method, "block_rows": block_rows(self.bench.data.scale)}
        return self.bench.folder / key_of(f"{name} {self.method}", asked)

    def log(self, role: str) -> Path:
        """The recent log (``train``), or other queries of its templates (``test``), written where it is not there."""
        path = self.bench.folder / f"reorganised-{self.half}-{role}.jsonl"
        return _log_of(self.templates, role, path)

    def step_of(self, folder: Path, share: float) -> Step:
        """Plan and load a table, and see what the new log's queries read of it."""
        loaded = _load_step(self.bench, folder, OLD if share == 0 else self.templates, self.method)

        def make() -> Json:
            return self._read(folder / "table", loaded.product if share else None)

        return Step(f"{self.half}: reading {folder.name}", folder / f"read-{self.half}.json", make, (loaded,))

    def optimized(self, share: float) -> Step:
        """Optimize the old table for the new log within a share of its bytes, and see what its queries read then."""
        return Step(
            f"{self.half}: optimizing within {share:g} of the bytes",
            self.fresh / f"optimized-{share:g}.json",
            partial(self._optimize, share),
            (self.step_of(self.old, 0.0), self.step_of(self.fresh, 1.0)),
        )

    def _optimize(self, share: float) -> Json:
        from layoutopt.config.settings import OptimizeSettings
        from layoutopt.spark.changes.optimize import optimize_by

        table = self.fresh / f"optimized-{share:g}"
        shutil.rmtree(table, ignore_errors=True)
        # No file of a table is ever changed, so a table with the same ones is a copy that takes no room.
        shutil.copytree(self.old / "table", table, copy_function=os.link)
        settings = OptimizeSettings(
            table_path=str(table), log=str(self.log("train")), plan=self.fresh / "plan.json", budget_share=share
        )
        found = self._read(table, optimize_by(self.bench.spark(), settings))
        shutil.rmtree(table)
        return found

    def _read(self, path: Path, made: OptimizeReport | Path | None) -> dict[str, int]:
        """What queries of the new templates read of a table, and what was written for it."""
        from layoutopt.inspect.cost import entry_bytes
        from layoutopt.scan.table import open_table
        from layoutopt.workload.analyze import analyze
        from layoutopt.workload.log import read_log

        table = open_table(str(path))
        read = {}
        for what, role in (("read", "train"), ("unseen", "test")):
            queries = analyze(read_log(self.log(role)), table.schema, table.name).queries
            found = entry_bytes(table, queries)
            read[what] = round(float(found.weights @ found.read.sum(axis=1)))
        stored = sum(entry.bytes for entry in table.catalog.partitions)
        written = 0 if made is None else stored if isinstance(made, Path) else sum(load.bytes for load in made.loads)
        return {**read, "stored": stored, "written": written}


def _log_of(templates: tuple[str, ...], role: str, path: Path) -> Path:
    if not path.exists():
        count = TRAINING_QUERIES if role == "train" else TEST_QUERIES
        write_log(draw_stream(Stream(templates), role, count, SEED), path)
    return path


def _load_step(bench: Bench, folder: Path, templates: tuple[str, ...], method: str) -> Step:
    """Analyse a log of these templates, plan by it, and load."""
    variant = Variant(folder.name, method, PARTITION_BY, block_rows(bench.data.scale))

    def make_features() -> Json:
        return analysed(bench, _log_of(templates, "train", folder / "log.jsonl"))

    data = data_step(bench)
    features = Step(f"analysing the log of {folder.name}", folder / "features.json", make_features, (data,))
    make = partial(make_plan_file, bench.spark, bench.data.denormalised, variant, features.product, folder)
    planned = Step(f"planning {folder.name}", folder / "planned.json", make, (features,))
    load = partial(_loaded, bench, folder)
    return Step(f"loading {folder.name}", folder / "loaded.json", load, (planned,))


def _loaded(bench: Bench, folder: Path) -> Json:
    return load_table(bench.spark(), bench.data.denormalised, folder)


def reorganised_report(figures: Sequence[RegainedFigure], scale: float) -> ConsoleTable:
    """Tabulate what is read and regained by the share that may be written."""
    title = f"half of chapter 4's templates replaced, scale factor {scale:g}: what optimize regains"
    table = ConsoleTable(title=title, title_justify="left")
    for heading in ("gave way", "budget", "written", "stored", "the log reads", "regained", "unseen read", "regained"):
        table.add_column(heading, justify="left" if heading in ("gave way", "budget") else "right")
    stored = {one.half: one.stored for one in figures if one.share == 0}
    for one in figures:
        table.add_row(
            ", ".join(HALVES[one.half]),
            {0.0: "as it was", 1.0: "planned and loaded anew"}.get(one.share, f"{one.share:.0%}"),
            f"{one.written / stored[one.half]:.1%}",
            megabytes(one.stored),
            megabytes(one.read),
            _percent(one.regained),
            megabytes(one.unseen),
            _percent(one.regained_unseen),
        )
    return table


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def plot_reorganised(figures: Sequence[RegainedFigure], path: Path) -> None:
    """Draw what is regained over the bytes that were written, a line for each half, into an image file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    picture = Figure(figsize=(5.0, 4.0), dpi=120, layout="constrained")
    FigureCanvasAgg(picture)
    axes = picture.subplots()
    stored = {one.half: one.stored for one in figures if one.share == 0}
    for marker, half in zip("os", dict.fromkeys(one.half for one in figures), strict=False):
        mine = [one for one in figures if one.half == half and one.share < 1]
        written = [100 * one.written / stored[half] for one in mine]
        label = f"{', '.join(HALVES[half])} gave way"
        axes.plot(
            written,
            [np.nan if one.regained is None else 100 * one.regained for one in mine],
            marker=marker,
            label=label,
        )
    axes.plot([0, 100], [0, 100], linestyle="--", color="grey", label="if every byte gained alike")
    most = max((100 * one.written / stored[one.half] for one in figures if one.share < 1), default=30.0)
    axes.set(xlabel="% of the table's bytes written", ylabel="% regained of what a fresh plan saves")
    axes.set(xlim=(0, max(10.0, 1.1 * most)), ylim=(0, 110))
    axes.grid(visible=True, alpha=0.3)
    axes.legend(frameon=False, loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, metadata={"Software": None})
