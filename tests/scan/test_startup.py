"""Short commands import what they need and no more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tests.scan.builder import build, building
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows

HEAVY = ("pandas", "pyspark", "py4j", "matplotlib", "mlxtend", "scipy", "sklearn", "fsspec", "asyncio")


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


@pytest.mark.unshadowed("counts what is imported")
@pytest.mark.parametrize(
    ("verb", "text", "also"),
    [
        ("query", "SELECT kind, count(*) FROM t WHERE price > 60 AND seen > '2020-01-05 00:00:00' GROUP BY kind", ()),
        ("explain", "SELECT id FROM t WHERE kind = 'air'", ("duckdb",)),
    ],
)
def test_a_short_command_imports_nothing_heavy(root: Path, verb: str, text: str, also: tuple[str, ...]) -> None:
    loaded = modules_after(f"from layoutopt.cli.app import main\nassert main([{verb!r}, {str(root)!r}, {text!r}]) == 0")
    assert "pyarrow" in loaded
    assert not loaded & {*HEAVY, *also}


@pytest.mark.parametrize("verb", ["query", "explain"])
def test_a_short_command_ends_without_a_word(root: Path, verb: str) -> None:
    code = "import sys; from layoutopt.cli.app import main; sys.exit(main(sys.argv[1:]))"
    words = [sys.executable, "-c", code, verb, str(root), "SELECT id FROM t WHERE kind = 'air'"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout
    assert done.stderr == ""


def test_the_library_imports_nothing_heavy(root: Path) -> None:
    loaded = modules_after(
        f"import layoutopt\ntable = layoutopt.open_table({str(root)!r})\n"
        "assert table.sql(\"SELECT id FROM t WHERE kind = 'air'\").num_rows > 0"
    )
    assert "duckdb" in loaded
    assert not loaded & {*HEAVY, "pydantic", "typer", "rich"}


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_what_needs_no_table_imports_no_engine(argument: str) -> None:
    loaded = modules_after(f"from layoutopt.cli.app import main\nassert main([{argument!r}]) == 0")
    assert not loaded & {*HEAVY, "duckdb", "pyarrow", "numpy", "sqlglot"}


def test_pandas_still_works_afterwards() -> None:
    """Whatever pyarrow takes from pandas, it takes as if it had always known of it."""
    code = """
from layoutopt.scan.startup import spare_pandas
spare_pandas()
spare_pandas()
import pyarrow as pa
assert pa.array([1, 2]).to_pylist() == [1, 2]
import sys
assert "pandas" not in sys.modules
import pandas as pd
assert pa.array(pd.Series([1.0, float("nan")])).null_count == 1
assert pa.types.is_dictionary(pa.array(pd.Series(["a", None], dtype="category")).type)
assert pa.scalar(pd.Timestamp("2020-01-01")).as_py().year == 2020
frame = pa.table({"a": [1, 2]}).to_pandas()
assert pa.Table.from_pandas(frame).to_pydict() == {"a": [1, 2]}
assert not any("layoutopt" in type(finder).__module__ for finder in sys.meta_path)
"""
    assert "pandas" in modules_after(code)


def test_pyarrow_may_be_the_one_who_imports_pandas() -> None:
    code = """
from layoutopt.scan.startup import spare_pandas
spare_pandas()
import pyarrow as pa
assert list(pa.table({"a": [1, 2]}).to_pandas()["a"]) == [1, 2]
"""
    assert "pandas" in modules_after(code)


def test_who_has_pandas_keeps_it() -> None:
    from layoutopt.scan.startup import spare_pandas

    pytest.importorskip("pandas")
    before = list(sys.meta_path)
    spare_pandas()
    assert sys.meta_path == before
    assert list(pa.table({"a": [1]}).to_pandas()["a"]) == [1]
