"""``verify --source``: a table that lacks rows of its source, or has others, is told from one that holds it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from layoutopt.cli.app import main
from layoutopt.cli.console import BAD_USAGE, DONE, FAILED
from layoutopt.errors import SchemaError, SettingError
from layoutopt.inspect.verify import SourceCheck
from layoutopt.model.feature import SessionSettings
from layoutopt.model.layout import ByVectors, Layout, Scheme
from layoutopt.scan.table import Table, open_table
from layoutopt.spark.core.source import schema_of
from layoutopt.spark.loading import verify as against_source
from layoutopt.spark.loading.load import load
from layoutopt.spark.loading.verify import compare_with_source
from tests.effort import long_too
from tests.spark.tables import document, is_value, plan_of

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("uncompiled")]

VALUES = [
    None,
    "null",
    "",
    "a=b",
    "b",
    "__null__",
    "__HIVE_DEFAULT_PARTITION__",
    " b",
    "ünï",
    "😀\x1b[2J",
    "NULL",
    "p=b",
]
"""What a parser of partitions' names might take for another or for none."""
EACH = 6
NAMES = ("p", "id", "kind", "f", "at", "list", "inner", "tags")
SCHEMES = {
    "sop": None,
    "gsop": [("p", "id", "kind"), ("f", "at", "list", "inner", "tags")],
    "gsop-r": [tuple(n for n in NAMES if n != "tags"), ("id", "kind", "tags")],
}
MASTERS = {"gsop": SCHEMES["gsop"], "gsop-r": [tuple(n for n in NAMES if n != "tags"), ("tags",)]}


def source(spark: SparkSession) -> DataFrame:
    """Six rows of each value; every other column has NULLs."""
    listed = ", ".join(f"({i}, {text_literal(value)})" for i, value in enumerate(VALUES))
    return spark.sql(f"SELECT * FROM VALUES {listed} AS v(n, p) CROSS JOIN range({EACH})").selectExpr(
        "p",
        f"cast(n * {EACH} + id AS int) AS id",
        "element_at(array('air', 'rail', NULL), cast(id % 3 AS int) + 1) AS kind",
        "element_at(array(double('NaN'), 0.5D, NULL, -1D), cast(id % 4 AS int) + 1) AS f",
        "timestamp_seconds(id * 1000000 - 50000000000L * (id % 2)) AS at",
        "if(id % 5 = 0, NULL, array(cast(id AS int), NULL)) AS list",
        "if(id = 3, NULL, named_struct('a', nullif(cast(id AS int), -1), 'b', array('x', NULL))) AS inner",
        "if(id = 2, NULL, map('k', nullif(cast(id AS int), -1), '', n)) AS tags",
    )


def text_literal(value: str | None) -> str:
    return "CAST(NULL AS STRING)" if value is None else f"CAST(X'{value.encode().hex()}' AS STRING)"


def is_one_of(values: Sequence[str | None]) -> str:
    return " OR ".join(f"p <=> {text_literal(value)}" for value in values)


def loaded(spark: SparkSession, rows: DataFrame, path: Path, by: str | None = "p", method: str = "sop") -> Table:
    """A table with these rows."""
    schema = schema_of(rows)
    conditions = [is_value(schema, "kind", "=", "air"), is_value(schema, "f", ">", 0)]
    columns = SCHEMES[method]
    layouts = [
        Layout(
            each, (0, 1) if "kind" in each and "f" in each else (0,) if "kind" in each else (1,), master, ByVectors()
        )
        for each, master in zip(columns or [], MASTERS.get(method) or [], strict=True)
    ]
    plan = plan_of(document(schema, conditions), partition_by=by, scheme=Scheme(tuple(layouts)) if layouts else None)
    load(spark, rows, path / "t", plan)
    return open_table(str(path / "t"))


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """All of the source, in layouts that overlap: what is hardest to put together."""
    return loaded(spark, source(spark), tmp_path_factory.mktemp("all"), method="gsop-r")


