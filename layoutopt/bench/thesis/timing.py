"""Response times: the unseen queries in Spark, on plain Parquet and on tables that are really written, cold and warm.

Cold means that no page of a table's files is in the system's memory when a query starts: the system is asked to drop
them, which needs no rights. Answers are compared before anything is timed, which also warms up the engine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Any, Final

from layoutopt.bench.queries import PlainFiles, in_spark
from layoutopt.bench.steps import Json, Step, key_of
from layoutopt.bench.thesis.figure import Point
from layoutopt.bench.thesis.tables import FULL_SCAN, JOINS
from layoutopt.bench.thesis.tables import settings_of as settings_of_tables
from layoutopt.bench.timing import Way, check_answers
from layoutopt.bench.tpch.denormalise import RAW_TABLES
from layoutopt.bench.tpch.experiment import Bench, Variant, stream_for_testing, table_folder, table_step
from layoutopt.bench.tpch.joins import join_text
from layoutopt.bench.tpch.normalised import normalised_folder, normalised_step
from layoutopt.errors import SettingError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLD: Final = "cold"
WARM: Final = "warm"
ROUNDS: Final = 3
QUERIES: Final = 2
"""Of each template: with all ten a run would take hours."""


def texts_of(stream: str) -> list[str]:
    """The first test queries of each template."""
    seen: dict[str, int] = {}
    chosen = []
    for query in stream_for_testing(stream):
        seen[query.template] = seen.get(query.template, 0) + 1
        if seen[query.template] <= QUERIES:
            chosen.append(query.sql)
    return chosen


def times_step(bench: Bench, stream: str, variants: Sequence[Variant], *, joins: bool = False) -> Step:
    """Time the queries on the source as it is and on each variant's table; the product has the seconds of each.

    Args:
        bench: where products go.
        stream: the workload.
        variants: the tables.
        joins: also as joins of the normalised tables, in row groups of as many rows as the variants' blocks have.
    """
    folders = {variant.label: table_folder(bench, stream, variant) for variant in variants}
    of = {"tables": [each.name for each in folders.values()], "of": [ROUNDS, QUERIES]}
    key = key_of(f"times {stream}", of | ({"joins": True} if joins else {}))
    group_rows = variants[0].block_rows

    def make() -> Json:
        with ExitStack() as stack:
            ways: list[Way] = []
            files = {FULL_SCAN: files_under(bench.data.denormalised)}
            for label, folder in folders.items():
                plain, optimised = stack.enter_context(
                    in_spark(bench.spark, PlainFiles.of_tpch(bench), folder / "table")
                )
                ways += [] if ways else [replace(plain, name=FULL_SCAN)]
                ways.append(replace(optimised, name=label))
                files[label] = files_under(folder / "table")
            if joins:
                normalised = normalised_folder(bench, group_rows)
                ways.append(_joining(bench.spark(), normalised))
                files[JOINS] = files_under(normalised)
            rows = check_answers(ways, texts_of(stream))
            return {"rows": rows, **{kind: _rounds(ways, files, stream, kind) for kind in (COLD, WARM)}}

    return Step(
        f"{stream}: timing {len(texts_of(stream))} unseen queries on {', '.join(folders)}",
        bench.folder / f"{key}.json",
        make,
        (
            *(table_step(bench, stream, variant) for variant in variants),
            *([normalised_step(bench, group_rows)] if joins else []),
        ),
    )


def _joining(spark: SparkSession, folder: Path) -> Way:
    """Joins of plain Parquet. Answers are compared with those of lineitem joined, which have rows as often."""
    session = spark.newSession()
    for table in RAW_TABLES:
        session.read.parquet(str(folder / f"{table}.parquet")).createOrReplaceTempView(table)
    return Way(
        JOINS,
        lambda text: session.sql(join_text(text)).write.format("noop").mode("overwrite").save,
        lambda text: session.sql(join_text(text, lines=True)).toArrow(),
    )


def _rounds(
    ways: Sequence[Way], files: Mapping[str, Sequence[Path]], stream: str, kind: str
) -> dict[str, list[list[float]]]:
    """The seconds of each query, by way and round; the ways take turns."""
    measured: dict[str, list[list[float]]] = {way.name: [] for way in ways}
    for _ in range(ROUNDS):
        for way in ways:
            measured[way.name].append(
                [_seconds(way, text, files[way.name] if kind == COLD else ()) for text in texts_of(stream)]
            )
    return measured


def _seconds(way: Way, text: str, dropped: Sequence[Path]) -> float:
    drop_from_memory(dropped)
    started = time.perf_counter()
    way.plan(text)()
    return time.perf_counter() - started


def files_under(folder: Path) -> list[Path]:
    """All files of a table: data and catalog."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def drop_from_memory(files: Sequence[Path]) -> None:
    """Ask the system to forget the pages of some files, which must have been written to disk; it may decline.

    Raises:
        SettingError: this system can't be asked.
    """
    if files and not hasattr(os, "posix_fadvise"):
        raise SettingError("this system can't be asked to drop files from memory; time cold reads on Linux")
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def seconds_of(product: Mapping[str, Any], kind: str) -> tuple[Point, ...]:
    """All queries together, the median of the rounds, for each way."""
    return tuple(Point(kind, label, median(map(sum, rounds))) for label, rounds in product[kind].items())


def mean_of(product: Mapping[str, Any], kind: str) -> tuple[Point, ...]:
    """An average query: of each query the mean of the rounds, as the thesis has it (4.7.3)."""
    return tuple(Point(kind, label, mean(mean(round_) for round_ in rounds)) for label, rounds in product[kind].items())


def settings_of(
    bench: Bench, stream: str, variants: Sequence[Variant], product: Mapping[str, Any]
) -> dict[str, object]:
    """What times were measured with."""
    return {
        **settings_of_tables(bench, stream, variants),
        "unseen queries": len(texts_of(stream)),
        "rounds": ROUNDS,
        "rows of the answers": product["rows"],
        "engine": "Spark",
    }
