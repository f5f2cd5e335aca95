"""How long a dry run takes: what a query would read, from an open table's catalog alone.

The table has a catalog of many blocks and no data: no dry run opens a data file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import numpy as np
import pyarrow as pa

from layoutopt.bench.micro import Figure, best_seconds
from layoutopt.catalog.block_index import block_schema
from layoutopt.catalog.commit import commit_load, ensure_table_root, partition_entries
from layoutopt.catalog.paths import data_path, partition_key
from layoutopt.catalog.statistics import block_statistics
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.inspect.cost import dry_run
from layoutopt.model.feature import Feature, FeatureSet
from layoutopt.model.layout import ByVectors, Layout, Plan, Scheme
from layoutopt.model.predicates import Col, InSet, Predicate
from layoutopt.model.schema import Column, Schema
from layoutopt.model.values import ValueSet
from layoutopt.model.vectors import words_for
from layoutopt.scan.table import Table, open_table

_SAMPLE_ROWS = 4  # of a block, that its statistics are measured from
_YEARS = tuple(range(2015, 2025))
_MEASURES = 12
_LOAD = "load-1"


def dry_run_figure(n_blocks: int, n_features: int, target: float, seed: int = 0) -> Figure:
    """A dry run of a text that the open table has not seen yet: parsed, pruned and summed up."""
    with _catalog(n_blocks, n_features, seed) as table:
        texts = map(_text, count())
        dry_run(table.scan(next(texts)))  # opening reads nothing of the blocks: the first query does
        seconds = best_seconds(lambda: dry_run(table.scan(next(texts))), runs=5)
    return Figure(f"explain --bytes, {n_blocks} blocks x {n_features} features, table open", seconds, target)


def _text(number: int) -> str:
    kinds = ", ".join(f"'kind {number + place}'" for place in range(3))
    return (
        f"SELECT id, m0, m1 FROM t WHERE kind IN ({kinds}) AND seen >= timestamp '2019-03-01 00:00:{number % 60:02d}' "
        f"AND (m2 > {number} OR m3 < {number + 500} OR price BETWEEN {number} AND {number + 100})"
    )


@contextmanager
def _catalog(n_blocks: int, n_features: int, seed: int) -> Iterator[Table]:
    """A table of ten partitions, one column group, and as many blocks and features."""
    schema = _schema()
    features = FeatureSet(tuple(Feature((Predicate((_is_kind(i),)),)) for i in range(n_features)))
    layout = Layout(schema.names, tuple(range(n_features)), schema.names, ByVectors())
    plan = Plan(
        table="t", schema=schema, partition_by="year", method="sop", features=features, queries=(),
        scheme=Scheme((layout,)), block_rows=10_000, segment_rows=1_000_000, max_vectors=1_000, seed=seed,
    )  # fmt: skip
    blocks = _blocks(plan, n_blocks, seed)
    with tempfile.TemporaryDirectory() as folder:
        files = TableFiles(folder)
        base = ensure_table_root(files)
        values = {partition_key(year): year for year in _YEARS}
        commit_load(files, base, plan, _LOAD, partition_entries(blocks, plan, _LOAD, values), blocks)
        yield open_table(folder)


def _schema() -> Schema:
    measures = [Column(f"m{i}", "bigint") for i in range(_MEASURES)]
    others = [("year", "int"), ("id", "bigint"), ("kind", "string"), ("price", "double"), ("seen", "timestamp")]
    return Schema((*(Column(name, type) for name, type in others), *measures))


def _is_kind(number: int) -> InSet:
    return InSet(Col("kind", "string"), ValueSet.point(f"kind {number}"))


def _blocks(plan: Plan, n: int, seed: int) -> pa.Table:
    """One row a block; statistics are measured from a few random rows of each."""
    rng = np.random.default_rng(seed)
    rows = n * _SAMPLE_ROWS
    years = np.sort(rng.choice(_YEARS, n))
    start = np.repeat((years - 1970).astype("datetime64[Y]").astype("datetime64[us]").astype(np.int64), _SAMPLE_ROWS)
    seen = start + rng.integers(0, 360 * 86_400 * 10**6, rows)
    values = {
        "year": pa.array(np.repeat(years, _SAMPLE_ROWS), pa.int32()),
        "id": pa.array(rng.permutation(rows)),
        "kind": pa.array([f"kind {number}" for number in rng.integers(0, 200, rows).tolist()]),
        "price": pa.array(rng.random(rows) * 1_000),
        "seen": pa.array(seen).cast(pa.timestamp("us", tz="UTC")),
        **{f"m{i}": pa.array(rng.integers(0, 1_000, rows)) for i in range(_MEASURES)},
    }
    sizes = {name: np.full(n, 10_000) for name in plan.schema.names}
    stats = block_statistics(pa.table(values), np.arange(n + 1) * _SAMPLE_ROWS, plan.schema, sizes)
    words = rng.integers(-(2**63), 2**63, (n, words_for(len(plan.features))))
    found = {
        "file": [data_path(partition_key(year), _LOAD, 0, 0, "a", 0) for year in years.tolist()],
        "row_group": [place for year in _YEARS for place in range(int((years == year).sum()))],
        "block": range(n),
        "partition": [partition_key(year) for year in years.tolist()],
        "rows": [10_000] * n,
        "bytes": [10_000 * len(plan.schema.columns)] * n,
        "words": words.tolist(),
        "footer": [None] * n,
        "start": [None] * n,
    }
    schema = block_schema(plan.schema, words.shape[1])
    arrays = [
        stats if field.name == "stats" else pa.array(list(found.get(field.name, [0] * n)), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)
