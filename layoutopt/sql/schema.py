"""Schemas from Parquet files and from ``CREATE TABLE`` statements, with Spark's type names."""

from __future__ import annotations

import datetime as dt
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from sqlglot import exp
from sqlglot.errors import SqlglotError

from layoutopt.errors import SchemaError, SourceError
from layoutopt.model.schema import Column, Schema
from layoutopt.model.types import INTEGER_BITS, VARIANT, whole_type
from layoutopt.sql.dialect import Spark4, dialect_named, split_statements
from layoutopt.sql.problems import StatementError

# ----------------------------------------------------------------------------------------------------
# Columns that only the names of Hive-style folders tell of (``day=2026-11-24/``): their values, and types guessed.

_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_FORMS: Final = tuple((type, re.compile(form)) for type, form in (
    ("int", r"-?[0-9]{1,99}"),  # or bigint
    ("double", r"-?[0-9]{0,99}\.[0-9]{1,99}"),
    ("date", r"[0-9]{4}-[0-9]{2}-[0-9]{2}"),
    ("timestamp", r"[0-9]{4}-[0-9]{2}-[0-9]{2} ([01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"),
))  # fmt: skip
_OTHER_FORMS: Final = re.compile(
    r"\s*[+-]?(NaN|Infinity|0[xX][0-9a-fA-F.]+[pP][+-]?[0-9]+|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)[fFdD]?\s*"
    r"|[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]*)?"
    r"|-?([0-9]{5,}|0000|(?<=-)[0-9]{4})-[0-9]{2}-[0-9]{2}( [0-9:.]*)?|[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9:.]*"
)
"""Of what Spark may take for decimals, other doubles, times, or days and moments."""
_COMMON: Final = {
    frozenset({"int", "bigint"}): "bigint", frozenset({"int", "double"}): "double",
    frozenset({"date", "timestamp"}): "timestamp",
}  # fmt: skip
"""Types of which Spark makes one; values of any others are texts together, as those of bigint and double are."""


def values_in_folders(path: str) -> dict[str, str | None]:
    """The columns whose values a path's folders say, None for NULL.

    >>> values_in_folders("/day=2024-01-01/city=a%2Fb/f.parquet")
    {'day': '2024-01-01', 'city': 'a/b'}
    """
    parts = (part.partition("=") for part in path.split("/")[:-1] if "=" in part)
    said = [(unquote(name), unquote(value)) for name, _, value in parts]
    return {name: None if value == _NULL else value for name, value in said if name}


def is_shown(name: str) -> bool:
    """Whether Spark looks at a file or a folder of a name when it lists a folder.

    >>> is_shown("a.parquet"), is_shown("_SUCCESS"), is_shown("_day=1"), is_shown(".a.parquet.crc")
    (True, False, True, False)
    """
    return not name.startswith(".") and (not name.startswith("_") or "=" in name)


def folder_columns(values: Iterable[Mapping[str, str | None]]) -> tuple[Column, ...]:
    """The columns that folders say, each of the type that Spark guesses.

    Args:
        values: of each file, as :func:`values_in_folders` gives them.

    Raises:
        SourceError: a value may be of a type that is not followed here, so that two of Spark's would be one.

    >>> folder_columns([{"n": "01", "day": "2024-01-01"}, {"n": None, "day": "2024-01-02"}])
    (Column(name='n', type='int', nullable=True), Column(name='day', type='date', nullable=True))
    """
    texts: dict[str, set[str]] = {}
    for said in values:
        for name, value in said.items():
            texts.setdefault(name, set()).update([] if value is None else [value])
    return tuple(Column(name, _guessed(name, found)) for name, found in texts.items())


def _guessed(name: str, texts: set[str]) -> str:
    types = {_type_of_folder_values(text): text for text in sorted(texts)}
    if "string" in types or not types:
        return "string"
    if None in types:
        raise SourceError(
            f"the folder '{name}={types[None]}' has a value that Spark may take for another number or time than is "
            "read here; store the column in the files"
        )
    found = frozenset(type for type in types if type is not None)
    return next(iter(found)) if len(found) == 1 else _COMMON.get(found, "string")