@pytest.mark.parametrize("method", [*long_too("gsop"), "sop"])
def test_rows_are_told_from_any_layouts(spark: SparkSession, tmp_path: Path, method: str) -> None:
    rows = source(spark).where(is_one_of([None, "null", "a=b", "p=b"]))
    held = loaded(spark, rows, tmp_path, method=method)
    assert found(rows, held) == []
    changed = rows.withColumn("kind", spark_expr("if(p IS NULL, coalesce(kind, 'x'), kind)"))
    assert found(changed, held) == [("source-differs", "partition p = NULL has other values of 'kind' than the source")]


def found(rows: DataFrame, table: Table) -> list[tuple[str, str]]:
    """Each problem: its check, and its message up to what is to be done."""
    check = compare_with_source(rows, table, "src")
    assert check.differences == len(check.problems)
    assert {problem.file for problem in check.problems} <= {"src"}
    return [(problem.check, problem.message.partition(";")[0]) for problem in check.problems]


def shown(value: str | None) -> str:
    return "p = " + ("NULL" if value is None else repr(value))


def test_a_table_that_holds_its_source_has_no_problem(spark: SparkSession, table: Table) -> None:
    rows = EACH * len(VALUES)
    assert compare_with_source(source(spark), table, "src") == SourceCheck("src", rows, len(VALUES), rows, 0, ())


def test_the_order_of_rows_and_columns_and_the_case_of_names_are_nothing(spark: SparkSession, table: Table) -> None:
    turned = source(spark).orderBy("id", ascending=False).select(*reversed(NAMES)).withColumnRenamed("kind", "KIND")
    assert found(turned, table) == []


LOST = [None, "", "😀\x1b[2J"]
MORE_LOST = [[None], ["null", "", "😀\x1b[2J"], [None, "null", "a=b"], [v for v in VALUES if v]]


@pytest.mark.long
@pytest.mark.parametrize("lost", [LOST, *long_too(*MORE_LOST)])
def test_partitions_that_a_load_lost_are_named(spark: SparkSession, tmp_path: Path, lost: list[str | None]) -> None:
    whole = source(spark)
    table = loaded(spark, whole.where(f"NOT ({is_one_of(lost)})"), tmp_path)
    expected = {("source-missing", f"partition {shown(v)} lacks all {EACH} rows of the source") for v in lost}
    problems = found(whole, table)
    assert (set(problems), len(problems)) == (expected, len(lost))
    assert all(text.isprintable() for _, text in problems), "a value can't give a terminal commands"


@pytest.mark.parametrize("gone", [[None], VALUES, *long_too(["null", ""])])
def test_partitions_that_the_source_lacks_are_another_problem(
    spark: SparkSession, table: Table, gone: list[str | None]
) -> None:
    check = compare_with_source(source(spark).where(f"NOT ({is_one_of(gone)})"), table, "src")
    assert {problem.check for problem in check.problems} == {"source-extra"}
    assert len(check.problems) == len(gone)
    assert all("source dropped them since" in problem.message for problem in check.problems)


CHANGES = {
    "a NULL more and other values": {
        "kind": "coalesce(kind, 'x')",
        "f": "if(isnan(f), 0D, f)",
        "at": "at + INTERVAL 0.000001 SECOND",
        "list": "transform(list, x -> coalesce(x, 0))",
        "inner": "named_struct('a', nullif(7, 8), 'b', inner.b)",
    },
    "a NULL less and other keys": {
        "kind": "nullif(kind, 'air')",
        "tags": "transform_keys(tags, (k, v) -> upper(k))",
    },
}
"""Each column is summed up by itself, so of those that change together none hides another."""


