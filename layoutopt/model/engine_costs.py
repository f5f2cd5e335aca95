"""What a query takes in seconds: how much work it is, by what an engine takes for each piece of it.

Bytes saved are not time saved: a file to open, a row group to find and a row to put together from several layouts take
their time whatever they hold. An engine's costs are seconds for one of each, of one query after another on one machine;
``layoutopt calibrate`` measures them there. Without that, the built-in ones are used, so that the same input
gives the same plan on any machine: only their ratios matter then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from typing import ClassVar, Final

import numpy as np

from layoutopt.errors import PlanError
from layoutopt.model.arrays import Floats
from layoutopt.model.documents import Document
from layoutopt.model.records import Form


@dataclass(frozen=True)
class Work:
    """What a query has to do, in numbers of each kind; they may be fractions where they are scaled or averages.

    Where rows are put together from several layouts, each layout's count, and they count as joined.

    Attributes:
        queries: how many.
        files: data files opened.
        footer_chunks: column chunks that the footers of these describe.
        row_groups: row groups read.
        chunks: column chunks read.
        bytes: their compressed bytes.
        rows: rows read of layouts that give all columns.
        values: their values, those rows times the columns read.
        joined_segments: segments of which rows are put together.
        joined_rows: rows read there.
        joined_values: their values, tids included.
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

    def __add__(self, other: Work) -> Work:
        return Work(*(one + two for one, two in zip(astuple(self), astuple(other), strict=True)))

    @property
    def counts(self) -> Floats:
        """The numbers in the order of :data:`KINDS`, ``float64[kinds]``."""
        return np.array(astuple(self), dtype=np.float64)


KINDS: Final[tuple[str, ...]] = tuple(each.name for each in fields(Work))
"""What work is counted by."""


@dataclass(frozen=True)
class EngineCosts:
    """The seconds that an engine takes for one of each kind of work; kinds that are left out take none.

    >>> EngineCosts({"queries": 0.1, "files": 0.01}).seconds(Work(queries=2, files=5, rows=1e6))
    0.25
    """

    seconds_of: Mapping[str, float]

    def __post_init__(self) -> None:
        for kind, seconds in self.seconds_of.items():
            if kind not in KINDS:
                raise PlanError(f"there is no work called {kind!r} that takes seconds; give {', '.join(KINDS)}")
            if not 0 <= seconds < np.inf:
                raise PlanError(f"{kind} take {seconds} seconds, which is no time; calibrate again")

    @property
    def vector(self) -> Floats:
        """The seconds in the order of :data:`KINDS`, ``float64[kinds]``."""
        return np.array([self.seconds_of.get(kind, 0.0) for kind in KINDS])

    def seconds(self, work: Work) -> float:
        """What the work is predicted to take."""
        return float(work.counts @ self.vector)


@dataclass(frozen=True)
class Calibration(Document):
    """The costs of engines on some machine, by the names of the engines: what `calibrate` writes.

    Raises:
        PlanError: a kind of work is unknown, or takes no sensible time.
    """

    engines: Mapping[str, Mapping[str, float]]
    form: ClassVar = Form(constants={"format": "layoutopt-calibration", "version": 1})

    def __post_init__(self) -> None:
        for seconds_of in self.engines.values():
            EngineCosts(seconds_of)

    def costs(self, engine: str) -> EngineCosts:
        """The costs of an engine.

        Raises:
            PlanError: it was not calibrated.
        """
        if engine not in self.engines:
            raise PlanError(f"the engine {engine!r} was not calibrated; give one of {', '.join(sorted(self.engines))}")
        return EngineCosts(self.engines[engine])


BUILT_IN: Final = Calibration(
    {
        "spark": {
            "queries": 0.039,
            "footer_chunks": 2.7e-06,
            "chunks": 6.9e-06,
            "bytes": 1.4e-09,
            "rows": 2.3e-08,
            "values": 5.3e-09,
            "joined_segments": 0.008,
            "joined_rows": 2.3e-08,
            "joined_values": 1.3e-08,
        },
        "duckdb": {
            "footer_chunks": 2e-06,
            "chunks": 1.8e-05,
            "bytes": 1.9e-09,
            "rows": 6.1e-09,
            "values": 5.9e-09,
            "joined_rows": 3.9e-08,
            "joined_values": 1.8e-09,
        },
        "arrow": {
            "row_groups": 4.1e-05,
            "chunks": 9e-06,
            "bytes": 1.6e-09,
            "values": 1.8e-09,
            "joined_segments": 0.01,
            "joined_values": 1.2e-08,
        },
    }
)
"""What `calibrate` found on two cores of 2026, in seconds: the same for everybody, so that plans are."""


# ----------------------------------------------------------------------------------------------------
# What a query reads and what a scheme stores, in cells and tids (Sun 2017, 4.4.2 and 5.4.3).
#
# A cell is one value of one row. A tid is charged like a cell, for every row read from a layout, but only where a query
# reads several layouts: Equation 4.2. (Equation 5.1 charges tids for a single layout too, where nothing needs them.)


@dataclass(frozen=True)
class Read:
    """What a query reads of one layout or column group.

    Attributes:
        rows: that can't be skipped there: ``r`` in Equation 4.1, ``rr`` in 5.1.
        columns: how many of the query's columns are read there.
    """

    rows: int
    columns: int