def _type_of_folder_values(text: str) -> str | None:
    """The type of one value; None where Spark's may be another one than those that are followed."""
    latin = "".join(str(unicodedata.decimal(character, character)) for character in text)
    if latin != text:  # Java reads digits of any script
        return "string" if _type_of_folder_values(latin) == "string" else None
    form = next((type for type, form in _FORMS if form.fullmatch(text)), None)
    if form == "int":
        return whole_type(int(text))  # beyond, decimals
    if form in ("date", "timestamp"):
        if text.startswith("0000"):  # no year of Python's
            return None
        try:
            dt.datetime.fromisoformat(text)
        except ValueError:
            return "string"
    return form or (None if _OTHER_FORMS.fullmatch(text) else "string")


# ----------------------------------------------------------------------------------------------------
# What Spark keeps beside the schema that all other engines read: the collations of texts, and which columns vary.

_ROW_METADATA: Final = b"org.apache.spark.sql.parquet.row.metadata"
_COLLATIONS: Final = "__COLLATIONS"

Collations = Mapping[str, str]
"""The collation of each text in a column by its path, such as ``s`` or ``m.value``; plain texts are left out."""


def collations_of(schema: pa.Schema) -> dict[str, Collations]:
    """Each collated column's collations; fields of structs lie below the path of the struct.

    Spark writes them into the metadata of the field that holds the text: ``{"arr.element": "spark.UTF8_LCASE"}``, the
    name's first part being the provider. Metadata that is no JSON of Spark's says nothing, as it does to Spark.
    """
    found = {name: _of_field(field) for name, field in _described(schema)}
    return {name: collations for name, collations in found.items() if collations}


def variants_of(schema: pa.Schema) -> frozenset[str]:
    """The columns that are of type VARIANT to Spark, which other readers take for structs of binaries."""
    return frozenset(name for name, field in _described(schema) if field.get("type") == VARIANT)


def _described(schema: pa.Schema) -> list[tuple[str, Any]]:
    """The columns as Spark describes them; none where it does not."""
    try:
        return _fields(json.loads((schema.metadata or {}).get(_ROW_METADATA, b"null")))
    except ValueError:
        return []


def _fields(struct: Any) -> list[tuple[str, Any]]:
    fields = struct.get("fields") if isinstance(struct, dict) else None
    named = [field for field in fields if isinstance(field, dict)] if isinstance(fields, list) else []
    return [(str(field.get("name")), field) for field in named]


def _of_field(field: Mapping[str, Any]) -> dict[str, str]:
    """The collations of a field by path, the field's own name first."""
    name, metadata = str(field.get("name")), field.get("metadata")
    noted = metadata.get(_COLLATIONS) if isinstance(metadata, dict) else None
    found = (
        {str(path): str(given).rsplit(".", 1)[-1] for path, given in noted.items()} if isinstance(noted, dict) else {}
    )
    return found | _inside(name, field.get("type"))


def _inside(path: str, kind: Any) -> dict[str, str]:
    """The collations of the structs inside a type: their fields have metadata of their own."""
    found: dict[str, str] = {}
    if not isinstance(kind, dict):
        return found
    for part, inner in (("element", "elementType"), ("key", "keyType"), ("value", "valueType")):
        found |= _inside(f"{path}.{part}", kind.get(inner))
    for _, field in _fields(kind):
        found |= {f"{path}.{below}": given for below, given in _of_field(field).items()}
    return found


