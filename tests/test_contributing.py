"""Run the recipes of CONTRIBUTING.md as they stand there: files are written, entry points installed, commands run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from layoutopt.indexes.protocol import Index
from layoutopt.indexes.registry import find_index
from layoutopt.model.features_document import FeaturesDocument
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.layout import ByOrder, Plan
from layoutopt.model.predicates import Col, InSet
from tests.effort import examples
from tests.extension_package import install
from tests.indexes.columns import blocks_of, literals_of
from tests.scan.builder import build, building
from tests.scan.tables import SCHEMA, some_rows

ROOT = Path(__file__).parent.parent
SAMPLE = ROOT / "data" / "tpch_sample.parquet"
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
MOST_LINES = 120

# Variables by which `layoutopt plan` starts Spark at once: tests set some of them.
SPARK = ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_ENV_LOADED", "PYSPARK_GATEWAY_PORT", "HADOOP_CONF_DIR")


@dataclass(frozen=True)
class Recipe:
    """The files that a recipe has, by name, and its commands."""

    files: dict[str, str]
    commands: str


def fenced(text: str, language: str) -> list[str]:
    """The blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def read_recipes() -> dict[str, Recipe]:
    """Every recipe by the last word of its title."""
    sections = re.split(r"^### Add an? (.+)\n", TEXT.partition("\n## Recipes\n")[2], flags=re.MULTILINE)
    recipes = {}
    for title, section in zip(sections[1::2], sections[2::2], strict=True):
        named = [re.match(r"# (\w+\.py)\n", code) for code in fenced(section, "python")]
        files = {name[1]: name.string for name in named if name is not None}
        assert len(files) == len(named), f"a block of the recipe {title!r} does not begin with '# NAME.py'"
        recipes[title.split()[-1]] = Recipe(files, "".join(fenced(section, "sh")))
    return recipes


RECIPES = read_recipes()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with the files of all recipes as an installed package, and the sample data."""
    for recipe in RECIPES.values():
        for name, code in recipe.files.items():
            (tmp_path / name).write_text(code, encoding="utf-8")
    (toml,) = fenced(TEXT, "toml")
    groups = tomllib.loads(toml)["project"]["entry-points"]
    points = "".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in groups.items()
    )
    install(tmp_path, "recipes", points)
    (tmp_path / "data").symlink_to(ROOT / "data")
    return tmp_path


def run(folder: Path, recipe: str) -> str:
    """Run the commands of a recipe as a shell does, and return what they print."""
    environment = {name: value for name, value in os.environ.items() if name not in SPARK}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    environment["PYTHONPATH"] = f"{folder}{os.pathsep}{ROOT}"
    done = subprocess.run(
        ["sh", "-e", "-c", RECIPES[recipe].commands], cwd=folder, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_page_is_short_and_has_five_recipes() -> None:
    assert len(TEXT.splitlines()) <= MOST_LINES
    assert list(RECIPES) == ["method", "index", "function", "format", "figure"]
    assert all(recipe.files for recipe in RECIPES.values())
    assert [name for name, recipe in RECIPES.items() if not recipe.commands] == ["index"]


@pytest.mark.slow
def test_a_method_makes_a_plan(package: Path) -> None:
    run(package, "method")
    plan = Plan.loads((package / "plan.json").read_bytes())
    (layout,) = plan.scheme.layouts
    assert plan.method == "by-first-column"
    assert layout.blocking == ByOrder("sort", (plan.schema.names[0],))
    assert layout.columns == plan.schema.names


@pytest.mark.slow
def test_a_function_becomes_a_feature(package: Path) -> None:
    run(package, "function")
    document = FeaturesDocument.loads((package / "features.json").read_bytes())
    assert len(document.features.features) == 1
    assert "first_word" in json.dumps(document.to_json()["features"])


@pytest.mark.slow
def test_a_log_format_is_read(package: Path) -> None:
    run(package, "format")
    document = FeaturesDocument.loads((package / "features.json").read_bytes())
    assert [(query.user, query.columns) for query in document.queries] == [("ann", ("l_orderkey", "l_quantity"))]


@pytest.mark.slow
def test_a_figure_is_measured_and_its_steps_are_not_run_again(package: Path) -> None:
    rows = float(pq.read_metadata(SAMPLE).num_rows)
    said, value = run(package, "figure").splitlines()
    assert (said, float(value)) == ("counting", rows)
    assert [float(line) for line in run(package, "figure").splitlines()] == [rows]


@pytest.fixture
def index(package: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    """The index of the recipe, found by its entry point."""
    monkeypatch.syspath_prepend(str(package))
    monkeypatch.delitem(sys.modules, "my_index", raising=False)
    return find_index("last-digits")


def test_an_index_skips_blocks_of_a_table(index: Index, tmp_path: Path) -> None:
    spec = IndexSpec(Col("id", "int"), "last-digits")
    blocks = building(SCHEMA, blocking=lambda rows, bits: np.asarray(rows["id"]) % 10, indexes=(spec,))
    table = build(tmp_path / "t", some_rows(), blocks)
    read = table.scan("SELECT id FROM t WHERE id = 13").explain().to_json()["reads"][0]
    assert (read["read"]["blocks"], read["skipped_by"]["index"]["blocks"]) == (1, 9)
    assert sorted(table.sql("SELECT id FROM t WHERE id IN (13, 33)")["id"].to_pylist()) == [13, 33]


def test_an_index_is_sound(index: Index) -> None:
    @given(data=st.data(), type=st.sampled_from(["int", "bigint"]))
    @settings(max_examples=examples(200))
    def check(data: st.DataObject, type: str) -> None:
        blocks, literal = data.draw(blocks_of(type)), data.draw(literals_of(type))
        if not index.serves(literal):
            return
        assert isinstance(literal, InSet)
        denied = index.cannot_match(literal, index.measure(blocks.column, 0), 0)
        assert not any(np.logical_and(blocks.holds(literal), denied))

    check()
