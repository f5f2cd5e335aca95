"""Check a source before Spark starts: refuse what Spark surely refuses, and leave everything else to Spark."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from layoutopt.catalog.storage.footers import ENCRYPTED, MAGIC
from layoutopt.errors import SchemaError, SourceError, expected_names
from layoutopt.external.external_tables import check_is_no_table, open_snapshot
from layoutopt.external.footers import SAMPLED_FOOTERS
from layoutopt.external.formats import FORMATS, PARQUET, parse_path, parse_table_name
from layoutopt.model.schema import Schema
from layoutopt.sql.schema import list_files, read_files_schema

_PREFIX: Final = re.compile(r"(\w+):(?!/)")
_PATTERN: Final = re.compile(r"[*?\[{]")
# With these, a session may read a path from another place than this machine.
_INSTALLATIONS: Final = ("SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR", "SPARK_ENV_LOADED", "PYSPARK_GATEWAY_PORT")
_MOST_NAMES: Final = 8


def check_source(source: str, wanted: Schema | None, document: str, *, more: bool = False) -> Schema | None:
    """Check that a source exists and has the wanted columns, and return its columns; None where only Spark knows.

    Args:
        source: a path or name as users write it.
        wanted: the columns to have; None for any.
        document: names what has these columns, in messages.
        more: whether the source may have other columns too.

    Raises:
        SourceError: it does not exist, has no file, or is of another format.
        SchemaError: its columns are not the wanted ones.
    """
    name = f"the source {source!r}"
    schema: Schema | None
    table = parse_table_name(source)
    if table is not None:
        schema, is_whole = open_snapshot(table).schema, True
    elif is_elsewhere(source):
        return None
    else:
        check_is_no_table(source)
        files = _list_files(source, name)
        schema, is_whole = _read_columns(source, files), len(files) == 1
    if schema is not None and wanted is not None:
        compare_columns(schema, wanted, document, name, is_whole=is_whole, more=more)
    return schema


def is_elsewhere(source: str) -> bool:
    """Return whether a path may lie on another machine, or is a pattern."""
    prefix, path = _PREFIX.match(source), parse_path(source).path
    if path == source and prefix is not None and not Path(source).exists():
        hint = expected_names(prefix[1], FORMATS)
        if hint.startswith("did"):
            raise SourceError(f"the source {source!r} has the unknown format {prefix[1]!r}: {hint}")
        return True
    if "://" in path or any(name in os.environ for name in _INSTALLATIONS):
        return True
    return _PATTERN.search(path) is not None and not Path(path).exists()


def _list_files(source: str, name: str) -> Sequence[Path]:
    path = Path(parse_path(source).path)
    if not path.exists():
        raise SourceError(f"{name} does not exist; check the path")
    if not path.is_dir():
        return (path,)
    files = list_files(path)
    if not files:
        raise SourceError(f"{name} has no file with columns; check the path, or wait until its rows have come")
    return files


def _read_columns(source: str, files: Sequence[Path]) -> Schema | None:
    """Read the columns by a sample of footers; None where only Spark knows."""
    path = parse_path(source)
    try:
        name = path.format.prefix.upper() or "Parquet"
        return read_files_schema(Path(path.path), name, path.format.read_columns, files, SAMPLED_FOOTERS)
    except SchemaError:
        return None
    except SourceError:
        if path.format is not PARQUET or len(files) > 1 or files[0].suffix == ".sql":
            return None
        with files[0].open("rb") as file:
            if file.read(4) in (MAGIC, ENCRYPTED):
                return None
        raise


def compare_columns(
    actual: Schema, wanted: Schema, document: str, source: str, *, is_whole: bool = True, more: bool = False
) -> None:
    """Check that a source's columns are those of a document.

    Args:
        actual: the source's columns.
        wanted: the document's columns.
        document: names the document in messages.
        source: names the source in messages.
        is_whole: whether ``actual`` has all columns; otherwise other files may have more.
        more: whether the source may have columns that the document lacks.

    Raises:
        SchemaError: a column is missing, new, or of another type; names it.
    """
    for column in wanted.columns:
        has = actual.get(column.name)
        if has is None and is_whole:
            names = ", ".join(actual.names[:_MOST_NAMES]) + (", ..." if len(actual.names) > _MOST_NAMES else "")
            raise SchemaError(
                f"{source} lacks the column {column.name!r} of {document}, it has {names}; check that it is the right "
                "one, or add the column (as NULL)"
            )
        if has is not None and has.type != column.type:
            raise SchemaError(
                f"column {column.name!r} is {has.type} in {source} but {column.type} in {document}; cast it, or "
                "analyze the log again with a file of the source as --schema, and plan again"
            )
    for column in actual.columns:
        if wanted.get(column.name) is None and not more:
            raise SchemaError(
                f"the column {column.name!r} is not in {document} but in {source}; check that it is the right source, "
                "drop the column, or plan again with it"
            )
