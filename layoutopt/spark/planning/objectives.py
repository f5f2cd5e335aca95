"""What ``auto`` goes by: the bytes that queries read, the cells, or the seconds that an engine is predicted to take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from layoutopt.model.arrays import Floats
from layoutopt.model.engine_costs import BUILT_IN, EngineCosts
from layoutopt.spark.planning.sample_evaluation import CATALOG_BYTES_A_CHUNK
from layoutopt.spark.planning.segments_rehearsed import Rehearsed

BYTES: Final = "bytes"
CELLS: Final = "cells"
TIME: Final = "time"


@dataclass(frozen=True)
class Objective:
    """What a rehearsed plan is judged by.

    Attributes:
        kind: ``bytes``, ``cells`` or ``time``.
        costs: what the engine costs, for ``time``.
    """

    kind: str = BYTES
    costs: EngineCosts = field(default_factory=lambda: BUILT_IN.costs("spark"))

    def read(self, found: Rehearsed) -> Floats:
        """What each query takes, ``float64[queries]``; with bytes those of the catalog that it looks at too."""
        if self.kind == BYTES:
            read: Floats = np.array(found.read) + CATALOG_BYTES_A_CHUNK * np.array(found.looked_at)
            return read
        if self.kind == CELLS:
            return np.array([work.values + work.joined_values for work in found.work])
        return np.array([self.costs.seconds(work) for work in found.work])

    def full(self, found: Rehearsed) -> Floats:
        """What a full scan of each query's columns takes, ``float64[queries]``."""
        if self.kind == BYTES:
            return np.array(found.full)
        if self.kind == CELLS:
            return np.array([work.values + work.joined_values for work in found.full_work])
        return np.array([self.costs.seconds(work) for work in found.full_work])
