"""Schemas from Parquet files, Hive-style folders and ``CREATE TABLE`` statements, with Spark's type names.

Names that a SQL parser or an engine may misread are replaced by plain ones (:func:`plain_name`) while a text is
processed: the parser loses a quote or a dot when it qualifies columns, and DuckDB distinguishes ``Ä`` from ``ä`` where
Spark does not. A plain name consists of letters, digits and underscores, and is the same for any case of the name.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
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
from layoutopt.model.arrays import spread
from layoutopt.model.schema import Column, Schema
from layoutopt.model.types import INTEGER_BITS, VARIANT, nested_parts, struct_fields, whole_type
from layoutopt.sql.dialect import Spark4, get_dialect, split_statements
from layoutopt.sql.problems import StatementError

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
_TIMESTAMP = pa.timestamp("us", "UTC")
_MOST_DIGITS: Final = 38  # of Spark's decimals
_READS_AT_ONCE: Final = 16
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
    """Return the schema of a Parquet file or folder, of a ``.sql`` file of DDL, or of DDL text.

    Args:
        source: a path, or text that starts with ``CREATE``.
        table: a table of the DDL; optional if there is only one.
        dialect: the DDL's; by default Spark's, then PostgreSQL's if Spark's can't read it.

    Raises:
        SchemaError: the DDL can't be read, has no such table or several to choose from.
        SourceError: the path does not exist or is not Parquet.
    """
    if isinstance(source, str) and is_ddl(source):
        return _select_table(schemas_from(source, dialect=dialect), table)
    path = Path(source)
    if path.suffix.lower() in (".sql", ".ddl"):
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise SourceError(f"the schema file {str(path)!r} can't be read ({error}); check the path") from error
        return _select_table(schemas_from(text, dialect=dialect), table, f"the file {str(path)!r}")
    return read_files_schema(path, "Parquet", read_parquet_columns)


def is_ddl(text: str) -> bool:
    """Return whether a text is DDL, not a path."""
    return re.match(r"\s*create\s", text, re.IGNORECASE) is not None


def schemas_from(ddl: str, *, dialect: str | None = None) -> dict[str, Schema]:
    """Return the tables of a text of ``CREATE TABLE`` statements, by name as it is written there, in order.

    Raises:
        SchemaError: a statement can't be read, or a type is unknown.
        SettingError: unknown dialect.
    """
    dialects = (dialect,) if dialect else ("spark", "postgres")
    for number, name in enumerate(dialects):
        try:
            schemas = _parse_schemas(ddl, name)
        except SchemaError:
            if number == len(dialects) - 1:
                raise
            continue
        return {table: schema.writable() for table, schema in schemas.items()}
    raise AssertionError("unreachable: there is at least one dialect")


def _parse_schemas(ddl: str, dialect: str) -> dict[str, Schema]:
    schemas: dict[str, Schema] = {}
    for statement in split_statements(ddl, dialect):
        try:
            tree = get_dialect(dialect).parse(statement)[0]
        except (SqlglotError, StatementError, RecursionError) as error:
            start = " ".join(statement.split())[:60]
            raise SchemaError(f"can't read the DDL {start!r} as {dialect}; correct it or name its dialect") from error
        if isinstance(tree, exp.Create) and isinstance(tree.this, exp.Schema):
            schemas[".".join(part.name for part in tree.this.this.parts)] = _to_schema(tree.this)
    return schemas


def _to_schema(declared: exp.Schema) -> Schema:
    columns = []
    for definition in declared.expressions:
        if not isinstance(definition, exp.ColumnDef):
            continue  # keys and checks
        required = any(
            isinstance(c.kind, exp.NotNullColumnConstraint) and not c.kind.args.get("allow_null")
            for c in definition.constraints
        )
        columns.append(Column(definition.name, _declared_type(definition), nullable=not required))
    if not columns:
        raise SchemaError(f"the table {declared.this.name!r} has no columns; declare some")
    return Schema(tuple(columns))


def spark_type(kind: exp.DataType) -> str:
    """Return Spark's name of a SQL type; VARCHAR is ``string``, CHAR(n) stays ``char(n)`` (it is compared padded).

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
    if kind.args.get("nested") and dtype in (exp.DType.ARRAY, exp.DType.MAP, exp.DType.STRUCT):
        return f"{dtype.name.lower()}<{','.join(map(_nested_part, kind.expressions))}>"
    # Other types can't be compared here, but their columns can be read.
    text = kind.sql(dialect=Spark4).lower().replace(", ", ",").replace(": ", ":")
    if dtype in (exp.DType.USERDEFINED, exp.DType.UNKNOWN):
        raise SchemaError(f"the type {kind.sql()!r} is unknown; use one of Spark's types")
    return text