@pytest.mark.parametrize("changes", list(CHANGES.values()), ids=list(CHANGES))
def test_other_values_are_told_by_partition_and_column(
    spark: SparkSession, table: Table, changes: dict[str, str]
) -> None:
    where = is_one_of([None, "null"])
    changed = source(spark).withColumns({n: spark_expr(f"if({where}, {to}, {n})") for n, to in changes.items()})
    names = ", ".join(map(repr, changes))
    messages = [f"partition {shown(value)} has other values of {names} than the source" for value in (None, "null")]
    assert found(changed, table) == [("source-differs", message) for message in messages]


def spark_expr(text: str) -> SparkColumn:
    from pyspark.sql import functions as F  # noqa: N812

    return F.expr(text)


def test_values_that_two_rows_swapped_are_found(spark: SparkSession, table: Table) -> None:
    """Every column has the same values: only whole rows tell."""
    swapped = source(spark).withColumn("id", spark_expr("if(p IS NULL AND id < 2, 1 - id, id)"))
    agree = "though the checksums of columns agree, as where values change places"
    message = f"partition p = NULL has other rows than the source {agree}"
    assert found(swapped, table) == [("source-differs", message)]


@pytest.mark.long
def test_rows_that_are_there_twice_are_found(spark: SparkSession, table: Table) -> None:
    whole = source(spark)
    more = whole.union(whole.where("p <=> NULL AND id = 1"))
    assert found(more, table) == [("source-differs", f"partition p = NULL has {EACH} rows and the source {EACH + 1}")]
    twice = more.where("NOT (p <=> NULL AND id = 2)")
    assert [check for check, _ in found(twice, table)] == ["source-differs"]


@pytest.mark.long
def test_rows_in_another_partition_are_found(spark: SparkSession, table: Table) -> None:
    moved = source(spark).withColumn("p", spark_expr("if(p IS NULL AND id = 0, 'null', p)"))
    assert [check for check, _ in found(moved, table)] == ["source-differs", "source-differs"]
    exchanged = source(spark).withColumn("p", spark_expr("CASE WHEN p IS NULL THEN 'null' WHEN p <> 'null' THEN p END"))
    assert [check for check, _ in found(exchanged, table)] == ["source-differs", "source-differs"]


@pytest.mark.long
@pytest.mark.parametrize("method", ["gsop-r", *long_too("sop", "gsop")])
def test_tables_without_partitions(spark: SparkSession, tmp_path: Path, method: str) -> None:
    whole = source(spark)
    table = loaded(spark, whole, tmp_path, by=None, method=method)
    rows = EACH * len(VALUES)
    assert compare_with_source(whole, table, "src") == SourceCheck("src", rows, 1, rows, 0, ())
    fewer = whole.where("p IS NOT NULL")
    assert found(fewer, table) == [("source-differs", f"the table has {rows} rows and the source {rows - EACH}")]
    assert [check for check, _ in found(whole.where("false"), table)] == ["source-extra"]


