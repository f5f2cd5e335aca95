"""`layoutopt bench tpch`: every method on the streams of chapters 3, 4 and 5, resuming where it stopped."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from layoutopt.bench.session import spark_when_needed
from layoutopt.bench.steps import run
from layoutopt.bench.tpch.data import DEFAULT_ROOT, TpchData
from layoutopt.bench.tpch.experiment import (
    Bench,
    Variant,
    matching_step,
    rewrite_step,
    stream_for_testing,
    table_folder,
    table_step,
)
from layoutopt.bench.tpch.plots import plot_replication, replication_curves
from layoutopt.bench.tpch.queries import STREAMS, chosen_streams
from layoutopt.bench.tpch.rehearsals import rehearsal_steps
from layoutopt.bench.tpch.report import Result, experiment_table, paths_table, template_table
from layoutopt.bench.tpch.variants import variants

TABLE_WIDTH: Final = 200


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


def lower_bound(stream: str, product: Mapping[str, Any], block_rows: int) -> Result:
    """Read off the counts of matching rows what no blocks of that size can beat: whole blocks are read, or none."""
    counts = [max(rows, block_rows) if rows else 0 for rows in product["rows"]]
    return Result(
        stream,
        f"lower bound, blocks of {block_rows:,}",
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
    rehearsed: dict[str, Any] = {}
    for step in rehearsal_steps(bench, stream, [variant for variant in chosen if not variant.written]):
        rehearsed |= run(step, say)["tables"]
    products = [
        run(table_step(bench, stream, variant), say)
        if variant.written
        else rehearsed[table_folder(bench, stream, variant).name]
        for variant in chosen
    ]
    counted = run(matching_step(bench, stream), say)
    return [
        full_scan(stream, products[0]),
        *(result_of(stream, variant, product) for variant, product in zip(chosen, products, strict=True)),
        lower_bound(stream, counted, max(variant.block_rows for variant in chosen)),
        matching(stream, counted),
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
    from layoutopt.methods.registry import METHODS

    asked = chosen_streams(streams)
    console = console or Console()
    # Figures are of no use cut short: a narrow terminal wraps the lines, a file has them whole.
    wide = Console(file=console.file, width=max(console.width, TABLE_WIDTH))
    with spark_when_needed("layoutopt-tpch") as spark:
        bench = Bench(TpchData(scale, root), spark)
        gathered = []
        for stream in asked:
            chosen = variants(tuple(METHODS), stream)
            results = results_of(bench, stream, chosen, console.print)
            results[1:-2] = [
                with_ratios(result, run(rewrite_step(bench, variant.block_rows), console.print))
                if variant.written
                else result
                for variant, result in zip(chosen, results[1:-2], strict=True)
            ]
            wide.print(experiment_table(results, scale))
            wide.print(template_table(results, results[0].rows))
            print_replication(wide, stream, results, root)
            gathered += [{**asdict(result), "thesis": result.thesis} for result in results]
    path = root / "results.json"
    path.write_text(json.dumps({"scale": scale, "results": gathered}, indent=1) + "\n", encoding="utf-8")
    return path