def _nested_part(part: exp.Expression) -> str:
    """Return a part of a nested type: a type, or a field's name and type. Names are without quotes, as in a file."""
    return spark_type(part) if isinstance(part, exp.DataType) else f"{part.name}:{_declared_type(part)}"


def _declared_type(declared: exp.Expression) -> str:
    """Return the type of a declared column or field, with its collation; raise SchemaError if it has none."""
    kind = declared.args.get("kind")
    if not isinstance(kind, exp.DataType):
        raise SchemaError(f"the column {declared.name!r} has no type; declare one")
    constraints = (constraint.args.get("kind") for constraint in declared.args.get("constraints") or ())
    collations = [kind.this.name for kind in constraints if isinstance(kind, exp.CollateColumnConstraint)]
    return spark_type(kind) + "".join(f" collate {name}" for name in collations[:1])


def _select_table(schemas: dict[str, Schema], table: str | None, name: str = "the DDL") -> Schema:
    if not schemas:
        raise SchemaError(f"{name} holds no CREATE TABLE with columns; give one, or a path of Parquet")
    named = [other for other in schemas if table is None or _ends_alike(other, table)]
    if len(named) > 1:
        raise SchemaError(f"the DDL holds several tables ({', '.join(named)}); name one with --table")
    if len(schemas) > 1 and not named:
        raise SchemaError(f"the DDL holds no table {table!r}; it has {', '.join(schemas)}")
    return schemas[named[0]] if named else next(iter(schemas.values()))


def _ends_alike(name: str, other: str) -> bool:
    """Return whether two names are the same table, where one may lack a schema or catalog."""
    parts = zip(reversed(name.lower().split(".")), reversed(other.lower().split(".")), strict=False)
    return all(part == of_other for part, of_other in parts)


def read_files_schema(
    path: Path,
    format: str,
    read_columns: Callable[[Path], Iterable[Column]],
    files: Sequence[Path] | None = None,
    most: int | None = None,
) -> Schema:
    """Return the columns of a file, or of all files of a folder and those in folder names.

    Args:
        path: of the file or folder.
        format: names the format in messages.
        read_columns: reads the columns of a file.
        files: those of the path, where they are known.
        most: reads so many of the files at most, spread evenly.

    Raises:
        SourceError: there is no such file, it is not of the format, or folders are not named alike.
        SchemaError: the type of a column can't be stored, or differs between files.
    """
    in_folders: tuple[Column, ...] = ()
    is_folder = path.is_dir()
    if files is None:
        files = list_files(path) if is_folder else [path]
    if is_folder:
        if not files:
            raise SourceError(f"the folder {str(path)!r} holds no {format} file; give one that does, or DDL")
        in_folders = folder_columns(check_folders([file.relative_to(path).as_posix() for file in files]))

    files = files if most is None else spread(files, most)

    def read(file: Path) -> tuple[Column, ...]:
        try:
            return tuple(read_columns(file))
        except OSError as error:
            reason = "does not exist" if not file.exists() else f"can't be read ({error.strerror or error})"
            raise SourceError(f"the file {str(file)!r} {reason}; check the path") from error
        except pa.ArrowException as error:
            if isinstance(error, pa.ArrowInvalid) and not _has_magic(file):
                raise SourceError(
                    f"the file {str(file)!r} is not a valid {format} file; write it again, or move it out of the source"
                ) from error
            raise SchemaError(
                f"the file {str(file)!r} has a column that Arrow can't read ({error}); cast it, or give the columns "
                "as DDL and let Spark read them"
            ) from error

    merged: dict[str, Column] = {}
    with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
        for file, columns in zip(files, pool.map(read, files), strict=True):
            _merge_columns(merged, columns, file, is_first=file is files[0])
    added = (column for column in in_folders if column.name.lower() not in merged)
    return Schema((*merged.values(), *added)).writable()


