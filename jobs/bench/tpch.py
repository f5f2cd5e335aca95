"""TPC-H as a source of experiments: its data at a scale factor, its streams, and its partitions and blocks.

The generator's tables are joined onto lineitem into one wide table, as in chapters 3 to 5 of Sun 2017 (3.7.2).
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jobs.bench.experiment import SEED, TRAIN, Experiment, LoggedQuery, Session, Source, Variant, size_of
from jobs.bench.steps import Json, Step
from jobs.bench.tpch_queries import STREAMS, TABLE, TEST_QUERIES, TRAINING_QUERIES, Stream, draw_stream
from layoutopt.cli.demo import DENORMALISE, RAW_TABLES, check_scale, generate
from layoutopt.errors import SourceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.bench.steps import Say

DEFAULT_ROOT: Final = Path("build/tpch")

# Keys of orders that are joined at once, those of scale factor 1; a quarter of them are used.
_KEYS_A_RUN: Final = 6_000_000

MONTH, YEAR = "o_month", "o_year"

# Rows of a block at scale factor 1: about 100 blocks a month, as in 3.7.3, and 90 a year.
MONTH_BLOCK_ROWS: Final = 700
YEAR_BLOCK_ROWS: Final = 10_000

# The smallest mean blocks, so that at small scale factors a block is still worth a read.
_LEAST_MONTH_BLOCK: Final = 70
_LEAST_YEAR_BLOCK: Final = 700

# Of the table's 80 months, one of so many is taken for figures that need a plan for each point of a curve.
EVERY: Final = 8

# The range partitionings of 3.7.3: rows in order, skipped by minima and maxima alone.
RANGES: Final[Mapping[str, Mapping[str, Any]]] = {
    "range1": {"method": "range", "by": ("o_orderdate",), "features": False},
    "range2": {"method": "range", "by": ("o_orderdate", "cr_name", "c_mktsegment", "l_quantity"), "features": False},
}


@dataclass(frozen=True)
class TpchData:
    """Where the data of one scale factor lies.

    Attributes:
        scale: the TPC-H scale factor; 1 is 6 million line items.
        root: the folder of all experiments.

    >>> TpchData(0.1, Path("build/tpch")).denormalised.as_posix()
    'build/tpch/sf0.1/denorm'
    """

    scale: float
    root: Path = DEFAULT_ROOT

    def __post_init__(self) -> None:
        """Refuse a scale factor that the generator can't make.

        Raises:
            SettingError: outside of [0.01, 1000].
        """
        check_scale(self.scale)

    @property
    def folder(self) -> Path:
        """Everything of this scale factor."""
        return self.root / f"sf{self.scale:g}"

    @property
    def raw(self) -> Path:
        """The generator's eight tables, one Parquet file each."""
        return self.folder / "raw"

    @property
    def denormalised(self) -> Path:
        """The wide table, a folder of Parquet files in lineitem's order."""
        return self.folder / "denorm"


def write_denormalised(spark: SparkSession, raw: Path, destination: Path) -> None:
    """Join the raw tables onto lineitem, in its order, as zstd Parquet; the folder appears only when complete.

    Joins shuffle every row, uncompressed, once for each table: at scale factor 10 that takes 50 GB of disk at once. So
    rows are written some millions at a time, by runs of orders, to files whose names ascend as these do.
    """
    unfinished, run = (destination.with_name(f"{destination.name}.{of}") for of in ("unfinished", "run"))
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    for table in RAW_TABLES:
        spark.read.parquet(str(raw / f"{table}.parquet")).createOrReplaceTempView(f"raw_{table}")
    rows, last = spark.sql(DENORMALISE), spark.sql("SELECT max(o_orderkey) FROM raw_orders").collect()[0][0]
    if last is None:
        raise SourceError("the generated orders have no rows; remove the folder of generated tables and run this again")
    for number, first in enumerate(range(1, last + 1, _KEYS_A_RUN)):
        of_run = rows.where(f"l_orderkey >= {first} AND l_orderkey < {first + _KEYS_A_RUN}")
        of_run.write.mode("overwrite").option("compression", "zstd").parquet(str(run))
        for file in run.glob("*.parquet"):
            file.rename(unfinished / f"run-{number:05}-{file.name}")
    shutil.rmtree(run)
    shutil.rmtree(destination, ignore_errors=True)
    unfinished.rename(destination)


def prepare(spark: SparkSession, data: TpchData, say: Say) -> None:
    """Generate and denormalise what is not there yet; report each part."""
    if not data.raw.exists():
        say(f"generating TPC-H at scale factor {data.scale:g}")
        generate(data.scale, data.raw)
    if not data.denormalised.exists():
        say("denormalising onto lineitem with Spark")
        write_denormalised(spark, data.raw, data.denormalised)


