"""Tables that are changed in every way at random: after each change every answer is that of a model."""

from __future__ import annotations

import random

import pytest

from layoutopt.inspect.verify import verify
from layoutopt.scan.table import open_table
from tests.effort import long_too
from tests.spark.changes.living import SCHEMES, Begin

pytestmark = pytest.mark.spark

LIVES = [
    ("gsop-r", 3, 0),
    *long_too(("gsop-r", 4, 0), ("sop", 3, 0)),
    *(pytest.param(scheme, 30, seed, marks=pytest.mark.long) for scheme in SCHEMES for seed in range(10)),
]


@pytest.mark.parametrize(("scheme", "steps", "seed"), LIVES)
def test_a_table_that_is_changed_at_random(begin: Begin, scheme: str, steps: int, seed: int) -> None:
    living = begin(scheme)
    living.check()
    choice = random.Random(f"{scheme} {seed}")
    for _ in range(steps):
        living.step(choice)
        living.check()
    living.check_past()
    assert verify(open_table(living.path)).ok
