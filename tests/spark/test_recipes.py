"""Hostile tables live the life of any other: each answer is what Spark says of each row of the untouched source.

Spark evaluates the conditions as columns of a projection, by which nothing is pushed down or skipped. Then the embedded
engine and an enabled session answer from the loaded table, and from an index of the source's own footers.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from layoutopt.cli.app import main
from layoutopt.cli.console import BAD_USAGE, DONE
from layoutopt.inspect.verify import verify
from layoutopt.scan.table import open_table
from layoutopt.spark import disable, enable, register
from layoutopt.spark.core.sessions import session_settings
from tests.effort import one_in
from tests.spark.recipes import RECIPES, REFUSED, Recipe
from tests.spark.session.answers import scans_under
from tests.spark.settings import compared_here, new_session, under

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.unshadowed("every answer is compared with Spark's on the source"),
    pytest.mark.usefixtures("uncompiled"),
]

Answers = dict[str, list[str]]


@pytest.fixture(scope="module")
def source(spark: SparkSession) -> SparkSession:
    """A session in which t is the rows that a table should have."""
    return new_session(spark)


@pytest.fixture(scope="module")
def enabled(spark: SparkSession) -> Iterator[SparkSession]:
    """A session that skips."""
    session = new_session(spark)
    enable(session)
    with compared_here():
        yield session
    disable(session)


def run(*words: object, code: int = DONE) -> None:
    assert main(list(map(str, words))) == code, words


def plain(value: Any) -> Any:
    """A value whose text is the same from each engine: instants in UTC, fields and keys in order."""
    if isinstance(value, dt.datetime) and value.tzinfo:
        return value.astimezone(dt.UTC).isoformat()
    if isinstance(value, dict):
        return sorted((name, plain(inner)) for name, inner in value.items())
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def in_order(rows: pa.Table) -> list[str]:
    return sorted(repr(plain(row)) for row in rows.to_pylist())


def truth(session: SparkSession, conditions: Sequence[str]) -> Answers:
    """The rows of t that each condition matches, each row by itself."""
    bits = ", ".join(f"coalesce({condition}, false)" for condition in conditions)
    rows = session.sql(f"SELECT *, array({bits}) AS matching_bits FROM t").toArrow()
    matching = rows["matching_bits"].to_pylist()
    rows = rows.drop_columns(["matching_bits"])
    return {
        condition: in_order(rows.filter(pa.array([bits[place] for bits in matching], pa.bool_())))
        for place, condition in enumerate(conditions)
    }


def by_session(session: SparkSession, names: Sequence[str], conditions: Sequence[str]) -> list[Answers]:
    """What a session answers from each table, in one query: most of the time goes into starting."""
    asked = [(name, condition) for name in names for condition in conditions]
    arms = (f"SELECT {place} AS condition_at, * FROM {name} WHERE {each}" for place, (name, each) in enumerate(asked))
    rows = session.sql(" UNION ALL ".join(arms)).toArrow()
    places = rows["condition_at"].to_pylist()
    rows = rows.drop_columns(["condition_at"])
    found = [in_order(rows.filter(pa.array([at == place for at in places], pa.bool_()))) for place in range(len(asked))]
    step = len(conditions)
    return [dict(zip(conditions, found[at : at + step], strict=True)) for at in range(0, len(asked), step)]


def check(enabled: SparkSession, tables: dict[str, Path], expected: Answers) -> set[str]:
    """Compare all answers from tables and indexes; return those of which some condition skips in both engines."""
    settings, skipping = session_settings(enabled), set()
    for name, path in tables.items():
        table = open_table(str(path))
        register(enabled, name, str(path))
        by_spark = scans_under(enabled, expected, name)
        for condition, rows in expected.items():
            scan = table.scan_under(f"SELECT * FROM {name} WHERE {condition}", settings)
            assert in_order(scan.to_arrow()) == rows, f"{condition} of {name}"
            skips = any(not pruned.read.all() for read in scan.reads for pruned in read.pruned)
            if skips and condition in by_spark and by_spark[condition].skipped.blocks:
                skipping.add(name)
    for name, answers in zip(tables, by_session(enabled, list(tables), list(expected)), strict=True):
        for condition, rows in answers.items():
            assert rows == expected[condition], f"{condition} of {name} in Spark"
    return skipping


def load(recipe: Recipe, place: Path) -> Path:
    """Analyse a log of half of the conditions, plan and load."""
    log, features, plan, table = (place / name for name in ("log.sql", "features.json", "plan.json", "table"))
    log.write_text("".join(f"SELECT * FROM t WHERE {each};\n" for each in recipe.conditions[::2]), encoding="utf-8")
    run("analyze", log, "--schema", place / "rows", "--threshold", 1, "-o", features, *recipe.analyze)
    partition = ("--partition-by", recipe.partition_by) if recipe.partition_by else ()
    run("plan", place / "rows", "--features", features, "--method", "sort", "--by", recipe.by, "--block-rows", 8,
        "-o", plan, *partition, *recipe.words)  # fmt: skip
    run("load", place / "rows", table, "--plan", plan, "--executor", recipe.executor)
    return table


@pytest.mark.parametrize("name", one_in(8, RECIPES.keys()))
def test_recipe(
    spark: SparkSession, source: SparkSession, enabled: SparkSession, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str,
) -> None:  # fmt: skip
    recipe = RECIPES[name]
    if recipe.executor == "local":
        monkeypatch.delenv("SPARK_CONF_DIR")  # planning would start Spark with it
    with under(source, recipe.settings), under(enabled, recipe.settings), under(spark, recipe.settings):
        recipe.write(source, tmp_path / "rows")
        source.read.option("mergeSchema", "true").parquet(str(tmp_path / "rows")).createOrReplaceTempView("t")
        expected = truth(source, recipe.conditions)
        assert any(expected.values())

        tables = {"t": load(recipe, tmp_path)}
        index = ("index", tmp_path / "rows", "--into", tmp_path / "indexes", "--table", "rows", "--index", "id:bloom")
        capsys.readouterr()
        if recipe.index in ("skips", "reads"):
            run(*index)
            tables["rows"] = tmp_path / "indexes"
        else:
            run(*index, code=BAD_USAGE)
            assert recipe.index in capsys.readouterr().err
        assert check(enabled, tables, expected) == ({"t", "rows"} if recipe.index == "skips" else {"t"})

        for number, change in enumerate(recipe.changes):
            paths = [tmp_path / "table"]
            if change.batch:
                paths.append(tmp_path / f"batch{number}")
                change.batch(source, paths[-1])
                source.read.parquet(str(paths[-1])).createOrReplaceTempView("batch")
            run(change.verb, *paths, *change.words)
            source.sql(change.rows).createOrReplaceTempView("t")
            check(enabled, {"t": tmp_path / "table"}, truth(source, recipe.conditions))
        assert verify(open_table(str(tmp_path / "table"))).ok


@pytest.mark.parametrize("name", REFUSED)
def test_refused(source: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    write, verb, says, partition_by = REFUSED[name]
    write(source, tmp_path / "rows")
    log, features = tmp_path / "log.sql", tmp_path / "features.json"
    log.write_text("SELECT id FROM t WHERE id < 3;\n")
    analyze = ("analyze", log, "--schema", tmp_path / "rows", "--threshold", 1, "-o", features)
    if verb == "plan":
        run(*analyze)
    capsys.readouterr()
    plan = ("plan", tmp_path / "rows", "--features", features, "--partition-by", partition_by)
    run(*(analyze if verb == "analyze" else plan), code=BAD_USAGE)
    said = capsys.readouterr().err
    assert re.search(says, said), said
    assert said.count("\n") == 1