def cells_scanned(reads: Iterable[Read]) -> int:
    """Equation 4.1: the cells that a query scans, over all layouts.

    >>> cells_scanned([Read(rows=100, columns=2), Read(rows=40, columns=1)])
    240
    """
    return sum(read.rows * read.columns for read in reads)


def tids_scanned(reads: Sequence[Read]) -> int:
    """The tids that a query scans: those of all rows read, but none where it reads a single layout (4.2).

    >>> tids_scanned([Read(rows=100, columns=2), Read(rows=40, columns=1)]), tids_scanned([Read(rows=100, columns=2)])
    (140, 0)
    """
    return sum(read.rows for read in reads) if len(reads) > 1 else 0


def query_cost(reads: Sequence[Read]) -> int:
    """Equation 4.3; with layouts that overlap Equation 5.1, but for tids where a single layout is read.

    Sorting by tid costs nothing here, since rows are scattered to their places by tid.
    """
    return cells_scanned(reads) + tids_scanned(reads)


# ----------------------------------------------------------------------------------------------------
# A plan's predictions by name, and those for every storage budget that was asked for.

_AT: Final = "@"
_BY: Final = {"bytes": "bytes", "cells": "cells", "time": "seconds"}
"""What is predicted of queries held back, by the objective."""
_TRIED: Final = {by: f"held_back_{what}_fraction:" for by, what in _BY.items()}
_SPREAD: Final = {by: f"held_back_{what}_spread:" for by, what in _BY.items()}
_CALIBRATED: Final = "calibrated_seconds:"


def at_budget(name: str, budget: float) -> str:
    """The name of a prediction for one storage budget among several.

    >>> at_budget("storage_cells", 1.2)
    'storage_cells@1.2'
    """
    return f"{name}{_AT}{budget:g}"


def of_the_plan(predicted: Mapping[str, float]) -> dict[str, float]:
    """The predictions of the plan's own scheme.

    >>> of_the_plan({"storage_cells": 1.19, "storage_cells@1.1": 1.09})
    {'storage_cells': 1.19}
    """
    others = (*_TRIED.values(), *_SPREAD.values(), _CALIBRATED)
    return {name: value for name, value in predicted.items() if _AT not in name and not name.startswith(others)}


def when_tried(label: str, by: str = "bytes") -> str:
    """The name of what a method, or a choice of parameters, would take of full scans by queries held back.

    >>> when_tried("gsop"), when_tried("gsop", "time")
    ('held_back_bytes_fraction:gsop', 'held_back_seconds_fraction:gsop')
    """
    return _TRIED[by] + label


def spread_when_tried(label: str, by: str = "bytes") -> str:
    """The name of the standard deviation of that, if other queries like those held back came.

    >>> spread_when_tried("gsop")
    'held_back_bytes_spread:gsop'
    """
    return _SPREAD[by] + label


def spreads(predicted: Mapping[str, float], by: str = "bytes") -> dict[str, float]:
    """The standard deviations of what was tried on queries held back, where they are known.

    >>> spreads({"gap": 0.1, "held_back_bytes_spread:sop": 0.02})
    {'sop': 0.02}
    """
    return _after(predicted, _SPREAD[by])


def tried(predicted: Mapping[str, float], by: str = "bytes") -> dict[str, float]:
    """What was tried on queries held back, the best first.

    >>> tried({"gap": 0.1, "held_back_bytes_fraction:sop": 0.2, "held_back_bytes_fraction:gsop": 0.1})
    {'gsop': 0.1, 'sop': 0.2}
    """
    return dict(sorted(_after(predicted, _TRIED[by]).items(), key=lambda item: item[1]))


def calibrated(engine: str, seconds_of: Mapping[str, float]) -> dict[str, float]:
    """The costs of an engine that a plan was chosen by, by their names among its predictions.

    >>> calibrated("spark", {"files": 0.01})
    {'calibrated_seconds:spark:files': 0.01}
    """
    return {f"{_CALIBRATED}{engine}:{kind}": seconds for kind, seconds in seconds_of.items()}


def calibrations(predicted: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """The costs that a plan was chosen by, where its user gave them: of each engine, by kind of work.

    >>> calibrations({"gap": 0.1, "calibrated_seconds:spark:files": 0.01})
    {'spark': {'files': 0.01}}
    """
    found: dict[str, dict[str, float]] = {}
    for name, seconds in _after(predicted, _CALIBRATED).items():
        engine, _, kind = name.partition(":")
        found.setdefault(engine, {})[kind] = seconds
    return found


def _after(predicted: Mapping[str, float], prefix: str) -> dict[str, float]:
    return {name.removeprefix(prefix): value for name, value in predicted.items() if name.startswith(prefix)}


def curve(predicted: Mapping[str, float]) -> dict[float, dict[str, float]]:
    """The predictions of each storage budget, ascending; empty if there was only one.

    >>> curve({"storage_cells": 1.19, "storage_cells@1.2": 1.19, "storage_cells@1.1": 1.09})
    {1.1: {'storage_cells': 1.09}, 1.2: {'storage_cells': 1.19}}
    """
    found: dict[float, dict[str, float]] = {}
    for name, value in predicted.items():
        plain, at, budget = name.partition(_AT)
        if at:
            found.setdefault(float(budget), {})[plain] = value
    return dict(sorted(found.items()))
