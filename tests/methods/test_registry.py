"""The methods are listed once: with a function each, and in every choice of the command line."""

from __future__ import annotations

from layoutopt.config.settings import PlanSettings
from layoutopt.methods import strategies
from layoutopt.methods.registry import METHODS
from layoutopt.methods.strategies import REPLICATING
from layoutopt.model.methods import AUTO, BUILT_IN, COMPARED, TRIED


def test_every_method_is_listed_and_has_a_function() -> None:
    assert set(METHODS) == set(BUILT_IN) == {*strategies.METHODS, *REPLICATING}
    assert all(METHODS[name] is {**strategies.METHODS, **REPLICATING}[name] for name in METHODS)


def test_plans_take_every_listed_method() -> None:
    for name in (*BUILT_IN, AUTO):
        assert PlanSettings.model_validate({"source": "s", "method": name}).method == name


def test_auto_tries_each_method_once_in_its_order() -> None:
    assert [BUILT_IN[name].trial for name in TRIED] == list(range(1, len(TRIED) + 1))
    assert COMPARED[0] == AUTO
