"""Short commands import what they need and no more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tests.scan.builder import build, building
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows

HEAVY = ("pandas", "pyspark", "matplotlib", "mlxtend", "scipy", "sklearn")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sop")
    build(root, some_rows(), building(SCHEMA, CONDITIONS, partition_by="year"))
    return root


def modules_after(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(' '.join(sys.modules))"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("verb", "text", "also"),
    [
        ("query", "SELECT kind, count(*) FROM t WHERE price > 60 AND seen > '2020-01-05 00:00:00' GROUP BY kind", ()),
        ("explain", "SELECT id FROM t WHERE kind = 'air'", ("duckdb",)),
    ],
)
def test_a_short_command_imports_nothing_heavy(root: Path, verb: str, text: str, also: tuple[str, ...]) -> None:
    loaded = modules_after(f"from layoutopt.cli import main\nassert main([{verb!r}, {str(root)!r}, {text!r}]) == 0")
    assert "pyarrow" in loaded
    assert not loaded & {*HEAVY, *also}


def test_pandas_still_works_afterwards() -> None:
    code = """
from layoutopt.scan.startup import spare_pandas
spare_pandas()
import pyarrow as pa
assert pa.array([1, 2]).to_pylist() == [1, 2]
frame = pa.table({"a": [1, 2]}).to_pandas()
assert pa.Table.from_pandas(frame).to_pydict() == {"a": [1, 2]}
"""
    assert "pandas" in modules_after(code)


def test_who_has_pandas_keeps_it() -> None:
    from layoutopt.scan.startup import spare_pandas

    pytest.importorskip("pandas")
    before = list(sys.meta_path)
    spare_pandas()
    assert sys.meta_path == before
    assert list(pa.table({"a": [1]}).to_pandas()["a"]) == [1]
