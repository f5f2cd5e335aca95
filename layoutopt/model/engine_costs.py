"""Predicted query times: amounts of work, times an engine's cost of each; names of a plan's predictions.

Fewer bytes don't always take less time: opening a file, finding a row group and joining a row from several layouts have
their own costs. An engine's costs are seconds for one of each, for sequential queries on one machine. ``layoutopt
calibrate`` measures them. The built-in costs give the same plan on any machine: only their ratios matter.

Costs in cells and tids follow Sun 2017, 4.4.2 and 5.4.3. A cell is one value of one row. A tid is charged like a cell
for every row read from a layout, but only where a query reads several layouts: Equation 4.2. (Equation 5.1 charges tids
for a single layout too, where nothing needs them.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from operator import add
from typing import ClassVar, Final

import numpy as np

from layoutopt.errors import PlanError
from layoutopt.model.arrays import Floats
from layoutopt.model.documents import Document
from layoutopt.model.records import Form


@dataclass(frozen=True)
class QueryWork:
    """A query's amounts of work by kind; fractions where they are scaled or averages.

    ``footer_chunks`` are column chunks in the footers of opened files, ``bytes`` the compressed bytes of chunks read,
    and ``values`` the rows read times the columns. Rows that are joined from several layouts count in each layout, in
    ``joined_rows``, and their values, including tids, in ``joined_values``.
    """

    queries: float = 0.0
    files: float = 0.0
    footer_chunks: float = 0.0
    row_groups: float = 0.0
    chunks: float = 0.0
    bytes: float = 0.0
    rows: float = 0.0
    values: float = 0.0
    joined_segments: float = 0.0
    joined_rows: float = 0.0
    joined_values: float = 0.0

    def __add__(self, other: QueryWork) -> QueryWork:
        return QueryWork(*map(add, astuple(self), astuple(other)))

    @property
    def counts(self) -> Floats:
        """Return the amounts in the order of :data:`KINDS`, ``float64[kinds]``."""
        return np.array(astuple(self), dtype=np.float64)


# The kinds of work.
KINDS: Final[tuple[str, ...]] = tuple(field.name for field in fields(QueryWork))


@dataclass(frozen=True)
class EngineCosts:
    """An engine's seconds for one of each kind of work; missing kinds take none.

    >>> EngineCosts({"queries": 0.1, "files": 0.01}).seconds(QueryWork(queries=2, files=5, rows=1e6))
    0.25
    """

    seconds_of: Mapping[str, float]

    def __post_init__(self) -> None:
        for kind, seconds in self.seconds_of.items():
            if kind not in KINDS:
                raise PlanError(f"unknown kind of work {kind!r}: expected one of {', '.join(KINDS)}")
            if not 0 <= seconds < np.inf:
                raise PlanError(f"the cost of {kind} is {seconds} seconds: expected a number from 0; calibrate again")

    @property
    def vector(self) -> Floats:
        """Return the seconds in the order of :data:`KINDS`, ``float64[kinds]``."""
        return np.array([self.seconds_of.get(kind, 0.0) for kind in KINDS])

    def seconds(self, work: QueryWork) -> float:
        """Return the predicted seconds of some work."""
        return float(work.counts @ self.vector)


@dataclass(frozen=True)
class Calibration(Document):
    """The costs of engines on some machine, by engine: the output of `layoutopt calibrate`."""

    engines: Mapping[str, Mapping[str, float]]
    form: ClassVar = Form(constants={"format": "layoutopt-calibration", "version": 1})

    def __post_init__(self) -> None:
        for seconds_of in self.engines.values():
            EngineCosts(seconds_of)

    def costs(self, engine: str) -> EngineCosts:
        """Return the costs of an engine; raise PlanError if it was not calibrated."""
        if engine not in self.engines:
            raise PlanError(f"the engine {engine!r} was not calibrated; give one of {', '.join(sorted(self.engines))}")
        return EngineCosts(self.engines[engine])


# Results of `layoutopt calibrate` on a machine with two cores, in seconds; fixed, so that plans are reproducible.
BUILT_IN: Final = Calibration(
    {
        "spark": {
            "queries": 0.039, "footer_chunks": 2.7e-06, "chunks": 6.9e-06, "bytes": 1.4e-09, "rows": 2.3e-08,
            "values": 5.3e-09, "joined_segments": 0.008, "joined_rows": 2.3e-08, "joined_values": 1.3e-08,
        },
        "duckdb": {
            "footer_chunks": 2e-06, "chunks": 1.8e-05, "bytes": 1.9e-09, "rows": 6.1e-09, "values": 5.9e-09,
            "joined_rows": 3.9e-08, "joined_values": 1.8e-09,
        },
        "arrow": {
            "row_groups": 4.1e-05, "chunks": 9e-06, "bytes": 1.6e-09, "values": 1.8e-09, "joined_segments": 0.01,
            "joined_values": 1.2e-08,
        },
    }
)  # fmt: skip


@dataclass(frozen=True)
class Read:
    """The rows that a query can't skip in a layout (``r`` in Equation 4.1, ``rr`` in 5.1), and its columns there."""

    rows: int
    columns: int


