"""The partitioners by the names that plans and the command line use."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from layoutopt.errors import SettingError
from layoutopt.partitioning.partition import Partitioner
from layoutopt.partitioning.portfolio import by_effort
from layoutopt.partitioning.qdtree import qdtree
from layoutopt.partitioning.refinement import refined_ward
from layoutopt.partitioning.ward import ward

WARD = "ward"
"""The thesis's partitioner, the only one that goes by the weights of Equation 3.1 alone."""

PARTITIONERS: Mapping[str, Partitioner] = MappingProxyType(
    {
        WARD: ward,
        "ward-refined": refined_ward,
        "portfolio-low": by_effort("low"),
        "portfolio": by_effort("default"),
        "portfolio-high": by_effort("high"),
        "qdtree": qdtree,
    }
)


def find_partitioner(name: str) -> Partitioner:
    """The partitioner of that name.

    Raises:
        SettingError: there is none.
    """
    try:
        return PARTITIONERS[name]
    except KeyError:
        known = ", ".join(sorted(PARTITIONERS))
        raise SettingError(f"there is no partitioner {name!r}; choose one of {known}") from None
