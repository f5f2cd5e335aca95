"""The partitioners by the names that plans and the command line use."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from layoutopt import extensions
from layoutopt.partitioning.local_search import refined_ward
from layoutopt.partitioning.partitioner import Partitioner
from layoutopt.partitioning.portfolio import Effort, portfolio
from layoutopt.partitioning.qdtree import qdtree
from layoutopt.partitioning.ward import ward

WARD = "ward"
"""The thesis's partitioner, the only one that goes by the weights of Equation 3.1 alone."""

PARTITIONERS: Mapping[str, Partitioner] = MappingProxyType(
    {
        WARD: ward,
        "ward-refined": refined_ward,
        "portfolio-low": partial(portfolio, effort="low"),
        "portfolio": portfolio,
        "portfolio-high": partial(portfolio, effort="high"),
        "qdtree": qdtree,
    }
)

DEFAULT = "portfolio-low"
"""What a load blocks by vectors with, unless asked for another: a short search after three starts."""

PORTFOLIO = "portfolio"
_OF_EFFORT: Mapping[Effort, str] = MappingProxyType(
    {"low": "portfolio-low", "default": PORTFOLIO, "high": "portfolio-high"}
)


def with_effort(name: str, effort: Effort) -> str:
    """The name of a partitioner that works so hard; only the portfolio can.

    >>> with_effort("portfolio", "low"), with_effort("ward", "low")
    ('portfolio-low', 'ward')
    """
    return _OF_EFFORT[effort] if name == PORTFOLIO else name


def find_partitioner(name: str) -> Partitioner:
    """The partitioner of that name: one of :data:`PARTITIONERS`, or of a package that is installed.

    Raises:
        SettingError: there is none.
    """
    return extensions.find("partitioners", name, PARTITIONERS, "partitioner")
