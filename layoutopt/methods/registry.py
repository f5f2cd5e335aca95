"""Every method by the name that the command line takes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from layoutopt.methods import strategies as designs
from layoutopt.methods.proposals import Method
from layoutopt.methods.replication import REPLICATING

BY_ORDER = designs.BY_ORDER
"""Methods that order rows by columns."""

SAMPLED: Mapping[str, Method] = MappingProxyType({**designs.SAMPLED, **REPLICATING})
"""Methods that search over a sample, with more features than the distinct vectors of all rows could be counted by."""

COUNTED = ("sop", "qdtree")
"""Methods that take the vectors of all rows, of few features."""

METHODS: Mapping[str, Method] = MappingProxyType({**designs.METHODS, **REPLICATING})
"""All methods."""
