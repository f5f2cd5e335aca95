"""List a source's Parquet files, and cut them into splits whose live rows are counted by partition.

Files of a path, also of ``s3://``, are listed as Spark lists them; those of a Delta or Iceberg table by its metadata,
at one version.
Functions raise NeedsSparkError where a file might not be read as Spark reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.catalog.deletion_vectors import pack_positions
from layoutopt.catalog.partition_names import PlainValue
from layoutopt.catalog.storage.filesystem import TableFiles, is_url, protocol_of
from layoutopt.catalog.storage.footers import metadata_of
from layoutopt.errors import NeedsSparkError, SchemaError, SourceError
from layoutopt.external.external_tables import check_is_no_table, open_snapshot
from layoutopt.external.footers import SAMPLED_FOOTERS
from layoutopt.external.formats import parse_table_name
from layoutopt.external.listing import UNNAMED, local_path, to_arrow_constant
from layoutopt.external.snapshot import SnapshotFile, SourceFile, SourceSnapshot
from layoutopt.external.source_check import compare_columns
from layoutopt.external.source_files import file_of_source
from layoutopt.external.whole_files import check_footer_rows
from layoutopt.model.schema import Schema
from layoutopt.scan.segments import FileRead
from layoutopt.sources.executor import Executor
from layoutopt.sources.parquet_files import check_columns, list_visible, open_plain, resolve_local_path
from layoutopt.sources.split import FileSplit, count_partitions, number_splits, partition_value
from layoutopt.sql.schema import folder_columns, folder_values, is_listed

_PLAIN: Final = re.compile(r"[A-Za-z0-9_./=-]+")
_SPLIT_BYTES: Final = 1 << 27
_FILES_A_TASK: Final = 16
# Object stores of which Spark has no reader of its own, so that tasks read them as they read tables there.
_STORES: Final = frozenset({"s3"})


def list_source_files(source: str, schema: Schema, partition_by: str | None) -> tuple[SnapshotFile, ...]:
    """List a source's files by name: one, those of a folder or a table, or of folders named after partitions.

    Raises:
        NeedsSparkError: the source may be elsewhere, or Spark might list or read it otherwise.
        SourceError, SettingError: the table can't be read, or its format's library is not installed.
    """
    check_columns(schema, partition_by)
    name = parse_table_name(source)
    if name is not None:
        return _list_table_files(open_snapshot(name), schema)
    if protocol_of(source) in _STORES:
        return _list_stored_files(source, schema, partition_by)
    root = resolve_local_path(source)
    is_plain = has_plain_name(source) and has_plain_name(str(root)) and ".." not in root.parts
    in_path = {name.lower() for name in folder_values(f"{root}/")} & {name.lower() for name in schema.names}
    if not is_plain or in_path:
        raise NeedsSparkError(f"{source!r} has no plain name")
    try:
        paths = list_visible(root)
        if not paths:
            raise NeedsSparkError(f"{source!r} has no files")
        folders = [path for path in paths if path.is_dir()]
        if not folders:
            return tuple(SnapshotFile(_check_is_file(path), UNNAMED) for path in paths)
        if len(folders) < len(paths):
            raise NeedsSparkError(f"{source!r} has files beside folders")
        return tuple(_list_folders(folders, schema, partition_by))
    except OSError as error:
        raise NeedsSparkError(f"{source!r} can't be looked at ({error})") from error


def _list_stored_files(source: str, schema: Schema, partition_by: str | None) -> tuple[SnapshotFile, ...]:
    """Return the files of a folder of an object store, or a file, as those of a local path."""
    check_is_no_table(source)
    store = TableFiles(source)
    if store.is_file(""):
        return (SnapshotFile(source, UNNAMED),)
    paths = sorted(file.path for file in store.walk("") if all(map(is_listed, file.path.split("/"))))
    if not paths:
        raise SourceError(f"the source {source!r} has no files; check the path, or wait until its rows have come")
    urls = [f"{source.rstrip('/')}/{path}" for path in paths]
    folders = [path.rpartition("/")[0] for path in paths]
    if not any(folders):
        return tuple(SnapshotFile(url, UNNAMED) for url in urls)
    if not all(folders) or any("/" in folder for folder in folders):
        raise NeedsSparkError(f"{source!r} has files beside folders, or folders in folders")
    values = _read_folder_values(folders, schema, partition_by)
    return tuple(SnapshotFile(url, UNNAMED, text) for url, text in zip(urls, values, strict=True))


def has_plain_name(path: str) -> bool:
    """Return whether a path is no pattern to Spark, and has one spelling as a URI."""
    return bool(_PLAIN.fullmatch(path.removeprefix("file:")))


def _list_table_files(snapshot: SourceSnapshot, schema: Schema) -> tuple[SnapshotFile, ...]:
    """Return a table's files, with the names of a schema's columns in them."""
    for column, type in zip(snapshot.schema.columns, snapshot.stored_types, strict=True):
        if column.type != type:
            raise NeedsSparkError(f"the column {column.name!r} has fields with other names in the files")
    try:
        compare_columns(snapshot.schema, schema, "the plan", "the source")
    except SchemaError as error:
        raise NeedsSparkError(str(error)) from error
    lower = [name.lower() for name in snapshot.schema.names]
    places = [lower.index(name.lower()) for name in schema.names]
    spelling = {name.lower(): name for name in schema.names}
    files = []
    for file in snapshot.files:
        path = local_path(file.path)
        if is_url(path):
            raise NeedsSparkError(f"{file.path!r} is not on this machine")
        constants = {spelling[name.lower()]: value for name, value in file.constants.items()}
        try:
            for name, value in constants.items():
                to_arrow_constant(value, schema.find(name))
        except SourceError as error:
            raise NeedsSparkError(str(error)) from error
        stored = (
            None if name in constants else file.stored[place] for name, place in zip(schema.names, places, strict=True)
        )
        files.append(replace(file, path=path, stored=tuple(stored), constants=constants))
    return tuple(files)


def _list_folders(folders: Sequence[Path], schema: Schema, partition_by: str | None) -> Iterator[SnapshotFile]:
    values = _read_folder_values([folder.name for folder in folders], schema, partition_by)
    for folder, texts in zip(folders, values, strict=True):
        for path in list_visible(folder):
            yield SnapshotFile(_check_is_file(path), UNNAMED, texts)


def _read_folder_values(names: Sequence[str], schema: Schema, partition_by: str | None) -> list[dict[str, str | None]]:
    """Return the partition column's text in each folder's name."""
    texts = [folder_values(f"{name}/") for name in names]
    try:
        columns = folder_columns(texts)
    except SourceError as error:
        raise NeedsSparkError("a folder's value may be of a type that is not guessed here") from error
    if len(columns) != 1 or any(len(values) != 1 for values in texts) or partition_by is None:
        raise NeedsSparkError("folders are named after other columns than the one that the table is partitioned by")
    (column,) = columns
    if (column.name, column.type) != (partition_by, schema.find(partition_by).type):
        raise NeedsSparkError(f"folders are named after {column.name!r} of type {column.type}")
    if any(values[column.name] == "" for values in texts):
        raise NeedsSparkError("a folder's name has no value")
    return texts


def _check_is_file(path: Path) -> str:
    if not path.is_file():
        raise NeedsSparkError(f"{str(path)!r} is no file")
    return str(path)


def read_version(file: SnapshotFile) -> SourceFile:
    """Return a file's URI, size and time of change as Spark reports them, to the millisecond."""
    if is_url(file.path):
        stored = file_of_source(file, Schema(())).stat(file.path)
        return SourceFile(file.path + file.version_suffix, stored.size, int((stored.modified or 0) * 1_000) * 1_000)
    status = Path(file.path).stat()
    path = quote(file.path, safe="/=")
    return SourceFile(f"file:{path}{file.version_suffix}", status.st_size, status.st_mtime_ns // 1_000_000 * 1_000)


def estimate_rows(files: Sequence[SnapshotFile]) -> int:
    """Estimate the rows of files from some of their footers.

    Raises:
        NeedsSparkError: a footer can't be read.
    """
    some = files[:: -(-len(files) // SAMPLED_FOOTERS) or 1]
    counts = [_read_footer(file).num_rows for file in some]
    return int(sum(counts)) * len(files) // max(1, len(some))


def count_files(
    files: Sequence[SnapshotFile],
    schema: Schema,
    partition_by: str | None,
    executor: Executor,
    others: Sequence[SnapshotFile] = (),
) -> tuple[tuple[FileSplit, Mapping[PlainValue, int]], ...]:
    """Return the splits of files and their live rows by partition value; reads every file's footer.

    ``others`` may have columns of the schema that these files lack.

    Raises:
        NeedsSparkError: a file might not be read as Spark reads it.
    """
    _check_all_are_stored([*files, *others], schema)
    shares = [files[start : start + _FILES_A_TASK] for start in range(0, len(files), _FILES_A_TASK)]
    results = executor.map(shares, partial(_count_share, schema, partition_by))
    return number_splits(chain.from_iterable(results))


def _check_all_are_stored(files: Sequence[SnapshotFile], schema: Schema) -> None:
    """Raise NeedsSparkError if no file of a path has a column, which Spark refuses; some files may lack it."""
    missing = set(schema.names)
    for file in files:
        if file.stored != UNNAMED:  # a table's metadata says which columns there are
            return
        missing -= set(_read_footer(file).schema.to_arrow_schema().names) | set(file.constants)
        if not missing:
            return
    if missing and files:
        raise NeedsSparkError(f"no file has the column {min(missing)!r}")


def _read_footer(file: SnapshotFile) -> pq.FileMetaData:
    try:
        if is_url(file.path):
            return metadata_of(file_of_source(file, Schema(())).read_footer(file.path))
        return pq.read_metadata(file.path)
    except (OSError, ValueError, pa.ArrowException) as error:
        if is_url(file.path):  # Spark has no reader of its own there
            raise SourceError(f"the source's file {file.path!r} is no Parquet ({error}); write it again") from error
        raise NeedsSparkError(f"the footer of {file.path!r} can't be read ({error})") from error


def _count_share(
    schema: Schema, partition_by: str | None, files: Sequence[SnapshotFile]
) -> list[tuple[FileSplit, Mapping[PlainValue, int]]]:
    try:
        return [split for file in files for split in _count_file(file, schema, partition_by)]
    except UnicodeDecodeError as error:
        raise NeedsSparkError("a partition's name is no text in UTF-8") from error


def _count_file(
    file: SnapshotFile, schema: Schema, partition_by: str | None
) -> Iterator[tuple[FileSplit, Mapping[PlainValue, int]]]:
    """Yield the splits of a file that have live rows, without positions, and these rows by partition value."""
    with open_plain(file, schema) as (parquet, stored):
        if partition_by is not None and partition_by not in file.constants and not stored[partition_by]:
            if file.stored == UNNAMED:
                raise NeedsSparkError(f"{file.path!r} lacks the partition column {partition_by!r}")
            file = replace(file, constants={**file.constants, partition_by: None})
        constant = None if partition_by is None else partition_value(file, schema, partition_by)
        in_file = replace(file, stored=tuple(stored[name] for name in schema.names), deleted=None)
        footer, size = parquet.metadata, read_version(file).size
        check_footer_rows(file.path, footer)
        whole = sum(footer.row_group(group).total_byte_size for group in range(footer.num_row_groups))
        for read, part in _cut_reads(file, footer):
            split = FileSplit(in_file, read, 0, size * part // max(1, whole))
            if not split.rows:
                continue
            if partition_by is None or constant is not None:
                yield split, {None if constant is None else constant[0]: split.rows}
                continue
            counts: dict[PlainValue, int] = {}
            for rows, _ in split.read_rows(schema, [partition_by]):
                for value, count in count_partitions(rows, partition_by).items():
                    counts[value] = counts.get(value, 0) + count
            yield split, counts


def _cut_reads(file: SnapshotFile, footer: pq.FileMetaData) -> Iterator[tuple[FileRead, int]]:
    """Yield runs of a file's row groups, and their bytes before compression."""
    deleted = np.zeros(0, dtype=np.int64) if file.deleted is None else np.unique(file.deleted)
    groups, rows, bitmaps = list[int](), list[int](), list[bytes | None]()
    start = size = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        if size >= _SPLIT_BYTES:
            yield _file_read(file, groups, rows, bitmaps), size
            groups, rows, bitmaps, size = [], [], [], 0
        places = deleted[(deleted >= start) & (deleted < start + group.num_rows)] - start
        groups.append(number)
        rows.append(group.num_rows)
        bitmaps.append(pack_positions(places) if len(places) else None)
        start += group.num_rows
        size += group.total_byte_size
    yield _file_read(file, groups, rows, bitmaps), size


def _file_read(
    file: SnapshotFile, groups: Sequence[int], rows: Sequence[int], bitmaps: Sequence[bytes | None]
) -> FileRead:
    return FileRead(file.path, tuple(groups), tuple(rows), deleted=tuple(bitmaps) if any(bitmaps) else ())
