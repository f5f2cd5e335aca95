"""`calibrate`: costs are found again from what they make, and every engine is asked the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from layoutopt.model.engine_costs import KINDS, EngineCosts, QueryWork
from layoutopt.spark.planning import calibrate
from layoutopt.spark.planning.calibrate import Probe, Shape, fit, fitted, missed, probes_of, synthetic_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def probes(costs: EngineCosts, count: int, noise: float = 0.0) -> list[Probe]:
    """Random work, and the seconds that it takes by some costs."""
    draw = np.random.default_rng(1)
    works = [QueryWork(1, *draw.integers(0, 10**4, len(KINDS) - 1).tolist()) for _ in range(count)]
    return [Probe(work, costs.seconds(work) * (1 + noise * draw.normal())) for work in works]


TRUE = EngineCosts({"queries": 0.5, "files": 1e-4, "chunks": 2e-5, "joined_rows": 3e-6})


def test_costs_are_found_again() -> None:
    found = fit(probes(TRUE, 40))
    assert found.vector == pytest.approx(TRUE.vector, abs=1e-7)
    assert missed(found, probes(TRUE, 40)) < 1e-3


def test_noise_gives_no_negative_costs_and_is_told() -> None:
    made = fitted({"spark": probes(TRUE, 60, noise=0.2)})
    assert min(made.calibration.engines["spark"].values()) >= 0
    assert 0.05 < made.missed["spark"] < 0.5


def test_rows_are_the_same_each_time_and_in_order() -> None:
    rows = synthetic_rows(1_000)
    assert rows.equals(synthetic_rows(1_000))
    assert rows["key"].to_pylist() == list(range(1_000))
    assert len(set(rows["part"].to_pylist())) == 8


@pytest.mark.long
@pytest.mark.spark
def test_every_engine_is_timed(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "SHAPES", (Shape(500, partitioned=False, grouped=True),))
    monkeypatch.setattr(calibrate, "REPEATS", 1)
    monkeypatch.setattr(calibrate, "probes_of", lambda rows: probes_of(rows)[4:7])
    made = calibrate.calibrate(spark, lambda sentence: None, 2_000)
    assert set(made.calibration.engines) == {"arrow", "duckdb", "spark"}
    assert made.probes == 3
    assert made.calibration.costs("spark").seconds(QueryWork(queries=1)) >= 0
