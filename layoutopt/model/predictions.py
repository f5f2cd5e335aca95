"""Name what plans predict: of their own scheme, of each storage budget, and of plans that were tried."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_AT: Final = "@"
# What is predicted of held-out queries, by objective.
_TRIED: Final = {by: f"held_back_{by}_fraction:" for by in ("bytes", "cells")}
_SPREAD: Final = {by: f"held_back_{by}_spread:" for by in ("bytes", "cells")}
# Predictions in older plans.
_OLDER: Final = ("held_back_seconds_fraction:", "held_back_seconds_spread:", "calibrated_seconds:")


def at_budget(name: str, budget: float) -> str:
    """Return the name of a prediction for one of several storage budgets.

    >>> at_budget("storage_cells", 1.2)
    'storage_cells@1.2'
    """
    return f"{name}{_AT}{budget:g}"


def select_own_predictions(predicted: Mapping[str, float]) -> dict[str, float]:
    """Return the predictions of the plan's own scheme.

    >>> select_own_predictions({"storage_cells": 1.19, "storage_cells@1.1": 1.09})
    {'storage_cells': 1.19}
    """
    prefixes = (*_TRIED.values(), *_SPREAD.values(), *_OLDER)
    return {name: value for name, value in predicted.items() if _AT not in name and not name.startswith(prefixes)}


def name_held_out_share(label: str, by: str = "bytes") -> str:
    """Return the name of the share of full scans that held-out queries read, for a method or choice of parameters.

    >>> name_held_out_share("gsop"), name_held_out_share("gsop", "cells")
    ('held_back_bytes_fraction:gsop', 'held_back_cells_fraction:gsop')
    """
    return _TRIED[by] + label


def name_held_out_spread(label: str, by: str = "bytes") -> str:
    """Return the name of that share's standard deviation over samples of queries.

    >>> name_held_out_spread("gsop")
    'held_back_bytes_spread:gsop'
    """
    return _SPREAD[by] + label


def held_out_spreads(predicted: Mapping[str, float], by: str = "bytes") -> dict[str, float]:
    """Return the standard deviations over held-out queries, by method, where known.

    >>> held_out_spreads({"gap": 0.1, "held_back_bytes_spread:sop": 0.02})
    {'sop': 0.02}
    """
    return _select_prefixed(predicted, _SPREAD[by])


def held_out_shares(predicted: Mapping[str, float], by: str = "bytes") -> dict[str, float]:
    """Return the shares that held-out queries read, by method, the best first.

    >>> held_out_shares({"gap": 0.1, "held_back_bytes_fraction:sop": 0.2, "held_back_bytes_fraction:gsop": 0.1})
    {'gsop': 0.1, 'sop': 0.2}
    """
    return dict(sorted(_select_prefixed(predicted, _TRIED[by]).items(), key=lambda item: item[1]))


def _select_prefixed(predicted: Mapping[str, float], prefix: str) -> dict[str, float]:
    return {name.removeprefix(prefix): value for name, value in predicted.items() if name.startswith(prefix)}


def predictions_by_budget(predicted: Mapping[str, float]) -> dict[float, dict[str, float]]:
    """Return the predictions of each storage budget, ascending; empty if there was only one.

    >>> predictions_by_budget({"storage_cells": 1.19, "storage_cells@1.2": 1.19, "storage_cells@1.1": 1.09})
    {1.1: {'storage_cells': 1.09}, 1.2: {'storage_cells': 1.19}}
    """
    by_budget: dict[float, dict[str, float]] = {}
    for name, value in predicted.items():
        prediction, separator, budget = name.partition(_AT)
        if separator:
            by_budget.setdefault(float(budget), {})[prediction] = value
    return dict(sorted(by_budget.items()))
