"""The partitioners by the names that plans and the command line use."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from layoutopt import extensions
from layoutopt.model.methods import DEFAULT_PARTITIONER
from layoutopt.partitioning.local_search import ward_refined
from layoutopt.partitioning.partitioner import Partitioner
from layoutopt.partitioning.portfolio import portfolio
from layoutopt.partitioning.qdtree import qdtree
from layoutopt.partitioning.ward import ward

# The thesis's partitioner, which uses only the weights of Equation 3.1.
WARD = "ward"

PARTITIONERS: Mapping[str, Partitioner] = MappingProxyType(
    {
        WARD: ward,
        "ward-refined": ward_refined,
        "portfolio-low": partial(portfolio, effort="low"),
        "portfolio": portfolio,
        "portfolio-high": partial(portfolio, effort="high"),
        "qdtree": qdtree,
    }
)

DEFAULT: Final = DEFAULT_PARTITIONER


def find_partitioner(name: str) -> Partitioner:
    """Return the partitioner of that name: one of :data:`PARTITIONERS`, or of an installed package.

    Raises:
        SettingError: there is none.
    """
    return extensions.find("partitioners", name, PARTITIONERS, "partitioner")
