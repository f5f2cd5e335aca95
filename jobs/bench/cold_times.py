"""Response times of the thesis's figures: unseen queries in Spark on written tables, cold and warm.

Cold means that no page of a table's files is in the system's memory when a query starts: the system is asked to drop
them, which needs no rights. Answers are compared before anything is timed, which also warms up the engine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, Final

from jobs.bench.experiment import TEST, Experiment, Variant, mean_seconds, seconds_of
from jobs.bench.figure import Point
from jobs.bench.query_times import Way, check_answers, in_spark, spark_way
from jobs.bench.steps import Json, Step, key_of
from jobs.bench.tpch import Tpch
from jobs.bench.tpch_joins import join_text, normalised_folder, normalised_step
from layoutopt.cli.demo import RAW_TABLES
from layoutopt.errors import SettingError

COLD, WARM = KINDS = ("cold", "warm")
FULL_SCAN: Final = "full scan"

# The normalised tables as plain Parquet, joined by each query.
JOINS: Final = "PAR-n"
ROUNDS: Final = 3

# Queries of each template: with all ten, a run would take hours.
QUERIES: Final = 2


def timed_texts(stream: Experiment) -> list[str]:
    """Return the first test queries of each template."""
    counts: dict[str, int] = {}
    texts = []
    for query in stream.queries(TEST):
        counts[query.template] = counts.get(query.template, 0) + 1
        if counts[query.template] <= QUERIES:
            texts.append(query.sql)
    return texts


def times_step(tpch: Tpch, stream: Experiment, variants: Sequence[Variant], *, joins: bool = False) -> Step:
    """Time the queries on the source as it is and on each variant's table.

    The product has the ``rows`` of all answers, and under ``cold`` and ``warm`` the seconds by table, round and query.
    With ``joins``, queries run as joins of the normalised tables too, whose row groups have the rows of blocks.
    """
    folders = {variant.label: stream.folder(variant) / "table" for variant in variants}
    group_rows, texts = variants[0].block_rows, timed_texts(stream)

    def make() -> Json:
        with ExitStack() as stack:
            ways: list[Way] = []
            files = {FULL_SCAN: _files_under(stream.source.path)}
            for label, folder in folders.items():
                plain, optimised = stack.enter_context(in_spark(tpch.spark, stream.source, folder))
                ways += [] if ways else [replace(plain, name=FULL_SCAN)]
                ways.append(replace(optimised, name=label))
                files[label] = _files_under(folder)
            if joins:
                ways.append(_joining(tpch, group_rows))
                files[JOINS] = _files_under(normalised_folder(tpch, group_rows))
            rows = check_answers(ways, texts)
            times: dict[str, dict[str, list[list[float]]]] = {kind: {way.name: [] for way in ways} for kind in KINDS}
            for kind in KINDS:
                for _ in range(ROUNDS):
                    for way in ways:
                        dropped = files[way.name] if kind == COLD else ()
                        times[kind][way.name].append([_seconds(way, text, dropped) for text in texts])
            return {"rows": rows, **times}

    names = [folder.parent.name for folder in folders.values()]
    key = key_of(f"times {stream.name}", {"tables": names, "of": [ROUNDS, QUERIES], "joins": joins})
    needs = [*map(stream.load, variants), *([normalised_step(tpch, group_rows)] if joins else [])]
    return stream.step(f"timing {len(texts)} unseen queries on {', '.join(folders)}", f"{key}.json", make, *needs)


def _joining(tpch: Tpch, group_rows: int) -> Way:
    """Return joins of plain Parquet; answers are those with lineitem joined, which have rows as often."""
    session = tpch.spark().newSession()
    for table in RAW_TABLES:
        path = normalised_folder(tpch, group_rows) / f"{table}.parquet"
        session.read.parquet(str(path)).createOrReplaceTempView(table)
    with_lines = spark_way(JOINS, session, lambda text: join_text(text, lines=True))
    return replace(spark_way(JOINS, session, join_text), answer=with_lines.answer)


def _seconds(way: Way, text: str, dropped: Sequence[Path]) -> float:
    drop_from_memory(dropped)
    return seconds_of(lambda: way.plan(text)())


def _files_under(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def drop_from_memory(files: Sequence[Path]) -> None:
    """Ask the system to drop the pages of files, which must have been written to disk; the system may decline.

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


def total_times(product: Mapping[str, Any], kind: str) -> tuple[Point, ...]:
    """Return the seconds of all queries together, the median of the rounds, for each way."""
    return tuple(Point(kind, label, median(map(sum, rounds))) for label, rounds in product[kind].items())


def mean_times(product: Mapping[str, Any]) -> tuple[Point, ...]:
    """Return the seconds of an average query, cold and warm, for each way."""
    return tuple(Point(kind, label, mean_seconds(rounds)) for kind in KINDS for label, rounds in product[kind].items())


def time_settings(
    tpch: Tpch, stream: Experiment, variants: Sequence[Variant], product: Mapping[str, Any]
) -> dict[str, object]:
    """Return what times were measured with."""
    return {
        **tpch.settings(stream, variants),
        "unseen queries": len(timed_texts(stream)),
        "rounds": ROUNDS,
        "rows of the answers": product["rows"],
        "engine": "Spark",
    }
