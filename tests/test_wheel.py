"""The wheel that users install: it holds every file of the package, and runs from elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the package; its sources are copied, since a build leaves files beside them."""
    folder = tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "layoutopt", folder / "source" / "layoutopt", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "source")
    made = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps", "-w", str(folder)]
    subprocess.run([*made, str(folder / "source")], check=True)
    (path,) = folder.glob("layoutopt-*.whl")
    return path


def test_it_holds_every_file_of_the_package(wheel: Path) -> None:
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "layoutopt").rglob("*") if path.is_file()}
    wanted = {name for name in files if "__pycache__" not in name}
    held = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("layoutopt/")}
    assert held == wanted


def test_it_runs_from_elsewhere(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    pq.write_table(pa.table({"n": range(100), "k": ["a", "b"] * 50}), tmp_path / "rows.parquet")
    (tmp_path / "q.sql").write_text("SELECT n FROM rows WHERE k = 'a';\n" * 3, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    code = (
        "import sys; from layoutopt.cli.app import main; print(main.__code__.co_filename); "
        "sys.exit(max(main(words.split()) for words in sys.argv[1:]))"
    )
    verbs = (
        "analyze q.sql --schema rows.parquet",
        "plan rows.parquet --method sop --block-rows 10 --features features.json",
        "load rows.parquet table --executor local",
        "evaluate table q.sql --html report.html",
    )
    command = [sys.executable, "-c", code, *verbs]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert str(tmp_path / "site") in ran.stdout, "the package of the wheel, not that beside the tests"
    assert (tmp_path / "report.html").stat().st_size > 1_000
