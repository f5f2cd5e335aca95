"""What a budget is spent on, and in which order layouts are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.maintenance.candidates import (
    Candidate,
    Part,
    gain_curve,
    list_moves,
    plan_steps,
    sort_by_gain,
    spend_budget,
)

PARTS = st.lists(st.builds(Part, st.integers(0, 9), st.integers(1, 100), st.floats(-9, 99)), max_size=4).map(tuple)
CANDIDATES = st.lists(
    st.builds(
        Candidate,
        st.text("abc", max_size=3),
        st.just(1),
        st.booleans(),
        st.integers(0, 100),
        st.floats(-9, 99),
        parts=PARTS,
    ),
    max_size=12,
    unique_by=lambda one: one.key,
)


def written(one: Candidate, chosen: Mapping[str, Part | None]) -> int:
    """The bytes of what was chosen of a candidate."""
    if one.key not in chosen:
        return 0
    part = chosen[one.key]
    return one.bytes if part is None else part.bytes


@given(CANDIDATES, st.none() | st.floats(0, 400))
def test_the_budget_is_kept_and_no_partition_that_fits_is_left(
    candidates: list[Candidate], budget: float | None
) -> None:
    chosen = spend_budget(sort_by_gain(candidates), budget)
    if budget is None:
        assert list(chosen.items()) == [(one.key, None) for one in sort_by_gain(candidates)]
        return
    left = budget - sum(written(one, chosen) for one in candidates)
    assert left >= 0
    for one in candidates:
        gaining = [part.bytes for part in one.parts if part.gain > 0 and part.bytes < one.bytes]
        if one.gain > 0:
            gaining.append(one.bytes)
        assert one.key in chosen or not gaining or min(gaining) > left
        part = chosen.get(one.key)
        if part is not None:
            assert part in one.parts
            assert part.bytes < one.bytes
            assert part.gain > 0


def test_more_of_a_candidate_is_written_for_a_clear_gain_alone() -> None:
    one = Candidate("a", 1, True, 100, 61.0, read=1000.0, parts=(Part(0, 10, 60.0),))
    assert spend_budget([one], 1000, 0.05) == {"a": one.parts[0]}
    assert spend_budget([replace(one, gain=200.0)], 1000, 0.05) == {"a": None}
    assert spend_budget([one], 1000) == {"a": None}


@given(CANDIDATES)
def test_moves_lead_to_all_of_a_candidate_unless_a_part_gains_more(candidates: list[Candidate]) -> None:
    for one in candidates:
        found = list_moves([one])
        ends = [one.gain, *(part.gain for part in one.parts if part.bytes < one.bytes)]
        assert sum(move.gain for move in found) == pytest.approx(max(ends) if one.parts and max(ends) > 0 else one.gain)
        slopes = [move.gain / max(1, move.bytes) for move in found]
        assert slopes == sorted(slopes, reverse=True)


@given(CANDIDATES)
def test_the_curve_rises_ever_more_slowly(candidates: list[Candidate]) -> None:
    gaining = [one for one in sort_by_gain(candidates) if one.gain > 1e-3 and one.bytes > 0]
    curve = gain_curve(gaining)
    assert curve[0] == (0, 0.0)
    if gaining:
        assert curve[-1][1] == pytest.approx(1)
    slopes = [(g2 - g1) / (b2 - b1) for (b1, g1), (b2, g2) in pairwise(curve)]
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(slopes))


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
