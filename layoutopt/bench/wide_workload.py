"""A synthetic wide workload of SDSS's stated shape (4.7.2), whose rows and queries are random.

There are 453 columns and 2,340 queries of 3 to 23 columns, 13.6 on average, most of them few popular ones.
Queries come in topics, each with columns and filters of its own, and a third are ad hoc; filters of different topics
are about different columns, so features conflict.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from layoutopt.model.arrays import Floats, Ints


@dataclass(frozen=True)
class WideShape:
    """The shape of the synthetic workload; the defaults are what the thesis says of SDSS, where it says it.

    Attributes:
        columns, queries: of the table, and of both logs.
        mean_columns, deviation, least, most: the columns of a query: a normal distribution, cut at both ends.
        topics: families of queries that share columns and filters.
        filter_columns, ranges: columns that queries filter by, and features (ranges of values) of each.
    """

    columns: int = 453
    queries: int = 2_340
    mean_columns: float = 13.6
    deviation: float = 5.13
    least: int = 3
    most: int = 23
    topics: int = 40
    filter_columns: int = 40
    ranges: int = 5


@dataclass(frozen=True, eq=False)
class Ranges:
    """Features: feature i says that filter column ``column[i]`` lies in ``[low[i], high[i])``; values are in [0, 1)."""

    column: Ints
    low: Floats
    high: Floats


@dataclass(frozen=True)
class WideQuery:
    """A query: the columns that it reads, with those of its filter, and the ranges of each filtered column.

    A filter is a range by its number, or one of two ranges.
    """

    columns: tuple[int, ...]
    filters: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class WideQueries:
    """Queries in the order of time, and the ranges that they filter by."""

    ranges: Ranges
    queries: tuple[WideQuery, ...]


def draw_queries(rng: np.random.Generator, shape: WideShape) -> WideQueries:
    """Draw the log; a longer one begins with a shorter one."""
    ranges = _draw_ranges(rng, shape)
    popularity, of_topics = zipf(shape.columns, 1.0), zipf(shape.topics, 0.6)
    topics = [rng.choice(shape.columns, shape.most, replace=False, p=popularity) for _ in range(shape.topics)]
    queries = []
    for _ in range(shape.queries):
        topic = int(rng.choice(shape.topics, p=of_topics))
        columns, filters = _columns_of_query(rng, shape, topics[topic], popularity), _filters_of(rng, shape, topic)
        others = np.setdiff1d(columns, filters, assume_unique=True)
        read = [*filters, *others[: max(0, len(columns) - len(filters))].tolist()]
        queries.append(WideQuery(tuple(read), tuple(_draw_filter(rng, ranges, column) for column in filters)))
    return WideQueries(ranges, tuple(queries))


def _draw_ranges(rng: np.random.Generator, shape: WideShape) -> Ranges:
    n = shape.filter_columns * shape.ranges
    width = np.exp(rng.uniform(np.log(0.01), np.log(0.4), n))
    low = rng.uniform(0.0, 1.0 - width)
    return Ranges(np.repeat(np.arange(shape.filter_columns), shape.ranges), low, low + width)


def zipf(n: int, exponent: float) -> Floats:
    """Return the probabilities of n ranks by Zipf's law; an exponent of 0 makes them equal."""
    weights = np.arange(1.0, n + 1.0) ** -exponent
    return np.asarray(weights / weights.sum())


def _columns_of_query(rng: np.random.Generator, shape: WideShape, topic: Ints, popularity: Floats) -> Ints:
    """Draw a query's columns: a third has columns of its own, a third its topic's, a third these with two changed."""
    size = int(np.clip(round(rng.normal(shape.mean_columns, shape.deviation)), shape.least, shape.most))
    kind = rng.integers(3)
    if kind == 0:
        return rng.choice(shape.columns, size, replace=False, p=popularity)
    changed = 2 if kind == 1 else 0
    own = topic[: size - changed]
    others = np.setdiff1d(rng.choice(shape.columns, 4 * changed, replace=False, p=popularity), own)
    return np.append(own, rng.permutation(others)[:changed])


def _filters_of(rng: np.random.Generator, shape: WideShape, topic: int) -> list[int]:
    """Draw one to three of a topic's four filter columns; neighbouring topics share two."""
    own = (2 * topic + np.arange(4)) % shape.filter_columns
    return sorted({int(column) for column in rng.permutation(own)[: rng.integers(1, 4)]})


def _draw_filter(rng: np.random.Generator, ranges: Ranges, column: int) -> tuple[int, ...]:
    """Draw the filter on one column: a range, the first ones more often; in one of five cases one of two ranges."""
    own = np.flatnonzero(ranges.column == column)
    first, second = rng.choice(own, 2, p=zipf(len(own), 1.0))
    return (int(first), int(second)) if rng.random() < 0.2 else (int(first),)


def draw_values(rng: np.random.Generator, shape: WideShape, rows: int, number: int) -> Floats:
    """Draw the filter columns of the rows of a file in [0, 1): slightly correlated, and shifted in each file."""
    common = rng.random((rows, 1))
    own = rng.random((rows, shape.filter_columns))
    return np.asarray((np.where(rng.random(own.shape) < 0.3, common, own) + 0.1 * number) % 1.0)
