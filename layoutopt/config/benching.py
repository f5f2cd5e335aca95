"""Define the settings of `bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from layoutopt.config.fields import Names, Numbers, Positional, VerbSettings

Experiment = Literal[
    "demo",
    "tpch",
    "bigdata",
    "query",
    "brushing",
    "micro",
    "wide",
    "scaling",
    "growth",
    "drift",
    "reorganise",
]


class BenchSettings(VerbSettings):
    """Settings of `bench`."""

    experiment: Annotated[Experiment, Positional()] = Field(
        description="demo: TPC-H in a few minutes; tpch: every figure of the thesis with its numbers, or with "
        "--streams all methods on these; bigdata: SOP and GSOP under other workloads, on a synthetic table like the "
        "Big Data Benchmark's (figure 4.7); query: seconds of queries in Spark and DuckDB, on plain Parquet and on the "
        "optimised table; brushing: all methods on range filters whose constants never recur; micro: single "
        "algorithms, and a load against Spark's rewrite; wide: synthetic tables of 453 and 104 columns planned, loaded "
        "and queried (figures 3.9, 3.10, 4.12, 5.10); scaling: the cost of each stage per row at each scale factor; "
        "growth: the cost of each stage by statements, rows, blocks, partitions and columns, each over two orders of "
        "magnitude, and the exponents; "
        "drift: sixty simulated days of changing queries, and when rewriting partitions pays; reorganise: half of "
        "chapter 4's templates replaced, and what `optimize` regains within --shares of the table's bytes"
    )
    sf: float = Field(0.1, gt=0, description="the scale factor of TPC-H")
    folder: Path = Field(
        Path("build/tpch"),
        description="the folder of data and results; finished steps are reused",
    )
    rows: int | None = Field(
        None,
        ge=10_000,
        description="the rows of the synthetic tables of brushing, bigdata and wide "
        "[default: 2,000,000, 200,000 and 20,000]",
    )
    figures: Names = Field(
        (),
        description="of `tpch`, `bigdata` and `wide`: only these figures of the thesis, like 3.6,4.10, 5 (a chapter) "
        "or `all`; `list` lists them [default: all]",
    )
    results: Path | None = Field(
        None,
        description="of `tpch`, `bigdata` and `wide`: the folder for results.json, the page and the points as CSV "
        "[default: `results` next to the data]",
    )
    readme: Path | None = Field(
        None,
        description="of `tpch`: run nothing; update the tables of this Markdown file from the results.json in "
        "--results, or in docs/results next to the file",
    )
    seed: int = Field(0, ge=0, description="of `drift`: the seed of its random numbers")
    calibration: Path | None = Field(
        None,
        description="of `query`: predict with this file from `layoutopt calibrate` [default: built-in costs]",
    )
    streams: Names = Field(
        (),
        description="only these query streams, of tpch, scaling, query (which also knows chapter3-by-month and those "
        "of brushing), brushing (weather, movies, trips) and reorganise (the replaced half of the templates: "
        "first, second), or these stages of growth (analyze, evaluate, plan, load, verify, append) "
        "[default: all; of query chapter3]",
    )
    shares: Numbers = Field(
        (),
        description="of `reorganise`: shares of the table's bytes that may be rewritten "
        "[default: 0.05,0.1,0.15,0.2,0.3]",
    )
