"""Generated texts over generated tables, by every way of reading, against Spark on the source.

`HUNT_WITHOUT` leaves constructs out (see :mod:`tests.hunt.switches`), `HUNT_SEEDS=7` or `7-9` asks worlds of one's own.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.hunt.campaign import Tally, hunt
from tests.hunt.switches import Switches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CASES = 1_000
SLICES = 20
CASES_OF_SLICE = 5_000
SEEDS_OF_SLICE = 1_000
LEAST_SKIPPING = 0.3


def check(tally: Tally, cases: int) -> None:
    """Enough was asked, enough skipped, and nothing was wrong."""
    print(tally)  # noqa: T201 - what the long run reports
    assert not tally.failures, "\n\n".join(map(str, tally.failures))
    assert tally.total >= cases
    assert tally.skipping >= LEAST_SKIPPING * tally.total


def test_hunt(spark: SparkSession) -> None:
    first, _, last = os.environ.get("HUNT_SEEDS", "0-99").partition("-")
    check(hunt(spark, range(int(first), int(last or first) + 1), CASES, Switches.of_environment(), batches=1), 1)


@pytest.mark.long
@pytest.mark.parametrize("number", range(SLICES))
def test_hunt_long(spark: SparkSession, number: int) -> None:
    seeds = range(1000 + number * SEEDS_OF_SLICE, 1000 + (number + 1) * SEEDS_OF_SLICE)
    say = lambda text: print(text, flush=True)  # noqa: E731, T201
    check(hunt(spark, seeds, CASES_OF_SLICE, Switches.of_environment(), say=say), CASES_OF_SLICE)
