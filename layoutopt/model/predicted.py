"""A plan's predictions by name, and those for every storage budget that was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_AT: Final = "@"


def at_budget(name: str, budget: float) -> str:
    """The name of a prediction for one storage budget among several.

    >>> at_budget("storage_cells", 1.2)
    'storage_cells@1.2'
    """
    return f"{name}{_AT}{budget:g}"


def of_the_plan(predicted: Mapping[str, float]) -> dict[str, float]:
    """The predictions of the plan's own scheme.

    >>> of_the_plan({"storage_cells": 1.19, "storage_cells@1.1": 1.09})
    {'storage_cells': 1.19}
    """
    return {name: value for name, value in predicted.items() if _AT not in name}


def curve(predicted: Mapping[str, float]) -> dict[float, dict[str, float]]:
    """The predictions of each storage budget, ascending; empty if there was only one.

    >>> curve({"storage_cells": 1.19, "storage_cells@1.2": 1.19, "storage_cells@1.1": 1.09})
    {1.1: {'storage_cells': 1.09}, 1.2: {'storage_cells': 1.19}}
    """
    found: dict[float, dict[str, float]] = {}
    for name, value in predicted.items():
        plain, at, budget = name.partition(_AT)
        if at:
            found.setdefault(float(budget), {})[plain] = value
    return dict(sorted(found.items()))