@pytest.mark.long
def test_instants_that_clocks_show_twice_are_two_partitions(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        twice = "timestamp_seconds(1635640200 + 3600 * (id % 2))"  # 02:30 with +02:00, an hour later with +01:00
        old = "timestamp_micros(-14830974000000001 * (id % 3 - 1))"  # year 1500
        rows = spark.range(12).selectExpr(
            f"if(id < 6, {twice}, {old}) AS p", "cast(id AS int) id", "'air' AS kind", "1D f"
        )
        schema = schema_of(rows)
        plan = plan_of(document(schema, []), partition_by="p")
        berlin = SessionSettings(time_zone="Europe/Berlin")
        plan = replace(plan, settings=berlin, features=replace(plan.features, settings=berlin))
        load(spark, rows.where("p = timestamp_seconds(1635640200)"), tmp_path / "t", plan)
        problems = found(rows, open_table(str(tmp_path / "t")))
        assert len(problems) == 4
        assert (
            "source-missing",
            "partition p = '2021-10-31 02:30:00 +01:00' lacks all 3 rows of the source",
        ) in problems
        assert not [text for _, text in problems if "+02:00" in text]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_a_source_of_another_schema_is_refused_in_one_sentence(spark: SparkSession, table: Table) -> None:
    other = (
        source(spark).drop("tags").withColumnRenamed("kind", "sort").withColumn("id", spark_expr("cast(id AS bigint)"))
    )
    with pytest.raises(SchemaError) as error:
        compare_with_source(other, table, "src")
    said = "it lacks 'kind', it lacks 'tags', 'id' is bigint and not int, 'sort' is not in the table"
    assert f"'src' has another schema than the table ({said}); " in str(error.value)


def test_a_session_of_another_meaning_is_refused(spark: SparkSession, table: Table) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        with pytest.raises(SettingError, match="Asia/Tokyo"):
            compare_with_source(source(spark), table, "src")
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.long
def test_a_comparison_that_leaves_rows_out_says_so(
    spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own second check: rows are counted without any grouping."""
    joined = against_source._join_sides
    monkeypatch.setattr(against_source, "_join_sides", lambda *sides: joined(*sides).where("value IS NOT NULL"))
    checks = [check for check, _ in found(source(spark), table)]
    assert checks == ["source-total", "source-total"]


def test_the_command_line(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = source(spark).where("p IS NULL OR p IN ('null', 'b')")
    path, lost, moved, held = (tmp_path / name for name in ("source.parquet", "lost", "moved.parquet", "held.parquet"))
    whole.where("p IS NULL").write.parquet(str(moved))
    whole.where("p IS NOT NULL").write.parquet(str(held))
    shutil.copytree(held, shutil.copytree(moved, path), dirs_exist_ok=True)
    loaded(spark, whole.where("p IS NOT NULL"), lost)
    capsys.readouterr()

    assert main(["verify", str(lost / "t")]) == DONE, "the files are what the catalog says"
    assert "source" not in capsys.readouterr().out

    assert main(["verify", str(lost / "t"), "--source", str(path)]) == FAILED
    said = capsys.readouterr()
    assert f"{path} has 18 rows in 3 partitions, the table 12: 1 differences" in said.out
    assert "source-missing" in said.out
    assert "partition p = NULL lacks all 6 rows of the source" in said.out
    assert said.err.count("\n") == 1
    assert "differ in 1 places" in said.err

    assert main(["verify", str(lost / "t"), "--source", str(moved), "--json"]) == FAILED
    report = json.loads(capsys.readouterr().out)
    assert not report["ok"]
    assert [problem["check"] for problem in report["problems"]] == ["source-missing", "source-extra", "source-extra"]
    assert report["source"] == {
        "source": str(moved), "rows": 6, "partitions": 1, "table_rows": 12, "differences": 3,
    }  # fmt: skip

    assert main(["verify", str(lost / "t"), "--source", str(held)]) == DONE
    assert f"every row of {held} is there: 12 rows in 2 partitions" in " ".join(capsys.readouterr().out.split())


def test_bad_usage_of_the_command_line(table: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = table.catalog.files.root
    for words, said in (
        (["--source", str(tmp_path / "none")], "does not exist"),
        (["--source", str(tmp_path), "--queries", "log.sql"], "leave one of them out"),
    ):
        assert main(["verify", root, *words]) == BAD_USAGE
        assert said in capsys.readouterr().err
    assert main(["verify", str(tmp_path), "--source", root]) == BAD_USAGE


def test_a_damaged_table_is_not_compared(
    spark: SparkSession, table: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source(spark).where("p = 'b'").write.parquet(str(tmp_path / "source.parquet"))
    copy = shutil.copytree(table.catalog.files.root, tmp_path / "t")
    Path(open_table(str(copy)).files()[0]).unlink()
    assert main(["verify", str(copy), "--source", str(tmp_path / "source.parquet"), "--json"]) == FAILED
    report = json.loads(capsys.readouterr().out)
    assert {problem["check"] for problem in report["problems"]} == {"file"}
    assert "repair the damaged files first" in report["unchecked"][0]
