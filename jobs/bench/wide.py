"""Figures 3.9, 3.10, 4.12 and 5.10, on synthetic tables of SDSS's and Conviva's stated shapes.


The star table has SDSS's shape (4.7.2, 5.7.1): 453 columns and 2,340 queries of 3 to 23 columns, 13.6 on average, most
of them few popular ones; the first three quarters are to plan by. Queries come in topics, each with columns and filters
of its own, and a third are ad hoc; filters of different topics are about different columns, so features conflict. The
thesis does not say what its columns and filters are: here filters are ranges of values.

The access log has Conviva's shape (3.2.1, 3.7.2): 104 columns, such as customer, city, media and genre, seven days, 674
queries to plan by and 61 later ones. The tenth of the filters that is used most is in 90 % of the queries, 80 % of the
queries use filters of the log's first 30 %, and queries select 0.03 % of the rows on average. A query has a day, mostly
a customer, and one or two filters more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.bench.chapter3 import MATCHING
from jobs.bench.chapter4 import GROUPINGS
from jobs.bench.cold_times import FULL_SCAN
from jobs.bench.experiment import (
    TRAIN,
    UNSORTED,
    Evaluated,
    Experiment,
    Session,
    Variant,
    full_scan,
    generated_source,
    mean_seconds,
    scanned,
    table_details,
    without_templates,
)
from jobs.bench.figure import Measure, Measured, Point, Suite, measure_tables, read_figures
from layoutopt.model.arrays import Floats, Ints

STAR: Final = "star"
STAR_COLUMNS: Final = 453
STAR_QUERIES: Final = 2_340
STAR_TRAINING: Final = 1_755

# The columns of a query: a normal distribution, cut at both ends.
_MEAN_COLUMNS, _DEVIATION, _LEAST, _MOST = 13.6, 5.13, 3, 23

# Families of queries that share columns and filters.
_TOPICS: Final = 40

# Columns that queries filter by, and the ranges of values of each.
FILTER_COLUMNS: Final = 40
_RANGES: Final = 5

# A filter column's values lie from 0 to this.
_UNITS: Final = 1_000_000
_STAR_SEED: Final = 453
_FILES: Final = 4

SESSIONS: Final = "sessions"
DAY: Final = "day"
CUSTOMER: Final = "customer"
SESSION_COLUMNS: Final = 104
SESSION_TRAINING: Final = 674
SESSION_QUERIES: Final = 735
FIRST_DAY: Final = 20121124
DAYS: Final = 7
CUSTOMERS: Final = 150

# Columns of texts, and how many values each has; the first values are the most frequent.
KINDS: Final = {"city": 2_000, "genre": 40, "browser": 25, "event": 60, "media": 20_000, "player": 12}
MEASURES: Final = SESSION_COLUMNS - len(KINDS) - 2

# Measures that queries filter by, from below.
_FILTERED: Final = 12

# Different filters beside days and customers.
_THINGS: Final = 60
_SESSIONS_SEED: Final = 104

DEFAULT_ROWS: Final = 20_000

# The access log has so many times the rows, since it has a quarter of the columns.
TIMES: Final = 4
BLOCKS: Final = 100
BLOCKS_A_DAY: Final = 150
NUMBERS_OF_FEATURES: Final = (2, 5, 10, 20, 40)
BUDGETS: Final = (1.5, 2.0)
PAR: Final = "PAR"


def zipf(n: int, exponent: float) -> Floats:
    """Return the probabilities of n ranks by Zipf's law; an exponent of 0 makes them equal."""
    weights = np.arange(1.0, n + 1.0) ** -exponent
    return np.asarray(weights / weights.sum())


@dataclass(frozen=True, eq=False)
class Ranges:
    """Features: feature i says that filter column ``column[i]`` lies in ``[low[i], high[i])``; values are in [0, 1)."""

    column: Ints
    low: Floats
    high: Floats


@dataclass(frozen=True)
class StarQuery:
    """A query: the columns that it reads, with those of its filter, and the ranges of each filtered column.

    A filter is a range by its number, or one of two ranges.
    """

    columns: tuple[int, ...]
    filters: tuple[tuple[int, ...], ...]


