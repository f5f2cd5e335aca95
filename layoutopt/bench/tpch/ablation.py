"""`layoutopt bench ablation`: from blocks as the thesis has them to ours, one deviation at a time, in unseen queries.

Each row adds one deviation to those above it. All are planned as `layoutopt plan` does, with the training stream, and
rehearsed: every block is made and measured but not written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table

from layoutopt.bench.session import spark_when_needed
from layoutopt.bench.steps import Json, Step, key_of, run
from layoutopt.bench.tpch.data import DEFAULT_ROOT, TpchData
from layoutopt.bench.tpch.experiment import Bench, data_step, features_step
from layoutopt.bench.tpch.queries import chosen_streams
from layoutopt.bench.tpch.rehearsals import rehearse_tables
from layoutopt.bench.tpch.variants import YEAR_BLOCK_ROWS
from layoutopt.config.settings import PlanSettings

if TYPE_CHECKING:
    from layoutopt.features.selection import Selection

PARTITION_BY: Final = "o_year"
METHODS: Final = {"chapter3": "sop", "chapter3-skewed": "sop", "chapter4": "gsop", "chapter5": "gsop-r"}
LEAST_BLOCK_ROWS: Final = 700  # as many blocks a year as at scale factor 1, where a year has enough rows


_Added = tuple[str, str, tuple[tuple[str, object], ...]]
_LOCAL: Final[_Added] = ("local features by selectivity, too", "0029", (("local_features", "selectivity"),))
_SEARCHED: Final[Mapping[str, tuple[_Added, ...]]] = {
    "gsop": (_LOCAL, ("groups ranked by selectivity, then moved", "0028", (("search", "default"),))),
    # Loads block copies by all their features, so that local features alone change only what is estimated.
    "gsop-r": (("copies for families of queries", "0030", (*_LOCAL[2], ("search", "default"))),),
}


@dataclass(frozen=True)
class Deviation:
    """One row of the table.

    Attributes:
        label: what is other than in the row above.
        decision: the number of the decision that gives the reason; empty for the first row.
        selection: how features are ranked, as `analyze --selection` has it.
        flags: settings of `plan` beside `--as-written`.
    """

    label: str
    decision: str
    selection: Selection
    flags: tuple[tuple[str, object], ...]


def deviations(method: str) -> tuple[Deviation, ...]:
    """All rows for a method, as written first and the default last."""
    added: list[_Added] = [
        ("features by what each adds, stricter ones too", "0026", ()),
        ("weights by what is skipped beyond others", "0024", (("weights", "marginal"),)),
        *_SEARCHED.get(method, ()),
        ("ranges of a column guide too", "0027", (("slices", True),)),
        ("a portfolio in place of Ward's method", "0031", (("partitioner", "portfolio"),)),
    ]
    if method == "sop":
        added.append(("cuts at values where queries held back gain", "0039", (("guides", "auto"),)))
    added.append(("rows sorted within blocks: the default", "0038", (("row_order", ("auto",)),)))
    rows = [Deviation("as written", "", "text", ())]
    for label, decision, flags in added:
        rows.append(Deviation(label, decision, "coverage", (*rows[-1].flags, *flags)))
    return tuple(rows)


@dataclass(frozen=True)
class AblationFigure:
    """What the unseen queries of a stream read by one row's plan, as shares of full scans.

    Attributes:
        stream: of queries.
        label: the row's.
        decision: the number of the deviation's decision.
        rows: scanned.
        cells: scanned, and tids.
        bytes: to be read, in bytes.
        bytes_share: of a full scan's.
    """

    stream: str
    label: str
    decision: str
    rows: float
    cells: float
    bytes: int
    bytes_share: float


def ablation_figures(
    scale: float,
    *,
    root: Path = DEFAULT_ROOT,
    streams: Sequence[str] = (),
    say: Callable[[str], None] = lambda sentence: None,
) -> list[AblationFigure]:
    """Plan and rehearse every row of some streams, resuming where it stopped.

    Args:
        scale: TPC-H's scale factor.
        root: where data and products go.
        streams: their names; those of chapters 3 to 5 where left out.
        say: called with a line about each step.

    Raises:
        SettingError: an unknown stream.
    """
    with spark_when_needed(f"layoutopt ablation, sf {scale:g}") as spark:
        bench = Bench(TpchData(scale, root), spark)
        chosen = chosen_streams(tuple(streams) or ("chapter3", "chapter4", "chapter5"))
        return [figure for stream in chosen for figure in _of_stream(bench, stream, say)]


def _of_stream(bench: Bench, stream: str, say: Callable[[str], None]) -> list[AblationFigure]:
    rows = deviations(METHODS[stream])
    tables: dict[str, Any] = {}
    for selection in dict.fromkeys(row.selection for row in rows):  # one pass measures one set of features
        tables |= run(_rehearsal_step(bench, stream, [row for row in rows if row.selection == selection]), say)[
            "tables"
        ]
    return [_figure(stream, row, tables[_folder(bench, stream, row).name]) for row in rows]


def _rehearsal_step(bench: Bench, stream: str, rows: Sequence[Deviation]) -> Step:
    folders = [_folder(bench, stream, row) for row in rows]
    key = key_of(f"ablation {stream}", {"tables": [folder.name for folder in folders]})
    return Step(
        f"{stream}: rehearsing {len(rows)} plans",
        bench.folder / f"{key}.json",
        partial(rehearse_tables, bench, stream, folders),
        tuple(_plan_step(bench, stream, row, folder) for row, folder in zip(rows, folders, strict=True)),
    )


def _figure(stream: str, row: Deviation, product: dict[str, Any]) -> AblationFigure:
    totals, full = product["evaluation"]["totals"], product["full_scan"]
    cells = (totals["cells_scanned"] + totals["tids_scanned"]) / full["cells_scanned"]
    return AblationFigure(
        stream,
        row.label,
        row.decision,
        rows=totals["rows_scanned"] / full["rows_scanned"],
        cells=cells,
        bytes=totals["bytes_scanned"],
        bytes_share=totals["bytes_scanned"] / full["bytes_scanned"],
    )


def _folder(bench: Bench, stream: str, row: Deviation) -> Path:
    settings = _settings(bench, stream, row).model_dump(mode="json", exclude={"source"})
    return bench.folder / key_of(f"ablation {stream}", {"selection": row.selection, **settings})


def _settings(bench: Bench, stream: str, row: Deviation) -> PlanSettings:
    return PlanSettings.model_validate(
        {
            "source": str(bench.data.denormalised),
            "partition_by": PARTITION_BY,
            "method": METHODS[stream],
            "block_rows": block_rows(bench.data.scale),
            "as_written": True,
            **dict(row.flags),
        }
    )


def block_rows(scale: float) -> int:
    """The mean block: a year has as many blocks as at scale factor 1.

    >>> block_rows(1), block_rows(0.1), block_rows(0.01)
    (10000, 1000, 700)
    """
    return max(LEAST_BLOCK_ROWS, round(YEAR_BLOCK_ROWS * min(1.0, scale)))


def _plan_step(bench: Bench, stream: str, row: Deviation, folder: Path) -> Step:
    features = features_step(bench, stream, row.selection)

    def make() -> Json:
        from layoutopt.bench.tpch.sharing import known_of
        from layoutopt.config.documents import read_features
        from layoutopt.spark.planning.indexes import plan_with_indexes

        settings = _settings(bench, stream, row)
        started = time.perf_counter()
        known = known_of(str(bench.data.denormalised), features.product.read_bytes())
        known.method = settings.method
        plan = plan_with_indexes(bench.spark(), settings, read_features(features.product), known=known)
        seconds = time.perf_counter() - started
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "plan.json").write_bytes(plan.dumps())
        return {"seconds": seconds, "digest": plan.digest}

    return Step(f"{stream}: planning {row.label}", folder / "planned.json", make, (data_step(bench), features))


def print_ablation(console: Console, figures: Sequence[AblationFigure]) -> None:
    """Print a table for each stream; the last column is what a deviation takes off the bytes of the row above."""
    for stream in dict.fromkeys(figure.stream for figure in figures):
        table = Table(title=f"{stream}, {METHODS[stream]}: unseen queries, of full scans", title_justify="left")
        for name in ("deviation", "decision"):
            table.add_column(name)
        for name in ("rows", "cells and tids", "bytes read", "of all", "gain in bytes"):
            table.add_column(name, justify="right")
        before: AblationFigure | None = None
        for figure in (each for each in figures if each.stream == stream):
            gain = "" if before is None else f"{1 - figure.bytes / before.bytes:+.1%}"
            table.add_row(
                figure.label, figure.decision, f"{figure.rows:.1%}", f"{figure.cells:.1%}",
                f"{figure.bytes / 1e6:,.1f} MB", f"{figure.bytes_share:.1%}", gain,
            )  # fmt: skip
            before = figure
        console.print(table)
