"""Tables that are changed in every way at random: after each change every answer is that of a model."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from layoutopt.inspect.verify import verify
from layoutopt.scan.table import open_table
from tests.effort import long_too
from tests.spark.changes.living import SCHEMES, Living

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def live(spark: SparkSession, root: Path, scheme: str, steps: int, seed: int) -> None:
    living = Living(spark, root)
    living.begin(SCHEMES[scheme])
    living.check()
    choice = random.Random(f"{scheme} {seed}")
    for _ in range(steps):
        living.step(choice)
        living.check()
    living.check_past()
    assert verify(open_table(living.path)).ok


@pytest.mark.parametrize(("scheme", "steps"), [("gsop-r", 3), *long_too(("gsop-r", 4), ("sop", 3))])
def test_a_table_that_is_changed_at_random(spark: SparkSession, tmp_path: Path, scheme: str, steps: int) -> None:
    live(spark, tmp_path, scheme, steps, seed=0)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("scheme", SCHEMES)
def test_long_lives(spark: SparkSession, tmp_path: Path, scheme: str, seed: int) -> None:
    live(spark, tmp_path, scheme, steps=30, seed=seed)
