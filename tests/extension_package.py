"""A package of tiny extensions, and how tests install it: by its entry points, beside layoutopt."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

PACKAGE = """
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from layoutopt.indexes.bloom import list_single_keys
from layoutopt.indexes.protocol import NO_PARAMETER
from layoutopt.methods.interface import LayoutProposal
from layoutopt.model.layout import ByOrder, Layout, Scheme
from layoutopt.model.predicates import InSet
from layoutopt.partitioning.objective import Partition
from layoutopt.workload.log import LogEntry


def one_block(vectors, weights, min_rows, seed, objective=None):
    n = len(vectors)
    return Partition(np.arange(n), np.zeros(n, dtype=np.int64), vectors.counts, 1)


def as_it_comes(planning):
    names = planning.schema.names
    return LayoutProposal(Scheme((Layout(names, (), names, ByOrder("input")),)), {"tiny": 1.0})


def read_pipes(stream, column, dialect):
    for number, line in enumerate(stream):
        user, sql = line.rstrip("\\n").split("|", 1)
        yield LogEntry(number, sql, user=user)


def count(scan):
    return pa.table({"rows": [scan.to_dataset().count_rows()]})


class LastDigits:
    # Which last digits the numbers of a block have: proves of some equalities that they match nothing.
    parameter = NO_PARAMETER

    def storage(self, type):
        return pa.int64() if type in ("int", "bigint") else None

    def measure(self, column, parameter):
        bits = 1 << (np.asarray(column.keys.keys) % 10)
        return pa.array([int(np.bitwise_or.reduce(bits[a:b])) for a, b in pairwise(column.keys.offsets)], pa.int64())

    def serves(self, literal):
        return isinstance(literal, InSet) and list_single_keys(literal) is not None

    def cannot_match(self, literal, stored, parameter):
        wanted = 0
        for point in list_single_keys(literal):
            wanted |= 1 << (point % 10)
        return np.asarray(stored.fill_null(-1)) & wanted == 0


last_digits = LastDigits()
"""

POINTS = """
[layoutopt.partitioners]
one-block = tiny_extensions:one_block
[layoutopt.methods]
as-it-comes = tiny_extensions:as_it_comes
[layoutopt.log_formats]
.pipes = tiny_extensions:read_pipes
[layoutopt.engines]
count = tiny_extensions:count
broken = tiny_extensions:nothing
[layoutopt.indexes]
last-digits = tiny_extensions:last_digits
"""


def install(folder: Path, name: str, points: str, code: str = "") -> None:
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text(points, encoding="utf-8")
    if code:
        (folder / "tiny_extensions.py").write_text(code, encoding="utf-8")


def install_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Installs the package for one test, below a folder of the test's; returns where."""
    site = folder / "site"
    site.mkdir()
    install(site, "tiny", POINTS, PACKAGE)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "tiny_extensions", raising=False)
    return site