def draw_star_queries() -> tuple[Ranges, list[StarQuery]]:
    """Return the ranges that queries filter by, and the queries in the order of time."""
    rng = np.random.default_rng(0)
    n = FILTER_COLUMNS * _RANGES
    width = np.exp(rng.uniform(np.log(0.01), np.log(0.4), n))
    low = rng.uniform(0.0, 1.0 - width)
    ranges = Ranges(np.repeat(np.arange(FILTER_COLUMNS), _RANGES), low, low + width)
    popularity, of_topics = zipf(STAR_COLUMNS, 1.0), zipf(_TOPICS, 0.6)
    topics = [rng.choice(STAR_COLUMNS, _MOST, replace=False, p=popularity) for _ in range(_TOPICS)]
    queries = []
    for _ in range(STAR_QUERIES):
        topic = int(rng.choice(_TOPICS, p=of_topics))
        columns, filters = _columns_of_query(rng, topics[topic], popularity), _filters_of(rng, topic)
        others = np.setdiff1d(columns, filters, assume_unique=True)
        read = [*filters, *others[: max(0, len(columns) - len(filters))].tolist()]
        queries.append(StarQuery(tuple(read), tuple(_draw_filter(rng, ranges, column) for column in filters)))
    return ranges, queries


def _columns_of_query(rng: np.random.Generator, topic: Ints, popularity: Floats) -> Ints:
    """Draw a query's columns: a third has columns of its own, a third its topic's, a third these with two changed."""
    size = int(np.clip(round(rng.normal(_MEAN_COLUMNS, _DEVIATION)), _LEAST, _MOST))
    kind = rng.integers(3)
    if kind == 0:
        return rng.choice(STAR_COLUMNS, size, replace=False, p=popularity)
    changed = 2 if kind == 1 else 0
    own = topic[: size - changed]
    others = np.setdiff1d(rng.choice(STAR_COLUMNS, 4 * changed, replace=False, p=popularity), own)
    return np.append(own, rng.permutation(others)[:changed])


def _filters_of(rng: np.random.Generator, topic: int) -> list[int]:
    """Draw one to three of a topic's four filter columns; neighbouring topics share two."""
    own = (2 * topic + np.arange(4)) % FILTER_COLUMNS
    return sorted({int(column) for column in rng.permutation(own)[: rng.integers(1, 4)]})


def _draw_filter(rng: np.random.Generator, ranges: Ranges, column: int) -> tuple[int, ...]:
    """Draw the filter on one column: a range, the first ones more often; in one of five cases one of two ranges."""
    own = np.flatnonzero(ranges.column == column)
    first, second = rng.choice(own, 2, p=zipf(len(own), 1.0))
    return (int(first), int(second)) if rng.random() < 0.2 else (int(first),)


def _draw_values(rng: np.random.Generator, rows: int, number: int) -> Floats:
    """Draw the filter columns of the rows of a file in [0, 1): slightly correlated, and shifted in each file."""
    common = rng.random((rows, 1))
    own = rng.random((rows, FILTER_COLUMNS))
    return np.asarray((np.where(rng.random(own.shape) < 0.3, common, own) + 0.1 * number) % 1.0)


