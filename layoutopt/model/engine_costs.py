"""What a query takes in seconds: how much work it is, by what an engine takes for each piece of it.

Bytes saved are not time saved: a file to open, a row group to find and a row to put together from several layouts take
their time whatever they hold. An engine's costs are seconds for one of each, of one query after another on one machine;
``layoutopt calibrate`` measures them there. Without that, the built-in ones are used, so that the same input
gives the same plan on any machine: only their ratios matter then.
"""

from __future__ import annotations

from collections.abc import Mapping
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
