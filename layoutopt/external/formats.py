"""The formats of sources: a record each. A source's name begins with its format's prefix; Parquet has none.

To add a format of files that Spark reads, add a :class:`FileFormat` to :data:`FORMATS`. For a format of tables, add a
:class:`TableFormat` whose function lists the files of a version. A format's library is imported only when needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import SchemaError, SettingError, SourceError
from layoutopt.evaluation.arrow_types import any_arrow_type
from layoutopt.extensions import require
from layoutopt.external.snapshot import SourceSnapshot
from layoutopt.external.whole_files import read_footer
from layoutopt.model.schema import Column, Schema
from layoutopt.sql.schema import arrow_type_name, read_files_schema, read_parquet_columns, schema_from

if TYPE_CHECKING:
    from pyiceberg.table import Table

_NAME: Final = re.compile(r"(?P<prefix>[a-z]+):(?P<place>.+)", re.DOTALL)
_VERSIONED: Final = re.compile(r"(?P<place>.+?)(?:@(?P<version>[0-9]+))?", re.DOTALL)


@dataclass(frozen=True, eq=False)
class TableFormat:
    """A format of tables with versions, whose data files are Parquet.

    Attributes:
        prefix: begins a source's name.
        read_snapshot: returns the table at a place at a version, or at the newest with None.
        in_catalogs: whether a place may be ``CATALOG/NAMESPACE.TABLE``.
        open_iceberg: opens the table at a place, which is served with metadata of its own; None where tables have none.
    """

    prefix: str
    read_snapshot: Callable[[str, int | None], SourceSnapshot]
    in_catalogs: bool = False
    open_iceberg: Callable[[str], Table] | None = None


@dataclass(frozen=True, eq=False)
class FileFormat:
    """A format of files that Spark reads: one file, or a folder, with Hive-style folders too.

    Attributes:
        prefix: begins a source's name.
        reader: Spark's name of its reader, whose rows say which file they are from (``_metadata``).
        read_schema: returns the columns of a local path by its files' footers.
        read_columns: returns those of one file.
        count_rows: returns the rows of a file (path or URL) by its footer.
        options: of Spark's reader.
        find_problem: returns why Spark might read wrong rows, by the names of columns and the files' URIs.
        has_row_groups: whether layoutopt reads the files' row groups and their statistics.
    """

    prefix: str
    reader: str
    read_schema: Callable[[str], Schema]
    read_columns: Callable[[Path], Iterable[Column]]
    count_rows: Callable[[str], int]
    options: Mapping[str, str] = field(default_factory=dict)
    find_problem: Callable[[Sequence[str], Sequence[str]], str | None] | None = None
    has_row_groups: bool = False


@dataclass(frozen=True)
class SourceName:
    """A source that is a table: ``delta:PATH`` or ``iceberg:CATALOG/NAMESPACE.TABLE``, optionally ``@VERSION``."""

    format: TableFormat
    place: str
    version: int | None

    @property
    def text(self) -> str:
        """The name as users write it."""
        return f"{self.format.prefix}:{self.place}" + ("" if self.version is None else f"@{self.version}")


@dataclass(frozen=True)
class SourcePath:
    """A source of files: a path or URL, and the format of the files there."""

    format: FileFormat
    path: str


def _read_delta(place: str, version: int | None) -> SourceSnapshot:
    require("deltalake", "delta")
    from layoutopt.external.delta import delta_snapshot

    return delta_snapshot(place, version)


def _read_iceberg(place: str, version: int | None) -> SourceSnapshot:
    require("pyiceberg", "iceberg")
    from layoutopt.external.iceberg import iceberg_snapshot

    return iceberg_snapshot(place, version)


def _open_iceberg(place: str) -> Table:
    require("pyiceberg", "iceberg")
    from layoutopt.external.iceberg import open_iceberg

    return open_iceberg(place)


# Spark's type of a column, among the attributes of its ORC type.
_SPARK_TYPE: Final = b"spark.sql.catalyst.type"
# Folders of Hive's transactional tables, some of which hold rows of the past; and the columns of changes to rows.
_HIVE_FOLDER: Final = re.compile(r"/(base_[0-9]{7,}|(delta|delete_delta)_[0-9]{7,}_[0-9]{7,})")
_BY_PLACE: Final = re.compile(r"_col[0-9]+", re.IGNORECASE)
_HIVE_CHANGES: Final = frozenset({"operation", "originaltransaction", "bucket", "rowid", "currenttransaction", "row"})


def _read_orc_schema(path: str) -> Schema:
    return read_files_schema(Path(path), "ORC", _read_orc_columns)


def _read_orc_columns(file: Path) -> Iterable[Column]:
    from pyarrow import orc

    for column in orc.ORCFile(str(file)).schema:
        try:
            yield Column(column.name, _orc_type_name(column))
        except SchemaError as error:
            raise SchemaError(f"column {column.name!r:.80}: {error}") from error


def _orc_type_name(column: pa.Field) -> str:
    """Return Spark's name of an ORC type, which Spark's attribute of the type decides where there is one."""
    kind, declared = column.type, (column.metadata or {}).get(_SPARK_TYPE)
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{part.name}:{_orc_type_name(part)}' for part in kind)}>"
    if pa.types.is_map(kind):
        return f"map<{_orc_type_name(kind.key_field)},{_orc_type_name(kind.item_field)}>"
    if pa.types.is_list(kind):
        return f"array<{_orc_type_name(kind.value_field)}>"
    if declared is not None:
        name = str(declared.decode())
        try:
            any_arrow_type(name)
        except SchemaError as error:
            raise SchemaError(f"the type {name!r} can't be stored; cast it") from error
        return name
    # Both of ORC's types of timestamps are instants to Spark.
    return "timestamp" if pa.types.is_timestamp(kind) else arrow_type_name(kind)


def _count_orc_rows(path: str) -> int:
    from pyarrow import orc

    try:
        with TableFiles(path).open_input("") as file:
            return int(orc.ORCFile(file).nrows)
    except (OSError, pa.ArrowException) as error:
        raise SourceError(f"the source's file {path!r} can't be read as ORC ({error}); write it again") from error


def _find_orc_problem(names: Sequence[str], uris: Sequence[str]) -> str | None:
    by_place = [name for name in names if _BY_PLACE.fullmatch(name)]
    if all(name.lower().startswith("_col") for name in names):
        by_place = list(names)
    if by_place:
        return f"Spark takes columns of ORC that are named like {by_place[0]!r} by their places; rename it"
    if any(map(_HIVE_FOLDER.search, uris)) or {name.lower() for name in names} >= _HIVE_CHANGES:
        return "it is of a transactional table of Hive, which keeps replaced rows; export the table to files first"
    return None


DELTA: Final = TableFormat("delta", _read_delta)
ICEBERG: Final = TableFormat("iceberg", _read_iceberg, in_catalogs=True, open_iceberg=_open_iceberg)
PARQUET: Final = FileFormat(
    "", "parquet", schema_from, read_parquet_columns, lambda path: read_footer(path).num_rows, has_row_groups=True
)
# The class names Spark's own reader, whatever the session's settings.
ORC: Final = FileFormat(
    "orc",
    "org.apache.spark.sql.execution.datasources.orc.OrcFileFormat",
    _read_orc_schema,
    _read_orc_columns,
    _count_orc_rows,
    {"orc.force.positional.evolution": "false"},
    _find_orc_problem,
)
FORMATS: Final[Mapping[str, TableFormat | FileFormat]] = {format.prefix: format for format in (DELTA, ICEBERG, ORC)}


def parse_source_name(source: object) -> SourceName | SourcePath | None:
    """Parse a name with the prefix of a format; None for other sources, such as a path of Parquet.

    >>> name = parse_source_name("delta:/data/t@7")
    >>> name.place, name.version, parse_source_name("orc:/data/t@7").path, parse_source_name("/data/t")
    ('/data/t', 7, '/data/t@7', None)
    """
    match = _NAME.fullmatch(source) if isinstance(source, str) else None
    format = None if match is None else FORMATS.get(match["prefix"])
    if match is None or format is None:
        return None
    if isinstance(format, FileFormat):
        return SourcePath(format, match["place"])
    parts = _VERSIONED.fullmatch(match["place"])
    assert parts is not None  # it matches every text
    version = parts["version"]
    return SourceName(format, parts["place"], None if version is None else int(version))


def parse_table_name(source: object) -> SourceName | None:
    """Parse the name of a table; None for a source of files."""
    name = parse_source_name(source)
    return name if isinstance(name, SourceName) else None


def parse_path(source: str) -> SourcePath:
    """Return the path and the format of a source of files."""
    name = parse_source_name(source)
    return name if isinstance(name, SourcePath) else SourcePath(PARQUET, source)


def is_parquet(source: str) -> bool:
    """Return whether a source's files, or those of its table, are Parquet."""
    return parse_table_name(source) is not None or parse_path(source).format.has_row_groups


def check_has_row_groups(source: str, verb: str) -> None:
    """Raise SettingError for files of which layoutopt knows no row groups; ``verb`` needs them."""
    if not is_parquet(source):
        raise SettingError(f"`{verb}` reads the footers of Parquet files, which {source!r} has not; load it")
