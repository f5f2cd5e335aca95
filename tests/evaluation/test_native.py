"""Loops that are compiled: they are the Python that is written, wherever they can be kept."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import layoutopt
from layoutopt.errors import SettingError
from layoutopt.evaluation.native import compile_loop

ROOT = str(Path(layoutopt.__file__).parent.parent)
TWICE = """
from layoutopt.evaluation.native import compile_loop

@compile_loop
def twice(number):
    return 2 * number
"""


def twice_in_a_process(path: Path, **environment: str) -> str:
    """What a process prints that has the loop at a path."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(path), ROOT]), **environment}
    code = "import loop; print(loop.__file__, loop.twice(21))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=variables)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(path))
    return done.stdout.split()[1]


def test_a_loop_that_can_be_kept_nowhere_is_compiled_all_the_same() -> None:
    twice: Callable[[int], int] = eval("lambda number: 2 * number")  # of no file, beside which it could be kept
    assert compile_loop(twice)(21) == 42


def test_nothing_is_kept_of_a_zip_where_there_is_no_home(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "loop.zip", "w") as packed:
        packed.writestr("loop.py", TWICE)
    (tmp_path / "home").write_text("no folder")
    assert twice_in_a_process(tmp_path / "loop.zip", HOME=str(tmp_path / "home")) == "42"


@pytest.mark.long
def test_what_was_kept_and_cut_short_is_compiled_anew(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(TWICE)
    for suffix in (None, ".nbi", ".nbc"):
        kept = [file for file in tmp_path.rglob("*") if file.suffix == suffix]
        assert len(kept) == (suffix is not None)
        for file in kept:
            file.write_bytes(b"")
        assert twice_in_a_process(tmp_path) == "42"
        assert all(file.stat().st_size > 100 for file in tmp_path.rglob("*.nb?"))


def test_sums_of_integers_are_exact_in_any_order() -> None:
    def total(numbers: np.ndarray) -> float:
        found = np.float32(0)
        for number in numbers:
            found += number
        return float(found)

    numbers = np.random.default_rng(0).permutation(5_000).astype(np.float32)  # all sums stay below 2 ** 24
    assert compile_loop(total)(numbers) == total(numbers) == 4_999 * 5_000 / 2


def test_a_python_without_numba_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "layoutopt.evaluation.native")
    with pytest.raises(SettingError, match=f"{sys.executable} has no working numba, which forming blocks needs"):
        importlib.import_module("layoutopt.evaluation.native")
