"""`layoutopt bench tpch`: every method on the streams of chapters 3, 4 and 5, resuming where it stopped."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from rich.console import Console

from layoutopt.bench.experiment import (
    MONTH_BLOCK_ROWS,
    Bench,
    Variant,
    matching_step,
    rewrite_step,
    stream_for_testing,
    table_step,
)
from layoutopt.bench.plots import plot_replication, replication_curves
from layoutopt.bench.report import Result, experiment_table, paths_table, template_table
from layoutopt.bench.session import spark_when_needed
from layoutopt.bench.steps import run
from layoutopt.bench.tpch_data import DEFAULT_ROOT, TpchData
from layoutopt.bench.tpch_queries import STREAMS

YEAR_BLOCK_ROWS: Final = 10_000
TABLE_WIDTH: Final = 200
COPYING: Final = MappingProxyType(
    {"gsop-r": (1.1, 1.2, 1.5, 2.0), "gsop-selective": (1.2, 1.5, 2.0), "gsop-fullcopy": (2.0, 3.0)}
)
"""The storage budgets of the methods with copies (5.7)."""
RANGE_2: Final = ("o_orderdate", "cr_name", "c_mktsegment", "l_quantity")  # 3.7.3


def baselines(partition_by: str, block_rows: int) -> tuple[Variant, ...]:
    """The comparisons of 3.7.3: what plain Parquet gives, and two ways of range partitioning, all by min/max alone."""
    return (
        Variant("Parquet min/max", "input-order", None, block_rows, features=False),
        Variant("range1", "range", partition_by, block_rows, ("o_orderdate",), features=False),
        Variant("range2", "range", partition_by, block_rows, RANGE_2, features=False),
    )


def variants(method_names: Sequence[str], stream: str) -> tuple[Variant, ...]:
    """Every registered method once: by month with the parameters of 3.7.3 for chapter 3, else by year.

    Methods of several layouts belong to the streams of chapters 4 and 5: a layout's blocks of a month would be smaller
    than what opening them costs. All have the same features to skip by, but for the thesis's baselines. Tables are
    written where storage is what matters: in chapter 5.
    """
    several = [name for name in method_names if name.startswith("gsop")]
    single = [name for name in method_names if name not in several and name not in ("input-order", "range")]
    if stream.startswith("chapter3"):
        return (
            *baselines("o_month", MONTH_BLOCK_ROWS),
            *(_variant(name, "o_month", MONTH_BLOCK_ROWS) for name in single),
            *(_variant(name, "o_year", YEAR_BLOCK_ROWS) for name in single),
        )
    by_year = (*baselines("o_year", YEAR_BLOCK_ROWS), *(_variant(name, "o_year", YEAR_BLOCK_ROWS) for name in single))
    if stream.startswith("chapter4"):
        groups = [name for name in several if name not in COPYING]
        return (*by_year, *(_variant(name, "o_year", YEAR_BLOCK_ROWS) for name in groups))
    gsop = _variant("gsop", "o_year", YEAR_BLOCK_ROWS)
    copies = [
        replace(gsop, method=name, label=f"{label_of(name)} {budget:g}", budget=budget)
        for name in several
        for budget in COPYING.get(name, ())
    ]
    return (*by_year, *(replace(one, written=True) for one in (gsop, *copies) if one.method in several))


def _variant(method: str, partition_by: str, block_rows: int) -> Variant:
    """A method with the bench's parameters; orders over columns take those of `range2`."""
    year = " by year" if partition_by == "o_year" else ""
    by = RANGE_2 if method in ("sort", "zorder", "hilbert") else ()
    return Variant(f"{label_of(method)}{year}", method, partition_by, block_rows, by, written=False)


def label_of(method: str) -> str:
    """Name a method as the thesis does.

    >>> label_of("gsop-single"), label_of("qdtree")
    ('GSOP-single', 'qdtree')
    """
    return method.replace("gsop-r", "GSOP-R").replace("gsop", "GSOP").replace("sop", "SOP")


def full_scan(stream: str, product: Mapping[str, Any]) -> Result:
    """Read off a table's evaluation what the same queries cost without any skipping."""
    totals = product["full_scan"]
    return Result(
        stream,
        "full scan",
        rows=totals["rows_scanned"],
        cells=totals["cells_scanned"],
        bytes=totals["bytes_scanned"],
        storage=product["source_bytes"],
    )


