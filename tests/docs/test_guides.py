"""The guides and the README, done as they say, on small tables."""

from __future__ import annotations

import re
import runpy
import shlex
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from layoutopt.cli.app import main
from layoutopt.spark import disable, unregister
from tests.docs.events import write_files
from tests.docs.pages import GUIDES, README, ROOT, Block, blocks_of
from tests.serve.serving import serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

# Pages with a block that runs here.
RUN: Final = [
    page
    for page in (README, *GUIDES)
    if any(
        block.mark in ("", "served") and re.search(r"^(layoutopt|import|from) ", block.code, re.MULTILINE)
        for block in blocks_of(page)
    )
]
# What a newcomer reads first runs in each `make test`, the other guides in `make test-long`.
FIRST: Final = ("README",)
# The folders that the pages name. Spark resolves relative paths where its Java started, so they are made absolute.
FOLDERS: Final = re.compile(r"(?<![\w./-])(data|tables|indexes|build)/")
# The table that most guides start from.
BEGIN: Final = (
    "layoutopt analyze queries.jsonl --schema data/events --table events -o features.json",
    "layoutopt plan data/events --features features.json --partition-by day --block-rows 20 --method sop -o plan.json",
    "layoutopt load data/events tables/events --plan plan.json",
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> Iterator[Path]:
    """A folder with the files that the pages name; what a page leaves in this process is taken back."""
    write_files(tmp_path)
    for sample in (ROOT / "data").glob("tpch_*"):
        shutil.copy(sample, tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("layoutopt.planning.automatic.CANDIDATES", ("input-order", "sop"))  # all take minutes
    monkeypatch.setattr(spark, "stop", lambda: None)
    monkeypatch.setattr("layoutopt.cli.jobs.start_spark", lambda *_, **__: spark)
    monkeypatch.setattr(sys, "path", list(sys.path))
    modules = set(sys.modules)
    yield tmp_path
    for name in {name for name in sys.modules if name.startswith("acme_")} - modules:
        del sys.modules[name]
    disable(spark)
    for name in ("tpch", "secret"):
        unregister(spark, name)
    spark.sql("DROP TEMPORARY FUNCTION IF EXISTS agent_name")


def run_line(line: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run one command of a shell block."""
    words = shlex.split(line, comments=True)
    if not words or words[:2] == ["pip", "install"]:
        return
    if words[0] == "layoutopt":
        assert main(words[1:]) == 0, line
    elif words[0] == "spark-submit":
        script = next(word for word in words if word.startswith("jobs/"))
        monkeypatch.setattr(sys, "argv", words[words.index(script) :])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(ROOT / script), run_name="__main__")
        assert not ended.value.code, line
    elif words[0] == "mkdir":
        Path(words[-1]).mkdir(exist_ok=True)
    else:
        assert words[0] == "export", line
        name = words[1].partition("=")[0]
        shell = subprocess.run(["sh", "-c", f'{line}; printf %s "${name}"'], capture_output=True, text=True, check=True)
        monkeypatch.setenv(name, shell.stdout)


def run_block(block: Block, names: dict[str, object], here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do what a block says; the Python of a page shares its names."""
    code = FOLDERS.sub(lambda found: f"{here}/{found[1]}/", block.code)
    name, _, table = block.argument.partition("=")
    with serving([f"{name}={here / table}"]) if block.mark == "served" else nullcontext() as served:
        if block.mark == "file":
            (here / block.argument).write_text(code, encoding="utf-8")
        elif block.language == "sh":
            for line in code.splitlines():
                run_line(line, here, monkeypatch)
        elif block.language == "python":
            code = code.replace("http://127.0.0.1:8181", served.url if served else "")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # polars warns of unstable functions
                exec(compile(code, block.argument or "block", "exec"), names)


@pytest.mark.parametrize(
    "page",
    [page if page.stem in FIRST else pytest.param(page, marks=pytest.mark.long) for page in RUN],
    ids=lambda page: page.stem,
)
def test_every_command_of_the_page_runs(
    here: Path, page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = [block for block in blocks_of(page) if block.mark in ("", "file", "served")]
    # The README and the first guide make their tables themselves.
    if page is not README and page.stem != "own-table":
        for line in BEGIN:
            run_line(FOLDERS.sub(lambda found: f"{here}/{found[1]}/", line), here, monkeypatch)
    capsys.readouterr()
    names: dict[str, object] = {"__name__": "guide"}
    for block in blocks:
        run_block(block, names, here, monkeypatch)
    printed = capsys.readouterr().out
    if page is README:
        shown = [block.code for block in blocks_of(README) if block.language == "text"]  # a picture, then output
        lines = shown[1].splitlines()
        assert len(lines) > 10
        assert not [line for line in lines if line not in printed], "paste the output of the quickstart again"
