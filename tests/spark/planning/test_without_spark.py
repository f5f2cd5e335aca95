"""Plans of local Parquet files are made without PySpark, which need not be installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from layoutopt import open_table
from layoutopt.model.layout import Plan

DATA = Path(__file__).parents[3] / "data"
# The command line in a process where PySpark is missing.
WITHOUT_SPARK = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j"):
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Missing())
from layoutopt.cli.app import main
sys.exit(main(sys.argv[1:]))
"""


def run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_SPARK, *map(str, words), "--json", "--no-progress"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.slow
def test_a_table_is_planned_loaded_and_appended_to(tmp_path: Path) -> None:
    sample, table = DATA / "tpch_sample.parquet", tmp_path / "table"
    features, plan = tmp_path / "features.json", tmp_path / "plan.json"
    analysed = run("analyze", DATA / "tpch_queries.sql", "--schema", sample, "-o", features)
    assert (analysed.returncode, analysed.stderr) == (0, "")
    words = ["--features", features, "--partition-by", "o_year", "--method", "gsop", "--block-rows", 100]
    planned = run("plan", sample, *words, "-o", plan)
    assert (planned.returncode, planned.stderr) == (0, "")
    assert json.loads(planned.stdout)["method"] == "gsop"
    assert Plan.loads(plan.read_bytes()).predicted["bytes_fraction"] < 1
    loaded = run("load", sample, table, "--plan", plan)
    assert (loaded.returncode, loaded.stderr) == (0, "")
    rows = pq.read_metadata(sample).num_rows
    assert json.loads(loaded.stdout)["rows"] == rows
    appended = run("append", table, sample, "--batch-id", "again")
    assert (appended.returncode, appended.stderr) == (0, "")
    counted = open_table(str(table)).sql("SELECT count(*) AS n FROM tpch")
    assert counted.to_pylist() == [{"n": 2 * rows}]


@pytest.mark.long
def test_a_layout_is_advised(tmp_path: Path) -> None:
    page = tmp_path / "advice.html"
    advised = run(
        "advise", DATA / "tpch_sample.parquet", DATA / "tpch_queries.sql", "--block-rows", 100, "--html", page
    )
    assert (advised.returncode, advised.stderr) == (0, "")
    advice = json.loads(advised.stdout)
    assert advice["is_complete"]
    assert advice["recommended"]["reads"]["share"] < advice["now"]["share"]
    assert page.exists()


def test_what_only_spark_reads_is_said(tmp_path: Path) -> None:
    features = tmp_path / "features.json"
    run("analyze", DATA / "tpch_queries.sql", "--schema", DATA / "tpch_sample.parquet", "-o", features)
    folder = tmp_path / "p=1"
    folder.mkdir()
    shutil.copy(DATA / "tpch_sample.parquet", folder)
    planned = run("plan", tmp_path, "--features", features, "--method", "sop", "-o", tmp_path / "plan.json")
    assert planned.returncode == 2
    assert "this needs the library 'pyspark', which can't be imported" in planned.stderr
    assert "run pip install 'layoutopt[spark]'" in planned.stderr
