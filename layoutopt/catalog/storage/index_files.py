"""Files of indexes: one for each index of a load, with one row a block in the order of the blocks file.

A blocks file names those of its load in its own metadata, with their digests, so that they are as sure as it is.
Readers fetch one when a filter asks for it, and do without one that is missing or damaged.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.parquet as pq

from layoutopt.catalog.block_index import check_expansion, damaged
from layoutopt.catalog.fields import SafePath, read_field
from layoutopt.catalog.keys import one_chunk
from layoutopt.catalog.paths import index_path
from layoutopt.catalog.snapshot import FileDigest
from layoutopt.catalog.storage.coded_lists import coded, may_be_coded, plain_lists, with_dictionary
from layoutopt.catalog.storage.filesystem import TableFiles
from layoutopt.errors import CatalogError
from layoutopt.model.index_spec import IndexSpec
from layoutopt.model.records import Form, Record, to_json

_KEY: Final = b"layoutopt.indexes"
_COLUMN: Final = "index"
_DICTIONARY: Final = "dictionary"


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
    files: TableFiles, load_id: str, specs: Sequence[IndexSpec], indexes: pa.ChunkedArray
) -> tuple[IndexFile, ...]:
    """Write a load's indexes, a struct with a child for each; what an earlier attempt wrote alike is taken.

    Raises:
        OSError: the store failed.
    """
    return tuple(_write(files, load_id, spec, pa.compute.struct_field(indexes, [k])) for k, spec in enumerate(specs))


def encode_index(stored: pa.Array | pa.ChunkedArray) -> bytes:
    """The content of an index file: one value a block. Lists, which ascend, are told by differences if that is shorter.

    Of 10,000 of 150,000 whole numbers a difference takes 5 bits, fewer than of a Bloom filter that errs in 5 %. Lists
    of texts may be of their places in a dictionary, which the file then has as the list of its first block.
    """
    lists = plain_lists(stored)
    table = pa.table({_COLUMN: lists})
    tried = [_encoded(table, {})]
    if differences := dict(_differences(_COLUMN, lists.type)):
        tried.append(_encoded(table, _by(differences)))
    if may_be_coded(lists.type) and len(lists):
        places, dictionary = coded(lists)
        once = pa.LargeListArray.from_arrays([0, *[len(dictionary)] * len(lists)], dictionary)
        table = pa.table({_COLUMN: places, _DICTIONARY: once})
        columns = [(_COLUMN, places.type), (_DICTIONARY, once.type)]
        tried.append(_encoded(table, _by({k: v for each in columns for k, v in _differences(*each)})))
    return min(tried, key=len)


def _by(differences: Mapping[str, str]) -> dict[str, Any]:
    return {"use_dictionary": False, "column_encoding": differences}


def _encoded(table: pa.Table, options: Mapping[str, Any]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", write_statistics=False, **options)
    return sink.getvalue()


def _differences(path: str, type: pa.DataType) -> Iterator[tuple[str, str]]:
    """The columns of lists of numbers or texts, by their paths in Parquet, with how differences are encoded."""
    if pa.types.is_struct(type):
        for field in type:
            yield from _differences(f"{path}.{field.name}", field.type)
    elif pa.types.is_large_list(type) or pa.types.is_list(type):
        element = f"{path}.list.element"
        if type.value_type == pa.int64():
            yield element, "DELTA_BINARY_PACKED"
        elif pa.types.is_large_binary(type.value_type):
            yield element, "DELTA_BYTE_ARRAY"


def _write(files: TableFiles, load_id: str, spec: IndexSpec, stored: pa.ChunkedArray) -> IndexFile:
    data = encode_index(stored)
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
        table = pq.ParquetFile(pa.BufferReader(data)).read()
        if table.num_rows != rows:
            raise damaged(where, f"it has {table.num_rows} rows for {rows} blocks")
        if _DICTIONARY in table.column_names:
            return with_dictionary(one_chunk(table[_COLUMN]), one_chunk(table[_DICTIONARY]).flatten())
        return one_chunk(table[_COLUMN])
    except (pa.ArrowException, OSError, KeyError) as error:
        raise damaged(where, str(error)) from error
