"""TPC-H denormalised onto lineitem: one wide table, as in chapters 3 to 5 of Sun 2017 (3.7.2)."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from layoutopt.errors import SourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_KEYS_A_RUN: Final = 6_000_000
"""Of orders, a quarter of which there are: those of scale factor 1."""
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


def denormalised(spark: SparkSession, raw: Path) -> DataFrame:
    """Join the eight raw TPC-H tables onto lineitem.

    Args:
        spark: the session to plan in.
        raw: the folder with one Parquet file per table, `<table>.parquet`.

    Returns:
        One row per line item in lineitem's order: 54 columns of the six tables, then `cn_name`, `cr_name` (the
        customer's nation and region), `sn_name`, `sr_name` (the supplier's), `o_year` (such as 1994) and `o_month`
        (such as 199401), both int.
    """
    for table in RAW_TABLES:
        spark.read.parquet(str(raw / f"{table}.parquet")).createOrReplaceTempView(f"raw_{table}")
    return spark.sql(DENORMALISE)


def write_denormalised(spark: SparkSession, raw: Path, destination: Path) -> None:
    """Write the denormalised table to `destination` as zstd Parquet; the folder appears only when complete.

    Joins shuffle every row, uncompressed, once for each table: at scale factor 10 that takes 50 GB of disk at once. So
    rows are written some millions at a time, by runs of orders, to files whose names ascend as these do.
    """
    unfinished, run = (destination.with_name(f"{destination.name}.{of}") for of in ("unfinished", "run"))
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    rows = denormalised(spark, raw)
    for number, first in enumerate(range(1, _last_order(spark) + 1, _KEYS_A_RUN)):
        of_run = rows.where(f"l_orderkey >= {first} AND l_orderkey < {first + _KEYS_A_RUN}")
        of_run.write.mode("overwrite").option("compression", "zstd").parquet(str(run))
        for file in run.glob("*.parquet"):
            file.rename(unfinished / f"run-{number:05}-{file.name}")
    shutil.rmtree(run)
    shutil.rmtree(destination, ignore_errors=True)
    unfinished.rename(destination)


def _last_order(spark: SparkSession) -> int:
    """The largest key of the raw orders."""
    row = spark.sql("SELECT max(o_orderkey) FROM raw_orders").first()
    if row is None or row[0] is None:
        raise SourceError("the generated orders have no rows; remove the folder of generated tables and run this again")
    return int(row[0])


def count_matching(spark: SparkSession, denormalised: Path, filters: Sequence[str]) -> list[int]:
    """Count the rows of the denormalised table for which each filter is TRUE, in one pass.

    Args:
        spark: the session to run in.
        denormalised: what `write_denormalised` wrote.
        filters: Spark SQL conditions.
    """
    counts = [f"count_if({condition}) AS matching_{place}" for place, condition in enumerate(filters)]
    row = spark.read.parquet(str(denormalised)).selectExpr(*counts).first()
    if row is None:
        raise AssertionError("an aggregate without groups has one row")
    return [int(count) for count in row]
