"""How much work a query is, counted on the catalog alone: what its seconds are predicted from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from layoutopt.model.engine_costs import BUILT_IN, Calibration, Work
from layoutopt.model.layout import Layout
from layoutopt.model.predicted import calibrations
from layoutopt.scan.prune import PrunedPlan
from layoutopt.scan.table import Scan, Table


def work_of(pruned: Iterable[PrunedPlan], layouts: Sequence[Layout] = ()) -> Work:
    """The work of a query that reads a table once.

    Args:
        pruned: what it reads of each plan's blocks.
        layouts: what the files hold, where the plan that was pruned has fewer columns.
    """
    return sum((_of_plan(plan, layouts) for plan in pruned), Work(queries=1))


def costs_for(table: Table, given: Calibration | None = None) -> Calibration:
    """What engines cost: as given, else as the newest plan of the table was chosen by, else the built-in costs."""
    if given is not None:
        return given
    recorded: dict[str, dict[str, float]] = {}
    for source in table.sources:
        recorded |= calibrations(source.plan.predicted)
    return Calibration({**BUILT_IN.engines, **recorded})


def predicted_seconds(calibration: Calibration, work: Work) -> dict[str, float]:
    """What the work is predicted to take, by the engines' names."""
    return {engine: round(calibration.costs(engine).seconds(work), 6) for engine in sorted(calibration.engines)}


def scan_work(scan: Scan) -> Work:
    """The work of a query that may read a table several times."""
    parts = sum((work_of(read.pruned) for read in scan.reads), Work())
    return replace(parts, queries=1)


def _of_plan(pruned: PrunedPlan, layouts: Sequence[Layout]) -> Work:
    if not any(choice.columns for choice in pruned.choice):
        return Work()  # the catalog alone says how many rows there are
    blocks, read = pruned.source.blocks, pruned.read
    opened = np.isin(blocks.file, np.unique(blocks.file[read]))
    # Files of rows without a local feature have the master columns alone.
    stored = [(len(of.columns), len(of.master)) for of in layouts or pruned.source.plan.scheme.layouts]
    in_files = np.array(stored)[blocks.layout[opened], blocks.part[opened].astype(np.int64)]
    joined = len(pruned.choice) > 1
    rows = values = chunks = 0
    for choice in pruned.choice:
        here = read & (blocks.layout == choice.layout)
        columns, n_rows = len(choice.columns) + joined, int(blocks.rows[here].sum())
        rows, values = rows + n_rows, values + n_rows * columns
        chunks += int(np.count_nonzero(here)) * columns
    return Work(
        files=len(np.unique(blocks.file[read])),
        footer_chunks=float(in_files.sum()),
        row_groups=int(np.count_nonzero(read)),
        chunks=chunks,
        bytes=float(pruned.bytes[read].sum()),
        rows=0 if joined else rows,
        values=0 if joined else values,
        joined_segments=len(np.unique(pruned.source.segment_of[read])) if joined else 0,
        joined_rows=rows if joined else 0,
        joined_values=values if joined else 0,
    )
