"""What `layoutopt bench files` prints: a row a reader and a layout, and of `serve` a row a template."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.table import Table

from layoutopt.bench.files.experiment import DUCKDB, ICEBERG, OUR_FILES, OURS, OURS_ASKED, SERVED
from layoutopt.bench.tpch.report import megabytes

Found = Mapping[str, Mapping[str, Any]]
_READERS = (OURS, OURS_ASKED, OUR_FILES, SERVED, ICEBERG, "deltalake")
_SOP = "sop"


def files_report(found: Found, title: str) -> Group:
    """Tabulate what :func:`layoutopt.bench.files.experiment.run_files` found."""
    table = Table(title=title, title_justify="left")
    for heading in ("layout", "reader", "files", "rows", "of its files", "bytes", "rows, sayable", "rows, others"):
        table.add_column(heading, justify="left" if heading in ("layout", "reader") else "right")
    for method, of in found.items():
        for reader in _READERS:
            # Peers have no features, so that our own reader skips by minima and maxima as others do.
            if method.startswith(_SOP) or reader in (SERVED, ICEBERG, "deltalake"):
                table.add_row(method, reader, *_figures(of, of["readings"][reader]))
        groups, whole = (sum(each[name] for each in of[DUCKDB]) for name in ("row_groups", "of"))
        read = megabytes(sum(each["bytes"] for each in of[DUCKDB]))
        table.add_row(method, f"{DUCKDB}, of plain Parquet", "", f"{groups / max(1, whole):.1%} of groups", "", read)
    laid_out = [(method, of) for method, of in found.items() if method.startswith(_SOP)]
    tables = [part(method, of) for method, of in laid_out for part in (_templates, _shared)]
    timed = [_planning(of) for of in found.values() if "planning" in of]
    return Group(table, *timed, *tables)


def share_of_rows(of: Mapping[str, Any], readings: Sequence[Mapping[str, int]], chosen: Sequence[bool]) -> float:
    """The rows read by the chosen queries, over those of a full scan by them."""
    read: int = sum(each["rows"] for each, counted in zip(readings, chosen, strict=True) if counted)
    whole: int = of["rows"] * sum(chosen)
    return read / max(1, whole)


def _figures(of: Mapping[str, Any], readings: Sequence[Mapping[str, int]]) -> list[str]:
    everything, said = [True] * len(readings), of["said"]
    shares = [share_of_rows(of, readings, chosen) for chosen in (everything, said, [not each for each in said])]
    opened = sum(each["file_rows"] for each in readings) / max(1, of["rows"] * len(readings))
    return [
        f"{sum(each['files'] for each in readings) / max(1, len(readings)):.1f} of {of['files']}",
        f"{shares[0]:.1%}",
        f"{opened:.1%}",
        megabytes(sum(each["bytes"] for each in readings)),
        *(f"{share:.1%}" for share in shares[1:]),
    ]


def _shared(method: str, of: Mapping[str, Any]) -> Table:
    """What it costs that blocks share files."""
    ways = ("alone", "written", "random", "exchanged")
    table = Table("file bytes", "files", *ways, title=f"{method}: blocks that share files, through serve")
    for each in of["shared"]:
        table.add_row(f"{each['file_bytes']:,}", str(each["files"]), *(megabytes(each[way]) for way in ways))
    return table


def _planning(of: Mapping[str, Any]) -> str:
    """How long scans of many files are planned: the first of each template, which asks for new columns, apart."""
    timed, templates = of["planning"], of["templates"]
    first = [template not in templates[:place] for place, template in enumerate(templates)]
    kinds = {"processor": "of processor time", "wall": "by the clock", "http": "from request to answer"}
    said = []
    for kind, words in kinds.items():
        pairs = list(zip((seconds * 1e3 for seconds in timed[kind]), first, strict=True))
        new = max(each for each, is_first in pairs if is_first)
        later = [each for each, is_first in pairs if not is_first] or [new]
        middle, most = statistics.median(later), max(later)
        said.append(f"{middle:.1f} ms {words} (at most {most:.1f}; of new columns {new:.1f})")
    return f"a scan of {timed['files']:,} files, opened in {timed['opening']:.2f} s, is planned in {', '.join(said)}\n"


def _templates(method: str, of: Mapping[str, Any]) -> Table:
    readers = (OURS, OURS_ASKED, SERVED, ICEBERG)
    table = Table("template", *readers, title=f"{method}: the rows left to each template", title_justify="left")
    for template in sorted(set(of["templates"]), key=lambda name: int(name[1:])):
        chosen = [each == template for each in of["templates"]]
        shares = [share_of_rows(of, of["readings"][reader], chosen) for reader in readers]
        table.add_row(template, *(f"{share:.1%}" for share in shares))
    return table
