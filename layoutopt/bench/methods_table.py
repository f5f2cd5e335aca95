"""`layoutopt bench tpch --streams`: every method on the streams of chapters 3, 4 and 5, as a table a stream."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from layoutopt.bench.experiment import TEST, Experiment, Variant
from layoutopt.bench.steps import Say, run, spark_when_needed
from layoutopt.bench.tpch import MONTH, MONTH_BLOCK_ROWS, RANGES, YEAR, YEAR_BLOCK_ROWS, tpch_at
from layoutopt.bench.tpch_queries import chosen_streams

TABLE_WIDTH: Final = 200

# The storage budgets of the methods with copies (5.7).
COPYING: Final = {"gsop-r": (1.1, 1.2, 1.5, 2.0), "gsop-selective": (1.5,), "gsop-fullcopy": (2.0,)}
SMALLER_BLOCKS: Final = (3_000, 1_000)

# Sun 2017: rows scanned of a full scan in figure 3.5 (a), and what 3.7.3, 4.7.5 and 5.7.2 say in words.
THESIS: Final[Mapping[tuple[str, str], str]] = {
    ("chapter3", "full scan"): "100 %",
    ("chapter3", "range1"): "25 %",
    ("chapter3", "range2"): "19 %",
    ("chapter3", "SOP"): "3.9 %",
    ("chapter3", "matching"): "0.7 %",
    ("chapter3-skewed", "SOP"): "0.08 of range1, 0.10 of range2",
    ("chapter4", "SOP by year"): "GSOP reads 1/6.5 of it",
    ("chapter4", "GSOP by year"): "1/20 of plain Parquet",
    ("chapter5", "GSOP-R 1.2"): "1/2 of GSOP",
    ("chapter5", "GSOP-R 1.5"): "1/3 of GSOP",
}


@dataclass(frozen=True)
class Result:
    """What one method scanned, summed over all queries of a stream; None is unknown.

    Attributes:
        stream: of queries.
        label: the method's.
        rows: rows scanned, of each query the largest number over the layouts that it reads.
        cells: scanned.
        tids: scanned.
        bytes: of compressed column chunks that are read.
        storage: bytes of the table's data files.
        planning_seconds: of the plan.
        loading_seconds: of the load.
        storage_ratio: storage over the source's, rewritten with the same codec and row group size.
        loading_ratio: loading time over that of Spark rewriting the source with the same codec.
        rows_by_template: the rows scanned by each template's queries.
        greedy_paths: how the greedy retrieval path compares with the cheapest one, as `evaluate` has it.
    """

    stream: str
    label: str
    rows: int
    cells: int | None = None
    tids: int | None = None
    bytes: int | None = None
    storage: int | None = None
    planning_seconds: float | None = None
    loading_seconds: float | None = None
    storage_ratio: float | None = None
    loading_ratio: float | None = None
    rows_by_template: Mapping[str, int] = field(default_factory=dict)
    greedy_paths: Mapping[str, float] = field(default_factory=dict)

    @property
    def cells_and_tids(self) -> int | None:
        """What Eq. 4.3 counts."""
        return None if self.cells is None else self.cells + (self.tids or 0)

    @property
    def thesis(self) -> str:
        """What the thesis reports for this method on this stream; an empty text where it reports nothing."""
        return THESIS.get((self.stream, self.label), "")


def baselines(partition_by: str, block_rows: int) -> tuple[Variant, ...]:
    """Return the comparisons of 3.7.3, by minima and maxima alone: plain Parquet and two range partitionings."""
    plain = Variant("Parquet min/max", "input-order", None, block_rows, features=False, written=False)
    ranges = [
        Variant(label, partition_by=partition_by, block_rows=block_rows, written=False, **parameters)
        for label, parameters in RANGES.items()
    ]
    return (plain, *ranges)


def variants(methods: Sequence[str], stream: str) -> tuple[Variant, ...]:
    """Return every method once, in partitions of a year; for chapter 3 SOP by month too, with 3.7.3's parameters.

    All but the thesis's baselines have the same features. Chapter 4 has GSOP in smaller blocks too. Methods with copies
    belong to chapter 5, where SOP and column groups are written, since storage and loading matter there.
    """
    several = [name for name in methods if name.startswith("gsop")]
    by_year = [_by_year(name) for name in methods if name not in several and name not in ("input-order", "range")]
    gsop = [_by_year(name) for name in several if name == "gsop"]
    if stream.startswith("chapter3"):
        month = Variant("SOP", "sop", MONTH, MONTH_BLOCK_ROWS, written=stream == "chapter3")
        return (*baselines(MONTH, MONTH_BLOCK_ROWS), month, *by_year, *gsop)
    _, *ranges = baselines(YEAR, YEAR_BLOCK_ROWS)  # the source's order skips nothing by minima and maxima
    if stream.startswith("chapter4"):
        groups = [_by_year(name) for name in several if name not in COPYING]
        smaller = [
            replace(one, label=f"{one.label}, blocks of {rows:,}", block_rows=rows)
            for one in gsop
            for rows in SMALLER_BLOCKS
        ]
        return (*ranges, *by_year, *groups, *smaller)
    by_year = [replace(one, written=one.method == "sop") for one in by_year]
    copies = [
        replace(_by_year(name), label=f"{label_of(name)} {budget:g}", budget=budget, written=True)
        for name in several
        for budget in COPYING.get(name, ())
    ]
    return (*ranges, *by_year, *(replace(one, written=True) for one in gsop), *copies)


def _by_year(method: str) -> Variant:
    return Variant(f"{label_of(method)} by year", method, YEAR, YEAR_BLOCK_ROWS, written=False)


def label_of(method: str) -> str:
    """Return a method's name in the thesis.

    >>> label_of("gsop-single"), label_of("qdtree")
    ('GSOP-single', 'qdtree')
    """
    return method.replace("gsop-r", "GSOP-R").replace("gsop", "GSOP").replace("sop", "SOP")


def results_of(stream: Experiment, chosen: Sequence[Variant], say: Say) -> list[Result]:
    """Run the steps of a stream that have not been run, and return the full scan, the variants, a bound, the matches.

    The bound is what no blocks of that size can beat: whole blocks are read, or none.
    """
    tables, matching = stream.tables(chosen), stream.matching()
    for step in (*tables.steps, matching):
        run(step, say)
    evaluated, counted = tables.read(), matching.read()
    first, counts = next(iter(evaluated.values())), counted["rows"]
    block_rows = max(variant.block_rows for variant in chosen)
    at_least = [max(rows, block_rows) if rows else 0 for rows in counts]
    whole = first["full_scan"]
    full = Result(
        stream.name,
        "full scan",
        rows=whole["rows_scanned"],
        cells=whole["cells_scanned"],
        bytes=whole["bytes_scanned"],
        storage=first["source_bytes"],
    )

    def necessary(label: str, rows: Sequence[int]) -> Result:
        cells = sum(each * columns for each, columns in zip(rows, counted["columns"], strict=True))
        by_template = rows_by_template(stream, dict(enumerate(rows)))
        return Result(stream.name, label, rows=sum(rows), cells=cells, rows_by_template=by_template)

    return [
        full,
        *(_result(stream, label, table) for label, table in evaluated.items()),
        necessary(f"lower bound, blocks of {block_rows:,}", at_least),
        necessary("matching", counts),
    ]


def _result(stream: Experiment, label: str, table: Mapping[str, Any]) -> Result:
    totals, queries = table["evaluation"]["totals"], table["evaluation"]["queries"]
    return Result(
        stream.name,
        label,
        rows=totals["rows_scanned"],
        cells=totals["cells_scanned"],
        tids=totals["tids_scanned"],
        bytes=totals["bytes_scanned"],
        storage=table["storage_bytes"],
        planning_seconds=table["planning_seconds"],
        loading_seconds=table["loading_seconds"],
        rows_by_template=rows_by_template(stream, {query["id"]: query["rows_scanned"] for query in queries}),
        greedy_paths=totals.get("greedy_paths", {}),
    )


def rows_by_template(stream: Experiment, rows: Mapping[int, int]) -> dict[str, int]:
    """Sum rows, given by a query's place in the test log, over each template's queries."""
    sums: dict[str, int] = {}
    for place, query in enumerate(stream.queries(TEST)):
        sums[query.template] = sums.get(query.template, 0) + rows.get(place, 0)
    return sums


def with_ratios(result: Result, rewritten: Mapping[str, Any]) -> Result:
    """Add to a table's result how its storage and loading time compare with the source rewritten as it is."""
    storage, loading = result.storage, result.loading_seconds
    return replace(
        result,
        storage_ratio=None if storage is None else storage / rewritten["bytes"],
        loading_ratio=None if loading is None else loading / rewritten["seconds"],
    )


