"""Make the table of `mine` and `python -m jobs.bench brushing`: a row per method, the fewest bytes first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from layoutopt.spark.planning.method_comparison import BOUND


def methods_table(title: str, methods: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return the result of :func:`~layoutopt.spark.planning.method_comparison.compare_methods` as a table."""
    table = Table(title=title, title_justify="left")
    for heading in ("method", "rows", "bytes", "of the best", "footers", "on disk", "planning", "loading"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    least = min((totals["bytes"] for method, totals in methods.items() if method != BOUND), default=0)
    for method, totals in sorted(methods.items(), key=lambda item: item[1]["bytes"]):
        chosen = totals.get("method", method)
        table.add_row(
            method if chosen == method else f"{method}: {chosen}",
            f"{totals['rows'] / 1e6:,.1f} M",
            _format_megabytes(totals["bytes"]),
            f"{totals['bytes'] / max(1, least):.2f}x",
            _format_megabytes(totals.get("footer_bytes")),
            _format_megabytes(totals.get("storage_bytes")),
            *(f"{totals[key]:.0f} s" if key in totals else "" for key in ("planning_seconds", "loading_seconds")),
        )
    return table


def _format_megabytes(count: float | None) -> str:
    return "" if count is None else f"{count / 1e6:,.1f} MB"
