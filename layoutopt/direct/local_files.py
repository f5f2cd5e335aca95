"""The files of a source on this machine, as Spark would list them, and how many rows of each partition they have."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.catalog.partition_names import PlainValue
from layoutopt.direct.cut_rows import Split, middle_of
from layoutopt.direct.plain_parquet import check_columns, coded_partitions, local_root, open_plain, shown_in
from layoutopt.direct.processes import Tasks
from layoutopt.errors import NeedsSparkError, SourceError
from layoutopt.model.schema import Schema
from layoutopt.sql.folder_columns import folder_columns, values_in_folders

# What is no pattern to Spark, and is spelled in one way as a URI.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./=-]+")
_SPLIT_BYTES: Final = 1 << 27
_FILES_A_TASK: Final = 16
_LOOKED_AT: Final = 16  # files whose footers tell how many rows there are about
_ROW_BITS: Final = 33  # of a position; the split's number is above, as in Spark's own

Counted: TypeAlias = "tuple[tuple[Split, Mapping[PlainValue, int]], ...]"
"""Splits in the order of their files' names, with the rows of each value of the partition column."""


@dataclass(frozen=True)
class LocalFile:
    """A file of a source.

    Attributes:
        path: its path.
        folder: what the name of its folder says that the partition column is, plain; None where files have it.
    """

    path: Path
    folder: tuple[PlainValue] | None


def local_files(source: str, schema: Schema, partition_by: str | None) -> tuple[LocalFile, ...]:
    """The files of a source by their names: one, those of a folder, or of folders named after the partition column.

    Args:
        source: a path.
        schema: the columns that it has to have.
        partition_by: the partition column, None for none.

    Raises:
        NeedsSparkError: it may be no path of this machine, or there is something that Spark might read otherwise.
    """
    check_columns(schema, partition_by)
    root = local_root(source)
    plain = _PLAIN.fullmatch(source) and _PLAIN.fullmatch(str(root)) and ".." not in root.parts
    named = {name.lower() for name in values_in_folders(f"{root}/")} & {name.lower() for name in schema.names}
    if not plain or named:
        raise NeedsSparkError(f"{source!r} has no plain name")
    try:
        found = shown_in(root)
        if not found:
            raise NeedsSparkError(f"{source!r} has no files")
        folders = [path for path in found if path.is_dir()]
        if not folders:
            return tuple(LocalFile(_checked(path), None) for path in found)
        if len(folders) < len(found):
            raise NeedsSparkError(f"{source!r} has files beside folders")
        return tuple(_in_folders(folders, schema, partition_by))
    except OSError as error:
        raise NeedsSparkError(f"{source!r} can't be looked at ({error})") from error


def _in_folders(folders: Sequence[Path], schema: Schema, partition_by: str | None) -> Iterator[LocalFile]:
    said = [values_in_folders(f"{folder.name}/") for folder in folders]
    try:
        columns = folder_columns(said)
    except SourceError as error:
        raise NeedsSparkError("a folder's value may be of a type that is not guessed here") from error
    if len(columns) != 1 or any(len(each) != 1 for each in said) or partition_by is None:
        raise NeedsSparkError("folders tell of other columns than of one that the table is partitioned by")
    (column,) = columns
    if (column.name, column.type) != (partition_by, schema.find(partition_by).type):
        raise NeedsSparkError(f"folders tell of {column.name!r} of type {column.type}")
    for folder, each in zip(folders, said, strict=True):
        value = _typed(each[column.name], column.type)
        for path in shown_in(folder):
            yield LocalFile(_checked(path), (value,))


def _typed(text: str | None, type: str) -> PlainValue:
    """A text that was guessed to be of a type as its plain value; of the few types that name partitions."""
    if text == "":
        raise NeedsSparkError("a folder's name has no value")
    if text is None or type == "string":
        return text
    return (dt.date.fromisoformat(text) - dt.date(1970, 1, 1)).days if type == "date" else int(text)


def _checked(path: Path) -> Path:
    if not path.name.endswith(".parquet") or not path.is_file():
        raise NeedsSparkError(f"{str(path)!r} is no file of Parquet by its name")
    return path


def rows_in_files(files: Sequence[LocalFile]) -> int:
    """About how many rows files have, by the footers of some.

    Raises:
        NeedsSparkError: a footer can't be read.
    """
    some = files[:: -(-len(files) // _LOOKED_AT) or 1]
    try:
        counted = [pq.read_metadata(file.path).num_rows for file in some]
    except (OSError, pa.ArrowException) as error:
        raise NeedsSparkError("a file's footer can't be read") from error
    return int(sum(counted)) * len(files) // max(1, len(some))


def count_files(files: Sequence[LocalFile], schema: Schema, partition_by: str | None, tasks: Tasks) -> Counted:
    """The splits of files, and what rows they have; every file's footer is looked at.

    Args:
        files: of a source.
        schema: the columns that each has to have, but for that which its folder tells.
        partition_by: the partition column, None for none.
        tasks: that read the files.

    Raises:
        NeedsSparkError: a file is not surely read as Spark reads it, or there are no rows.
    """
    shares = [files[start : start + _FILES_A_TASK] for start in range(0, len(files), _FILES_A_TASK)]
    of_shares = tasks.each(len(shares), partial(_count_share, shares, schema, partition_by))
    counted = tuple(
        (replace(split, low=number << _ROW_BITS), held)
        for number, (split, held) in enumerate(chain.from_iterable(of_shares))
    )
    if not counted:
        raise NeedsSparkError("the source has no rows")
    return counted


def _count_share(
    shares: Sequence[Sequence[LocalFile]], schema: Schema, partition_by: str | None, number: int
) -> list[tuple[Split, Mapping[PlainValue, int]]]:
    try:
        return [each for file in shares[number] for each in _count(file, schema, partition_by)]
    except UnicodeDecodeError as error:
        raise NeedsSparkError("a partition's name is no text in UTF-8") from error


def _count(
    file: LocalFile, schema: Schema, partition_by: str | None
) -> Iterator[tuple[Split, Mapping[PlainValue, int]]]:
    """The splits of a file that have rows, as if it were the first."""
    in_file = schema if file.folder is None else schema.select([name for name in schema.names if name != partition_by])
    with open_plain(file.path, in_file, compared=True) as opened:
        footer = opened.metadata
        for start, stop, groups in _ranges(footer, file.path.stat().st_size):
            rows = sum(footer.row_group(group).num_rows for group in groups)
            split = Split(str(file.path), start, stop, 0, rows, file.folder)
            if not rows:
                continue
            if partition_by is None or file.folder is not None:
                yield split, {None if file.folder is None else file.folder[0]: rows}
            else:
                keys = coded_partitions(opened.read_row_groups(groups, [partition_by]), partition_by)
                counts = keys.indices.value_counts()
                values = keys.dictionary.take(counts.field("values")).to_pylist()
                yield split, dict(zip(values, counts.field("counts").to_pylist(), strict=True))


def _ranges(footer: pq.FileMetaData, size: int) -> Iterator[tuple[int, int, list[int]]]:
    """Ranges of a file's bytes, ``[start, stop)``, and the row groups whose middle lies in each."""
    start, held, groups = 0, 0, list[int]()
    for group in range(footer.num_row_groups):
        if held >= _SPLIT_BYTES:
            yield start, (start := middle_of(footer, group)), groups
            held, groups = 0, []
        groups.append(group)
        held += footer.row_group(group).total_byte_size
    yield start, size, groups
