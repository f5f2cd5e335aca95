"""What experiments print: one row a method, as a share of the full scan, beside the thesis's figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from rich.table import Table

# Sun 2017: rows scanned of a full scan in figure 3.5(a); otherwise what section 3.7.3, 4.7.5 or 5.7.2 says in words.
THESIS: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {
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
)


@dataclass(frozen=True)
class Result:
    """What one method scanned over all queries of a stream. Counts are sums over the queries; None is unknown.

    Attributes:
        rows: rows scanned, of each query the largest over the layouts that it reads.
        bytes: compressed column chunks to be read.
        storage: bytes of the table's data files.
        storage_ratio: storage over the source's, rewritten with the same codec and row group size.
        loading_ratio: loading time over that of Spark rewriting the source with the same codec.
        rows_by_template: the rows scanned by each template's queries.
        greedy_paths: how the greedy retrieval path compares with the cheapest one (``scan.evaluate.greedy_paths``).
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
        """What the thesis reports for this method on this stream, or nothing."""
        return THESIS.get((self.stream, self.label), "")


def percent(part: float | None, whole: float | None) -> str:
    """Write a share with two digits that mean something.

    >>> percent(39, 1000), percent(1, 10000), percent(250, 1000), percent(None, 1)
    ('3.9 %', '0.010 %', '25 %', '')
    """
    if part is None or not whole:
        return ""
    share = 100 * part / whole
    digits = 0 if share >= 10 else 1 if share >= 1 else 2 if share >= 0.1 else 3
    return f"{share:.{digits}f} %"


def times(whole: float | None, part: float | None) -> str:
    """Write how many times fewer a part is than the whole.

    >>> times(1000, 80), times(None, 1)
    ('12.5x', '')
    """
    return "" if whole is None or not part else f"{whole / part:.1f}x"


def megabytes(count: float | None) -> str:
    """Write bytes as megabytes (10^6).

    >>> megabytes(61_234_567), megabytes(1_234), megabytes(None)
    ('61.2 MB', '0.0 MB', '')
    """
    return "" if count is None else f"{count / 1e6:,.1f} MB"


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
    table = _table(
        f"{full.stream}: {queries} unseen queries",
        ("method", "rows scanned", "of all", "bytes read", "of all", "thesis"),
    )
    for result in results:
        table.add_row(
            result.label,
            f"{result.rows:,}",
            percent(result.rows, full.rows),
            megabytes(result.bytes),
            percent(result.bytes, full.bytes),
            result.thesis,
        )
    return table


def experiment_table(results: Sequence[Result], scale: float) -> Table:
    """Tabulate everything measured for one stream; the first result is the full scan that the shares are of."""
    full = results[0]
    table = _table(
        f"{full.stream} at scale factor {scale:g}",
        (
            "method",
            "rows",
            "of all",
            "cells",
            "tids",
            "fewer",
            "bytes",
            "fewer",
            "storage",
            "planning",
            "loading",
            "thesis",
        ),
    )
    for result in results:
        table.add_row(
            result.label,
            f"{result.rows:,}",
            percent(result.rows, full.rows),
            percent(result.cells, full.cells),
            percent(result.tids, full.cells),
            times(full.cells, result.cells_and_tids),
            megabytes(result.bytes),
            times(full.bytes, result.bytes),
            _with_ratio(megabytes(result.storage), result.storage_ratio),
            _seconds(result.planning_seconds),
            _with_ratio(_seconds(result.loading_seconds), result.loading_ratio),
            result.thesis,
        )
    return table


def template_table(results: Iterable[Result], rows_total: int) -> Table:
    """Tabulate what each template contributes to the rows scanned, as a share of the full scan of all queries.

    Args:
        results: the methods to show, a column each; those without figures by template are left out.
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
