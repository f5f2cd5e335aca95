"""All figures that are measured on TPC-H, in the thesis's order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from layoutopt.bench.thesis import chapter3, chapter4, chapter5
from layoutopt.bench.thesis.figure import Figure
from layoutopt.bench.thesis.suite import Suite
from layoutopt.bench.tpch.data import TpchData
from layoutopt.bench.tpch.experiment import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIGURES: Final[Mapping[str, Figure[Bench]]] = MappingProxyType(
    {figure.name: figure for figure in (*chapter3.FIGURES, *chapter4.FIGURES, *chapter5.FIGURES)}
)
TITLE: Final = "The figures of Sun 2017, measured by layoutopt"


def tpch_suite(scale: float, root: Path, spark: Callable[[], SparkSession]) -> Suite[Bench]:
    """The figures at a scale factor, in the folder of all experiments.

    Raises:
        SettingError: a scale factor that can't be generated.
    """
    data = TpchData(scale, root)
    return Suite(
        name="tpch",
        title=TITLE,
        about=f"TPC-H at scale factor {scale:g}, unseen queries; the thesis had scale factor 100 and a cluster.",
        command=f"layoutopt bench tpch --sf {scale:g}",
        size=scale,
        figures=FIGURES,
        bench=Bench(data, spark),
        folder=data.folder / "results",
    )
