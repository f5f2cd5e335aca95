"""Schemes of several layouts over the rows of :mod:`tests.scan.tables`."""

from __future__ import annotations

import pytest

from layoutopt.model.layout import ByVectors, Layout
from tests.scan.tables import SCHEMA

NAMES = SCHEMA.names

GROUPS = [
    Layout(("id", "kind", "year"), (0, 2), ("id", "kind", "year"), ByVectors()),
    Layout(("day", "price"), (1,), ("day", "price"), ByVectors()),
    Layout(("score", "seen"), (3,), ("score", "seen"), ByVectors()),
]

# Layout 0 holds everything; layout 1 repeats three columns for the rows of feature 0, and is where price is whole.
OVERLAPPING = [
    Layout(
        tuple(name for name in NAMES if name != "price"),
        (1, 3),
        tuple(name for name in NAMES if name != "price"),
        ByVectors(),
    ),
    Layout(("id", "kind", "price"), (0,), ("price",), ByVectors()),
]

# Features of one layout each, so that a layout's blocks say nothing of the other's columns.
ONE_FEATURE_EACH = [
    Layout(("id", "kind", "year"), (0,), ("id", "kind", "year"), ByVectors()),
    Layout(("day", "price"), (1,), ("day", "price"), ByVectors()),
    Layout(("score", "seen"), (1,), ("score", "seen"), ByVectors()),
]

SCHEMES = {"sop": None, "gsop": GROUPS, "gsop-r": OVERLAPPING}
"""By the names of the methods that make such schemes; None is one layout of everything."""
EACH_SCHEME = pytest.mark.parametrize("layouts", SCHEMES.values(), ids=SCHEMES)
