"""`layoutopt calibrate`: what engines take for each kind of work on this machine.

Synthetic tables that differ in what a query has to do (large and small row groups, one file and many, one layout and
several) are asked for few and many rows, of few and many columns, on each engine in turns. The costs are those that
explain the seconds best, none below zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy.optimize import nnls

from layoutopt.inspect.cost import count_work
from layoutopt.model.documents import round_figure
from layoutopt.model.engine_costs import KINDS, Calibration, EngineCosts, QueryWork
from layoutopt.model.feature import FeatureSet, SessionSettings
from layoutopt.model.layout import ByOrder, Layout, Plan, Scheme
from layoutopt.scan.table import Table, open_table
from layoutopt.spark.core.source import schema_of
from layoutopt.spark.loading.load import load
from layoutopt.spark.session.enabling import disable, enable
from layoutopt.spark.session.tables import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from layoutopt.events import Progress

ROWS: Final = 1_600_000
REPEATS: Final = 4
_PARTITIONS: Final = 8
_TABLE: Final = "t"

# The columns of the synthetic rows, in the groups that they have where there are several layouts.
_GROUPS: Final = (("part", "key", "i0", "d0", "t0"), ("i1", "i2", "d1", "d2", "t1"), ("i3", "d3", "i4", "d4", "t2"))
_SHARES: Final = (0.002, 0.05, 0.3, 1.0)

# What is selected: few and many columns, and long texts apart, so that bytes can be told from values.
_READ: Final = (
    ("i0",),
    ("t2",),
    ("d0", "d1", "t0"),
    ("i0", "i1", "d2", "t1"),
    ("i1", "t2"),
    tuple(name for group in _GROUPS for name in group[1:]),
)

# A condition that a tenth of the rows meets, wherever they are: much is read, and little returned.
_SCATTERED: Final = "i0 = 3"


@dataclass(frozen=True)
class Shape:
    """How a synthetic table is laid out: rows a block, whether it is partitioned, whether its columns are in groups."""

    block_rows: int
    partitioned: bool
    grouped: bool


SHAPES: Final = (
    Shape(20_000, partitioned=False, grouped=False),
    Shape(500, partitioned=True, grouped=False),
    Shape(5_000, partitioned=False, grouped=True),
    Shape(1_000, partitioned=True, grouped=True),
)


@dataclass(frozen=True)
class Probe:
    """A query that was timed: its work, and the seconds of the quickest round, which other programs held up least."""

    work: QueryWork
    seconds: float


@dataclass(frozen=True)
class Fitted:
    """What engines cost, by their names, and of each the share by which a third of the probes, left out, were missed.

    Attributes:
        calibration: the costs.
        missed: of the seconds of those probes together, by engine.
        probes: how many were timed in each engine.
    """

    calibration: Calibration
    missed: Mapping[str, float]
    probes: int


def synthetic_rows(rows: int, seed: int = 0) -> pa.Table:
    """Rows in the order of ``key``: ``part``, numbers of several types, dates, short texts that recur and others."""
    draw = np.random.default_rng(seed)
    key = np.arange(rows)
    columns: dict[str, pa.Array] = {
        "part": pa.array((key * _PARTITIONS // rows).astype(np.int32)),
        "key": pa.array(key),
    }
    for place in range(5):
        columns[f"i{place}"] = pa.array(draw.integers(0, 10 ** (place + 1), rows))
    for place in range(3):
        columns[f"d{place}"] = pa.array(draw.normal(size=rows).round(3))
    cents = pa.array(draw.integers(0, 10**7, rows)).cast(pa.decimal128(19, 0)).cast(pa.decimal128(12, 2))
    columns["d3"] = cents
    columns["d4"] = pa.array(draw.integers(8_000, 11_000, rows).astype(np.int32)).cast(pa.date32())
    for place, distinct in enumerate((20, 500)):
        columns[f"t{place}"] = _words(draw, distinct, 1).take(pa.array(draw.integers(0, distinct, rows)))
    columns["t2"] = _words(draw, rows, 4)
    return pa.table({name: columns[name] for group in _GROUPS for name in group})


def _words(draw: np.random.Generator, count: int, words: int) -> pa.Array:
    """Texts of so many words."""
    parts = [pa.array(draw.integers(0, 10**6, count)).cast(pa.string()) for _ in range(words)]
    return pc.binary_join_element_wise("word", *parts, " ")


def probes_of(rows: int) -> list[str]:
    """The texts that are timed on each table: few and many rows, of few and many columns, together or scattered."""
    conditions = [_SCATTERED]
    for share in _SHARES:
        first, last = int(rows * (0.5 - share / 2)), int(rows * (0.5 + share / 2))
        conditions.append(f"key >= {first} AND key < {last}")
    return [f"SELECT {', '.join(names)} FROM {_TABLE} WHERE {where}" for where in conditions for names in _READ]


def fit(probes: Sequence[Probe]) -> EngineCosts:
    """The costs, none below zero, that explain the seconds of probes best, of short ones as of long ones."""
    work = np.array([probe.work.counts for probe in probes])
    seconds = np.array([probe.seconds for probe in probes])
    scale = np.maximum(work.max(axis=0), 1e-12)
    scaled_costs, _ = nnls(work / scale, seconds)
    return EngineCosts(
        {kind: round_figure(float(each)) for kind, each in zip(KINDS, scaled_costs / scale, strict=True)}
    )


def missed(costs: EngineCosts, probes: Sequence[Probe]) -> float:
    """By which share of the seconds of all probes together the costs miss each, in the mean."""
    wrong = sum(abs(costs.seconds(probe.work) - probe.seconds) for probe in probes)
    return float(wrong / sum(probe.seconds for probe in probes))


def calibrate(spark: SparkSession, say: Progress, rows: int = ROWS) -> Fitted:
    """Measure what Spark, DuckDB and Arrow cost on this machine; takes some minutes.

    Args:
        spark: the session.
        say: called with a sentence at each stage.
        rows: the rows of each synthetic table.
    """
    timed: dict[str, list[Probe]] = {}
    with TemporaryDirectory(prefix="layoutopt-calibrate-") as scratch:
        for number, shape in enumerate(SHAPES):
            say(f"loading synthetic table {number + 1} of {len(SHAPES)}")
            table = _loaded(spark, Path(scratch) / str(number), synthetic_rows(rows), shape)
            say(f"timing queries on synthetic table {number + 1} of {len(SHAPES)}")
            for engine, run in _engines(spark, table):
                timed.setdefault(engine, []).extend(_timed(run, table, probes_of(rows)))
    return fitted(timed)


def fitted(timed: Mapping[str, Sequence[Probe]]) -> Fitted:
    """The costs of each engine by all of its probes, and how well those of two thirds tell the last third."""
    wrong = {
        engine: missed(fit([probe for i, probe in enumerate(probes) if i % 3]), probes[::3])
        for engine, probes in timed.items()
    }
    calibration = Calibration({engine: dict(fit(probes).seconds_of) for engine, probes in timed.items()})
    return Fitted(calibration, wrong, len(next(iter(timed.values()), ())))


def _loaded(spark: SparkSession, folder: Path, rows: pa.Table, shape: Shape) -> Table:
    folder.mkdir()
    pq.write_table(rows, folder / "source.parquet")
    source = str(folder / "source.parquet")
    by_key = ByOrder("sort", ("key",))
    groups = _GROUPS if shape.grouped else (tuple(name for group in _GROUPS for name in group),)
    plan = Plan(
        table=_TABLE, schema=schema_of(spark.read.parquet(source)), partition_by="part" if shape.partitioned else None,
        method="sort", features=FeatureSet((), SessionSettings()), queries=(),
        scheme=Scheme(tuple(Layout(group, (), group, by_key) for group in groups)),
        block_rows=shape.block_rows, segment_rows=1_000_000, max_vectors=1_000, seed=0, settings=SessionSettings(),
        predicted={},
    )  # fmt: skip
    load(spark, source, folder / "table", plan)
    return open_table(str(folder / "table"))


def _engines(spark: SparkSession, table: Table) -> Iterator[tuple[str, Callable[[str], object]]]:
    """Each engine by its name, and what runs a text in it to its end."""
    yield "arrow", lambda text: [list(read.batches()) for read in table.scan(text).reads]
    yield "duckdb", lambda text: table.scan(text).to_arrow()
    session = spark.newSession()
    register(session, _TABLE, table.catalog.files.root)
    enable(session)
    try:
        yield "spark", lambda text: session.sql(text).write.format("noop").mode("overwrite").save()
    finally:
        disable(session)


def _timed(run: Callable[[str], object], table: Table, texts: Sequence[str]) -> list[Probe]:
    rounds: list[list[float]] = []
    for _ in range(REPEATS + 1):
        rounds.append([])
        for text in texts:
            started = perf_counter()
            run(text)
            rounds[-1].append(perf_counter() - started)
    works = [count_work(plan for read in table.scan(text).reads for plan in read.pruned) for text in texts]
    return [Probe(work, min(each)) for work, each in zip(works, zip(*rounds[1:], strict=True), strict=True)]
