"""Every method on tables really written: `python -m jobs.bench brushing`, and `python -m jobs.bench tpch --streams`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group

from jobs.bench.brushing import SOURCES, workload
from jobs.bench.experiment import Experiment
from jobs.bench.steps import Say, run, spark_when_needed
from jobs.bench.tpch import YEAR, tpch_at, year_block_rows
from jobs.bench.tpch_queries import chosen_streams
from layoutopt.errors import SettingError, expected_names
from layoutopt.model.methods import BUILT_IN, COMPARED

if TYPE_CHECKING:
    from jobs.bench.method_comparison import Comparison

# By stream and method what :func:`~jobs.bench.method_comparison.compare_methods` returns.
Compared = dict[str, dict[str, dict[str, Any]]]


def comparison_of(stream: Experiment, partition_by: str, block_rows: int = 10_000) -> Comparison:
    """Return the comparison of methods on a stream, whose features must be there when it runs."""
    from jobs.bench.method_comparison import Comparison

    return Comparison(
        stream.name,
        str(stream.source.path),
        stream.source.folder / "methods" / stream.name,
        stream.features().product,
        stream.test_queries,
        partition_by,
        block_rows,
    )


def compare(stream: Experiment, comparison: Comparison, methods: Sequence[str], say: Say) -> dict[str, dict[str, Any]]:
    """Analyse the training log, lay the source out by each method, and replay the test queries."""
    from jobs.bench.method_comparison import compare_methods

    run(stream.features(), say)
    return compare_methods(comparison, methods, stream.spark, say)


def run_brushing(
    *, rows: int, root: Path, names: Sequence[str] = (), methods: Sequence[str] = COMPARED, say: Say = print
) -> Compared:
    """Compare methods on brushing workloads; what an earlier run left below `root` is used again.

    Names are of :data:`~jobs.bench.brushing.SOURCES`, all when empty.

    Raises:
        SettingError: a workload that is not known.
    """
    unknown = [name for name in names if name not in SOURCES]
    if unknown:
        raise SettingError(f"unknown brushing workload {unknown[0]!r}: {expected_names(unknown[0], SOURCES)}")
    with spark_when_needed("layoutopt-brushing") as spark:
        streams = [workload(name, rows, root, spark) for name in names or SOURCES]
        return {
            stream.name: compare(stream, comparison_of(stream, SOURCES[stream.name].partition_by), methods, say)
            for stream in streams
        }


def run_streams(scale: float, *, root: Path, names: Sequence[str], say: Say = print) -> Compared:
    """Compare all methods on streams of TPC-H, in partitions of a year.

    What an earlier run left below `root` is used again.

    Raises:
        SettingError: a scale factor or a stream that is not known.
    """
    rows = year_block_rows(scale)
    with spark_when_needed("layoutopt-streams") as spark:
        streams = map(tpch_at(scale, root, spark).stream, chosen_streams(names))
        return {
            stream.name: compare(stream, comparison_of(stream, YEAR, rows), tuple(BUILT_IN), say) for stream in streams
        }


def comparison_report(compared: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Group:
    """Return a table a stream."""
    from jobs.bench.method_comparison import methods_table

    tables = [methods_table(f"{name}: unseen queries", methods) for name, methods in compared.items()]
    return Group(*[part for table in tables for part in (table, "")])
