"""Short commands import what they need and no more; pandas is pyarrow's to import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.scan.builder import build, building
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows

HEAVY = ("pyspark", "py4j", "matplotlib", "mlxtend", "numba", "scipy", "sklearn", "fsspec", "asyncio", "cryptography")


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


def test_the_library_changes_nothing_of_its_process(root: Path) -> None:
    """Opening a table and asking it is not seen elsewhere: no import hook, no setting, no handler."""
    code = f"""
import gc, locale, logging, os, signal, sys, threading, warnings
import duckdb, numpy, pandas, pyarrow  # what these change is theirs
def state():
    return (
        list(sys.meta_path), list(sys.path), list(sys.path_hooks), dict(os.environ), os.getcwd(), gc.get_threshold(),
        gc.isenabled(), gc.get_freeze_count(),
        list(warnings.filters), logging.getLogger().handlers[:], logging.getLogger("sqlglot").level,
        locale.setlocale(locale.LC_ALL),
        [signal.getsignal(each) for each in signal.valid_signals()], sys.excepthook, sys.getrecursionlimit(),
        pyarrow.cpu_count(), pyarrow.io_thread_count(), sys.stdout, sys.stderr, numpy.geterr(),
    )
before = state()
import layoutopt
table = layoutopt.open_table({str(root)!r})
assert table.sql("SELECT id FROM t WHERE kind = 'air'").num_rows > 0
str(table.explain("SELECT id FROM t WHERE kind = 'air'"))
layoutopt.verify(table)
for one, other in zip(before, state(), strict=True):
    assert one == other, (one, other)
"""
    assert "layoutopt" in modules_after(code)
