"""Tables over the rows of :mod:`tests.scan.tables`, each built once a run; a test that changes one has a copy."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest

from layoutopt.scan.table import Table, open_table
from tests.scan.builder import build, building
from tests.scan.layouts import SCHEMES
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows


@pytest.fixture(scope="session")
def rows() -> pa.Table:
    return some_rows()


@pytest.fixture(scope="session")
def by_year(tmp_path_factory: pytest.TempPathFactory, rows: pa.Table) -> Table:
    """One layout in partitions by year; nobody may change it."""
    return build(tmp_path_factory.mktemp("by-year"), rows, building(SCHEMA, CONDITIONS, partition_by="year"))


@pytest.fixture(scope="session")
def built_once(tmp_path_factory: pytest.TempPathFactory, rows: pa.Table) -> Callable[[str], Path]:
    """The folder of a table with footers in partitions by year, of the scheme of this name."""

    def make(scheme: str) -> Path:
        made = building(SCHEMA, CONDITIONS, partition_by="year", layouts=SCHEMES[scheme], footers=True)
        folder = tmp_path_factory.mktemp(scheme) / "t"
        build(folder, rows, made)
        return folder

    return cache(make)


@pytest.fixture(params=["sop", "gsop"])
def table(request: pytest.FixtureRequest, built_once: Callable[[str], Path], tmp_path: Path) -> Table:
    """A table of one layout and one of several, with footers, to be changed."""
    return open_table(str(shutil.copytree(built_once(request.param), tmp_path / "t")))
