"""What plans predict: of their own scheme, of each storage budget, and of plans that were tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_AT: Final = "@"
_SHARE: Final = "held_back_bytes_fraction:"
_SPREAD: Final = "held_back_bytes_spread:"
# The beginnings of names in older plans.
_OLDER: Final = ("held_back_", "calibrated_seconds:")


@dataclass(frozen=True)
class Predictions:
    """The predictions of a plan, which stores them by name in one mapping.

    Attributes:
        own: those of its own scheme, by name.
        by_budget: those of each storage budget; empty if there was only one.
        shares: the shares of full scans that held-out queries read, by method or choice of parameters, the best first.
        spreads: the standard deviations of these shares over samples of queries, where known.
    """

    own: Mapping[str, float] = field(default_factory=dict)
    by_budget: Mapping[float, Mapping[str, float]] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)
    spreads: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def parse(cls, stored: Mapping[str, float]) -> Predictions:
        """Return the predictions in a plan's mapping.

        >>> Predictions.parse({"gap": 0.1, "gap@1.2": 0.1, "held_back_bytes_fraction:sop": 0.2})
        Predictions(own={'gap': 0.1}, by_budget={1.2: {'gap': 0.1}}, shares={'sop': 0.2}, spreads={})
        """
        by_budget: dict[float, dict[str, float]] = {}
        for name, value in stored.items():
            prediction, separator, budget = name.partition(_AT)
            if separator:
                by_budget.setdefault(float(budget), {})[prediction] = value
        shares, spreads = (
            {name.removeprefix(prefix): value for name, value in stored.items() if name.startswith(prefix)}
            for prefix in (_SHARE, _SPREAD)
        )
        own = {name: value for name, value in stored.items() if _AT not in name and not name.startswith(_OLDER)}
        by_value = sorted(shares.items(), key=lambda item: item[1])
        return cls(own, dict(sorted(by_budget.items())), dict(by_value), spreads)

    def to_stored(self) -> dict[str, float]:
        """Return the mapping that a plan stores.

        >>> Predictions({"gap": 0.1}, {1.2: {"gap": 0.1}}, {"sop": 0.2}).to_stored()
        {'gap': 0.1, 'gap@1.2': 0.1, 'held_back_bytes_fraction:sop': 0.2}
        """
        curve = self.by_budget.items()
        budgets = {f"{name}{_AT}{key:g}": value for key, figures in curve for name, value in figures.items()}
        shares = {_SHARE + label: value for label, value in self.shares.items()}
        return {**self.own, **budgets, **shares, **{_SPREAD + label: value for label, value in self.spreads.items()}}