_ARROW_TYPES = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.uint8(): "smallint",
    pa.uint16(): "int",
    pa.uint32(): "bigint",
    pa.uint64(): "decimal(20,0)",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
    pa.date32(): "date",
}
_MOMENT = pa.timestamp("us", "UTC")
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_list_view)
_DDL_TYPES = {
    **{
        exp.DType[name.upper()]: name
        for name in ("boolean", *INTEGER_BITS, "float", "double", "binary", "date", "timestamp")
    },
    exp.DType.TEXT: "string",
    exp.DType.VARCHAR: "string",
    exp.DType.TIMESTAMPTZ: "timestamp",
    exp.DType.TIMESTAMPLTZ: "timestamp",
    exp.DType.TIMESTAMPNTZ: "timestamp_ntz",
    exp.DType.VARIANT: VARIANT,
}


def schema_from(source: str | Path, *, table: str | None = None, dialect: str | None = None) -> Schema:
    """The schema of a Parquet file or folder, of a ``.sql`` file of DDL, or of DDL text.

    Args:
        source: a path, or text that starts with ``CREATE``.
        table: which table of the DDL; the only one when left out.
        dialect: the DDL's; Spark's when left out, then PostgreSQL's where Spark's can't read it.

    Raises:
        SchemaError: the DDL can't be read, has no such table or several to choose from.
        SourceError: the path does not exist or is not Parquet.
    """
    if isinstance(source, str) and is_ddl(source):
        return _only(schemas_from(source, dialect=dialect), table)
    path = Path(source)
    if path.suffix.lower() in (".sql", ".ddl"):
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise SourceError(f"the schema file {str(path)!r} can't be read ({error}); check the path") from error
        return _only(schemas_from(text, dialect=dialect), table)
    return _parquet_schema(path)


def is_ddl(text: str) -> bool:
    """Whether a text is DDL, not a path."""
    return re.match(r"\s*create\s", text, re.IGNORECASE) is not None


def schemas_from(ddl: str, *, dialect: str | None = None) -> dict[str, Schema]:
    """The tables of a text of ``CREATE TABLE`` statements, by name in order.

    Raises:
        SchemaError: a statement can't be read, or a type is unknown.
        SettingError: unknown dialect.
    """
    dialects = (dialect,) if dialect else ("spark", "postgres")
    for number, name in enumerate(dialects):
        try:
            found = _schemas(ddl, name)
        except SchemaError:
            if number == len(dialects) - 1:
                raise
            continue
        return {table: schema.writable() for table, schema in found.items()}
    raise AssertionError("unreachable: there is at least one dialect")


def _schemas(ddl: str, dialect: str) -> dict[str, Schema]:
    schemas: dict[str, Schema] = {}
    for statement in split_statements(ddl, dialect):
        try:
            tree = dialect_named(dialect).parse(statement)[0]
        except (SqlglotError, StatementError, RecursionError) as error:
            start = " ".join(statement.split())[:60]
            raise SchemaError(
                f"the DDL {start!r} can't be read as {dialect}; correct it or name its dialect"
            ) from error
        if isinstance(tree, exp.Create) and isinstance(tree.this, exp.Schema):
            schemas[tree.this.this.name] = _ddl_schema(tree.this)
    return schemas


def _ddl_schema(declared: exp.Schema) -> Schema:
    columns = []
    for definition in declared.expressions:
        if not isinstance(definition, exp.ColumnDef):
            continue  # keys and checks
        kind = definition.args.get("kind")
        if not isinstance(kind, exp.DataType):
            raise SchemaError(f"the column {definition.name!r} has no type; declare one")
        required = any(
            isinstance(c.kind, exp.NotNullColumnConstraint) and not c.kind.args.get("allow_null")
            for c in definition.constraints
        )
        collation = definition.find(exp.CollateColumnConstraint)
        collate = f" collate {collation.this.name}" if collation is not None else ""
        columns.append(Column(definition.name, spark_type(kind) + collate, nullable=not required))
    if not columns:
        raise SchemaError(f"the table {declared.this.name!r} has no columns; declare some")
    return Schema(tuple(columns))


