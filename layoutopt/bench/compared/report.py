"""What `layoutopt bench brushing` and `bench mine` print: a table a workload, a row a method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group
from rich.table import Table

from layoutopt.bench.compared.workload import BOUND
from layoutopt.bench.tpch.report import megabytes


def brushing_report(found: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Group:
    """Tabulate what :func:`layoutopt.bench.brushing.experiment.run_brushing` found."""
    titled = ((f"{name}: unseen users' queries", methods) for name, methods in found.items())
    return Group(*[part for title, methods in titled for part in (methods_table(title, methods), "")])


def methods_table(title: str, methods: Mapping[str, Mapping[str, Any]]) -> Table:
    """What :func:`layoutopt.bench.compared.workload.compare` found, the fewest bytes first."""
    table = Table(title=title, title_justify="left")
    for heading in ("method", "rows", "bytes", "of the best", "footers", "on disk", "planning", "loading"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    least = min((of["bytes"] for method, of in methods.items() if method != BOUND), default=0)
    for method in sorted(methods, key=lambda method: methods[method]["bytes"]):
        of = methods[method]
        chosen = of.get("method", method)
        seconds = [f"{of[kind]:.0f} s" if kind in of else "" for kind in ("planning_seconds", "loading_seconds")]
        table.add_row(
            method if chosen == method else f"{method}: {chosen}",
            f"{of['rows'] / 1e6:,.1f} M",
            megabytes(of["bytes"]),
            f"{of['bytes'] / max(1, least):.2f}x",
            megabytes(of.get("footer_bytes")),
            megabytes(of.get("storage_bytes")),
            *seconds,
        )
    return table
