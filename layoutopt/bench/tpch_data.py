"""TPC-H data at a scale factor: the generator's tables, and one wide table that joins them onto lineitem (3.7.2)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from layoutopt.errors import SettingError, SourceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from layoutopt.bench.steps import Say

DEFAULT_ROOT: Final = Path("build/tpch")

# Below this, the generator repeats (part, supplier) pairs, and the join would repeat line items.
MIN_SCALE: Final = 0.01
MAX_SCALE: Final = 1000.0


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
        if not MIN_SCALE <= self.scale <= MAX_SCALE:
            raise SettingError(f"scale factor {self.scale:g} is not from {MIN_SCALE:g} to {MAX_SCALE:g}: try --sf 0.1")

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


def _generator() -> str:
    """Find `tpchgen-cli`: beside this Python first, so that the pinned one is used."""
    path = shutil.which("tpchgen-cli", path=str(Path(sys.executable).parent)) or shutil.which("tpchgen-cli")
    if path is None:
        raise SettingError("tpchgen-cli is not installed: run `make install`, or pip install 'layoutopt[bench]'")
    return path


def generate(data: TpchData) -> None:
    """Generate the eight TPC-H tables into `data.raw`, unless they are there; the folder appears only when complete.

    Raises:
        SettingError: the generator is not installed.
        SourceError: the generator failed; its own words are in the message.
    """
    if data.raw.exists():
        return
    unfinished = data.raw.with_name("raw.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    command = [_generator(), "parquet", "-s", f"{data.scale:g}", "--output-dir", str(unfinished), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SourceError(f"tpchgen-cli failed at scale factor {data.scale:g}: {done.stderr.strip()[-300:]}")
    unfinished.rename(data.raw)


# Keys of orders that are joined at once, those of scale factor 1; a quarter of them are used.
_KEYS_A_RUN: Final = 6_000_000
RAW_TABLES: Final = ("lineitem", "orders", "customer", "part", "partsupp", "supplier", "nation", "region")

# The order of lineitem is the order in which a warehouse would have received the rows: input order means this.
DENORMALISE: Final = """
    SELECT l.*, o.*, c.*, p.*, ps.*, s.*,
        cn.n_name AS cn_name, cr.r_name AS cr_name, sn.n_name AS sn_name, sr.r_name AS sr_name,
        year(o.o_orderdate) AS o_year,
        year(o.o_orderdate) * 100 + month(o.o_orderdate) AS o_month
    FROM raw_lineitem l
        JOIN raw_orders o ON o.o_orderkey = l.l_orderkey
        JOIN raw_customer c ON c.c_custkey = o.o_custkey
        JOIN raw_part p ON p.p_partkey = l.l_partkey
        JOIN raw_partsupp ps ON ps.ps_partkey = l.l_partkey AND ps.ps_suppkey = l.l_suppkey
        JOIN raw_supplier s ON s.s_suppkey = l.l_suppkey
        JOIN raw_nation cn ON cn.n_nationkey = c.c_nationkey
        JOIN raw_region cr ON cr.r_regionkey = cn.n_regionkey
        JOIN raw_nation sn ON sn.n_nationkey = s.s_nationkey
        JOIN raw_region sr ON sr.r_regionkey = sn.n_regionkey
    ORDER BY l.l_orderkey, l.l_linenumber
"""


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
        generate(data)
    if not data.denormalised.exists():
        say("denormalising onto lineitem with Spark")
        write_denormalised(spark, data.raw, data.denormalised)