def spark_type(kind: exp.DataType) -> str:
    """Spark's name of a SQL type; VARCHAR is ``string``, CHAR(n) stays ``char(n)`` (it is compared padded).

    Raises:
        SchemaError: Spark has no such type.
    """
    dtype = kind.this
    if dtype in (exp.DType.DECIMAL, exp.DType.BIGDECIMAL):
        params = [int(p.this.name) for p in kind.expressions]
        precision, scale = (*params, 0)[:2] if params else (10, 0)
        return f"decimal({precision},{scale})"
    if dtype in (exp.DType.CHAR, exp.DType.NCHAR, exp.DType.BPCHAR):
        return f"char({kind.expressions[0].name if kind.expressions else 1})"
    if dtype in _DDL_TYPES and not (dtype in (exp.DType.TEXT, exp.DType.VARCHAR) and kind.args.get("collate")):
        return _DDL_TYPES[dtype]
    # Nested and other types can't be compared here, but their columns can be read.
    text = kind.sql(dialect=Spark4).lower().replace(", ", ",").replace(": ", ":")
    if dtype in (exp.DType.USERDEFINED, exp.DType.UNKNOWN):
        raise SchemaError(f"the type {kind.sql()!r} is unknown; use one of Spark's types")
    return text


def _only(schemas: dict[str, Schema], table: str | None) -> Schema:
    if not schemas:
        raise SchemaError("the DDL holds no CREATE TABLE with columns; give one")
    if table is None:
        if len(schemas) > 1:
            raise SchemaError(f"the DDL holds several tables ({', '.join(schemas)}); name one")
        return next(iter(schemas.values()))
    for name, schema in schemas.items():
        if name.lower() == table.split(".")[-1].lower():
            return schema
    if len(schemas) == 1:
        return next(iter(schemas.values()))
    raise SchemaError(f"the DDL holds no table {table!r}; it has {', '.join(schemas)}")


def _parquet_schema(path: Path) -> Schema:
    file, of_folders = path, tuple[Column, ...]()
    if path.is_dir():
        found = sorted(p for p in path.rglob("*.parquet") if not p.name.startswith(("_", ".")))
        if not found:
            raise SourceError(f"the folder {str(path)!r} holds no .parquet file; give a Parquet file or folder, or DDL")
        file, of_folders = found[0], _columns_of_folders(path, found)
    try:
        arrow = arrow_schema_of(pq.read_metadata(file).schema)
    except OSError as error:
        raise SourceError(f"the file {str(file)!r} can't be read; check the path ({error})") from error
    except pa.ArrowInvalid as error:
        raise SourceError(f"the file {str(file)!r} is no readable Parquet file; write it again") from error
    collated = collations_of(arrow)
    variants = variants_of(arrow)
    types = [VARIANT if f.name in variants else _type_of(f, collated.get(f.name, {})) for f in arrow]
    of_file = [Column(f.name, of, f.nullable) for f, of in zip(arrow, types, strict=True)]
    in_file = {column.name.lower() for column in of_file}
    return Schema((*of_file, *(column for column in of_folders if column.name.lower() not in in_file))).writable()


def arrow_schema_of(schema: pq.ParquetSchema) -> pa.Schema:
    """Return the Arrow schema of a Parquet file, in which INT96 is a moment in microseconds, as Spark reads it.

    Args:
        schema: the file's. Arrow takes INT96, which Spark writes by default, for local times in nanoseconds.
    """
    arrow = schema.to_arrow_schema()
    physical = iter([schema.column(i).physical_type for i in range(len(schema))])
    fields = [field.with_type(_with_moments(field.type, physical)) for field in arrow]
    return pa.schema(fields, arrow.metadata)