def _has_magic(file: Path) -> bool:
    """Return whether a file begins and ends as Parquet does."""
    with file.open("rb") as content:
        start = content.read(4)
        content.seek(max(0, file.stat().st_size - 4))
        return start in (b"PAR1", b"PARE") and content.read(4) == start


def list_files(root: Path) -> list[Path]:
    """Return the files below a folder that Spark reads, whatever their suffixes, sorted by name."""
    return sorted(p for p in root.rglob("*") if p.is_file() and all(map(is_listed, p.relative_to(root).parts)))


def check_folders(paths: Sequence[str]) -> list[dict[str, str | None]]:
    """Return the column values in the folder names of each path of a source's files, relative to its folder.

    Raises:
        SourceError: Spark does not read all files, since their folders have other names; or a folder has no value.
    """
    values = [folder_values(path) for path in paths]
    for path, by_name in zip(paths, values, strict=True):
        folder = path.rpartition("/")[0]
        empty = next((name for name, value in by_name.items() if value == ""), None)
        if empty is not None:
            raise SourceError(
                f"the folder {folder!r} has no value after '{empty}='; rename it, for NULL to '{empty}={_NULL}'"
            )
        first, other = (tuple(map(str.lower, names)) for names in (values[0], by_name))
        if other == first and folder and not other:
            raise SourceError(f"Spark reads no file of the folder {folder!r}; move its files up")
        if other == first:
            continue
        if len(other) != len(first):
            problem = "have different depths; move them to one depth"
        elif set(other) == set(first):
            problem = "have their columns in different orders; nest them in one order"
        else:
            problem = "have different columns; rename the folders"
        folders = " and ".join(f"{p.rpartition('/')[0] or '.'!r}" for p in (paths[0], path))
        raise SourceError(f"the folders {folders} of the source {problem}, since Spark does not read both")
    return values


def _merge_columns(merged: dict[str, Column], columns: tuple[Column, ...], file: Path, is_first: bool) -> None:
    """Add a file's columns, as Spark merges files; a column that some file lacks may be NULL.

    Raises:
        SchemaError: a column has another type than in the files before, or comes twice; names it.
    """
    in_file = {column.name.lower(): column for column in columns}
    if len(in_file) < len(columns):
        Schema(columns).writable()  # raises
    for key, column in in_file.items():
        known = merged.get(key, column if is_first else replace(column, nullable=True))
        type = merge_types(known.type, column.type)
        if type is None:
            raise SchemaError(
                f"the column {known.name!r} is {known.type} in other files of the source, but {column.type} in "
                f"{str(file)!r}; write them again with one type"
            )
        merged[key] = Column(known.name, type, known.nullable or column.nullable)
    for key in merged.keys() - in_file.keys():
        merged[key] = replace(merged[key], nullable=True)


def merge_types(first: str, second: str) -> str | None:
    """Return the type that Spark makes of two files' types: it adds fields to structs; None where it makes none.

    >>> merge_types("array<struct<a:int>>", "array<struct<b:date,a:int>>"), merge_types("int", "bigint")
    ('array<struct<a:int,b:date>>', None)
    """
    if first == second:
        return first
    (kind, parts), (other, other_parts) = nested_parts(first), nested_parts(second)
    if kind != other or not parts or not other_parts:
        return None
    if kind != "struct":
        inner = [merge_types(*pair) for pair in zip(parts, other_parts, strict=True)]
        return None if None in inner else f"{kind}<{','.join(map(str, inner))}>"
    fields = dict(struct_fields(first))
    for name, type in struct_fields(second):
        same = next((known for known in fields if known.lower() == name.lower()), name)
        merged = merge_types(fields.get(same, type), type)
        if merged is None:
            return None
        fields[same] = merged
    return f"struct<{','.join(f'{name}:{type}' for name, type in fields.items())}>"


# Types of Parquet that Spark does not read, with the remedy.
_REFUSED: Final = {
    "Interval": "cast it to a text", "UUID": "cast it to a text", "Time": "cast it to a text",
    "Float16": "cast it to FLOAT", "Geometry": "store it as WKB in a binary column",
    "Geography": "store it as WKB in a binary column",
}  # fmt: skip


# A column of Parquet's type VARIANT in the description of a file's schema.
_VARIANT_GROUP: Final = re.compile(r"^  \w+ group field_id=-?\d+ (.*) \(Variant\b.*\) \{$", re.MULTILINE)


