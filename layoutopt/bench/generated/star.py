"""A table and a log of SDSS's stated shape (4.7.2, 5.7.1): synthetic, of its columns and queries only the numbers.

The queries are those of `layoutopt bench wide`, as SQL: 453 columns, 2,340 queries in the order of time, the first
three quarters to plan by, 3 to 23 columns a query and 13.6 on average. What stars' columns are, and what is asked of
them, the thesis does not say: filters are ranges of values, few of them popular, and topics of queries share columns.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.bench.generated.tables import TRAIN
from layoutopt.bench.wide import Ranges, WideShape, draw_queries, draw_values
from layoutopt.model.arrays import Ints

TABLE: Final = "star"
QUERIES: Final = 2_340
TRAINING: Final = 1_755
SHAPE: Final = WideShape(queries=QUERIES)
_UNITS: Final = 1_000_000
"""A filter column's values lie from 0 to this."""
_SEED: Final = 453
_FILES: Final = 4


def write_star(rows: int, folder: Path) -> None:
    """Write the table: integers to filter by, and measurements with three digits. Values drift from file to file."""
    per_file = -(-rows // _FILES)
    for number in range(_FILES):
        size = min(per_file, rows - number * per_file)
        rng = np.random.default_rng([_SEED, number])
        values = np.floor(draw_values(rng, replace(SHAPE, sampled_rows=size), number) * _UNITS).astype(np.int32)
        columns: dict[str, pa.Array] = {f"c{i}": pa.array(values[:, i]) for i in range(SHAPE.filter_columns)}
        for i in range(SHAPE.filter_columns, SHAPE.columns):
            measured = np.round(rng.normal(20.0, 2.0, size), 3).astype(np.float32)
            columns[f"c{i}"] = pa.array(measured)
        pq.write_table(pa.table(columns), folder / f"{number:04d}.parquet", compression="zstd")


def star_texts(role: str, shape: WideShape = SHAPE, training: int = TRAINING) -> list[str]:
    """The log to plan by, or the one that comes after it."""
    drawn = draw_queries(np.random.default_rng(0), shape)
    low, high = (np.floor(bounds * _UNITS).astype(np.int64) for bounds in (drawn.ranges.low, drawn.ranges.high))
    texts = []
    for query in drawn.queries:
        conditions = [_condition(drawn.ranges, asked, low, high) for asked in query.filters]
        select = ", ".join(f"c{column}" for column in query.columns)
        texts.append(f"SELECT {select} FROM {TABLE} WHERE {' AND '.join(conditions)}")
    return texts[:training] if role == TRAIN else texts[training:]


def _condition(ranges: Ranges, asked: tuple[int, ...], low: Ints, high: Ints) -> str:
    column = f"c{ranges.column[asked[0]]}"
    either = [f"{column} >= {low[each]} AND {column} < {high[each]}" for each in asked]
    return either[0] if len(either) == 1 else f"({' OR '.join(f'({each})' for each in either)})"