def run_streams(scale: float, *, root: Path, streams: Sequence[str] = (), console: Console | None = None) -> Path:
    """Run every method on streams, print a table a stream, and write `results.json`; return its path.

    Args:
        scale: the TPC-H scale factor.
        root: the folder of all experiments; each step's product is kept there.
        streams: of :data:`~layoutopt.bench.tpch_queries.STREAMS`; all of them when empty.
        console: where to print.

    Raises:
        SettingError: a scale factor or a stream that is not known.
    """
    from layoutopt.methods.registry import METHODS

    names, console = chosen_streams(streams), console or Console()
    # Tables must not be cut: a narrow terminal wraps the lines, a file has them whole.
    wide = Console(file=console.file, width=max(console.width, TABLE_WIDTH))
    gathered = []
    with spark_when_needed("layoutopt-tpch") as spark:
        tpch = tpch_at(scale, root, spark)
        for stream in map(tpch.stream, names):
            chosen = variants(tuple(METHODS), stream.name)
            results = results_of(stream, chosen, console.print)
            results[1:-2] = [
                with_ratios(result, run(stream.rewrite(variant.block_rows), console.print))
                if variant.written
                else result
                for variant, result in zip(chosen, results[1:-2], strict=True)
            ]
            wide.print(experiment_table(results, scale))
            wide.print(template_table(results, results[0].rows))
            if any(result.greedy_paths.get("queries") for result in results):
                wide.print(paths_table(results))
            gathered += [{**asdict(result), "thesis": result.thesis} for result in results]
    path = root / "results.json"
    path.write_text(json.dumps({"scale": scale, "results": gathered}, indent=1) + "\n", encoding="utf-8")
    return path


