"""Generated texts over generated tables, by every way of reading, against Spark on the source.

`HUNT_WITHOUT` leaves constructs out (see :mod:`tests.hunt.switches`); `HUNT_SEEDS=7` or `7-9` asks worlds of one's own.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.effort import examples
from tests.hunt.campaign import Hunt, Tally, run
from tests.hunt.loads import by_loads
from tests.hunt.switches import Switches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.usefixtures("each_reader"),
    pytest.mark.unshadowed("every answer is compared with Spark's on the source"),
]

CASES = examples(800)
TEXTS = examples(40)  # a world
SLICES = 100
CASES_OF_SLICE = 1_000
LOADED_EVERY = 50  # slices; a world of loaded tables takes minutes
LEAST_SKIPPING = 0.3


def check(tally: Tally, cases: int) -> None:
    """Enough was asked, enough skipped, and nothing was wrong."""
    print(tally)  # noqa: T201 - what the long run reports
    assert not tally.wrong, "\n\n".join(map(str, tally.failures))
    assert tally.total >= cases
    assert tally.skipping >= LEAST_SKIPPING * tally.total


@pytest.mark.long
def test_hunt(spark: SparkSession) -> None:
    first, _, last = os.environ.get("HUNT_SEEDS", "0-99").partition("-")
    hunt = Hunt(spark, Switches.of_environment(), texts=TEXTS, batches=1)
    check(run(hunt, range(int(first), int(last or first) + 1), CASES), CASES if last else 1)


@pytest.mark.long
def test_hunt_over_loaded_tables(spark: SparkSession) -> None:
    switches = replace(Switches.of_environment(), odd_names=False)
    check(run(Hunt(spark, switches, texts=TEXTS, batches=1, loading=by_loads), [0], 1), 1)


@pytest.mark.long
@pytest.mark.parametrize("number", range(SLICES))
def test_hunt_long(spark: SparkSession, number: int) -> None:
    """Each slice has seeds of its own, so that several processes can share them, and each can be run again."""

    def say(text: str) -> None:
        print(text, flush=True)  # noqa: T201 - how far it is

    switches = Switches.of_environment()
    if number % LOADED_EVERY == 0:
        check(run(Hunt(spark, replace(switches, odd_names=False), loading=by_loads), [1000 * number + 1], 1, say), 1)
    check(
        run(Hunt(spark, switches), range(1000 * number + 2, 1000 * (number + 1)), CASES_OF_SLICE, say), CASES_OF_SLICE
    )
