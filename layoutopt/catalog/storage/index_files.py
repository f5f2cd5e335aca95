"""Files of indexes: one for each index of a load, with one row a block in the order of the blocks file.

A blocks file names those of its load in its own metadata, with their digests, so that they are as sure as it is.
Readers fetch one when a filter asks for it, and do without one that is missing or damaged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.catalog.block_index import check_expansion, damaged
from layoutopt.catalog.fields import SafePath, read_field
from layoutopt.catalog.paths import index_path
from layoutopt.catalog.snapshot import FileDigest
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.catalog.storage.index_encoding import Packed, PackedIndexes, decode_index, merge_index
from layoutopt.errors import CatalogError
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.records import Form, Record, to_json

_KEY: Final = b"layoutopt.indexes"


@dataclass(frozen=True)
class IndexFile(Record):
    """A file with one index of a load's blocks.

    Attributes:
        index: what is indexed, and how.
        path: where it lies, in the table's folder.
        digest: its size and SHA-256.
    """

    index: IndexSpec
    path: SafePath
    digest: FileDigest
    form: ClassVar = Form()


def write_indexes(
    files: TableFiles, load_id: str, specs: Sequence[IndexSpec], parts: Sequence[PackedIndexes]
) -> tuple[IndexFile, ...]:
    """Write a load's indexes, of blocks that come in some parts, at least one; what an earlier attempt wrote alike is
    taken.

    Raises:
        OSError: the store failed.
    """
    return tuple(_write(files, load_id, spec, [part[k] for part in parts]) for k, spec in enumerate(specs))


def _write(files: TableFiles, load_id: str, spec: IndexSpec, parts: Sequence[Packed]) -> IndexFile:
    data = merge_index(parts)
    digest = FileDigest.of(data)
    path = index_path(load_id, digest.sha256)
    try:
        files.write_new(path, data)
    except FileExistsError:
        if files.read_bytes(path) != data:
            raise CatalogError(f"{files.full_path(path)} is damaged; remove it and load again") from None
    return IndexFile(spec, path, digest)


def naming(blocks: pa.Table, named: Sequence[IndexFile]) -> pa.Table:
    """The blocks of a load with the names of its index files in the metadata."""
    if not named:
        return blocks
    listed = json.dumps([to_json(each) for each in named], sort_keys=True).encode("utf-8")
    return blocks.replace_schema_metadata({**(blocks.schema.metadata or {}), _KEY: listed})


def named_indexes(metadata: Mapping[bytes, bytes] | None, where: str) -> tuple[IndexFile, ...]:
    """The index files that the metadata of a blocks file names; ``where`` names that in messages.

    Raises:
        CatalogError: what stands there is no list of them.
    """
    listed = (metadata or {}).get(_KEY)
    if listed is None:
        return ()
    try:
        value = json.loads(listed.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise damaged(where, str(error)) from error
    found: tuple[IndexFile, ...] = read_field(tuple[IndexFile, ...], value, f"{where}, indexes")
    return found


def read_index(files: TableFiles, named: IndexFile, rows: int) -> pa.Array:
    """What an index file holds, one value a block; lists of texts perhaps as places in a dictionary of Arrow's.

    Raises:
        CatalogError: the file is missing, or not the one that was written, or has other than so many rows.
    """
    where = files.full_path(named.path)
    try:
        data = files.read_bytes(named.path)
    except OSError as error:
        raise CatalogError(
            f"the index file {where} can't be read ({error.strerror or error}); load its rows again"
        ) from error
    if FileDigest.of(data) != named.digest:
        raise damaged(where, f"its {len(data)} bytes are not those that its load wrote")
    try:
        check_expansion(pq.read_metadata(pa.BufferReader(data)), len(data), where)
        stored = decode_index(data)
        if len(stored) != rows:
            raise damaged(where, f"it has {len(stored)} rows for {rows} blocks")
        return stored
    except (pa.ArrowException, OSError, KeyError) as error:
        raise damaged(where, str(error)) from error
