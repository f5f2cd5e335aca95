"""Brushing workloads: range filters of users, whose constants hardly ever recur.

A state of a crossfilter is one range on each brushed column; each other view then reads its own column under these
ranges. While a brush is dragged, each position is a state. Logs are traces of real users for weather and movies, and of
simulated users for trips by taxi; plans see other users than those whose queries are replayed.

The rows behind the traces are not free to copy. These rows are random but the same for the same number of rows, in the
order in which they would arrive, and correlated as such data is (temperature with season, latitude and elevation, snow
with cold; gross with budget and rating), in the same units, with the share of NULLs that movie data has.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.bench.experiment import ROLES, Experiment, Session, generated_source, without_templates
from layoutopt.model.arrays import Bits, Floats

ROWS: Final = 2_000_000
_ROWS_SEED: Final = 20260
_LOGS_SEED: Final = 7_101
_DAY_MILLISECONDS: Final = 86_400_000.0
_GROUP_ROWS: Final = 100_000

# Of simulated users.
_TEXTS: Final = {"train": 1_500, "test": 300}
_USERS: Final = {"train": 60, "test": 20}
_BRUSHED: Final = ("Hour", "Distance_km", "Minutes", "Fare", "Tip", "Pickup_Longitude", "Pickup_Latitude")
_LIKED: Final = (0.22, 0.2, 0.12, 0.18, 0.1, 0.09, 0.09)

# Rows that show how values are spread.
_SAMPLE: Final = 20_000
_DECIMALS: Final = 5


def weather(rows: int, random: np.random.Generator) -> pa.Table:
    """Return a quarter's readings of 1,200 stations, by day."""
    stations = 1200
    latitude, longitude = random.uniform(25, 49, stations), random.uniform(-124, -67, stations)
    high = (longitude > -115) & (longitude < -103)
    elevation = np.round(np.where(high, random.gamma(4, 450, stations), random.gamma(1.2, 180, stations)).clip(0, 3900))
    at, day = random.integers(0, stations, rows), np.sort(random.integers(0, 91, rows))
    season = 8 * np.sin((day - 15) / 91 * np.pi)
    low = 32 - (latitude[at] - 25) * 1.1 - elevation[at] * 0.0062 + season - 18 + random.normal(0, 5, rows)
    spread = random.gamma(6, 1.7, rows)
    wet = random.random(rows) < 0.28 + 0.1 * np.cos(day / 7)
    rain = np.where(wet, random.gamma(0.7, 1.6, rows), 0)
    snow = np.where(wet & (low < 0), rain * random.uniform(30, 90, rows), 0)
    wind = random.gamma(3, 1.4, rows)
    return pa.table(
        {
            "STATION": pa.array([f"US{number:05d}" for number in range(stations)]).take(pa.array(at)),
            "RECORD_DATE": 1325307600000 + day * _DAY_MILLISECONDS,
            "MONTH": (1 + day // 31).astype("int32"),
            "ELEVATION": elevation[at],
            "LATITUDE": np.round(latitude[at], 3),
            "LONGITUDE": np.round(longitude[at], 3),
            "TEMP_MIN": pa.array(np.round(low, 1), mask=_nulls(random, rows, 0.02)),
            "TEMP_MAX": pa.array(np.round(low + spread, 1), mask=_nulls(random, rows, 0.02)),
            "PRECIPITATION": np.round(rain, 1),
            "SNOW": pa.array(np.round(snow), mask=_nulls(random, rows, 0.1)),
            "WIND": pa.array(np.round(wind, 1), mask=_nulls(random, rows, 0.6)),
        }
    )


def movies(rows: int, random: np.random.Generator) -> pa.Table:
    """Return six decades of films, by year."""
    year = np.sort(1950 + np.floor(62 * random.beta(4, 1.3, rows)))
    released = (year - 1970 + random.random(rows)) * 365.25 * _DAY_MILLISECONDS
    taste = random.normal(0, 1, rows)
    imdb = np.round((6.3 + 1.1 * taste + random.normal(0, 0.4, rows)).clip(1, 9.3), 1)
    tomatoes = np.round((52 + 24 * taste + random.normal(0, 12, rows)).clip(1, 100))
    budget = np.round(np.exp(random.normal(16.6, 1.3, rows)), -5)
    noise = random.normal(0, 0.8, rows)
    gross = np.round(np.exp(np.log(budget + 1e5) * 0.85 + 2.4 + 0.5 * taste + noise))
    world = gross * (1 + random.gamma(1.1, 0.7, rows))
    minutes = np.round((108 + 5 * taste + random.normal(0, 17, rows)).clip(46, 222))
    genre = pa.array(["Drama", "Comedy", "Action", "Adventure", "Thriller", "Horror", None])
    return pa.table(
        {
            "Title": pa.array([f"Film {number}" for number in random.integers(0, rows, rows)]),
            "Release_Date": released,
            "Decade": (year // 10 * 10).astype("int32"),
            "Major_Genre": genre.take(pa.array(random.integers(0, len(genre), rows))),
            "IMDB_Rating": pa.array(imdb, mask=_nulls(random, rows, 0.07)),
            "Rotten_Tomatoes_Rating": pa.array(tomatoes, mask=_nulls(random, rows, 0.27)),
            "Production_Budget": budget / 1e6,
            "Running_Time_min": pa.array(minutes, mask=_nulls(random, rows, 0.62)),
            "US_DVD_Sales": pa.array(
                np.round(gross * random.uniform(0.0005, 0.003, rows)), mask=_nulls(random, rows, 0.82)
            ),
            "US_Gross": gross / 1e6,
            "Worldwide_Gross": np.round(world) / 1e6,
        }
    )


def trips(rows: int, random: np.random.Generator) -> pa.Table:
    """Return four weeks of trips by taxi, by time: most in the centre and in rush hours, some to an airport."""
    week = np.sort(random.integers(0, 4, rows))
    hour = (random.normal(0, 3.2, rows) + np.where(random.random(rows) < 0.45, 9, 18)) % 24
    weekday = random.integers(0, 7, rows)
    airport = random.random(rows) < 0.07
    pickup = _places(random, rows, 0.03)
    dropoff = np.where(
        airport[:, None], np.array([0.14, -0.11]) + _places(random, rows, 0.004), _places(random, rows, 0.04)
    )
    distance = np.hypot(*(pickup - dropoff).T) * 90 * random.uniform(1.15, 1.6, rows) + 0.4
    jam = 1 + 0.8 * np.exp(-np.square(hour - 17.5) / 6)
    minutes = distance / 24 * 60 * jam * random.lognormal(0, 0.25, rows) + 2
    fare = np.round(3 + 1.4 * distance + 0.45 * minutes, 2)
    card = random.random(rows) < 0.72
    tip = np.where(card, fare * random.beta(2, 8, rows), 0)
    payment = pa.array(["card", "cash"]).take(pa.array((~card).astype(np.int8)))
    return pa.table(
        {
            "Week": (week + 1).astype("int32"),
            "Pickup": 1_700_000_000_000 + np.round((week * 7 + weekday + hour / 24) * _DAY_MILLISECONDS, -3),
            "Hour": np.round(hour, 2),
            "Distance_km": np.round(distance, 2),
            "Minutes": pa.array(np.round(minutes, 1), mask=_nulls(random, rows, 0.01)),
            "Fare": fare,
            "Tip": np.round(tip, 2),
            "Passengers": random.choice([1, 2, 3, 4, 5], rows, p=[0.7, 0.15, 0.06, 0.04, 0.05]).astype("int32"),
            "Pickup_Longitude": np.round(-73.97 + pickup[:, 0], 4),
            "Pickup_Latitude": np.round(40.75 + pickup[:, 1], 4),
            "Payment": payment,
        }
    )


class Table(NamedTuple):
    """How a table is made, and the column of its partitions."""

    make: Callable[[int, np.random.Generator], pa.Table]
    partition_by: str


SOURCES: Final[Mapping[str, Table]] = {
    "weather": Table(weather, "MONTH"),
    "movies": Table(movies, "Decade"),
    "trips": Table(trips, "Week"),
}


def make_rows(name: str, rows: int) -> pa.Table:
    """Return the rows of one of :data:`SOURCES`."""
    return SOURCES[name].make(rows, np.random.default_rng(_ROWS_SEED + len(name)))


def write_source(name: str, rows: int, folder: Path) -> None:
    """Write the rows to a folder, one file for each value of the partition column."""
    table, by = make_rows(name, rows), SOURCES[name].partition_by
    folder.mkdir(parents=True, exist_ok=True)
    for value in pc.unique(table[by]).to_pylist():
        part = table.filter(pc.equal(table[by], value))
        pq.write_table(part, folder / f"{by}-{value}.parquet", compression="zstd", row_group_size=_GROUP_ROWS)


def _nulls(random: np.random.Generator, rows: int, share: float) -> Bits:
    return random.random(rows) < share


def _places(random: np.random.Generator, rows: int, spread: float) -> Floats:
    """Return longitudes and latitudes in degrees from the centre, ``float64[rows, 2]``."""
    return np.multiply(random.normal(0, spread, (rows, 2)), [0.7, 1.0], dtype=np.float64)


def texts_of(name: str, role: str) -> list[str]:
    """Return the SELECTs of the users of a role; the users of the two roles differ.

    Args:
        name: one of :data:`SOURCES`.
        role: one of :data:`~jobs.bench.experiment.ROLES`.
    """
    if name == "trips":
        return simulate_users(role, _USERS[role], _TEXTS[role])
    trace = files("jobs.bench") / "traces" / f"{name}-{role}.sql.gz"
    return [line.rstrip(";") for line in gzip.decompress(trace.read_bytes()).decode().splitlines() if line]


def simulate_users(role: str, users: int, statements: int) -> list[str]:
    """Return the SELECTs of so many users of trips, so many of them spread along the log.

    Each user brushes one to four columns, one after the other, and drags each brush about.
    """
    random = np.random.default_rng((_LOGS_SEED, ROLES.index(role)))
    table = make_rows("trips", _SAMPLE)
    spread = {name: np.quantile(table[name].drop_null().to_numpy(), np.linspace(0, 1, 201)) for name in _BRUSHED}
    states = [state for _ in range(users) for state in _session(random)]
    texts = []
    for state in states:
        condition = " AND ".join(_range(name, spread[name], low, high) for name, (low, high) in state.items())
        texts += [f"SELECT {view} FROM trips WHERE {condition}" for view in _BRUSHED if view not in state]
    chosen = np.linspace(0, len(texts) - 1, statements).astype(int)
    return [texts[i] for i in chosen.tolist()]


def _session(random: np.random.Generator) -> list[dict[str, tuple[float, float]]]:
    """Return the states of one user: for each brushed column the share of its values below both ends."""
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


def workload(name: str, rows: int, root: Path, spark: Session) -> Experiment:
    """Return one of :data:`SOURCES` at one size, below the folder of all workloads."""
    source = generated_source(name, rows, root / f"{name}-{rows}", partial(write_source, name))
    return Experiment(name, source, partial(without_templates, partial(texts_of, name)), spark)
