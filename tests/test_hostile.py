"""Names, plans, catalogs and logs from somebody else are data: they leave no folder, and no SQL but ours is run."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp

from layoutopt.catalog import snapshot as snapshot_json
from layoutopt.catalog.paths import data_path, is_safe_path, partition_key
from layoutopt.errors import CatalogError, LayoutoptError, PlanError, SchemaError
from layoutopt.inspect.verify import verify
from layoutopt.model.layout import Plan
from layoutopt.model.predicates import Col, InSet, to_sql
from layoutopt.model.schema import Column, Schema
from layoutopt.model.types import type_name
from layoutopt.model.udf import udf
from layoutopt.model.values import ValueSet
from layoutopt.scan.table import open_table
from layoutopt.workload.analyze import analyze
from layoutopt.workload.log import LogEntry
from tests.effort import examples
from tests.model.conditions import read_noun
from tests.scan.builder import build, building

ROOT = Path(__file__).parents[1]
HOSTILE_TEXTS = (
    "..", "../../outside", "/etc/passwd", "file:///etc/passwd", "s3://other/bucket", "~root", "a\\..\\b", ".hidden",
    "it's", "'; DROP TABLE t; --", '"quoted"', "`tick`", "a`b", "${spark.app.name}", "line\nbreak", "nul\x00", "=",
    "%2e%2e", "__null__", "", " ", "x" * 400, "ünï©ødé\u202e", "/* comment", "*/", "\\",
)  # fmt: skip


@given(st.one_of(st.sampled_from(HOSTILE_TEXTS), st.text(max_size=300)))
def test_whatever_a_partition_value_is_its_files_stay_in_the_table(value: str) -> None:
    path = data_path(partition_key(value), "load-1", 0, 0, "a")
    assert is_safe_path(path)
    assert "=" not in path
    assert len(Path(path).parts) == 5
    assert Path("/table", path).resolve().is_relative_to("/table/data")


@given(st.lists(st.one_of(st.sampled_from(HOSTILE_TEXTS), st.text(max_size=200)), min_size=2, max_size=20, unique=True))
def test_values_that_differ_have_folders_that_differ(values: list[str]) -> None:
    assert len({partition_key(value) for value in values}) == len(values)


def test_hostile_partition_values_make_a_table_like_any_other(tmp_path: Path) -> None:
    values = ["..", "../../outside", "/etc/passwd", "s3://b/k", "__null__", "", "`; DROP TABLE t; --", "x" * 400]
    rows = pa.table({"id": pa.array(range(len(values)), pa.int32()), "place": values})
    schema = Schema((Column("id", "int"), Column("place", "string")))
    root = tmp_path / "inner" / "table"
    table = build(root, rows, building(schema, partition_by="place"))
    assert verify(table).ok
    assert {path.parts[len(tmp_path.parts)] for path in tmp_path.rglob("*")} == {"inner"}
    assert sorted(path.name for path in root.iterdir()) == ["_layoutopt", "data"]
    for number, value in enumerate(values):
        (read,) = table.scan(f"SELECT id FROM t WHERE place = '{value}'").reads
        assert [number for batch in read.batches() for number in batch.column(0).to_pylist()] == [number]


def test_hostile_column_names_are_quoted_everywhere(tmp_path: Path) -> None:
    names = ["'; DROP TABLE t; --", '"quoted"', "`tick`", "a`b", "line\nbreak", "/etc/passwd", "/* comment", "="]
    rows = pa.table({name: pa.array([1, 2, 3], pa.int32()) for name in names})
    table = build(tmp_path / "table", rows, building(Schema(tuple(Column(name, "int") for name in names))))
    assert verify(table).ok
    for name in names:
        (read,) = table.scan(columns=[name]).reads
        assert [value for batch in read.batches() for value in batch.column(0).to_pylist()] == [1, 2, 3]
    assert table.scan(columns=names).to_arrow().to_pydict() == {name: [1, 2, 3] for name in names}


@settings(max_examples=examples(40))
@given(
    st.one_of(st.sampled_from(HOSTILE_TEXTS), st.text(max_size=30)).filter(bool),
    st.one_of(st.sampled_from(HOSTILE_TEXTS), st.text(max_size=30)),
)
def test_the_sql_of_a_plan_is_one_condition_whatever_is_in_it(name: str, value: str) -> None:
    """Its names and texts are read back as what they are: an equation of a column and a text, and nothing else."""
    sql = to_sql(InSet(Col(name, "string"), ValueSet.point(value)))
    statements = sqlglot.parse(f"SELECT {sql} AS x", read="spark")
    assert len(statements) == 1
    (condition,) = statements[0].find_all(exp.EQ)  # type: ignore[union-attr]  # there is one
    assert condition.this.name == name
    assert condition.expression.is_string
    assert condition.expression.name == value


TYPES = ("int", "decimal(15,2)", "array<map<string,struct<a:int,b c:array<date>>>>", "string collate UTF8_LCASE",
         "interval day to second", "varchar(10)", "struct<>", "timestamp_ntz")  # fmt: skip
NO_TYPES = (
    "", "int)", "int) AS a, (SELECT secret FROM other", "int, x int", "array<int", "array<int>>", "map<int>",
    "struct<a>", "struct<a:int;b:int>", "struct<a`:int>", "struct<a--:int>", "struct</*:int>", "int -- ", "int;",
    "int\n", "decimal(1,2,3)", "decimal(a)", "array<" * 200 + "int" + ">" * 200, "(int)", "'int'", " int",
)  # fmt: skip


def test_types_of_documents_are_types_and_nothing_else() -> None:
    assert [type_name(type) for type in TYPES] == list(TYPES)
    for type in NO_TYPES:
        with pytest.raises(ValueError, match="no type"):
            type_name(type)
        with pytest.raises(SchemaError):
            Schema.from_json([{"name": "a", "type": type, "nullable": True}])
        with pytest.raises(PlanError):
            read_noun({"call": "try_cast", "args": [{"col": "a", "type": "int"}], "type": type})
        with pytest.raises(PlanError):
            read_noun({"const": None, "type": type})


@pytest.mark.parametrize("name", ["java_method", "reflect", "try_reflect", "f(x), g", "F", "a.b", "`f`", "f--", ""])
def test_a_plan_calls_no_function_that_runs_code(name: str) -> None:
    with pytest.raises(PlanError):
        read_noun({"call": name, "args": [{"const": "java.lang.System", "type": "string"}], "type": "boolean"})


def test_a_log_makes_no_feature_of_such_a_function_either() -> None:
    schema = Schema((Column("s", "string"),))
    entry = LogEntry(0, "SELECT s FROM t WHERE java_method('java.lang.System', 'getenv', s) AND s = 'a'")
    workload = analyze([entry], schema, "t", udfs={"java_method": udf("boolean", name="java_method", version="1")(len)})
    (query,) = workload.queries
    assert "java_method" not in to_sql(query.filter)


@pytest.mark.parametrize("codec", ["", "../zstd", "zstd; rm", "pickle"])
def test_a_plan_names_a_codec_of_parquet(codec: str) -> None:
    document = json.loads(building(Schema((Column("a", "int"),))).plan.dumps())
    with pytest.raises(PlanError, match="codec"):
        Plan.from_json({**document, "codec": codec})


@pytest.mark.parametrize("path", ["../outside.parquet", "/etc/passwd", "s3://b/k", "~/x", "a/../../b", "a\\b", "a\nb"])
def test_a_catalog_names_no_file_outside_its_table(path: str, tmp_path: Path) -> None:
    schema = Schema((Column("a", "int"),))
    table = build(tmp_path / "table", pa.table({"a": pa.array([1], pa.int32())}), building(schema))
    file = tmp_path / "table/_layoutopt/snapshots/0.json"
    content = json.loads(file.read_bytes())
    places: list[dict[str, Any]] = [
        {"partitions": [{**content["partitions"][0], "blocks_file": path}], "files": {**content["files"], path: {}}},
        {"partitions": [{**content["partitions"][0], "plan": path}]},
        {"partitions": [{**content["partitions"][0], "load_id": path}]},
        {"partitions": [{**content["partitions"][0], "key": path}]},
        {"given_up": [path]},
        {"load_id": path},
    ]
    for change in places:
        forged = {name: value for name, value in {**content, **change}.items() if name != "checksum"}
        checksum = snapshot_json._checksum(forged)
        file.write_text(json.dumps({**forged, "checksum": checksum}))
        with pytest.raises(CatalogError):
            open_table(str(tmp_path / "table")).files()
    for ask in (table.catalog.files.read_bytes, table.catalog.files.open_input, table.catalog.files.delete):
        if path != "a\nb":  # a name like any other, for a file
            with pytest.raises(LayoutoptError):
                ask(path)


RUNS_CODE = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "yaml"}
PROCESSES = {"cpu_count", "Parallel", "delayed", "TerminatedWorkerError"}
"""What is imported of joblib, which hands tasks to processes of its own, and could read files that run code."""


def test_no_file_is_read_as_code() -> None:
    """Nothing that reads code is imported or called. (Spark and joblib pickle tasks; nothing of ours is stored so.)"""
    for file in sorted((ROOT / "layoutopt").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            names = set()
            if isinstance(node, ast.Import):
                names = {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names = {(node.module or "").split(".")[0]}
                if names == {"joblib"} and {alias.name for alias in node.names} <= PROCESSES:
                    names = set()
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec", "compile", "__import__"), file
            elif isinstance(node, ast.keyword):
                assert node.arg != "allow_pickle", file
            assert not names & RUNS_CODE, file


def test_files_of_a_table_are_json_and_parquet(tmp_path: Path) -> None:
    schema = Schema((Column("a", "int"),))
    build(tmp_path / "table", pa.table({"a": pa.array([1], pa.int32())}), building(schema, ["a = 1"]))
    for file in (tmp_path / "table").rglob("*"):
        if file.is_file() and file.suffix == ".json":
            json.loads(file.read_bytes())
        elif file.is_file():
            assert file.suffix == ".parquet"
            assert file.read_bytes()[:4] == file.read_bytes()[-4:] == b"PAR1"
