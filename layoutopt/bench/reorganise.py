"""`layoutopt bench reorganise`: what `optimize` regains within a share of a table's bytes, by tables really written.

The table is laid out for chapter 4's templates. Then half of them are replaced: queries of the new log read more than
they would from a table planned and loaded for them. The same table is optimized within each share of its bytes, and its
catalog tells what queries read then, as for a table that was planned and loaded anew.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from rich.table import Table

from layoutopt.bench.experiment import TEST, TRAIN, Experiment, Variant
from layoutopt.bench.plots import megabytes, plot_file
from layoutopt.bench.steps import Json, Say, Step, run, spark_when_needed
from layoutopt.bench.tpch import Tpch, tpch_at
from layoutopt.bench.tpch_queries import STREAMS, Stream
from layoutopt.errors import SettingError

if TYPE_CHECKING:
    from layoutopt.spark.changes.optimize import OptimizeReport

# Shares of the table's bytes that may be rewritten.
SHARES: Final = (0.05, 0.1, 0.15, 0.2, 0.3)
METHOD: Final = "gsop"
OLD: Final = STREAMS["chapter4"].templates

# Templates that replace a half of the old ones, and the two halves.
NEW: Final = ("q2", "q7", "q8", "q14", "q17")
HALVES: Final[Mapping[str, tuple[str, ...]]] = {
    "first": ("q5", "q11", "q16", "q20", "q22"),
    "second": ("q3", "q6", "q12", "q19", "q21"),
}


@dataclass(frozen=True)
class RegainedFigure:
    """What an optimize within a share of the table's bytes regained.

    Attributes:
        half: the templates that were replaced, one of :data:`HALVES`.
        share: of the table's bytes, that could be rewritten; 0 is the table as it was, 1 one that was loaded anew.
        written, stored: bytes that were written, and those of all data files then.
        read, unseen: bytes that the recent log's queries read, and other queries of the same templates.
        regained, regained_unseen: the share of what planning and loading anew saves them; None where that is nothing.
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
    scale: float, *, root: Path, shares: Sequence[float] = SHARES, halves: Sequence[str] = (), say: Say
) -> list[RegainedFigure]:
    """Plan, load and optimize; what an earlier run left below `root` is used again.

    Shares are of the table's bytes, between 0 and 1; halves are of :data:`HALVES`, all when empty.

    Raises:
        SettingError: an unknown half, or a share out of range.
    """
    for name in halves:
        if name not in HALVES:
            raise SettingError(f"unknown half of the templates {name!r} in --streams: expected first or second")
    for share in shares:
        if not 0 < share < 1:
            raise SettingError(f"--shares has {share:g}: expected shares of the table between 0 and 1")
    with spark_when_needed(f"layoutopt reorganise, sf {scale:g}") as spark:
        tpch = tpch_at(scale, root, spark)
        return [figure for half in halves or HALVES for figure in figures_of_half(tpch, half, shares, say)]


def figures_of_half(tpch: Tpch, half: str, shares: Sequence[float], say: Say) -> list[RegainedFigure]:
    """Return the figures of one half, ascending by the share that may be rewritten."""
    change = Change(tpch, half)
    products = {0.0: run(change.before(), say), 1.0: run(change.anew(), say)}
    products |= {share: run(change.optimized(share), say) for share in sorted(shares)}

    def regained(product: Mapping[str, Any], unit: str) -> float | None:
        saved = products[0.0][unit] - products[1.0][unit]
        return (products[0.0][unit] - product[unit]) / saved if saved > 0 else None

    return [
        RegainedFigure(
            half, share, **product, regained=regained(product, "read"), regained_unseen=regained(product, "unseen")
        )
        for share, product in sorted(products.items())
    ]


