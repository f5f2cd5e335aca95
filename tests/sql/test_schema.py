"""Schemas from Parquet and DDL."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layoutopt.errors import SchemaError, SourceError
from layoutopt.model.schema import Column
from layoutopt.sql.schema import arrow_type_name, schema_from, schemas_from
from tests.external.odd_files import write_enums


def test_ddl_gives_spark_types() -> None:
    ddl = """CREATE TABLE t (
        a INT NOT NULL, b BIGINT, c DECIMAL(15, 2), d DECIMAL, e VARCHAR(5), f CHAR(3), g TIMESTAMP, h TIMESTAMP_NTZ,
        i ARRAY<INT>, j STRUCT<x: INT, y: STRING>, k MAP<STRING, INT>, l STRING COLLATE UTF8_LCASE, m BINARY, n FLOAT
    ) USING parquet"""
    schema = schema_from(ddl)
    assert [(c.name, c.type) for c in schema.columns] == [
        ("a", "int"),
        ("b", "bigint"),
        ("c", "decimal(15,2)"),
        ("d", "decimal(10,0)"),
        ("e", "string"),
        ("f", "char(3)"),
        ("g", "timestamp"),
        ("h", "timestamp_ntz"),
        ("i", "array<int>"),
        ("j", "struct<x:int,y:string>"),
        ("k", "map<string,int>"),
        ("l", "string collate UTF8_LCASE"),
        ("m", "binary"),
        ("n", "float"),
    ]
    assert [c.nullable for c in schema.columns[:2]] == [False, True]


@pytest.mark.parametrize(
    ("declared", "type"),
    [
        ("STRUCT<`key`: STRING>", "struct<key:string>"),
        ("STRUCT<`a-b`: STRING NOT NULL COMMENT 'x', `c d` INT>", "struct<a-b:string,c d:int>"),
        ("ARRAY<STRUCT<`A`: DECIMAL(5, 2), m: MAP<STRING, DATE>>>", "array<struct<A:decimal(5,2),m:map<string,date>>>"),
        ("STRUCT<a: STRING COLLATE UTF8_LCASE, b: STRING>", "struct<a:string collate UTF8_LCASE,b:string>"),
    ],
)
def test_names_of_fields_are_those_of_a_file(declared: str, type: str) -> None:
    assert [column.type for column in schema_from(f"CREATE TABLE t (s {declared})").columns] == [type]


def test_parquets_enums_are_texts(tmp_path: Path) -> None:
    rows = pa.table({"s": ["a", "b"], "n": [{"e": "x"}, {"e": "y"}], "l": [["p"], ["q"]], "b": [b"1", b"2"]})
    schema = schema_from(write_enums(tmp_path / "a.parquet", rows))
    assert [column.type for column in schema.columns] == ["string", "struct<e:string>", "array<string>", "binary"]


def test_postgres_ddl_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "schema.sql"
    path.write_text(
        'CREATE TABLE "T 1" ("a b" integer NOT NULL, c double);\nCREATE TABLE u (x text);', encoding="utf-8"
    )
    assert list(schemas_from(path.read_text(encoding="utf-8"))) == ["T 1", "u"]
    assert [(c.name, c.type, c.nullable) for c in schema_from(path, table="t 1").columns] == [
        ("a b", "int", False),
        ("c", "double", True),
    ]
    with pytest.raises(SchemaError, match=r"several tables .*--table"):
        schema_from(path)
    with pytest.raises(SchemaError, match="no table 'v'"):
        schema_from(path, table="v")


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("CREATE TABLE t (a nonsense_type, b int)", "nonsense_type"),
        ("CREATE TABLE t AS SELECT 1", "no CREATE TABLE"),
        ("CREATE TABLE (((", "can't read"),
    ],
)
def test_bad_ddl_is_named(ddl: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        schema_from(ddl)


def test_parquet_files_and_folders(tmp_path: Path) -> None:
    table = pa.table(
        {
            "a": pa.array([1], pa.int32()),
            "d": pa.array([None], pa.decimal128(15, 2)),
            "t": pa.array([0], pa.timestamp("us", tz="UTC")),
            "n": pa.array([0], pa.timestamp("ms")),
            "k": pa.array(["x"]).dictionary_encode(),
            "v": pa.array(["x"], pa.string_view()),
            "b": pa.array([b"x"], pa.binary_view()),
            "f": pa.array([b"x"], pa.binary(1)),
            "l": pa.array([[1, 2]], pa.list_(pa.int32(), 2)),
            "lv": pa.array([["x"]], pa.list_view(pa.string_view())),
        }
    )
    (tmp_path / "part=1").mkdir()
    file = tmp_path / "part=1" / "f.parquet"
    pq.write_table(table, file)
    expected = [
        ("a", "int"),
        ("d", "decimal(15,2)"),
        ("t", "timestamp"),
        ("n", "timestamp_ntz"),
        ("k", "string"),
        ("v", "string"),
        ("b", "binary"),
        ("f", "binary"),
        ("l", "array<int>"),
        ("lv", "array<string>"),
    ]
    assert [(c.name, c.type) for c in schema_from(file).columns] == expected
    assert schema_from(str(tmp_path)).columns == (*schema_from(file).columns, Column("part", "int"))


def test_what_is_no_parquet_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 but not really")
    with pytest.raises(SourceError, match=r"broken\.parquet"):
        schema_from(broken)
    with pytest.raises(SourceError, match="missing"):
        schema_from(tmp_path / "missing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match=r"no Parquet file"):
        schema_from(tmp_path / "empty")
    with pytest.raises(SourceError, match="can't be read"):
        schema_from(tmp_path / "none.sql")


def test_types_that_spark_refuses() -> None:
    with pytest.raises(SchemaError, match="timestamp"):
        arrow_type_name(pa.timestamp("ns"))
    assert arrow_type_name(pa.map_(pa.string(), pa.list_(pa.int64()))) == "map<string,array<bigint>>"


def test_what_no_document_can_hold_is_refused_with_what_to_do(tmp_path: Path) -> None:
    hostile = [
        ({"ß": [1], "ẞ": [1]}, "'ß' and 'ẞ' have one name in Spark; rename one"),
        ({"${x}": [1]}, "rename it"),
        ({"s": pa.array([{"a`b": 1}])}, "column 's' is of type .* rename the field"),
        ({"a.b": [1], "a": pa.array([{"b": 1}])}, r"'a\.b' is both in the column 'a\.b' and in 'a'"),
        ({"l": pa.array([[1]]), "l.list.element": [1]}, "which Parquet readers confuse"),
        ({"t": pa.array([1], pa.time64("us"))}, "column 't': the type TIME can't be stored; cast"),
    ]
    for columns, message in hostile:
        pq.write_table(pa.table(columns), tmp_path / "s.parquet")
        with pytest.raises(SchemaError, match=message):
            schema_from(tmp_path / "s.parquet")
    with pytest.raises(SchemaError, match="rename the field"):
        schema_from("CREATE TABLE t (s STRUCT<`it's`: INT>)")


def test_fields_may_be_called_what_quotes_can_hold(tmp_path: Path) -> None:
    columns = {"a.b": [1], "s": pa.array([{"x.y": 1, " z ": {"select": 1}}]), "straße": [1], "strasse": [2]}
    pq.write_table(pa.table(columns), tmp_path / "s.parquet")
    schema = schema_from(tmp_path / "s.parquet")
    assert schema.names == ("a.b", "s", "straße", "strasse")
    assert schema.find("s").type == "struct<x.y:bigint, z :struct<select:bigint>>"


def test_collations_stand_in_the_metadata_of_spark(tmp_path: Path) -> None:
    fields = [
        {"name": "l", "type": "string", "metadata": {"__COLLATIONS": {"l": "spark.UTF8_LCASE"}}},
        {"name": "a", "type": {"type": "array", "elementType": "string"},
         "metadata": {"__COLLATIONS": {"a.element": "icu.UNICODE_CI"}}},
        {"name": "s", "metadata": {}, "type": {"type": "struct", "fields": [
            {"name": "f", "type": "string", "metadata": {"__COLLATIONS": {"f": "spark.UTF8_BINARY_RTRIM"}}},
            {"name": "g", "type": "string", "metadata": {}},
        ]}},
        {"name": "p", "type": "string", "metadata": {}},
    ]  # fmt: skip
    struct = pa.struct([("f", pa.string()), ("g", pa.string())])
    schema = pa.schema([("l", pa.string()), ("a", pa.list_(pa.string())), ("s", struct), ("p", pa.string())])
    for metadata, expected in [
        (json.dumps({"type": "struct", "fields": fields}), [
            "string collate UTF8_LCASE", "array<string collate UNICODE_CI>",
            "struct<f:string collate UTF8_BINARY_RTRIM,g:string>", "string",
        ]),
        ("no JSON", ["string", "array<string>", "struct<f:string,g:string>", "string"]),
    ]:  # fmt: skip
        noted = schema.with_metadata({"org.apache.spark.sql.parquet.row.metadata": metadata})
        pq.write_table(noted.empty_table(), tmp_path / "t.parquet")
        assert [column.type for column in schema_from(tmp_path / "t.parquet").columns] == expected


def test_int96_is_a_moment_as_spark_reads_it(tmp_path: Path) -> None:
    moment, local = dt.datetime(2020, 1, 1), pa.timestamp("us")
    nested = pa.struct([("a", pa.list_(local)), ("m", pa.map_(pa.string(), local))])
    rows = pa.table({"n": [1], "at": [moment], "s": pa.array([{"a": [moment], "m": [("k", moment)]}], nested)})
    pq.write_table(rows, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    types = [column.type for column in schema_from(tmp_path / "a.parquet").columns]
    assert types == ["bigint", "timestamp", "struct<a:array<timestamp>,m:map<string,timestamp>>"]
    pq.write_table(rows.select(["at"]).cast(pa.schema([("at", pa.timestamp("ns"))])), tmp_path / "b.parquet")
    assert schema_from(tmp_path / "b.parquet").find("at").type == "timestamp_ntz"


def test_columns_of_all_files_are_merged(tmp_path: Path) -> None:
    required = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    pq.write_table(pa.table({"a": [1]}, required), tmp_path / "a")
    pq.write_table(pa.table({"A": [1], "s": [{"x": 1}]}), tmp_path / "b.pq")
    pq.write_table(pa.table({"s": [{"y": "", "X": 2}], "b": [1.0]}), tmp_path / "c.parquet")
    assert schema_from(tmp_path).columns == (
        Column("a", "bigint", True),
        Column("s", "struct<x:bigint,y:string>", True),
        Column("b", "double", True),
    )
    assert not schema_from(tmp_path / "a").find("a").nullable
    pq.write_table(pa.table({"s": [{"x": "text"}]}), tmp_path / "d.parquet")
    with pytest.raises(SchemaError, match=r"the column 's' is .* in other files of the source, but .*d\.parquet'"):
        schema_from(tmp_path)


@pytest.mark.parametrize("type", ["void", "interval day", {"type": "array", "elementType": "interval year to month"}])
def test_types_that_only_sparks_metadata_tells_are_refused(tmp_path: Path, type: object) -> None:
    described = json.dumps({"type": "struct", "fields": [{"name": "x", "type": type, "nullable": True}]})
    rows = pa.table({"x": pa.array([1])}).replace_schema_metadata(
        {"org.apache.spark.sql.parquet.row.metadata": described}
    )
    pq.write_table(rows, tmp_path / "a.parquet")
    with pytest.raises(SchemaError, match=r"column 'x': the type '(void|interval .*)' can't be stored; cast it"):
        schema_from(tmp_path)


def test_tables_of_several_schemas_are_told_apart() -> None:
    ddl = "CREATE TABLE a.t (x INT); CREATE TABLE b.t (y INT); CREATE TABLE u (z INT)"
    assert list(schemas_from(ddl)) == ["a.t", "b.t", "u"]
    for table, names in (("a.t", ("x",)), ("B.T", ("y",)), ("main.b.t", ("y",)), ("u", ("z",)), ("c.u", ("z",))):
        assert schema_from(ddl, table=table).names == names
    with pytest.raises(SchemaError, match=r"several tables \(a.t, b.t\); name one with --table"):
        schema_from(ddl, table="t")
    with pytest.raises(SchemaError, match=r"no table 'c.t'; it has a.t, b.t, u"):
        schema_from(ddl, table="c.t")
