"""Conditions and tables drawn at random, over the rows of :mod:`tests.scan.tables`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from layoutopt.model.layout import ByVectors, Layout
from tests.scan.builder import Building, building
from tests.scan.tables import SCHEMA

ATOMS = [
    "kind = 'air'", "kind <> 'rail'", "kind IN ('ship', 'mail')", "kind LIKE '%r%'", "kind NOT LIKE 't%'",
    "kind IS NULL",
    "price > 50", "price BETWEEN 10 AND 20.5", "price IS NOT NULL", "price < 90.005", "id >= 40", "id < 15",
    "score < 0.5", "score >= 0", "score = 0", "score > 1", "NOT score <= 0.25", "year = 1995", "year <> 1994",
    "day >= date '1995-06-01'", "day < date '1994-03-01'", "seen < '2020-02-01 00:00:00'", "seen IS NULL",
]  # fmt: skip

atoms = st.sampled_from(ATOMS)

conditions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]} AND {pair[1]})"),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]} OR {pair[1]})"),
        inner.map(lambda one: f"NOT ({one})"),
    ),
    max_leaves=4,
)


@st.composite
def layouts(draw: st.DrawFn, n_features: int) -> list[Layout]:
    """One layout, disjoint column groups, or overlapping ones in which every column is master somewhere."""
    names = SCHEMA.names
    group = draw(st.lists(st.integers(0, 2), min_size=len(names), max_size=len(names)))
    overlap = draw(st.booleans()) and n_features > 0
    found = []
    for number in sorted(set(group)):
        master = tuple(name for name, chosen in zip(names, group, strict=True) if chosen == number)
        extra = draw(st.sets(st.sampled_from(names), max_size=3)) if overlap else set()
        columns = tuple(name for name in names if name in master or name in extra)
        local = draw(st.sets(st.integers(0, n_features - 1), min_size=1)) if n_features else set()
        found.append(Layout(columns, tuple(sorted(local)), master, ByVectors()))
    return found


@st.composite
def buildings(draw: st.DrawFn) -> Building:
    features = draw(st.lists(atoms, max_size=4, unique=True))
    seed, most = draw(st.integers(0, 100)), draw(st.integers(1, 6))

    def at_random(rows: pa.Table, bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.asarray(np.random.default_rng(seed).integers(0, most, rows.num_rows))

    return building(
        SCHEMA,
        features,
        blocking=at_random,
        layouts=draw(layouts(len(features))),
        partition_by=draw(st.sampled_from([None, "year"])),
        segment_rows=draw(st.sampled_from([20, 1000])),
    )