def _with_moments(kind: pa.DataType, physical: Iterator[str]) -> pa.DataType:
    """The type with moments for INT96; takes the physical types of its leaves in their order."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with_moments(field.type, physical)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_with_moments(kind.key_type, physical), _with_moments(kind.item_type, physical))
    if any(is_kind(kind) for is_kind in _LISTS):
        return pa.list_(kind.value_field.with_type(_with_moments(kind.value_type, physical)))
    return _MOMENT if next(physical) == "INT96" else kind


def _columns_of_folders(root: Path, files: Sequence[Path]) -> tuple[Column, ...]:
    """The columns that Spark takes from the names of folders; none where files lie below folders of different names."""
    said = [values_in_folders(file.relative_to(root).as_posix()) for file in files]
    return folder_columns(said) if len(set(map(tuple, said))) == 1 else ()


def _type_of(field: pa.Field, collations: Collations) -> str:
    try:
        return arrow_type_name(field.type, collations, field.name)
    except SchemaError as error:
        raise SchemaError(f"column {field.name!r:.80}: {error}") from error


def arrow_type_name(kind: pa.DataType, collations: Collations | None = None, path: str = "") -> str:
    """Spark's name of the type that it reads such a Parquet column as.

    Args:
        kind: the Arrow type.
        collations: the collations of the column's texts, by path.
        path: where the type stands in the column.

    >>> arrow_type_name(pa.list_(pa.int32()))
    'array<int>'
    >>> arrow_type_name(pa.list_(pa.string()), {"a.element": "UTF8_LCASE"}, "a")
    'array<string collate UTF8_LCASE>'

    Raises:
        SchemaError: no table stores such a column (nanosecond timestamps, times, ...).
    """
    if kind in _ARROW_TYPES:
        name, collation = _ARROW_TYPES[kind], (collations or {}).get(path)
        return f"{name} collate {collation}" if name == "string" and collation else name
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind) and kind.unit in ("ms", "us"):
        return "timestamp" if kind.tz else "timestamp_ntz"

    def inner(type: pa.DataType, part: str) -> str:
        return arrow_type_name(type, collations, f"{path}.{part}")

    if pa.types.is_fixed_size_binary(kind):
        return "binary"
    if pa.types.is_dictionary(kind):
        return arrow_type_name(kind.value_type, collations, path)
    if pa.types.is_map(kind):
        return f"map<{inner(kind.key_type, 'key')},{inner(kind.item_type, 'value')}>"
    if any(is_kind(kind) for is_kind in _LISTS):
        return f"array<{inner(kind.value_type, 'element')}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{f.name}:{inner(f.type, f.name)}' for f in kind)}>"
    raise SchemaError(f"the Parquet type {str(kind)!r} is none that can be stored; convert the column")


# ----------------------------------------------------------------------------------------------------
# Plain names in place of those that a parser of SQL or an engine might read in more than one way.
#
# The parser of whole texts reads names once more where it qualifies columns, so that a quote or a dot in one is lost,
# and
# DuckDB tells ``Ä`` from ``ä`` where Spark does not. So such names stand under others while a text is with them: of
# letters, digits and underscores, and the same wherever the name occurs, in any case.

_PREFIX: Final = "_layoutopt_name_"
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def plain_name(name: str) -> str:
    """The name itself where every reader takes it as it is, else its stand-in.

    >>> plain_name("Year"), plain_name("a.b") == plain_name("A.b")
    ('Year', True)
    """
    if _PLAIN.fullmatch(name):
        return name
    return _PREFIX + sha256(name.lower().encode("utf-8", "surrogatepass")).hexdigest()[:16]


def is_stand_in(name: str) -> bool:
    """Whether a name was made by :func:`plain_name`."""
    return name.startswith(_PREFIX)


def with_plain_names(schema: Schema) -> Schema:
    """The schema as texts with plain names call it."""
    return Schema(tuple(replace(column, name=plain_name(column.name)) for column in schema.columns))


def name_plainly(tree: exp.Expr) -> None:
    """Put plain names in a tree, in place; their places in the text stay known."""
    for identifier in tree.find_all(exp.Identifier):
        identifier.set("this", plain_name(identifier.this))
