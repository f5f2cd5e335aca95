"""Columns with hostile names: planned, loaded and read by every verb and every way of reading, or refused by `plan`.

One source has a column of each name, and all of them as fields of a struct; a table by each method is partitioned by
another of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812

from layoutopt import spark as ls
from layoutopt.cli.app import main
from layoutopt.cli.console import DONE
from layoutopt.errors import QueryError, SchemaError
from layoutopt.loading.local_source import open_local
from layoutopt.model.types import is_type_name, quote_name
from layoutopt.planning.dry_run import dry_run_loads
from layoutopt.scan.table import Table, open_table
from layoutopt.spark import read_table
from layoutopt.spark.core.source import open_source
from layoutopt.sql.schema import plain_name, schema_from
from tests.effort import long_too
from tests.spark.session.answers import scans_under
from tests.spark.settings import compared_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("uncompiled")]

NAMES = (
    "a.b", "a`b", "`q`", 'd"q', '"q"', "it's", "new\nline", "t\tb", "se;mi", "100%d", "back\\slash", " sp ", "L" * 400,
    "😀", "select", "FROM", "straße", "strasse", "σ", "ς", "Ärger", "_metadata", "_rows", "list", "element", "__x__",
    "_count", "_key", "_low0", "a=b", "a,b", "*", "{x}", "a:b", "a<b>", "f(x)", "a--b", "a?", "#x", ":x", "value", "c0",
    ".hid", "_under", "a/b", "_place", "answer", "",
)  # fmt: skip
FIELDS = [name for name in NAMES if is_type_name(f"struct<{name}:int>") and name not in ("σ", "ς")]
"""Fields that differ in the form of a sigma are one to Spark."""
ROWS = 200
VALUES = 20
PARTITIONED_BY = {"sop": "a`b", "gsop": "new\nline", "gsop-r": "a.b", "sort": "part"}


def rows() -> pa.Table:
    """Values in rising order, so that blocks can be skipped by each of the columns."""
    numbers = range(ROWS)
    columns = {
        name: pa.array([(i + place) * VALUES // ROWS % VALUES for i in numbers], pa.int32())
        for place, name in enumerate(NAMES)
    }
    for name in PARTITIONED_BY.values():
        columns[name] = pa.array([i % 2 for i in numbers], pa.int32())
    nested = pa.array([{name: (i + place) % 5 for place, name in enumerate(FIELDS)} for i in numbers])
    return pa.table({"id": pa.array(numbers, pa.int32()), **columns, "nested": nested})


def value_in(name: str) -> int:
    return 1 if name in PARTITIONED_BY.values() else 7


def run(*words: str | Path) -> None:
    assert main([str(word) for word in words]) == DONE, words


@pytest.fixture(scope="module")
def place(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source, its log and its features; a few families of queries, since searches grow with them."""
    place = tmp_path_factory.mktemp("names")
    pq.write_table(rows(), place / "source.parquet")
    third = len(NAMES) // 3 + 1
    lines = []
    for number, name in enumerate(NAMES):
        read = ", ".join(map(quote_name, NAMES[number // third * third :][:third]))
        lines.append(json.dumps({"sql": f"SELECT {read} FROM t WHERE {quote_name(name)} = 7", "count": 2}))
    (place / "log.jsonl").write_text("\n".join(lines), encoding="utf-8")
    run("analyze", place / "log.jsonl", "--schema", place / "source.parquet", "--table", "t", "-o", place / "f.json")
    spark.read.parquet(str(place / "source.parquet")).createOrReplaceTempView("src")
    return place


@pytest.fixture(scope="module")
def expected(spark: SparkSession, place: Path) -> dict[str, list[int]]:
    """The ids that Spark finds on the source by one value of each column, in one query."""
    parts = [f"collect_list(IF({quote_name(n)} = {value_in(n)}, id, NULL)) AS c{i}" for i, n in enumerate(NAMES)]
    (row,) = spark.sql(f"SELECT {', '.join(parts)} FROM src").collect()
    return {name: sorted(row[f"c{i}"]) for i, name in enumerate(NAMES)}


@pytest.fixture(scope="module")
def tables(place: Path) -> Callable[[str], Table]:
    """A table by each method, planned and loaded by the command line when it is asked for."""

    @cache
    def made(method: str) -> Table:
        plan = place / f"{method}.json"
        flags = ["--partition-by", PARTITIONED_BY[method], "--block-rows", "10"]
        flags += ["--by", "id"] if method == "sort" else ["--storage-budget", "1.2"] if method == "gsop-r" else []
        run("plan", place / "source.parquet", "--features", place / "f.json", "--method", method, *flags, "-o", plan)
        run("load", place / "source.parquet", place / method, "--plan", plan)
        return open_table(str(place / method))

    return made


@pytest.fixture(params=["gsop-r", *long_too("sort", "sop", "gsop")])
def table(tables: Callable[[str], Table], request: pytest.FixtureRequest) -> Table:
    return tables(request.param)


@pytest.fixture
def copied(tables: Callable[[str], Table]) -> Table:
    """The table whose rows are put together from several layouts."""
    return tables("gsop-r")


@pytest.fixture
def enabled(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """A session that knows the test's table as ``t``."""
    held: Table = request.getfixturevalue("table" if "table" in request.fixturenames else "copied")
    ls.register(spark, "t", held.catalog.files.root)
    ls.enable(spark)
    yield spark
    ls.disable(spark)
    ls.unregister(spark, "t")


def method_of(table: Table) -> str:
    (plan,) = table.catalog.plans.values()
    return plan.method


def condition(name: str) -> str:
    return f"{quote_name(name)} = {value_in(name)}"


def text_for(name: str) -> str:
    return f"SELECT id, {quote_name(name)} FROM t WHERE {condition(name)}"


def ids(answer: pa.Table) -> list[int]:
    return sorted(answer.column(0).to_pylist())


def by_text(table: Table, name: str, _: duckdb.DuckDBPyConnection) -> tuple[list[int], list[str]]:
    answer = table.scan(text_for(name)).to_arrow()
    return ids(answer), answer.column_names


def by_condition(table: Table, name: str, _: duckdb.DuckDBPyConnection) -> tuple[list[int], list[str]]:
    answer = table.scan(columns=["id", name], where=condition(name)).to_arrow()
    return ids(answer), answer.column_names


def by_batches(table: Table, name: str, _: duckdb.DuckDBPyConnection) -> tuple[list[int], list[str]]:
    answer = pa.Table.from_batches(table.scan(text_for(name)).to_batches(7))
    return ids(answer), answer.column_names


def by_relation(table: Table, name: str, connection: duckdb.DuckDBPyConnection) -> tuple[list[int], list[str]]:
    relation = table.scan(text_for(name)).to_duckdb(connection)
    return ids(relation.to_arrow_table()), [column.lower() for column in relation.columns]


WAYS = (by_text, by_condition, by_batches, by_relation)


@pytest.mark.parametrize("turns", [1, *long_too(4)])
def test_the_embedded_engine(table: Table, expected: dict[str, list[int]], turns: int) -> None:
    """Of four ways each table is asked one for each name, another than other tables; in the long run all."""
    first = [*PARTITIONED_BY].index(method_of(table))
    with duckdb.connect() as connection:
        for number, name in enumerate(NAMES):
            if "\\" in name:  # which Spark and DuckDB read in two ways, so that nobody asks DuckDB
                with pytest.raises(QueryError, match="unusual escape"):
                    table.sql(text_for(name))
                continue
            for turn in range(turns):
                way = WAYS[(number + first + turn) % len(WAYS)]
                found, names = way(table, name, connection)
                assert found == expected[name], name
                assert names == ["id", (name.lower() or plain_name("")) if way is by_relation else name]
    assert table.sql("SELECT * EXCEPT (nested) FROM t LIMIT 3").column_names == ["id", *NAMES, "part"]


@pytest.mark.parametrize("every", [len(PARTITIONED_BY), *long_too(1)])
def test_datasets(table: Table, expected: dict[str, list[int]], every: int) -> None:
    for name in NAMES[[*PARTITIONED_BY].index(method_of(table)) % every :: every]:
        found = table.scan(text_for(name)).to_dataset().to_table()
        assert ids(found.filter(pc.equal(found[name], value_in(name)))) == expected[name], name
    name = "a.b"
    dataset = table.scan(text_for(name)).to_dataset()
    assert ids(dataset.to_table(["id", name], filter=pds.field(name) == value_in(name))) == expected[name]


def answers(spark: SparkSession, scan: Table | None, names: Sequence[str]) -> dict[str, list[int]]:
    """The ids that one query finds by each of the names; through ``enable`` where no table is given."""
    text = " UNION ALL ".join(f"SELECT id, {i} AS of FROM t WHERE {condition(n)}" for i, n in enumerate(names))
    found: dict[str, list[int]] = {name: [] for name in names}
    with compared_here():
        rows = (spark.sql(text) if scan is None else scan.scan(text).to_spark(spark)).collect()
    for row in rows:
        found[names[row["of"]]].append(row["id"])
    return {name: sorted(each) for name, each in found.items()}


def test_spark_skips_by_every_name(enabled: SparkSession, table: Table, expected: dict[str, list[int]]) -> None:
    # Each arm costs Spark some tenths of a second: a table has all of them, the others some.
    names = NAMES if method_of(table) == "sort" else NAMES[::5]
    assert answers(enabled, None, names) == {name: expected[name] for name in names}
    scans = scans_under(enabled, map(condition, names))
    assert not [name for name in names if not scans[condition(name)].skipped.blocks]


def test_spark_without_enabling(spark: SparkSession, copied: Table, expected: dict[str, list[int]]) -> None:
    some = NAMES[:9]
    assert answers(spark, copied, some) == {name: expected[name] for name in some}


def test_dataframes_skip_by_every_name(enabled: SparkSession, copied: Table, expected: dict[str, list[int]]) -> None:
    rows = read_table(enabled, copied.catalog.files.root)
    assert rows.columns == list(copied.schema.names)
    assert rows.count() == ROWS
    for name in NAMES[::12]:
        found = rows.where(F.col(quote_name(name)) == value_in(name)).select("id", F.col(quote_name(name)))
        assert sorted(row[0] for row in found.collect()) == expected[name], name
        assert ls.last_scans(enabled)[0].skipped.blocks, name


def test_fields_of_structs(enabled: SparkSession, copied: Table) -> None:
    fields = [f"count_if(nested.{quote_name(name)} = 4) AS c{i}" for i, name in enumerate(FIELDS)]
    found, wanted = (
        enabled.sql(f"SELECT {', '.join(fields)} FROM {name} WHERE nested.{quote_name(FIELDS[0])} = 4").collect()
        for name in ("t", "src")
    )
    assert found == wanted
    assert copied.sql("SELECT nested FROM t WHERE id = 5").num_rows == 1


EXPLAINED: tuple[list[str], ...] = ([], ["--json"], ["--bytes"], ["--predicate"])


@pytest.mark.long
@pytest.mark.parametrize("ways", [1, *long_too(len(EXPLAINED))])  # in which each name is explained
def test_the_other_verbs(copied: Table, place: Path, capsys: pytest.CaptureFixture[str], ways: int) -> None:
    root, log, source = copied.catalog.files.root, place / "log.jsonl", place / "source.parquet"
    run("verify", root, "--queries", log)
    run("evaluate", root, log, "--actual", "--json")
    run("drift", root, log)
    for number, name in enumerate(("a.b", "a`b", "new\nline", '"q"', "", "L" * 400)):
        for flags in (2 * EXPLAINED)[number % len(EXPLAINED) :][:ways]:
            run("explain", root, text_for(name), *flags)
    for name in ("a.b", '"q"', "*", "Ärger"):
        run("query", root, text_for(name))
    run("query", root, "SELECT * FROM t WHERE `back\\slash` = 7", "--engine", "spark")
    for verb in ("files", "history", "status"):
        run(verb, root)
    run("reload", root, source, "--partition", f"{PARTITIONED_BY['gsop-r']}=1")
    run("restore", root, "--snapshot", "0")
    run("vacuum", root)
    capsys.readouterr()


def test_a_rehearsal(copied: Table, place: Path) -> None:
    (plan,) = copied.catalog.plans.values()
    (rehearsed,) = dry_run_loads(open_local(str(place / "source.parquet"), plan), [plan])
    assert rehearsed.rows == ROWS
    assert [len(source.blocks.rows) for source in rehearsed.sources] == [len(s.blocks.rows) for s in copied.sources]


REFUSED = ("_block", "_tid", "_pos", "_segment", "_w_x", "_W0", "${spark.app.name}")
PAIRS = (("ß", "ẞ"), ("İ", "i̇"), ("k", "\u212a"), ("a", "A"))


@pytest.mark.parametrize("names", [*((name,) for name in REFUSED), *PAIRS])
def test_what_no_table_can_hold_is_refused_by_plan(spark: SparkSession, names: tuple[str, ...]) -> None:
    with pytest.raises(SchemaError, match="; rename") as refused:
        open_source(spark, spark.range(3).selectExpr("id", *("1" for _ in names)).toDF("id", *names))
    assert repr(names[-1]) in str(refused.value)


@pytest.mark.parametrize("field", ["a`b", "it's", "a:b", "a,b", "x\ny", "a<b", "", "a--b", "f(x)", "L" * 300])
def test_fields_that_no_type_can_name_are_refused_by_analyze_and_plan(
    spark: SparkSession, tmp_path: Path, field: str
) -> None:
    table = pa.table({"id": [1], "s": pa.array([{field: 1, "z": 2}])})
    pq.write_table(table, tmp_path / "s.parquet")
    with pytest.raises(SchemaError, match=r"'s' is of type .* rename the field"):
        schema_from(tmp_path / "s.parquet")
    with pytest.raises(SchemaError, match=r"'s' is of type .* rename the field"):
        open_source(spark, str(tmp_path / "s.parquet"))


def test_a_column_and_a_field_of_one_path_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Spark itself loses rows of such a file where it pushes a filter down."""
    pq.write_table(pa.table({"a.b": [1], "a": pa.array([{"b": 1}])}), tmp_path / "s.parquet")
    for refuse in (lambda: schema_from(tmp_path / "s.parquet"), lambda: open_source(spark, str(tmp_path))):
        with pytest.raises(SchemaError, match=r"'a\.b' is both in the column 'a\.b' and in 'a'"):
            refuse()