def read_parquet_columns(file: Path) -> Iterator[Column]:
    """Yield the columns of a Parquet file by its footer."""
    schema = pq.read_metadata(file).schema
    check_parquet_types(schema)
    arrow = read_arrow_schema(schema, in_micros=True)
    _check_spark_types(arrow)
    collations = find_collations(arrow)
    variants = _variant_columns(arrow) | frozenset(_VARIANT_GROUP.findall(str(schema)))
    for field in arrow:
        try:
            is_variant = field.name in variants
            type = VARIANT if is_variant else arrow_type_name(field.type, collations.get(field.name, {}), field.name)
        except SchemaError as error:
            raise SchemaError(f"column {field.name!r:.80}: {error}") from error
        yield Column(field.name, type, field.nullable)


# Types that Spark stores as numbers or texts and knows by its metadata.
_SPARK_ONLY: Final = re.compile(r'[tT]ype": "(void|(?:calendar)?interval[^"]*|time\([^"]*)"')


def _check_spark_types(schema: pa.Schema) -> None:
    """Raise SchemaError for a column of a type that tables can't store, by Spark's metadata in a file; names it."""
    for name, field in _described_columns(schema):
        refused = _SPARK_ONLY.search(json.dumps({"type": field.get("type")}))
        if refused is not None:
            raise SchemaError(f"column {name!r:.80}: the type {refused[1]!r} can't be stored; cast it")


def check_parquet_types(schema: pq.ParquetSchema) -> None:
    """Raise SchemaError for a column of a type that Spark does not read; names it."""
    for leaf in map(schema.column, range(len(schema))):
        type = json.loads(leaf.logical_type.to_json())["Type"]
        if type in _REFUSED:
            raise SchemaError(f"column {leaf.path!r:.80}: the type {type.upper()} can't be stored; {_REFUSED[type]}")


def list_nanoseconds(schema: pq.ParquetSchema) -> list[str]:
    """Return the columns of times in nanoseconds, which Arrow reads and Spark does not."""
    leaves = map(schema.column, range(len(schema)))
    return [leaf.path for leaf in leaves if json.loads(leaf.logical_type.to_json()).get("timeUnit") == "nanoseconds"]


def read_arrow_schema(schema: pq.ParquetSchema, *, in_micros: bool = False) -> pa.Schema:
    """Return the Arrow schema of a Parquet file with the types that Spark reads.

    INT96, which Spark writes by default, is UTC timestamps in microseconds; Arrow reads it as local time in
    nanoseconds. Extension types are what they are stored as, durations numbers, and columns of NULLs alone integers.
    Parquet's type ENUM is text, for which Arrow has bytes.

    Args:
        schema: of the file.
        in_micros: whether other timestamps in nanoseconds, which Spark does not read, are in microseconds too.
    """
    arrow = schema.to_arrow_schema()
    leaves = iter([schema.column(i) for i in range(len(schema))])

    def convert(kind: pa.DataType) -> pa.DataType:
        leaf = next(leaves)
        if leaf.physical_type == "INT96":
            return _TIMESTAMP
        if leaf.logical_type.type == "ENUM":
            return pa.string()
        if pa.types.is_null(kind):
            return pa.int32()
        if pa.types.is_duration(kind):
            return pa.int64()
        return pa.timestamp("us", kind.tz) if in_micros and pa.types.is_timestamp(kind) and kind.unit == "ns" else kind

    fields = [field.with_type(_convert_leaves(field.type, convert)) for field in arrow]
    return pa.schema(fields, arrow.metadata)