def percent(part: float | None, whole: float | None) -> str:
    """Format a share with two significant digits.

    >>> percent(39, 1000), percent(1, 10000), percent(250, 1000), percent(None, 1)
    ('3.9 %', '0.010 %', '25 %', '')
    """
    if part is None or not whole:
        return ""
    share = 100 * part / whole
    digits = 0 if share >= 10 else 1 if share >= 1 else 2 if share >= 0.1 else 3
    return f"{share:.{digits}f} %"


def megabytes(count: float | None) -> str:
    """Format bytes as megabytes (10^6).

    >>> megabytes(61_234_567), megabytes(1_234), megabytes(None)
    ('61.2 MB', '0.0 MB', '')
    """
    return "" if count is None else f"{count / 1e6:,.1f} MB"


def _times(whole: float | None, part: float | None) -> str:
    return "" if whole is None or not part else f"{whole / part:.1f}x"


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f} s"


def _with_ratio(text: str, ratio: float | None) -> str:
    return text if ratio is None else f"{text} ({ratio:.2f}x)"


def _table(title: str, headings: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in ("method", "thesis", "template") else "right")
    return table


def comparison_table(results: Sequence[Result], queries: int) -> Table:
    """Tabulate the demo's comparison; the first result is the full scan that the shares are of."""
    full = results[0]
    headings = ("method", "rows scanned", "of all", "bytes read", "of all", "thesis")
    table = _table(f"{full.stream}: {queries} unseen queries", headings)
    for result in results:
        rows = (f"{result.rows:,}", percent(result.rows, full.rows))
        sizes = (megabytes(result.bytes), percent(result.bytes, full.bytes))
        table.add_row(result.label, *rows, *sizes, result.thesis)
    return table


def experiment_table(results: Sequence[Result], scale: float) -> Table:
    """Tabulate everything measured for one stream; the first result is the full scan that the shares are of."""
    full = results[0]
    scan = ("rows", "of all", "cells", "tids", "fewer", "bytes", "fewer")
    headings = ("method", *scan, "storage", "planning", "loading", "thesis")
    table = _table(f"{full.stream} at scale factor {scale:g}", headings)
    for result in results:
        table.add_row(
            result.label,
            f"{result.rows:,}",
            percent(result.rows, full.rows),
            percent(result.cells, full.cells),
            percent(result.tids, full.cells),
            _times(full.cells, result.cells_and_tids),
            megabytes(result.bytes),
            _times(full.bytes, result.bytes),
            _with_ratio(megabytes(result.storage), result.storage_ratio),
            _seconds(result.planning_seconds),
            _with_ratio(_seconds(result.loading_seconds), result.loading_ratio),
            result.thesis,
        )
    return table


def template_table(results: Iterable[Result], rows_total: int) -> Table:
    """Tabulate what each template contributes to the rows scanned, as a share of the full scan of all queries.

    Args:
        results: the methods to show, a column each; those without rows by template are left out.
        rows_total: rows of a full scan by every query together.
    """
    shown = [result for result in results if result.rows_by_template]
    table = _table("rows scanned, by template", ("template", *(result.label for result in shown)))
    for template in dict.fromkeys(name for result in shown for name in result.rows_by_template):
        table.add_row(template, *(percent(result.rows_by_template.get(template), rows_total) for result in shown))
    return table


def paths_table(results: Iterable[Result]) -> Table:
    """Tabulate how often the greedy retrieval path is the cheapest one, and the most that it costs more (5.7.2).

    Only methods under which some query has a choice are shown.
    """
    table = _table("greedy retrieval path beside brute force", ("method", "queries", "same cost", "at worst"))
    for result in results:
        paths = result.greedy_paths
        if paths.get("queries"):
            table.add_row(result.label, f"{paths['queries']}", f"{paths['cheapest']}", f"{paths['worst_ratio']:.3f}x")
    return table
