"""Make the table of `calibrate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from layoutopt.model.engine_costs import KINDS

if TYPE_CHECKING:
    from layoutopt.spark.planning.calibrate import Fitted


def calibration_table(fitted: Fitted) -> Table:
    """Return a table of the engines' costs for each kind of work."""
    engines = fitted.calibration.engines
    table = Table(title="microseconds per unit of work", title_justify="left")
    table.add_column("")
    for engine in engines:
        table.add_column(engine, justify="right")
    for kind in KINDS:
        table.add_row(kind.replace("_", " "), *(f"{1e6 * costs.get(kind, 0.0):,.4g}" for costs in engines.values()))
    table.add_section()
    table.add_row("error on the held-out third of probes", *(f"{fitted.missed[engine]:.0%}" for engine in engines))
    return table
