"""Sessions that users make: workers are of the driver's Python, and say what they lack where they can't be."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import layoutopt
from layoutopt.errors import PlanError, SettingError
from layoutopt.sources.executor import Batches
from layoutopt.spark.core import workers
from layoutopt.spark.core.failures import translate_message
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


@pytest.mark.parametrize("most", [0, 1 << 20])
def test_each_value_comes_back_in_its_place_or_the_very_error(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(workers, "_MOST_WITH_TASK", most)  # items travel as rows, or with the function
    assert run_in_workers(spark, range(2), halves) == [1 / 3, 1 / 2]
    assert run_in_workers(spark, range(0), halves) == []
    with pytest.raises(PlanError) as refused:
        run_in_workers(spark, range(3), halves)
    assert str(refused.value) == "2 can't be planned:\n'so it is said'"
    with pytest.raises(PySparkException, match="ZeroDivisionError"):
        run_in_workers(spark, range(2), lambda number: halves(3))


def lack(error: Exception, batches: Batches) -> Iterator[pa.RecordBatch]:
    raise error


@pytest.mark.parametrize(
    ("error", "has", "said"),
    [
        (
            AttributeError("no such thing"),
            {"numpy": "1.26.4"},
            rf"numpy 1.26.4 \(\S+ has {numpy.__version__}\); install",
        ),
        (ImportError("no such name"), {"layoutopt": "7.0"}, rf"layoutopt 7.0 \(\S+ has {layoutopt.__version__}\);"),
        (ModuleNotFoundError("No module", name="s3fs_of_nowhere.core"), {}, r"without s3fs_of_nowhere \(\S+\);"),
        (AttributeError("no such thing"), {"numpy": numpy.__version__, "unheard_of": "1"}, "^no such thing$"),
    ],
)
def test_a_failed_task_names_the_package_of_another_version(
    monkeypatch: pytest.MonkeyPatch, error: Exception, has: dict[str, str], said: str
) -> None:
    monkeypatch.setattr(workers, "_list_versions", lambda: has)
    with pytest.raises((RuntimeError, AttributeError), match=said):
        list(workers._check_packages(partial(lack, error), "")(iter(())))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            'java.io.IOException: Cannot run program "/no/python": error=2',
            "Spark's workers have no Python '/no/python';",
        ),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11, PySpark",
            "Spark's workers run Python 3.9 and the driver 3.11;",
        ),
        ("ModuleNotFoundError: No module named 'pyarrow'\n", "Spark's workers run a Python without pyarrow;"),
        ("[PACKAGE_NOT_INSTALLED] PyArrow >= 18.0.0 must be", "Spark's workers run a Python without pyarrow;"),
    ],
)
def test_what_spark_says_of_its_workers_python_is_one_sentence(text: str, said: str) -> None:
    error = translate_message(f"Job aborted: {text}", "the source")
    assert isinstance(error, SettingError)
    assert str(error).startswith(said)
    assert str(error).endswith("by PYSPARK_PYTHON")


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
    assert set(re.split(r", | and ", always)) == libraries | {"fsspec", "numba"} == {*workers.LIBRARIES} - {encrypted}
    assert encrypted == "cryptography"