def result_of(stream: str, variant: Variant, product: Mapping[str, Any]) -> Result:
    """Read a variant's result off the product of its last step."""
    totals, queries = product["evaluation"]["totals"], product["evaluation"]["queries"]
    return Result(
        stream,
        variant.label,
        rows=totals["rows_scanned"],
        cells=totals["cells_scanned"],
        tids=totals["tids_scanned"],
        bytes=totals["bytes_scanned"],
        storage=product["storage_bytes"],
        planning_seconds=product["planning_seconds"],
        loading_seconds=product["loading_seconds"],
        rows_by_template=rows_by_template(stream, {query["id"]: query["rows_scanned"] for query in queries}),
        greedy_paths=totals.get("greedy_paths", {}),
    )


def matching(stream: str, product: Mapping[str, Any]) -> Result:
    """Read off the counts of matching rows: what no layout can beat."""
    counts: list[int] = product["rows"]
    return Result(
        stream,
        "matching",
        rows=sum(counts),
        cells=sum(rows * columns for rows, columns in zip(counts, product["columns"], strict=True)),
        rows_by_template=rows_by_template(stream, dict(enumerate(counts))),
    )


def rows_by_template(stream: str, rows: Mapping[int, int]) -> dict[str, int]:
    """Sum rows, given by a query's place in the test stream, over each template's queries."""
    sums = dict.fromkeys(STREAMS[stream].templates, 0)
    for place, query in enumerate(stream_for_testing(stream)):
        sums[query.template] += rows.get(place, 0)
    return sums


def with_ratios(result: Result, rewritten: Mapping[str, Any]) -> Result:
    """Add to a table's result how its storage and loading time compare with the source rewritten as it is."""
    storage, loading = result.storage, result.loading_seconds
    return replace(
        result,
        storage_ratio=None if storage is None else storage / rewritten["bytes"],
        loading_ratio=None if loading is None else loading / rewritten["seconds"],
    )


def results_of(bench: Bench, stream: str, chosen: Sequence[Variant], say: Callable[[str], None]) -> list[Result]:
    """Run every step of a stream that has not been run: the full scan first, then the variants, then what matches."""
    products = [run(table_step(bench, stream, variant), say) for variant in chosen]
    return [
        full_scan(stream, products[0]),
        *(result_of(stream, variant, product) for variant, product in zip(chosen, products, strict=True)),
        matching(stream, run(matching_step(bench, stream), say)),
    ]


def print_replication(console: Console, stream: str, results: Sequence[Result], folder: Path) -> None:
    """Print how good greedy retrieval paths are, and plot what copies gain (figure 5.8), where a stream has any."""
    if any(result.greedy_paths.get("queries") for result in results):
        console.print(paths_table(results))
    curves = replication_curves(results, len(stream_for_testing(stream)))
    if curves:
        path = folder / f"{stream}-storage.png"
        plot_replication(curves, path)
        console.print(f"What copies gain for what they store: {path}")


def run_tpch(
    scale: float, *, root: Path = DEFAULT_ROOT, streams: Sequence[str] = (), console: Console | None = None
) -> Path:
    """Run the experiments of one scale factor, print a table a stream, and write `results.json`.

    Args:
        scale: the TPC-H scale factor.
        root: the folder of all experiments; each step's product is kept there.
        streams: names of `STREAMS`; all of them when empty.
        console: where to print.

    Returns:
        The path of `results.json`.

    Raises:
        SettingError: a scale factor or a stream that is not known.
    """
    from layoutopt.spark.plan import METHODS

    console = console or Console()
    # Figures are of no use cut short: a narrow terminal wraps the lines, a file has them whole.
    wide = Console(file=console.file, width=max(console.width, TABLE_WIDTH))
    with spark_when_needed("layoutopt-tpch") as spark:
        bench = Bench(TpchData(scale, root), spark)
        gathered = []
        for stream in streams or STREAMS:
            chosen = variants(tuple(METHODS), stream)
            results = results_of(bench, stream, chosen, console.print)
            results[1:-1] = [
                with_ratios(result, run(rewrite_step(bench, variant.block_rows), console.print))
                for variant, result in zip(chosen, results[1:-1], strict=True)
            ]
            wide.print(experiment_table(results, scale))
            wide.print(template_table(results, results[0].rows))
            print_replication(wide, stream, results, root)
            gathered += [{**asdict(result), "thesis": result.thesis} for result in results]
    path = root / "results.json"
    path.write_text(json.dumps({"scale": scale, "results": gathered}, indent=1) + "\n", encoding="utf-8")
    return path
