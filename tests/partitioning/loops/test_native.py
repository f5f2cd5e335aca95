"""Loops that are compiled: they are the Python that is written, wherever they can be kept."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable

import numpy as np
import pytest

from layoutopt.errors import SettingError
from layoutopt.partitioning.loops.native import compiled


def test_a_loop_that_can_be_kept_nowhere_is_compiled_all_the_same() -> None:
    twice: Callable[[int], int] = eval("lambda number: 2 * number")  # of no file, beside which it could be kept
    assert compiled(twice)(21) == 42


def test_sums_of_integers_are_exact_in_any_order() -> None:
    def total(numbers: np.ndarray) -> float:
        found = np.float32(0)
        for number in numbers:
            found += number
        return float(found)

    numbers = np.random.default_rng(0).permutation(5_000).astype(np.float32)  # all sums stay below 2 ** 24
    assert compiled(total)(numbers) == total(numbers) == 4_999 * 5_000 / 2


def test_a_python_without_numba_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "layoutopt.partitioning.loops.native")
    with pytest.raises(SettingError, match=f"{sys.executable} has no numba, by which blocks are formed"):
        importlib.import_module("layoutopt.partitioning.loops.native")
