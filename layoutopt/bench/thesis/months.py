"""Some months of the table, for figures that need a plan and a rehearsal for each point of a curve."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from layoutopt.bench.steps import Json, Step
from layoutopt.bench.tpch.data import TpchData
from layoutopt.bench.tpch.experiment import Bench, data_step, size_of

EVERY: Final = 8
"""Of the table's 80 months, so many are one that is taken."""


@dataclass(frozen=True)
class SomeMonths(TpchData):
    """Every eighth month of a scale factor's data, with products of its own.

    >>> SomeMonths(0.1, Path("build/tpch")).denormalised.as_posix()
    'build/tpch/sf0.1/months/denorm'
    """

    @property
    def folder(self) -> Path:
        """Everything of these months."""
        return super().folder / "months"

    @property
    def raw(self) -> Path:
        """The generator's tables, whole."""
        return super().folder / "raw"


def some_months(bench: Bench) -> Bench:
    """The bench on these months alone."""
    return replace(bench, data=SomeMonths(bench.data.scale, bench.data.root))


def months_step(bench: Bench) -> Step:
    """Write these months' rows, in the table's order; to be run before any step of :func:`some_months`."""
    months = some_months(bench)

    def make() -> Json:
        rows = bench.spark().read.parquet(str(bench.data.denormalised))
        taken = rows.where(f"(12 * (o_month div 100) + o_month % 100) % {EVERY} = 1")
        unfinished = months.data.denormalised.with_name("denorm.unfinished")
        taken.write.mode("overwrite").option("compression", "zstd").parquet(str(unfinished))
        unfinished.rename(months.data.denormalised)
        return {"every": EVERY, "bytes": size_of(months.data.denormalised)}

    return Step(f"taking every {EVERY}th month", months.folder / "months.json", make, (data_step(bench),))
