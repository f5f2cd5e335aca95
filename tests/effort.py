"""How much tests try: all in `make test-long`, less in `make test`; of examples a tenth in `make check`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from itertools import repeat
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

PROCESSES: Final = "LOKY_MAX_CPU_COUNT"
"""The variable by which joblib is told how many processes it may start."""
VARIABLE: Final = "LAYOUTOPT_EXAMPLES"
"""The environment variable with the share of the examples to try, in (0, 1]."""


def examples(usual: int) -> int:
    """How many examples to try where so many are usual; of many at least five."""
    return max(round(usual * _share()), min(usual, 5))


def draws_same_examples() -> bool:
    """Return whether each run tries the same examples, as all do that try a share of them."""
    return _share() < 1


def _share() -> float:
    return float(os.environ.get(VARIABLE, "1"))


def long_too(*cases: object) -> tuple[ParameterSet, ...]:
    """Cases of a parametrized test that only the long run tries; a tuple has the values of several parameters."""
    return tuple(
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.long) for case in cases
    )


def one_in(every: int, cases: Iterable[object]) -> list[ParameterSet]:
    """Return cases of a parametrized test, of which `make test` tries one in so many and the long run all.

    A tuple has the values of several parameters; of a mapping the values are cases, and the keys their names.
    """
    names, values = (cases.keys(), cases.values()) if isinstance(cases, Mapping) else (repeat(None), cases)
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)), id=name, marks=[pytest.mark.long] if number % every else []
        )
        for number, (name, case) in enumerate(zip(names, values, strict=False))
    ]