@dataclass(frozen=True)
class Tpch:
    """TPC-H at a scale factor, the training queries of each template, and the most features of an analysis, if any."""

    data: TpchData
    spark: Session
    training: int = TRAINING_QUERIES
    num_features: int | None = None

    @property
    def scale(self) -> float:
        """The scale factor."""
        return self.data.scale

    @property
    def source(self) -> Source:
        """The denormalised table."""
        folder = self.data.folder / "experiments"

        def make() -> Json:
            prepare(self.spark(), self.data, lambda _: None)
            return {"scale": self.scale, "bytes": size_of(self.data.denormalised)}

        name = f"generating TPC-H at scale factor {self.scale:g} and denormalising it"
        return Source(TABLE, self.data.denormalised, folder, Step(name, folder / "data.json", make))

    @property
    def months(self) -> Source:
        """Every eighth month of the denormalised table, in the table's order."""
        whole = self.source
        path, folder = self.data.folder / "months" / "denorm", self.data.folder / "months" / "experiments"

        def make() -> Json:
            rows = self.spark().read.parquet(str(whole.path))
            taken = rows.where(f"(12 * (o_month div 100) + o_month % 100) % {EVERY} = 1")
            unfinished = path.with_name("denorm.unfinished")
            taken.write.mode("overwrite").option("compression", "zstd").parquet(str(unfinished))
            unfinished.rename(path)
            return {"every": EVERY, "bytes": size_of(path)}

        return Source(
            TABLE, path, folder, Step(f"taking every {EVERY}th month", folder / "data.json", make, (whole.made,))
        )

    def stream(self, name: str, source: Source | None = None) -> Experiment:
        """Return the experiment on a stream of :data:`STREAMS`, on the whole table or another source."""
        return self.experiment(name, STREAMS[name], source)

    def experiment(self, name: str, stream: Stream, source: Source | None = None) -> Experiment:
        """Return the experiment on a stream."""
        return Experiment(
            name,
            source or self.source,
            partial(self._draw, stream),
            self.spark,
            num_features=self.num_features,
            shares_tables=True,
        )

    def _draw(self, stream: Stream, role: str) -> Sequence[LoggedQuery]:
        return draw_stream(stream, role, self.training if role == TRAIN else TEST_QUERIES, SEED)

    def by_month(self, label: str, method: str, **parameters: Any) -> Variant:
        """Return a variant in partitions of months, as chapter 3 has them."""
        rows = month_block_rows(self.scale)
        return Variant(label, method, MONTH, **{"block_rows": rows, "written": False} | parameters)

    def by_year(self, label: str, method: str, **parameters: Any) -> Variant:
        """Return a variant in partitions of years, in as many blocks as a year has of 10,000 rows at scale factor 1."""
        rows = year_block_rows(self.scale)
        return Variant(label, method, YEAR, **{"block_rows": rows, "written": False} | parameters)

    def plain_parquet(self) -> Variant:
        """Return the source's order in blocks without features, which Parquet's minima and maxima skip."""
        rows = year_block_rows(self.scale)
        return Variant("Parquet min/max", "input-order", None, rows, features=False, written=False)

    def settings(self, stream: Experiment, variants: Sequence[Variant]) -> dict[str, object]:
        """Return what a comparison of variants was measured with."""
        rows = sorted({variant.block_rows for variant in variants})
        return {
            "scale factor": self.scale,
            "unseen queries": len(stream.queries("test")),
            "partitions": ", ".join(dict.fromkeys(variant.partition_by or "none" for variant in variants)),
            "rows of a block, on average": ", ".join(f"{each:,}" for each in rows),
        }


def tpch_at(scale: float, root: Path, spark: Session) -> Tpch:
    """Return TPC-H at a scale factor, in the folder of all experiments; see :class:`TpchData` for its errors."""
    return Tpch(TpchData(scale, root), spark)


def month_block_rows(scale: float) -> int:
    """Return the mean block by which a month has about the thesis's hundred, as at scale factor 100.

    >>> month_block_rows(1), month_block_rows(0.1), month_block_rows(0.01)
    (700, 70, 70)
    """
    return max(_LEAST_MONTH_BLOCK, round(MONTH_BLOCK_ROWS * min(1.0, scale)))


def year_block_rows(scale: float) -> int:
    """Return the mean block by which a year has as many blocks as at scale factor 1.

    >>> year_block_rows(1), year_block_rows(0.1), year_block_rows(0.01)
    (10000, 1000, 700)
    """
    return max(_LEAST_YEAR_BLOCK, round(YEAR_BLOCK_ROWS * min(1.0, scale)))
