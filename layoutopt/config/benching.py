"""The settings of `bench`: which experiment, and how large."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import ByteSize, Field

from layoutopt.config.fields import Names, Numbers, Positional, Text, VerbSettings

Experiment = Literal[
    "demo",
    "tpch",
    "bigdata",
    "query",
    "brushing",
    "micro",
    "wide",
    "calibrate",
    "scaling",
    "drift",
    "reorganise",
    "mine",
]


class BenchSettings(VerbSettings):
    """An experiment."""

    experiment: Annotated[Experiment, Positional()] = Field(
        description="demo: TPC-H in a few minutes; tpch: every figure of the thesis beside its numbers, or with "
        "--streams a table of every method on these; bigdata: SOP and GSOP under other workloads, on a synthetic table "
        "of the Big Data Benchmark's shape (figure 4.7); query: how long queries take, in Spark and DuckDB, on "
        "plain Parquet and on the optimised table; brushing: every method on range filters of "
        "people, whose constants never recur; micro: single algorithms; "
        "indexes: what each type of index skips, holds and costs; "
        "memory: the peaks of loads against the rows of a partition; wide: planning for a synthetic table of "
        "453 columns, or with --figures it and an access log of 104 columns planned, loaded and queried (figures 3.9, "
        "3.10, 4.12, 5.10); estimates: ways to estimate the objective of column groups; partitioners: all of them on "
        "the feature vectors of each stream; tuning: what `plan --tune` chooses beside the best by unseen queries; "
        "ablation: from blocks as the thesis has them to the default, one deviation at a time; "
        "calibrate: what each kind of work costs each engine on this machine, for --calibration; "
        "cluster: a load on two executors of one core beside one of two; scaling: every stage, resumable, and what "
        "a row costs at each scale factor that was run; drift: sixty simulated days of queries that change, and when "
        "it pays to write partitions anew; reorganise: half of chapter 4's templates replaced, and what `optimize` "
        "regains within --shares of the table's bytes, on tables that are really written; mine: every method on "
        "--source, planned by the older queries of --log and judged by the newest, on such tables too; files: what "
        "readers of Iceberg, Delta and plain Parquet read of files of --file-bytes, through `serve` and by minima and "
        "maxima; unforeseen: what indexes of 2 percent of the data save look-ups and other queries "
        "that no log foresaw, beside the best that is possible"
    )
    sf: float = Field(0.1, gt=0, description="the scale factor of TPC-H")
    folder: Path = Field(
        Path("build/tpch"),
        description="where data and results go, in `brushing` for these; finished steps are used again",
    )
    rows: int | None = Field(
        None,
        ge=10_000,
        description="the rows of a table by chance, of brushing, bigdata and wide "
        "[default: of brushing 2,000,000, of bigdata 200,000, of wide 20,000]",
    )
    figures: Names = Field(
        (),
        description="of `tpch`, `bigdata` and `wide`: only these figures of the thesis, as 3.6,4.10 (all of a number), "
        "5 (a chapter) or `all`; `list` says which there are [default: all]",
    )
    results: Path | None = Field(
        None,
        description="of `tpch`, `bigdata` and `wide`: the folder for results.json, the page and the points as CSV "
        "[default: `results` beside the data]",
    )
    readme: Path | None = Field(
        None,
        description="of `tpch`: run nothing, and write the tables of this Markdown file anew from the results.json "
        "that is in --results, or in docs/results beside the file",
    )
    seed: int = Field(0, ge=0, description="the seed of what `drift` draws at random")
    calibration: Path | None = Field(
        None,
        description="the file that `calibrate` writes [default: calibration.json], and by which `query` predicts "
        "[default: built-in costs]",
    )
    source: Text | None = Field(None, description="of `mine`: the rows, as `plan` takes them")
    log: Text | None = Field(None, description="of `mine`: their query log, as `analyze` takes it")
    table: Text | None = Field(None, description="of `mine`: the table's name in the log [default: the only one]")
    methods: Names = Field(
        (),
        description="of `mine` and `files`: only these, by the names of `plan --method` [default: all; of files three]",
    )
    partition_by: Text | None = Field(None, description="of `mine`: a column of the source")
    block_rows: int = Field(10_000, ge=1, description="of `mine` and `files`: the rows of a block")
    file_bytes: ByteSize = Field(
        ByteSize(4_000_000),
        ge=1,
        description="of `files`: how large one may grow before the next block goes to another",
    )
    streams: Names = Field(
        (),
        description="only these query streams, of tpch, partitioners, tuning, ablation, scaling, query, which also "
        "knows chapter3-by-month and those of brushing, brushing: weather, movies, trips, and reorganise, by the half "
        "of the templates that gives way: first, second [default: all; of tuning two, of ablation one a chapter, of "
        "query chapter3]",
    )
    shares: Numbers = Field(
        (),
        description="of `reorganise`: shares of the table's bytes that may be written [default: 0.05,0.1,0.15,0.2,0.3]",
    )