def cells_scanned(reads: Iterable[Read]) -> int:
    """Return the cells that a query scans, over all layouts (Equation 4.1).

    >>> cells_scanned([Read(rows=100, columns=2), Read(rows=40, columns=1)])
    240
    """
    return sum(read.rows * read.columns for read in reads)


def tids_scanned(reads: Sequence[Read]) -> int:
    """Return the tids that a query scans: those of all rows read, none for a single layout (4.2).

    >>> tids_scanned([Read(rows=100, columns=2), Read(rows=40, columns=1)]), tids_scanned([Read(rows=100, columns=2)])
    (140, 0)
    """
    return sum(read.rows for read in reads) if len(reads) > 1 else 0


def query_cost(reads: Sequence[Read]) -> int:
    """Return the cost of Equation 4.3; with overlapping layouts of 5.1, but without tids for a single layout."""
    return cells_scanned(reads) + tids_scanned(reads)


_AT: Final = "@"
# What is predicted of held-out queries, by objective.
_BY: Final = {"bytes": "bytes", "cells": "cells", "time": "seconds"}
_TRIED: Final = {by: f"held_back_{unit}_fraction:" for by, unit in _BY.items()}
_SPREAD: Final = {by: f"held_back_{unit}_spread:" for by, unit in _BY.items()}
_CALIBRATED: Final = "calibrated_seconds:"


def at_budget(name: str, budget: float) -> str:
    """Return the name of a prediction for one of several storage budgets.

    >>> at_budget("storage_cells", 1.2)
    'storage_cells@1.2'
    """
    return f"{name}{_AT}{budget:g}"


def select_own_predictions(predicted: Mapping[str, float]) -> dict[str, float]:
    """Return the predictions of the plan's own scheme.

    >>> select_own_predictions({"storage_cells": 1.19, "storage_cells@1.1": 1.09})
    {'storage_cells': 1.19}
    """
    prefixes = (*_TRIED.values(), *_SPREAD.values(), _CALIBRATED)
    return {name: value for name, value in predicted.items() if _AT not in name and not name.startswith(prefixes)}


def name_held_out_share(label: str, by: str = "bytes") -> str:
    """Return the name of the share of full scans that held-out queries read, for a method or choice of parameters.

    >>> name_held_out_share("gsop"), name_held_out_share("gsop", "time")
    ('held_back_bytes_fraction:gsop', 'held_back_seconds_fraction:gsop')
    """
    return _TRIED[by] + label


def name_held_out_spread(label: str, by: str = "bytes") -> str:
    """Return the name of that share's standard deviation over samples of queries.

    >>> name_held_out_spread("gsop")
    'held_back_bytes_spread:gsop'
    """
    return _SPREAD[by] + label


def held_out_spreads(predicted: Mapping[str, float], by: str = "bytes") -> dict[str, float]:
    """Return the standard deviations over held-out queries, by method, where known.

    >>> held_out_spreads({"gap": 0.1, "held_back_bytes_spread:sop": 0.02})
    {'sop': 0.02}
    """
    return _select_prefixed(predicted, _SPREAD[by])


def held_out_shares(predicted: Mapping[str, float], by: str = "bytes") -> dict[str, float]:
    """Return the shares that held-out queries read, by method, the best first.

    >>> held_out_shares({"gap": 0.1, "held_back_bytes_fraction:sop": 0.2, "held_back_bytes_fraction:gsop": 0.1})
    {'gsop': 0.1, 'sop': 0.2}
    """
    return dict(sorted(_select_prefixed(predicted, _TRIED[by]).items(), key=lambda item: item[1]))


def to_cost_predictions(engine: str, seconds_of: Mapping[str, float]) -> dict[str, float]:
    """Return an engine's costs as named predictions of a plan.

    >>> to_cost_predictions("spark", {"files": 0.01})
    {'calibrated_seconds:spark:files': 0.01}
    """
    return {f"{_CALIBRATED}{engine}:{kind}": seconds for kind, seconds in seconds_of.items()}


def from_cost_predictions(predicted: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return the user's engine costs that a plan was chosen by, by engine and kind of work.

    >>> from_cost_predictions({"gap": 0.1, "calibrated_seconds:spark:files": 0.01})
    {'spark': {'files': 0.01}}
    """
    costs: dict[str, dict[str, float]] = {}
    for name, seconds in _select_prefixed(predicted, _CALIBRATED).items():
        engine, _, kind = name.partition(":")
        costs.setdefault(engine, {})[kind] = seconds
    return costs


def _select_prefixed(predicted: Mapping[str, float], prefix: str) -> dict[str, float]:
    return {name.removeprefix(prefix): value for name, value in predicted.items() if name.startswith(prefix)}


def predictions_by_budget(predicted: Mapping[str, float]) -> dict[float, dict[str, float]]:
    """Return the predictions of each storage budget, ascending; empty if there was only one.

    >>> predictions_by_budget({"storage_cells": 1.19, "storage_cells@1.2": 1.19, "storage_cells@1.1": 1.09})
    {1.1: {'storage_cells': 1.09}, 1.2: {'storage_cells': 1.19}}
    """
    by_budget: dict[float, dict[str, float]] = {}
    for name, value in predicted.items():
        prediction, separator, budget = name.partition(_AT)
        if separator:
            by_budget.setdefault(float(budget), {})[prediction] = value
    return dict(sorted(by_budget.items()))
