"""The table of `calibrate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from layoutopt.model.engine_costs import KINDS

if TYPE_CHECKING:
    from layoutopt.spark.planning.calibrate import Fitted


def calibration_table(fitted: Fitted) -> Table:
    """Return what engines cost, a row for each kind of work."""
    engines = fitted.calibration.engines
    table = Table(title="microseconds for one of each kind of work", title_justify="left")
    table.add_column("")
    for engine in engines:
        table.add_column(engine, justify="right")
    for kind in KINDS:
        table.add_row(kind.replace("_", " "), *(f"{1e6 * costs.get(kind, 0.0):,.4g}" for costs in engines.values()))
    table.add_section()
    table.add_row("a third of the probes, missed by", *(f"{fitted.missed[engine]:.0%}" for engine in engines))
    return table
