"""All methods by the names of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from layoutopt import extensions
from layoutopt.errors import SettingError
from layoutopt.methods import strategies
from layoutopt.methods.interface import BOTH, CUTS, GUIDES, Method, PlanRequest
from layoutopt.methods.strategies import REPLICATING
from layoutopt.model.methods import AUTO, BUILT_IN
from layoutopt.partitioning.registry import find_partitioner

# Methods that order rows by columns.
BY_ORDER = strategies.BY_ORDER

# Methods that search over a sample, with too many features to count the distinct vectors of all rows.
SAMPLED: Mapping[str, Method] = MappingProxyType({**strategies.SAMPLED, **REPLICATING})


_FUNCTIONS = {**strategies.METHODS, **REPLICATING}
# All methods, in the order in which they are listed.
METHODS: Mapping[str, Method] = MappingProxyType({name: _FUNCTIONS[name] for name in BUILT_IN})


# Methods of other systems: by default they keep the order of rows that their blocking leaves.
PEERS = ("input-order", *BY_ORDER, "qdtree", "predicate-sort")


def find_method(name: str) -> Method:
    """Return the method of that name: one of :data:`METHODS`, or of an installed package.

    Raises:
        SettingError: there is none.
    """
    return extensions.find("methods", name, METHODS, "method")


def is_sampled(name: str) -> bool:
    """Return whether a method plans from a sample's vectors of all features; installed methods do."""
    return name in SAMPLED or name not in METHODS


def is_peer(name: str) -> bool:
    """Return whether a method keeps the order of rows within blocks that its blocking leaves."""
    return name in PEERS


def check_request(request: PlanRequest) -> None:
    """Check a request before any source is read.

    Raises:
        SettingError: unknown method or partitioner, a number below its least, or settings that contradict each other.
    """
    find_method(request.method)
    find_partitioner(request.partitioner)
    for name in ("block_rows", "segment_rows", "max_vectors"):
        if (value := getattr(request, name)) < 1:
            raise SettingError(f"--{name.replace('_', '-')} is {value}: expected at least 1")
    budgets, choose = request.budgets, request.choose
    if not budgets or min(budgets) < 1:
        raise SettingError(f"--storage-budget is {min(budgets, default=0):g}: expected 1 (the table once) or more")
    if choose is not None and choose not in budgets:
        expected = ", ".join(f"{budget:g}" for budget in budgets)
        raise SettingError(f"--choose is {choose:g}: expected one of the storage budgets {expected}")
    if request.by and request.method not in BY_ORDER:
        raise SettingError(f"method {request.method!r} takes no columns to order by: leave --by out")
    if request.guides not in (AUTO, *GUIDES):
        raise SettingError(f"--guides is {request.guides!r}: expected one of {', '.join((AUTO, *GUIDES))}")
    if request.guides in (CUTS, BOTH) and request.method != "sop":
        raise SettingError(f"method {request.method!r} has no choice of guides: leave --guides out, or plan by 'sop'")


def is_counted(request: PlanRequest) -> bool:
    """Return whether a method uses the vectors of all rows, of few features; trees of cuts don't."""
    return request.method == "sop" and request.guides not in (CUTS, BOTH)