def _convert_leaves(kind: pa.DataType, convert: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type with other leaves, which are converted in order."""
    if isinstance(kind, pa.BaseExtensionType):
        return _convert_leaves(kind.storage_type, convert)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_convert_leaves(field.type, convert)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_convert_leaves(kind.key_type, convert), _convert_leaves(kind.item_type, convert))
    if any(is_kind(kind) for is_kind in _LISTS):
        return pa.list_(kind.value_field.with_type(_convert_leaves(kind.value_type, convert)))
    return convert(kind)


def arrow_type_name(kind: pa.DataType, collations: Collations | None = None, path: str = "") -> str:
    """Return Spark's name of an Arrow type.

    ``path`` is the path of the type in the column, for the collations of its texts.

    >>> arrow_type_name(pa.list_(pa.int32()))
    'array<int>'
    >>> arrow_type_name(pa.list_(pa.string()), {"a.element": "UTF8_LCASE"}, "a")
    'array<string collate UTF8_LCASE>'

    Raises:
        SchemaError: tables can't store such a column (nanosecond timestamps, times, ...).
    """
    if kind in _ARROW_TYPES:
        name, collation = _ARROW_TYPES[kind], (collations or {}).get(path)
        return f"{name} collate {collation}" if name == "string" and collation else name
    if pa.types.is_decimal(kind):
        if kind.precision > _MOST_DIGITS:
            raise SchemaError(f"the type '{kind}' has more than {_MOST_DIGITS} digits; cast it to DECIMAL(38,...)")
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
    raise SchemaError(f"the type {str(kind)!r} can't be stored; convert the column")


_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_FOLDER_FORMS: Final = tuple((type, re.compile(form)) for type, form in (
    ("int", r"-?[0-9]{1,99}"),  # or bigint
    ("double", r"-?[0-9]{0,99}\.[0-9]{1,99}"),
    ("date", r"[0-9]{4}-[0-9]{2}-[0-9]{2}"),
    ("timestamp", r"[0-9]{4}-[0-9]{2}-[0-9]{2} ([01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"),
))  # fmt: skip
# Values that Spark may read as decimals, other doubles, times, dates or timestamps.
_UNSUPPORTED_FORMS: Final = re.compile(
    r"\s*[+-]?(NaN|Infinity|0[xX][0-9a-fA-F.]+[pP][+-]?[0-9]+|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)[fFdD]?\s*"
    r"|[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]*)?"
    r"|-?([0-9]{5,}|0000|(?<=-)[0-9]{4})-[0-9]{2}-[0-9]{2}( [0-9:.]*)?|[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9:.]*"
)
# Pairs of types that Spark unifies; other mixtures, such as bigint and double, become strings.
_COMMON: Final = {
    frozenset({"int", "bigint"}): "bigint", frozenset({"int", "double"}): "double",
    frozenset({"date", "timestamp"}): "timestamp",
}  # fmt: skip


def folder_values(path: str) -> dict[str, str | None]:
    """Return the column values in a path's folder names; None for NULL.

    >>> folder_values("/day=2024-01-01/city=a%2Fb/f.parquet")
    {'day': '2024-01-01', 'city': 'a/b'}
    """
    parts = (part.partition("=") for part in path.split("/")[:-1] if "=" in part)
    values = [(unquote(name), unquote(value)) for name, _, value in parts]
    return {name: None if value == _NULL else value for name, value in values if name}


def is_listed(name: str) -> bool:
    """Return whether Spark's listing of a folder includes a file or folder of that name.

    >>> [is_listed(name) for name in ("a.parquet", "_day=1", "_SUCCESS", ".a.parquet.crc", "a.parquet._COPYING_")]
    [True, True, False, False, False]
    """
    is_hidden = name.startswith(".") or (name.startswith("_") and "=" not in name)
    return not is_hidden and not name.endswith("._COPYING_")  # a copy that goes on


def folder_columns(values: Iterable[Mapping[str, str | None]]) -> tuple[Column, ...]:
    """Return the columns in folder names, each with the type that Spark infers from the values of all files.

    Raises:
        SourceError: a value may have an unsupported type, so that two values of Spark's could become one.

    >>> folder_columns([{"n": "01", "day": "2024-01-01"}, {"n": None, "day": "2024-01-02"}])
    (Column(name='n', type='int', nullable=True), Column(name='day', type='date', nullable=True))
    """
    texts: dict[str, set[str]] = {}
    for file_values in values:
        for name, value in file_values.items():
            texts.setdefault(name, set()).update([] if value is None else [value])
    return tuple(Column(name, _infer_folder_type(name, column_texts)) for name, column_texts in texts.items())


def _infer_folder_type(name: str, texts: set[str]) -> str:
    examples = {_infer_value_type(text): text for text in sorted(texts)}
    if "string" in examples or not examples:
        return "string"
    if None in examples:
        raise SourceError(
            f"the folder '{name}={examples[None]}' has a value that Spark may read as another number or time; "
            "store the column in the files"
        )
    types = frozenset(type for type in examples if type is not None)
    return next(iter(types)) if len(types) == 1 else _COMMON.get(types, "string")


def _infer_value_type(text: str) -> str | None:
    """Return the type of one value; None if Spark may infer an unsupported one."""
    latin = "".join(str(unicodedata.decimal(character, character)) for character in text)
    if latin != text:  # Java reads digits of any script
        return "string" if _infer_value_type(latin) == "string" else None
    type = next((type for type, form in _FOLDER_FORMS if form.fullmatch(text)), None)
    if type == "int":
        return whole_type(int(text))  # None beyond bigint: Spark takes decimals
    if type in ("date", "timestamp"):
        if text.startswith("0000"):  # Python has no year 0
            return None
        try:
            dt.datetime.fromisoformat(text)
        except ValueError:
            return "string"
    return type or (None if _UNSUPPORTED_FORMS.fullmatch(text) else "string")


_ROW_METADATA: Final = b"org.apache.spark.sql.parquet.row.metadata"
_COLLATIONS: Final = "__COLLATIONS"

# The collation of each text in a column by its path, such as ``s`` or ``m.value``; plain texts are left out.
Collations = Mapping[str, str]


def find_collations(schema: pa.Schema) -> dict[str, Collations]:
    """Return each collated column's collations, from Spark's metadata in a Parquet file.

    Spark writes them into the metadata of the field that holds the text: ``{"arr.element": "spark.UTF8_LCASE"}``, the
    first part being the provider. Like Spark, this ignores metadata that is not Spark's JSON.
    """
    by_column = {name: _field_collations(field) for name, field in _described_columns(schema)}
    return {name: collations for name, collations in by_column.items() if collations}


def _variant_columns(schema: pa.Schema) -> frozenset[str]:
    """Return the columns of Spark's type VARIANT, which other readers take for structs of binaries."""
    return frozenset(name for name, field in _described_columns(schema) if field.get("type") == VARIANT)


def _described_columns(schema: pa.Schema) -> list[tuple[str, Any]]:
    try:
        return _described_fields(json.loads((schema.metadata or {}).get(_ROW_METADATA, b"null")))
    except ValueError:
        return []


def _described_fields(struct: Any) -> list[tuple[str, Any]]:
    fields = struct.get("fields") if isinstance(struct, dict) else None
    described = [field for field in fields if isinstance(field, dict)] if isinstance(fields, list) else []
    return [(str(field.get("name")), field) for field in described]


def _field_collations(field: Mapping[str, Any]) -> dict[str, str]:
    """Return the collations of a field by path, starting with the field's own name."""
    name, metadata = str(field.get("name")), field.get("metadata")
    collations = metadata.get(_COLLATIONS) if isinstance(metadata, dict) else None
    items = collations.items() if isinstance(collations, dict) else ()
    own = {str(path): str(collation).rsplit(".", 1)[-1] for path, collation in items}
    return own | _nested_collations(name, field.get("type"))


def _nested_collations(path: str, kind: Any) -> dict[str, str]:
    """Return the collations of structs inside a type: their fields have metadata of their own."""
    collations: dict[str, str] = {}
    if not isinstance(kind, dict):
        return collations
    for part, inner in (("element", "elementType"), ("key", "keyType"), ("value", "valueType")):
        collations |= _nested_collations(f"{path}.{part}", kind.get(inner))
    for _, field in _described_fields(kind):
        collations |= {f"{path}.{subpath}": collation for subpath, collation in _field_collations(field).items()}
    return collations


_STAND_IN_PREFIX: Final = "_layoutopt_name_"
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def plain_name(name: str) -> str:
    """Return the name if every reader understands it alike, else its stand-in.

    >>> plain_name("Year"), plain_name("a.b") == plain_name("A.b")
    ('Year', True)
    """
    if _PLAIN_NAME.fullmatch(name):
        return name
    return _STAND_IN_PREFIX + sha256(name.lower().encode("utf-8", "surrogatepass")).hexdigest()[:16]


def is_stand_in(name: str) -> bool:
    """Return whether a name is a stand-in of :func:`plain_name`."""
    return name.startswith(_STAND_IN_PREFIX)


def with_plain_names(schema: Schema) -> Schema:
    """Return the schema with plain names."""
    return Schema(tuple(replace(column, name=plain_name(column.name)) for column in schema.columns))


def replace_names(tree: exp.Expr) -> None:
    """Replace the names in a tree by plain ones, in place; their positions in the text are kept."""
    for identifier in tree.find_all(exp.Identifier):
        identifier.set("this", plain_name(identifier.this))
