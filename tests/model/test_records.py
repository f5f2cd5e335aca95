"""Tuples whose items are made when they are first asked for."""

from __future__ import annotations

import pickle

from layoutopt.model.records import LazyTuple


def test_nothing_is_made_before_an_item_is_asked_for() -> None:
    made: list[int] = []

    def make() -> tuple[int, ...]:
        made.append(1)
        return (3, 4, 5)

    late = LazyTuple(3, make)
    assert (len(late), bool(late), made) == (3, True, [])
    assert (late[0], late[1:], list(late), made) == (3, (4, 5), [3, 4, 5], [1])


def test_it_is_as_good_as_the_tuple() -> None:
    late = LazyTuple(2, lambda: (1, 2))
    assert late == (1, 2)
    assert late == (1, 2)
    assert late != (1, 3)
    assert late == LazyTuple(2, lambda: (1, 2))
    assert {(1, 2): "found"}[late] == "found"  # type: ignore[index]
    again = pickle.loads(pickle.dumps(late))
    assert (type(again), again, repr(late)) == (tuple, (1, 2), "(1, 2)")