def write_star(rows: int, folder: Path) -> None:
    """Write the table: integers to filter by, and measurements with three digits. Values drift from file to file."""
    per_file = -(-rows // _FILES)
    for number in range(_FILES):
        size = min(per_file, rows - number * per_file)
        rng = np.random.default_rng([_STAR_SEED, number])
        values = np.floor(_draw_values(rng, size, number) * _UNITS).astype(np.int32)
        columns: dict[str, pa.Array] = {f"c{i}": pa.array(values[:, i]) for i in range(FILTER_COLUMNS)}
        for i in range(FILTER_COLUMNS, STAR_COLUMNS):
            measured = np.round(rng.normal(20.0, 2.0, size), 3).astype(np.float32)
            columns[f"c{i}"] = pa.array(measured)
        pq.write_table(pa.table(columns), folder / f"{number:04d}.parquet", compression="zstd")


def star_texts(role: str) -> list[str]:
    """Return the log to plan by, or the one that comes after it."""
    ranges, queries = draw_star_queries()
    low, high = (np.floor(bounds * _UNITS).astype(np.int64) for bounds in (ranges.low, ranges.high))
    texts = []
    for query in queries:
        conditions = [_condition(ranges, chosen, low, high) for chosen in query.filters]
        select = ", ".join(f"c{column}" for column in query.columns)
        texts.append(f"SELECT {select} FROM {STAR} WHERE {' AND '.join(conditions)}")
    return texts[:STAR_TRAINING] if role == TRAIN else texts[STAR_TRAINING:]


def _condition(ranges: Ranges, chosen: tuple[int, ...], low: Ints, high: Ints) -> str:
    column = f"c{ranges.column[chosen[0]]}"
    either = [f"{column} >= {low[each]} AND {column} < {high[each]}" for each in chosen]
    return either[0] if len(either) == 1 else f"({' OR '.join(f'({each})' for each in either)})"


def write_sessions(rows: int, folder: Path) -> None:
    """Write the table, a file a day, the rows of a day in no order."""
    per_day = -(-rows // DAYS)
    for number in range(DAYS):
        size = min(per_day, rows - number * per_day)
        rng = np.random.default_rng([_SESSIONS_SEED, number])
        columns: dict[str, pa.Array] = {DAY: pa.array(np.full(size, FIRST_DAY + number, dtype=np.int32))}
        columns[CUSTOMER] = pa.array(_ranked(rng, CUSTOMERS, size, 0.7).astype(np.int32))
        for name, distinct in KINDS.items():
            codes = _ranked(rng, distinct, size, 1.0)
            columns[name] = pa.array([text_of(name, code) for code in range(distinct)]).take(pa.array(codes))
        for place in range(MEASURES):
            columns[f"m{place}"] = pa.array(np.floor(rng.exponential(100.0, size)).astype(np.int32))
        pq.write_table(pa.table(columns), folder / f"{FIRST_DAY + number}.parquet", compression="zstd")


def text_of(name: str, code: int) -> str:
    """Return a value of a column of texts."""
    return f"{name} {code:05d}"


def _ranked(rng: np.random.Generator, distinct: int, rows: int, exponent: float) -> Ints:
    return rng.choice(distinct, rows, p=zipf(distinct, exponent))


def session_texts(role: str) -> list[str]:
    """Return the log to plan by, or the one that comes after it."""
    rng = np.random.default_rng(_SESSIONS_SEED)
    things = [_thing(rng) for _ in range(_THINGS)]
    texts = [_session_query(rng, things) for _ in range(SESSION_QUERIES)]
    return texts[:SESSION_TRAINING] if role == TRAIN else texts[SESSION_TRAINING:]


def _thing(rng: np.random.Generator) -> str:
    """Draw a filter that users come back to: a value of a column of texts, not too rare, or a large measure."""
    if rng.random() < 0.25:
        return f"m{rng.integers(_FILTERED)} > {int(rng.choice([200, 300, 400]))}"
    name = list(KINDS)[rng.integers(len(KINDS))]
    return f"{name} = '{text_of(name, int(_ranked(rng, min(KINDS[name], 40), 1, 0.5)[0]))}'"


def _session_query(rng: np.random.Generator, things: list[str]) -> str:
    """Draw a query: a day, in nine of ten a customer, and things, of which one in twelve is new."""
    filters = [f"{DAY} = {FIRST_DAY + int(rng.integers(DAYS))}"]
    if rng.random() < 0.9:
        filters.append(f"{CUSTOMER} = {int(_ranked(rng, CUSTOMERS, 1, 1.6)[0])}")
    chosen = rng.choice(len(things), 1 + int(rng.random() < 0.6), replace=False, p=zipf(len(things), 1.2))
    drawn = [_thing(rng) if rng.random() < 1 / 12 else things[place] for place in chosen]
    filters += {text.split()[0]: text for text in drawn}.values()  # of a column one thing only
    measured = rng.choice(MEASURES, int(rng.integers(2, 9)), replace=False, p=zipf(MEASURES, 0.8))
    select = ", ".join([*(f"m{place}" for place in measured), list(KINDS)[int(rng.integers(len(KINDS)))]])
    return f"SELECT {select} FROM {SESSIONS} WHERE {' AND '.join(filters)}"


@dataclass(frozen=True)
class Wide:
    """Both tables at one size: the rows of the star table."""

    rows: int
    root: Path
    spark: Session

    @property
    def folder(self) -> Path:
        """The folder of all products."""
        return self.root / "wide" / str(self.rows)

    @property
    def star(self) -> Experiment:
        """The table of SDSS's shape."""
        source = generated_source(STAR, self.rows, self.folder / STAR, write_star)
        return Experiment(STAR, source, partial(without_templates, star_texts), self.spark, counts_rows=True)

    @property
    def sessions(self) -> Experiment:
        """The table of Conviva's shape."""
        source = generated_source(SESSIONS, TIMES * self.rows, self.folder / SESSIONS, write_sessions)
        return Experiment(SESSIONS, source, partial(without_templates, session_texts), self.spark, counts_rows=True)

    def star_variants(self) -> tuple[Variant, ...]:
        """Return what figure 4.12 compares."""
        rows = max(1, self.rows // BLOCKS)
        plain = Variant(PAR, "input-order", None, rows, features=False)
        return (plain, *(Variant(label, method, None, rows, **UNSORTED) for label, method in GROUPINGS.items()))

    def copies(self) -> tuple[Variant, ...]:
        """Return what figure 5.10 compares."""
        (gsop,) = (variant for variant in self.star_variants() if variant.label == "GSOP")
        copies = (replace(gsop, label=f"GSOP-R {budget:g}", method="gsop-r", budget=budget) for budget in BUDGETS)
        return (gsop, *copies)

    def _sop(self, count: int) -> Variant:
        rows = max(1, TIMES * self.rows // DAYS // BLOCKS_A_DAY)
        return Variant(f"SOP, {count} features", "sop", DAY, rows, num_features=count, **UNSORTED)

    def session_variants(self) -> tuple[Variant, ...]:
        """Return what figure 3.9 compares: ranges of a day's customers, and SOP with 3.7.4's 40 features."""
        sop = self._sop(40)
        return (Variant("range", "range", DAY, sop.block_rows, (CUSTOMER,), features=False), sop)

    def measures(self) -> dict[str, Measure]:
        """Return the measures of all figures."""
        return {
            "3.9a": self._session_rows(),
            "3.9c": self._seconds(self.sessions, self.session_variants()),
            "3.10a": self._numbers_of_features(),
            "3.10b": self._vectors(),
            "4.12": self._cells(self.star_variants()),
            "4.12-groups": self._groups(),
            "4.12-loading": self._loading(),
            "4.12-seconds": self._seconds(self.star, self.star_variants()),
            "5.10": self._cells(self.copies()),
            "5.10-seconds": self._seconds(self.star, self.copies()),
        }

    def _cells(self, variants: Sequence[Variant]) -> Measure:
        """Measure cells and tids as shares of a full scan."""

        def read(evaluated: Evaluated) -> Measured:
            points = [
                Point(unit, label, 100 * scanned(table, unit) / full_scan(table, "cells"))
                for label, table in evaluated.items()
                for unit in ("cells", "tids")
            ]
            return Measured(points, self._settings(evaluated), _details(evaluated))

        return measure_tables(self.star.tables(variants), read)

    def _groups(self) -> Measure:
        """Measure how many layouts the unseen queries read, by grouping method."""

        def read(evaluated: Evaluated) -> Measured:
            points = [
                Point("column groups", label, float(table["layouts"]))
                for label, table in evaluated.items()
                if label not in (PAR, "SOP")
            ]
            return Measured(points, self._settings(evaluated))

        return measure_tables(self.star.tables(self.star_variants()), read)

    def _loading(self) -> Measure:
        """Measure seconds of planning and loading, and what was stored."""

        def read(evaluated: Evaluated) -> Measured:
            points = [
                Point(phase, label, table[f"{phase}_seconds"])
                for label, table in evaluated.items()
                for phase in ("planning", "loading")
            ]
            return Measured(points, self._settings(evaluated), _details(evaluated))

        return measure_tables(self.star.tables(self.star_variants()), read)

    def _seconds(self, experiment: Experiment, variants: Sequence[Variant]) -> Measure:
        """Measure an average query's milliseconds, and its memory."""
        step = experiment.reading(variants)

        def read() -> Measured:
            product = step.read()
            points, details = [], []
            for label, read in ((variant.label, product[variant.label]) for variant in variants):
                points.append(Point("mean of the queries", label, 1000 * mean_seconds(read["seconds"])))
                details.append(
                    {
                        "method": label,
                        "memory, mean, MB": round(read["mean"] / 1e6, 3),
                        "memory, most, MB": round(read["most"] / 1e6, 3),
                        "queries that read several layouts": read["assembled"],
                    }
                )
            engine = "layoutopt's own reader, with DuckDB; files in the system's memory"
            return Measured(points, {"rows of the smaller table": self.rows, "engine": engine}, details)

        return Measure([step], read)

    def _session_rows(self) -> Measure:
        """Measure rows scanned as shares of a full scan, beside those that match."""

        def read(evaluated: Evaluated) -> Measured:
            by_range = evaluated["range"]
            whole = full_scan(by_range, "rows")
            points = [
                Point("rows", FULL_SCAN, 100.0),
                *(Point("rows", label, 100 * scanned(table, "rows") / whole) for label, table in evaluated.items()),
                Point("rows", MATCHING, 100 * by_range["matching"] / whole),
            ]
            return Measured(points, self._settings(evaluated), _details(evaluated))

        return measure_tables(self.sessions.tables(self.session_variants()), read)

    def _numbers_of_features(self) -> Measure:
        """Measure rows scanned over those that match, by the number of features."""

        def read(evaluated: Evaluated) -> Measured:
            points = [
                Point("SOP", float(count), scanned(table, "rows") / table["matching"])
                for count, table in zip(NUMBERS_OF_FEATURES, evaluated.values(), strict=True)
            ]
            return Measured(points, self._settings(evaluated))

        return measure_tables(self.sessions.tables([self._sop(count) for count in NUMBERS_OF_FEATURES]), read)

    def _vectors(self) -> Measure:
        step = self.sessions.vectors(NUMBERS_OF_FEATURES, DAY)

        def read() -> Measured:
            product = step.read()
            points = [Point("SOP", float(count), product[str(count)]["mean"]) for count in NUMBERS_OF_FEATURES]
            return Measured(points, {"partitions": DAY})

        return Measure([step], read)

    def _settings(self, evaluated: Evaluated) -> dict[str, object]:
        (queries,) = {table["queries"] for table in evaluated.values()}
        return {"rows of the smaller table": self.rows, "unseen queries": queries}


def _details(evaluated: Evaluated) -> tuple[dict[str, object], ...]:
    return tuple(
        {
            **line,
            "loading, s": round(table["loading_seconds"], 1),
            "stored, MB": round(table["storage_bytes"] / 1e6, 3),
            "layouts read": table["layouts"],
            "features": table["features"],
            "planner's memory so far, MB": round(table["peak_bytes"] / 1e6),
        }
        for line, table in zip(table_details(evaluated), evaluated.values(), strict=True)
    )


def wide_suite(rows: int | None, root: Path, spark: Session) -> Suite:
    """Return the figures on tables of so many rows, the access log of four times as many."""
    wide = Wide(DEFAULT_ROWS if rows is None else rows, root, spark)
    return Suite(
        name="wide",
        title="The wide tables of Sun 2017, measured by layoutopt on synthetic ones",
        about=f"Synthetic tables of the stated shapes of SDSS ({wide.rows:,} rows) and Conviva "
        f"({TIMES * wide.rows:,}), unseen queries; the thesis had 260 and 680 million rows of the real ones.",
        command=f"python -m jobs.bench wide --rows {wide.rows}",
        size=wide.rows,
        figures=read_figures("wide", blocks=BLOCKS),
        measures=wide.measures,
        folder=wide.folder / "results",
    )
