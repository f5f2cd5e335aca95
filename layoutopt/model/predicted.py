"""A plan's predictions by name, and those for every storage budget that was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_AT: Final = "@"
_BY: Final = {"bytes": "bytes", "cells": "cells", "time": "seconds"}
"""What is predicted of queries held back, by the objective."""
_TRIED: Final = {by: f"held_back_{what}_fraction:" for by, what in _BY.items()}
_SPREAD: Final = {by: f"held_back_{what}_spread:" for by, what in _BY.items()}
_CALIBRATED: Final = "calibrated_seconds:"


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
    others = (*_TRIED.values(), *_SPREAD.values(), _CALIBRATED)
    return {name: value for name, value in predicted.items() if _AT not in name and not name.startswith(others)}


def when_tried(label: str, by: str = "bytes") -> str:
    """The name of what a method, or a choice of parameters, would take of full scans by queries held back.

    >>> when_tried("gsop"), when_tried("gsop", "time")
    ('held_back_bytes_fraction:gsop', 'held_back_seconds_fraction:gsop')
    """
    return _TRIED[by] + label


def spread_when_tried(label: str, by: str = "bytes") -> str:
    """The name of the standard deviation of that, if other queries like those held back came.

    >>> spread_when_tried("gsop")
    'held_back_bytes_spread:gsop'
    """
    return _SPREAD[by] + label


def spreads(predicted: Mapping[str, float], by: str = "bytes") -> dict[str, float]:
    """The standard deviations of what was tried on queries held back, where they are known.

    >>> spreads({"gap": 0.1, "held_back_bytes_spread:sop": 0.02})
    {'sop': 0.02}
    """
    return _after(predicted, _SPREAD[by])


def tried(predicted: Mapping[str, float], by: str = "bytes") -> dict[str, float]:
    """What was tried on queries held back, the best first.

    >>> tried({"gap": 0.1, "held_back_bytes_fraction:sop": 0.2, "held_back_bytes_fraction:gsop": 0.1})
    {'gsop': 0.1, 'sop': 0.2}
    """
    return dict(sorted(_after(predicted, _TRIED[by]).items(), key=lambda item: item[1]))


def calibrated(engine: str, seconds_of: Mapping[str, float]) -> dict[str, float]:
    """The costs of an engine that a plan was chosen by, by their names among its predictions.

    >>> calibrated("spark", {"files": 0.01})
    {'calibrated_seconds:spark:files': 0.01}
    """
    return {f"{_CALIBRATED}{engine}:{kind}": seconds for kind, seconds in seconds_of.items()}


def calibrations(predicted: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """The costs that a plan was chosen by, where its user gave them: of each engine, by kind of work.

    >>> calibrations({"gap": 0.1, "calibrated_seconds:spark:files": 0.01})
    {'spark': {'files': 0.01}}
    """
    found: dict[str, dict[str, float]] = {}
    for name, seconds in _after(predicted, _CALIBRATED).items():
        engine, _, kind = name.partition(":")
        found.setdefault(engine, {})[kind] = seconds
    return found


def _after(predicted: Mapping[str, float], prefix: str) -> dict[str, float]:
    return {name.removeprefix(prefix): value for name, value in predicted.items() if name.startswith(prefix)}


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