@dataclass
class Change:
    """A table for the old templates, of which a half is replaced."""

    tpch: Tpch
    half: str

    def __post_init__(self) -> None:
        """Name both logs, and the layout of both tables."""
        templates = (*(name for name in OLD if name not in HALVES[self.half]), *NEW)
        self.old: Experiment = self.tpch.experiment("reorganised old", Stream(OLD))
        self.new: Experiment = self.tpch.experiment(f"reorganised {self.half}", Stream(templates))
        self.variant: Variant = self.tpch.by_year(METHOD, METHOD, written=True)

    def before(self) -> Step:
        """Plan and load the old table, and count what the new queries read of it."""
        return self._reading("as it was", self.old, lambda table: self._read(table, 0))

    def anew(self) -> Step:
        """Plan and load a table for the new queries, and count what they read of it."""
        return self._reading("loaded anew", self.new, lambda table: self._read(table, None))

    def _reading(self, state: str, of: Experiment, read: Callable[[Path], Json]) -> Step:
        folder, loaded = of.folder(self.variant), of.load(self.variant)
        name = f"{self.half}: reading the table {state}"
        return Step(name, folder / f"read-{self.half}.json", lambda: read(folder / "table"), (loaded,))

    def optimized(self, share: float) -> Step:
        """Optimize the old table for the new log within a share of its bytes, and count what its queries read then."""
        folder = self.new.folder(self.variant)

        def make() -> Json:
            from layoutopt.model.requests import OptimizeRequest
            from layoutopt.spark.changes.optimize import optimize_table

            table = folder / f"optimized-{share:g}"
            shutil.rmtree(table, ignore_errors=True)
            # Files of a table never change, so hard links to them are a copy that takes no room.
            shutil.copytree(self.old.folder(self.variant) / "table", table, copy_function=os.link)
            log, plan = str(self.new.log(TRAIN)), folder / "plan.json"
            settings = OptimizeRequest(table_path=str(table), log=log, plan=plan, budget_share=share)
            report: OptimizeReport = optimize_table(self.tpch.spark(), settings)
            product = self._read(table, sum(load.bytes for load in report.loads))
            shutil.rmtree(table)
            return product

        name = f"{self.half}: optimizing within {share:g} of the bytes"
        return Step(name, folder / f"optimized-{share:g}.json", make, (self.before(), self.anew()))

    def _read(self, path: Path, written: int | None) -> dict[str, int]:
        """Count the bytes that queries of the new templates read of a table, stored and written; all where None."""
        from layoutopt.inspect.cost import measure_entry_bytes
        from layoutopt.scan.table import open_table
        from layoutopt.workload.analyze import analyze
        from layoutopt.workload.log import read_log

        table = open_table(str(path))
        read = {}
        for unit, role in (("read", TRAIN), ("unseen", TEST)):
            queries = analyze(read_log(self.new.log(role)), table.schema, table.name).queries
            sizes = measure_entry_bytes(table, queries)
            read[unit] = round(float(sizes.weights @ sizes.read.sum(axis=1)))
        stored = sum(entry.bytes for entry in table.catalog.partitions)
        return {**read, "stored": stored, "written": stored if written is None else written}


def reorganised_report(figures: Sequence[RegainedFigure], scale: float) -> Table:
    """Tabulate what is read and regained by the share that may be rewritten."""
    title = f"half of chapter 4's templates replaced, scale factor {scale:g}: what optimize regains"
    table = Table(title=title, title_justify="left")
    headings = ("replaced", "budget", "written", "stored", "the log reads", "regained", "unseen read", "regained")
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="left" if place < 2 else "right")
    stored = {figure.half: figure.stored for figure in figures if figure.share == 0}

    def percent(share: float | None) -> str:
        return "-" if share is None else f"{share:.1%}"

    for figure in figures:
        table.add_row(
            ", ".join(HALVES[figure.half]),
            {0.0: "as it was", 1.0: "planned and loaded anew"}.get(figure.share, f"{figure.share:.0%}"),
            f"{figure.written / stored[figure.half]:.1%}",
            megabytes(figure.stored),
            megabytes(figure.read),
            percent(figure.regained),
            megabytes(figure.unseen),
            percent(figure.regained_unseen),
        )
    return table


def plot_reorganised(figures: Sequence[RegainedFigure], path: Path) -> None:
    """Plot what is regained over the bytes that were written, a line for each half, into an image file."""
    stored = {figure.half: figure.stored for figure in figures if figure.share == 0}
    partial = [figure for figure in figures if figure.share < 1]
    with plot_file(path, 5.0, 4.0) as (axes,):
        for marker, half in zip("os", dict.fromkeys(figure.half for figure in figures), strict=False):
            of_half = [figure for figure in partial if figure.half == half]
            written = [100 * figure.written / stored[half] for figure in of_half]
            regained = [np.nan if figure.regained is None else 100 * figure.regained for figure in of_half]
            axes.plot(written, regained, marker=marker, label=f"{', '.join(HALVES[half])} replaced")
        axes.plot([0, 100], [0, 100], linestyle="--", color="grey", label="if every byte gained alike")
        most = max((100 * figure.written / stored[figure.half] for figure in partial), default=30.0)
        axes.set(xlabel="% of the table's bytes written", ylabel="% regained of what a fresh plan saves")
        axes.set(xlim=(0, max(10.0, 1.1 * most)), ylim=(0, 110))
        axes.grid(visible=True, alpha=0.3)
        axes.legend(frameon=False, loc="lower right")
