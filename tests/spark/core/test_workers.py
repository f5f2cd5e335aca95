"""Sessions that users make: workers are of the driver's Python, and say what they lack where they can't be."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from layoutopt.errors import PlanError
from layoutopt.spark.core.workers import run_in_workers
from tests.effort import long_too
from tests.scan.builder import build, building
from tests.scan.layouts import GROUPS
from tests.scan.tables import CONDITIONS, SCHEMA, some_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[3]
READ = """
import sys
from pyspark.sql import SparkSession
from layoutopt import spark as skipping
settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.memory": "512m"}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
skipping.register(spark, "t", sys.argv[1])
skipping.enable(spark)
print(len(spark.sql("SELECT id, price, score FROM t WHERE price > 60 AND kind = 'air'").collect()), "rows")
"""
COUNT = """
print(skipping.read_table(spark, sys.argv[1]).count(), "in all")
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("groups")
    build(root, some_rows(), building(SCHEMA, CONDITIONS, layouts=GROUPS))
    return root


def read(path: Path, more: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """What a program prints that reads the table in a session of its own, and does more there."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    return subprocess.run(
        [sys.executable, "-c", READ + more, str(path)], capture_output=True, text=True, env={**inherited, **environment}
    )


@pytest.mark.long
@pytest.mark.parametrize(("more", "said"), [("", []), *long_too((COUNT, ["300 in all"]))], ids=["SQL", "a DataFrame"])
def test_local_workers_run_the_drivers_python(path: Path, tmp_path: Path, more: str, said: list[str]) -> None:
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\necho this is another Python >&2\nexit 3\n")
    other.chmod(0o755)
    done = read(path, more, PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert done.returncode == 0, done.stderr[-2000:]
    rows, *others = done.stdout.splitlines()
    assert int(rows.split()[0]) > 0
    assert others == said


def halves(number: int) -> float:
    """Refuses 2; fails for 3."""
    if number == 2:
        raise PlanError("2 can't be planned:\n'so it is said'")
    return 1 / (3 - number)


def test_each_value_comes_back_in_its_place_or_the_very_error(spark: SparkSession) -> None:
    assert run_in_workers(spark, 2, halves) == [1 / 3, 1 / 2]
    assert run_in_workers(spark, 0, halves) == []
    with pytest.raises(PlanError) as refused:
        run_in_workers(spark, 3, halves)
    assert str(refused.value) == "2 can't be planned:\n'so it is said'"
    with pytest.raises(PySparkException, match="ZeroDivisionError"):
        run_in_workers(spark, 2, lambda number: halves(3))


@pytest.mark.long
def test_workers_without_layoutopt_say_so(path: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['layoutopt'] = None\n")
    other = tmp_path / "python-without"
    other.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}:$PYTHONPATH exec {sys.executable} "$@"\n')
    other.chmod(0o755)
    wheel = tmp_path / "layoutopt-1-py3-none-any.whl"
    wheel.touch()
    done = read(path, PYSPARK_PYTHON=str(other), PYSPARK_SUBMIT_ARGS=f"--py-files {wheel} pyspark-shell")
    assert done.returncode != 0
    assert "RuntimeError: Spark's workers run a Python without layoutopt (" in done.stderr
    hint = (
        "install it there, or name one that has it by PYSPARK_PYTHON; --py-files takes .zip and .egg files, and Spark"
    )
    assert f"{hint} ignores layoutopt-1-py3-none-any.whl" in done.stderr


def test_the_guide_names_the_libraries_of_workers() -> None:
    """Tasks import the modules that define them; what these import only where it is used is listed here."""
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in (ROOT / "layoutopt" / "spark").rglob("*.py")
        if re.search(r"core\.workers import (?!use_driver)", path.read_text(encoding="utf-8"))
    ]
    assert len(modules) > 5
    code = f"import sys, {', '.join(modules)}\nprint(*sys.modules)"
    listed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    imported = {name.partition(".")[0] for name in listed.split()}
    required = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    libraries = imported & {re.split(r"\W", line)[0] for line in required}
    guide = " ".join((ROOT / "docs/guides/spark.md").read_text(encoding="utf-8").split())
    ((always, encrypted),) = re.findall(r"in the versions of the driver: (.*?); (\w+) for encrypted tables\.", guide)
    assert set(re.split(r", | and ", always)) == libraries | {"fsspec", "numba"}
    assert encrypted == "cryptography"
