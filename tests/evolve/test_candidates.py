"""What a budget is spent on."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutopt.evolve.candidates import Candidate, best_first, regained, within

CANDIDATES = st.lists(
    st.builds(Candidate, st.text("abc", max_size=3), st.just(1), st.booleans(), st.integers(0, 100), st.floats(-9, 99)),
    max_size=12,
)


@given(CANDIDATES, st.none() | st.floats(0, 400))
def test_the_budget_is_kept_and_nothing_that_fits_is_left(candidates: list[Candidate], budget: float | None) -> None:
    chosen = within(best_first(candidates), budget)
    if budget is None:
        assert chosen == tuple(one.key for one in best_first(candidates))
        return
    left = list(chosen)
    written = 0
    for one in best_first(candidates):
        if left and left[0] == one.key and written + one.bytes <= budget:
            written += one.bytes
            left.pop(0)
        else:
            assert written + one.bytes > budget
    assert not left
    assert written <= budget


@given(CANDIDATES)
def test_the_curve_rises_ever_more_slowly(candidates: list[Candidate]) -> None:
    gaining = [one for one in best_first(candidates) if one.gain > 1e-3 and one.bytes > 0]
    curve = regained(gaining)
    assert curve[0] == (0, 0.0)
    if gaining:
        assert curve[-1][1] == pytest.approx(1)
    slopes = [(g2 - g1) / (b2 - b1) for (b1, g1), (b2, g2) in pairwise(curve)]
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(slopes))
