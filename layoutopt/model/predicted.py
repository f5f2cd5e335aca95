"""A plan's predictions by name, and those for every storage budget that was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_AT: Final = "@"
_TRIED: Final = "held_back_bytes_fraction:"
_SPREAD: Final = "held_back_bytes_spread:"


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
    return {
        name: value for name, value in predicted.items() if _AT not in name and not name.startswith((_TRIED, _SPREAD))
    }


def when_tried(label: str) -> str:
    """The name of what a method, or a choice of parameters, would read of the queries held back.

    >>> when_tried("gsop")
    'held_back_bytes_fraction:gsop'
    """
    return _TRIED + label


def spread_when_tried(label: str) -> str:
    """The name of the standard deviation of that, if other queries like those held back came.

    >>> spread_when_tried("gsop")
    'held_back_bytes_spread:gsop'
    """
    return _SPREAD + label


def spreads(predicted: Mapping[str, float]) -> dict[str, float]:
    """The standard deviations of what was tried on queries held back, where they are known.

    >>> spreads({"gap": 0.1, "held_back_bytes_spread:sop": 0.02})
    {'sop': 0.02}
    """
    return {name.removeprefix(_SPREAD): value for name, value in predicted.items() if name.startswith(_SPREAD)}


def tried(predicted: Mapping[str, float]) -> dict[str, float]:
    """What was tried on queries held back, the best first.

    >>> tried({"gap": 0.1, "held_back_bytes_fraction:sop": 0.2, "held_back_bytes_fraction:gsop": 0.1})
    {'gsop': 0.1, 'sop': 0.2}
    """
    found = {name.removeprefix(_TRIED): value for name, value in predicted.items() if name.startswith(_TRIED)}
    return dict(sorted(found.items(), key=lambda item: item[1]))


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
