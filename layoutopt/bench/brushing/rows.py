"""Rows to brush, by chance but the same for the same number of rows, in the order in which they would arrive.

The rows behind the traces of weather and movies are not free to copy: these are correlated as such data is (temperature
with season, latitude and elevation, snow with cold; gross with budget and rating), in the same units, with the share of
NULLs that movie data has. Trips by taxi have a log by chance too (:mod:`layoutopt.bench.brushing.logs`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from layoutopt.model.arrays import Bits, Floats

_SEED: Final = 20260
_DAY: Final = 86_400_000.0
"""Milliseconds."""
_FILE_ROWS: Final = 100_000


def weather(rows: int, random: np.random.Generator) -> pa.Table:
    """A quarter's readings of 1,200 stations, by day."""
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
            "RECORD_DATE": 1325307600000 + day * _DAY,
            "MONTH": (1 + day // 31).astype("int32"),
            "ELEVATION": elevation[at],
            "LATITUDE": np.round(latitude[at], 3),
            "LONGITUDE": np.round(longitude[at], 3),
            "TEMP_MIN": pa.array(np.round(low, 1), mask=_nothing(random, rows, 0.02)),
            "TEMP_MAX": pa.array(np.round(low + spread, 1), mask=_nothing(random, rows, 0.02)),
            "PRECIPITATION": np.round(rain, 1),
            "SNOW": pa.array(np.round(snow), mask=_nothing(random, rows, 0.1)),
            "WIND": pa.array(np.round(wind, 1), mask=_nothing(random, rows, 0.6)),
        }
    )


def movies(rows: int, random: np.random.Generator) -> pa.Table:
    """Six decades of films, by year."""
    year = np.sort(1950 + np.floor(62 * random.beta(4, 1.3, rows)))
    released = (year - 1970 + random.random(rows)) * 365.25 * _DAY
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
            "IMDB_Rating": pa.array(imdb, mask=_nothing(random, rows, 0.07)),
            "Rotten_Tomatoes_Rating": pa.array(tomatoes, mask=_nothing(random, rows, 0.27)),
            "Production_Budget": budget / 1e6,
            "Running_Time_min": pa.array(minutes, mask=_nothing(random, rows, 0.62)),
            "US_DVD_Sales": pa.array(
                np.round(gross * random.uniform(0.0005, 0.003, rows)), mask=_nothing(random, rows, 0.82)
            ),
            "US_Gross": gross / 1e6,
            "Worldwide_Gross": np.round(world) / 1e6,
        }
    )


def trips(rows: int, random: np.random.Generator) -> pa.Table:
    """Four weeks of trips by taxi, by time: most in the centre and at the ends of the day, some to an airport."""
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
            "Pickup": 1_700_000_000_000 + np.round((week * 7 + weekday + hour / 24) * _DAY, -3),
            "Hour": np.round(hour, 2),
            "Distance_km": np.round(distance, 2),
            "Minutes": pa.array(np.round(minutes, 1), mask=_nothing(random, rows, 0.01)),
            "Fare": fare,
            "Tip": np.round(tip, 2),
            "Passengers": random.choice([1, 2, 3, 4, 5], rows, p=[0.7, 0.15, 0.06, 0.04, 0.05]).astype("int32"),
            "Pickup_Longitude": np.round(-73.97 + pickup[:, 0], 4),
            "Pickup_Latitude": np.round(40.75 + pickup[:, 1], 4),
            "Payment": payment,
        }
    )


class Source(NamedTuple):
    """How a table is made, and the column of its partitions."""

    make: Callable[[int, np.random.Generator], pa.Table]
    partition_by: str


SOURCES: Final[Mapping[str, Source]] = MappingProxyType(
    {
        "weather": Source(weather, "MONTH"),
        "movies": Source(movies, "Decade"),
        "trips": Source(trips, "Week"),
    }
)


def make_rows(name: str, rows: int) -> pa.Table:
    """The rows of one of :data:`SOURCES`."""
    return SOURCES[name].make(rows, np.random.default_rng(_SEED + len(name)))


def write_source(name: str, rows: int, folder: Path) -> None:
    """Write the rows to a new folder, one file for each value of the partition column."""
    table, by = make_rows(name, rows), SOURCES[name].partition_by
    folder.mkdir(parents=True)
    for value in pc.unique(table[by]).to_pylist():
        part = table.filter(pc.equal(table[by], value))
        pq.write_table(part, folder / f"{by}-{value}.parquet", compression="zstd", row_group_size=_FILE_ROWS)


def _nothing(random: np.random.Generator, rows: int, share: float) -> Bits:
    return random.random(rows) < share


def _places(random: np.random.Generator, rows: int, spread: float) -> Floats:
    """Longitudes and latitudes in degrees from the centre, ``float64[rows, 2]``."""
    return np.multiply(random.normal(0, spread, (rows, 2)), [0.7, 1.0], dtype=np.float64)
