"""What people brush: traces of real ones on weather and movies, and people by chance on trips.

A state of a crossfilter is one range on each brushed column; each other view then asks for its own column's values
under these ranges. While a brush is dragged, each position is a state.
"""

from __future__ import annotations

import gzip
from importlib.resources import files
from typing import Final

import numpy as np

from layoutopt.bench.brushing.rows import make_rows
from layoutopt.model.arrays import Floats

ROLES: Final = ("train", "test")
_SEED: Final = 7_101
_TEXTS: Final = {"train": 1_500, "test": 300}
_USERS: Final = {"train": 60, "test": 20}
_SAMPLE: Final = 20_000
"""Rows that tell how values are spread."""
_BRUSHED: Final = ("Hour", "Distance_km", "Minutes", "Fare", "Tip", "Pickup_Longitude", "Pickup_Latitude")
_LIKED: Final = (0.22, 0.2, 0.12, 0.18, 0.1, 0.09, 0.09)
_DECIMALS: Final = 5


def texts_of(name: str, role: str) -> list[str]:
    """The SELECTs of the users for training, or of those for testing, who are others.

    Args:
        name: one of :data:`layoutopt.bench.brushing.rows.SOURCES`.
        role: one of :data:`ROLES`.
    """
    if name == "trips":
        return _simulated(role)
    trace = files("layoutopt.bench.brushing") / "traces" / f"{name}-{role}.sql.gz"
    return [line.rstrip(";") for line in gzip.decompress(trace.read_bytes()).decode().splitlines() if line]


def _simulated(role: str) -> list[str]:
    """People who look at trips: each brushes one to four columns, one after the other, and drags each brush about."""
    random = np.random.default_rng((_SEED, ROLES.index(role)))
    table = make_rows("trips", _SAMPLE)
    spread = {name: np.quantile(table[name].drop_null().to_numpy(), np.linspace(0, 1, 201)) for name in _BRUSHED}
    states = [state for _ in range(_USERS[role]) for state in _session(random)]
    texts = []
    for state in states:
        condition = " AND ".join(_range(name, spread[name], low, high) for name, (low, high) in state.items())
        texts += [f"SELECT {view} FROM trips WHERE {condition}" for view in _BRUSHED if view not in state]
    chosen = np.linspace(0, len(texts) - 1, _TEXTS[role]).astype(int)
    return [texts[i] for i in chosen.tolist()]


def _session(random: np.random.Generator) -> list[dict[str, tuple[float, float]]]:
    """The states that one person passes through: of each brushed column the share of its values below both ends."""
    state: dict[str, tuple[float, float]] = {}
    states = []
    for column in random.choice(_BRUSHED, random.integers(1, 5), replace=False, p=_LIKED):
        centre, width = random.random(), random.beta(1.3, 3)
        for _ in range(random.integers(3, 12)):
            state[str(column)] = (max(0.0, centre - width / 2), min(1.0, centre + width / 2))
            states.append(dict(state))
            if random.random() < 0.5:
                centre = float(np.clip(centre + random.normal(0, 0.08), 0, 1))
            else:
                width = float(np.clip(width * random.lognormal(0, 0.3), 0.01, 1))
    return states


def _range(name: str, spread: Floats, low: float, high: float) -> str:
    ends = np.interp([low, high], np.linspace(0, 1, len(spread)), spread)
    first, last = (round(float(end), _DECIMALS) for end in ends)
    return f"{name} BETWEEN {first!r} AND {last!r}"
