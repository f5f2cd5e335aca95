"""In which order layouts are written alone."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from layoutopt.maintenance.candidates import plan_steps

BYTES = {0: 10.0, 1: 20.0, 2: 5.0, 3: 1.0}


def test_layouts_that_help_together_are_taken_together_and_those_that_do_not_help_never() -> None:
    def read(there: frozenset[int]) -> float:
        return 100.0 - 60 * (0 in there) - 30 * ({1, 2} <= there)

    sets = [frozenset({layout}) for layout in BYTES] + [frozenset({1, 2})]
    found = plan_steps(sets, BYTES, read)
    assert [(sorted(step.layouts), step.bytes, step.read) for step in found] == [
        ([], 0, 100),
        ([0], 10, 40),
        ([0, 1, 2], 35, 10),
    ]


@given(st.dictionaries(st.frozensets(st.sampled_from(sorted(BYTES)), min_size=1), st.floats(0, 50), max_size=8))
def test_each_step_writes_more_and_reads_less(saves: dict[frozenset[int], float]) -> None:
    def read(there: frozenset[int]) -> float:
        return 1000.0 - sum(saved for needed, saved in saves.items() if needed <= there)

    found = plan_steps(list(saves), BYTES, read)
    assert found[0].layouts == frozenset()
    assert all(
        one.layouts < two.layouts and one.bytes < two.bytes and one.read > two.read for one, two in pairwise(found)
    )
